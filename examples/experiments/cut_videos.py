"""Videos joined from the shared clips, with known cuts, and a table of how well they are found.

    python examples/experiments/cut_videos.py ../shared/data

What is expected: a cut is the first frame of the new scene, to the frame. Flashes of 1 to 3 frames, fades to
and from black, dissolves, whip pans and pictures shown three times give no cut. `alike` joins shots of one
place, some of them hardly to be told apart.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.pixels.scenes import SceneDetector

Pictures = NDArray[np.float32]  # (frames, height, width), grey levels
SIZE = (180, 320)
EVAL = ("car-shadow", "dog", "kite-surf")


@dataclass
class Video:
    frames: list[NDArray[np.float32]] = field(default_factory=list)
    cuts: set[int] = field(default_factory=set)

    def cut_to(self, scene: Pictures) -> None:
        if self.frames:
            self.cuts.add(len(self.frames))
        self.frames += list(scene)


def pictures(files: list[Path], limit: int, size: tuple[int, int] = SIZE) -> Pictures:
    """Return the luma of the first frames of pictures, averaged down to `size`."""
    found: list[NDArray[np.uint8]] = []
    for file in files[:limit]:
        with av.open(str(file)) as container:
            frame = next(container.decode(video=0))
            small = frame.reformat(size[1], size[0], "gray8", interpolation="AREA")
            found.append(small.to_ndarray())
    return np.stack(found).astype(np.float32)


def scenes_of(data: Path, limit: int = 50) -> dict[str, Pictures]:
    folder = data / "eval" / "davis480p_heldout"
    return {name: pictures(sorted((folder / name).iterdir()), limit) for name in EVAL}


def whip_pans(data: Path, count: int) -> dict[str, Pictures]:
    """A window that speeds up to 10-30 % of its width per frame and stops again, over photos, with motion
    blur.
    """
    photos = sorted((data / "stills").glob("*.jpg"))[:: max(1, 60 // count)][:count]
    return {
        f"pan{at}": whip_pan(
            pictures([photo], 1, (360, 640))[0], (0.1, 0.2, 0.3)[at % 3]
        )
        for at, photo in enumerate(photos)
    }


def whip_pan(photo: NDArray[np.float32], speed: float, frames: int = 30) -> Pictures:
    height, width = SIZE
    steps = (
        speed
        * width
        * np.sin(np.pi * np.clip((np.arange(frames) - 3) / (frames - 6), 0, 1)) ** 2
    )
    mirrored = np.concatenate([photo, photo[:, ::-1]], axis=1)

    def window(x: float) -> NDArray[np.float32]:
        columns = (np.arange(width) + round(x)) % mirrored.shape[1]
        return mirrored[60 : 60 + height, columns]

    blurred = [
        np.mean([window(x + step * 0.5 * part / 6) for part in range(6)], axis=0)
        for x, step in zip(np.cumsum(steps), steps, strict=True)
    ]
    return np.stack(blurred).astype(np.float32)


class FilmMaker:
    """Joins random parts of `scenes`; the same `seed` gives the same video."""

    def __init__(
        self, scenes: dict[str, Pictures], pans: dict[str, Pictures], seed: int
    ) -> None:
        self.scenes, self.pans = scenes, pans
        self.random = np.random.default_rng(seed)

    def part(self, shortest: int, longest: int = 36) -> Iterator[Pictures]:
        """Yield parts of scenes, never twice the same scene in a row."""
        last = ""
        while True:
            name = str(self.random.choice(list(self.scenes)))
            scene = self.scenes[name]
            if name != last and len(scene) >= shortest:
                last = name
                length = int(
                    self.random.integers(shortest, min(longest, len(scene)) + 1)
                )
                start = int(self.random.integers(0, len(scene) - length + 1))
                yield scene[start : start + length]

    def hard(
        self,
        change: Callable[[Pictures], Pictures] = lambda scene: scene,
        shortest: int = 5,
    ) -> Video:
        video = Video()
        parts = self.part(shortest)
        for _ in range(6):
            video.cut_to(change(next(parts)))
        return video

    def flash(self) -> Video:
        return self.hard(self.flashed, shortest=14)

    def flashed(self, scene: Pictures) -> Pictures:
        """1 to 3 frames brighter by 80 to 200 levels, evenly or from one side."""
        scene, length = scene.copy(), int(self.random.integers(1, 4))
        start = int(self.random.integers(5, len(scene) - length - 4))
        side = (
            np.linspace(0, 1, SIZE[1], dtype=np.float32)
            if self.random.random() < 0.4
            else np.ones(SIZE[1], np.float32)
        )
        scene[start : start + length] += np.float32(self.random.uniform(80, 200)) * side
        return scene.clip(0, 255)

    def dark(self) -> Video:
        return self.hard(
            lambda scene: scene * np.float32(self.random.uniform(0.12, 0.25)) + 16
        )

    def repeated(self) -> Video:
        return self.hard(lambda scene: np.repeat(scene[::3], 3, axis=0), shortest=15)

    def whip_pan(self) -> Video:
        video = Video()
        parts = self.part(5)
        for pan in self.random.choice(list(self.pans), 3, replace=False):
            video.cut_to(next(parts))
            video.cut_to(self.pans[pan])
        return video

    def fade(self) -> Video:
        """Each scene fades to black, some black frames, the next fades in: no hard cut."""
        video = Video()
        parts = self.part(40, 50)
        for _ in range(3):
            scene, length = next(parts), int(self.random.integers(8, 19))
            ramp = np.ones(len(scene), np.float32)
            ramp[:length] = np.arange(1, length + 1) / length
            ramp[-length:] = np.arange(length, 0, -1) / length - 1 / length
            video.frames += list(scene * ramp[:, None, None]) + [
                np.zeros(SIZE, np.float32)
            ] * int(self.random.integers(0, 8))
        return video

    def dissolve(self) -> Video:
        video = Video()
        parts = self.part(40, 50)
        video.frames += list(next(parts))
        for _ in range(2):
            scene, length = next(parts), int(self.random.integers(8, 19))
            for at in range(length):
                share = (at + 1) / (length + 1)
                video.frames[at - length] = (
                    video.frames[at - length] * (1 - share) + scene[at] * share
                )
            video.frames += list(scene[length:])
        return video


KINDS = ("hard", "flash", "fade", "dissolve", "whip_pan", "dark", "repeated")


def found_cuts(frames: list[NDArray[np.float32]], sigma: float, seed: int) -> set[int]:
    noise = np.random.default_rng(seed)
    detector = SceneDetector()
    for frame in frames:
        noisy = frame + noise.normal(0, sigma, frame.shape) if sigma else frame
        detector.add(np.rint(noisy).clip(0, 255).astype(np.uint8))
    detector.finish()
    return set(detector.cuts)


def score(
    scenes: dict[str, Pictures],
    pans: dict[str, Pictures],
    kind: str,
    sigma: float,
    seeds: range,
) -> NDArray[np.int64]:
    """Return the numbers of cuts, of those that are found, and of false ones."""
    total = np.zeros(3, np.int64)
    for seed in seeds:
        video: Video = getattr(FilmMaker(scenes, pans, seed), kind)()
        found = found_cuts(video.frames, sigma, seed)
        total += len(video.cuts), len(found & video.cuts), len(found - video.cuts)
    return total


def main(data: Path, videos: int) -> None:
    scenes, pans = scenes_of(data), whip_pans(data, 12)
    print("| kind | sigma | cuts | found | false |\n|---|---|---|---|---|")
    for kind in KINDS:
        for sigma in (0, 20, 50):
            counts = score(scenes, pans, kind, sigma, range(1000, 1000 + videos))
            print(f"| {kind} | {sigma} | {' | '.join(map(str, counts))} |")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder of the shared data")
    parser.add_argument(
        "videos", type=int, nargs="?", default=6, help="videos of each kind (6)"
    )
    options = parser.parse_args()
    main(options.data, options.videos)
