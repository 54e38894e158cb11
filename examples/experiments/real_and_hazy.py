"""Judge the picture networks on real video without weather, derain on rain of others, deblur on straight
motion, and dehaze on haze that isn't the held-out fog.

    python examples/experiments/real_and_hazy.py [--weights NAME=FILE]

Real video (`../shared/data/real/video`): PSNR to itself and the mean change of brightness of three
frames, which should come back as they are. Rain as others painted it (`../shared/data/others/rain`): PSNR as
given and by derain, single pictures. Straight motion: held-out frames, blurred along paths of 7 to 21 pixels;
GoPro: averages of frames of moving cameras (`../shared/data/others/blur_gopro`), single pictures.
Haze as it is drawn for training, on four clips that nothing is trained on; and even haze, as a machine fills
a room with, on photos: PSNR as given, by the dark channel prior, and by dehaze. In brackets: the least gain.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

import av
import numpy as np
import torch
import torch.nn.functional as F
from classical_restoration import METHODS
from held_out_degradations import linear, stored
from held_out_table import Restorer, add_sources, eval_clips, networks_of, rgb_picture
from torch import Tensor

from vidrestore.lab.degrade import DEGRADATIONS
from vidrestore.pixels.metrics import psnr

LINES = 480
VALIDATION = (
    "davis_libby.mp4",
    "davis_goat.mp4",
    "davis_scooter-black.mp4",
    "sam2_cups.mp4",
)
FRAMES = 6  # of each of these clips
PHOTOS = slice(3, None, 23)  # of the photos, by name
THIN = 0.3  # depth of thin haze over that of the other
FIRST = 20  # frame of the video
# pixels of motion; frames of each held-out sequence
STRAIGHT, STRAIGHT_FRAMES = (7.0, 21.0), 3


def real_frames(data: Path) -> Iterator[tuple[str, Tensor, int]]:
    """Yield the name, a clip (5, 3, H, W), and the frame of it that is judged."""
    folder = data / "real" / "video"
    with av.open(str(folder / "flipping_a_pancake.mkv")) as container:
        decoded = islice(container.decode(video=0), FIRST, FIRST + 5)
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in decoded])
    yield (
        "pancake",
        reduced(torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255),
        2,
    )
    files = sorted((folder / "night_street").iterdir())
    for first in (0, 2):
        yield (
            "night",
            reduced(
                torch.stack([rgb_picture(path) for path in files[first : first + 5]])
            ),
            2,
        )


def reduced(clip: Tensor) -> Tensor:
    """Return (T, 3, H, W) at most about LINES lines high or wide, with sides that are multiples of 8."""
    scale = min(1.0, LINES / min(clip.shape[2:]))
    size = [round(scale * side / 8) * 8 for side in clip.shape[2:]]
    return F.interpolate(clip, size, mode="bilinear", antialias=True).clamp(0, 1)


def drawn(data: Path) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield clips of one frame (1, 3, H, W), hazy and clear."""
    number = 0
    for name in VALIDATION:
        (path,) = (
            data / folder / name
            for folder in ("train", "train_more")
            if (data / folder / name).exists()
        )
        with av.open(str(path)) as container:
            frames = [
                frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)
            ]
        for at in np.linspace(0, len(frames) - 1, FRAMES).astype(int):
            clear = reduced(
                torch.from_numpy(frames[at]).permute(2, 0, 1)[None].float() / 255
            )
            hazy = DEGRADATIONS["haze"](clear, np.random.default_rng(1000 + number))
            yield hazy.mul(255).round() / 255, clear
            number += 1


def even(data: Path, share: float = 1) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield photos (1, 3, H, W) in patchy haze that hardly thickens with distance, and without it; `share`:
    of its depth.
    """
    for number, path in enumerate(sorted((data / "photos").iterdir())[PHOTOS]):
        rng, clear = np.random.default_rng(number), reduced(rgb_picture(path)[None])
        height, width = clear.shape[2:]
        depth = 0.25 + 0.75 * np.linspace(1, 0, height)[:, None] ** rng.uniform(0.5, 2)
        patches = F.interpolate(
            torch.from_numpy(rng.uniform(0, 1, (1, 1, 4, 6))),
            (height, width),
            mode="bicubic",
        )
        seen = np.exp(
            -share * rng.uniform(0.5, 1.8) * depth * (0.7 + 0.6 * patches[0, 0].numpy())
        )
        colour = rng.uniform(0.45, 0.75) * (1 + rng.normal(0, 0.02, 3))
        airlight = colour[:, None] * (
            1 + rng.uniform(-0.1, 0.1) * np.linspace(-1, 1, width)
        )
        yield stored(linear(clear) * seen + airlight[:, None] * (1 - seen)), clear


def rain_of_others(data: Path) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pictures (1, 3, H, W) with rain and without it."""
    for path in sorted((data / "others" / "rain").glob("*_rain.jpg")):
        clear = path.with_name(path.name.replace("_rain", "_gt"))
        yield rgb_picture(path)[None], rgb_picture(clear)[None]


def straight(data: Path) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield held-out frames (1, 3, H, W), blurred along a straight path in light, and sharp."""
    for number, (_, clip) in enumerate(eval_clips(data, STRAIGHT_FRAMES, "alone")):
        rng, clear = np.random.default_rng(number), clip[len(clip) // 2][None]
        length, angle = rng.uniform(*STRAIGHT), rng.uniform(0, np.pi)
        along = torch.linspace(-length / 2, length / 2, 8 * round(length) + 1)
        reach = int(STRAIGHT[1] / 2) + 2
        kernel = torch.zeros(2 * reach + 1, 2 * reach + 1)
        # each point of the path, shared by the four pixels around it
        for step in along:
            row, column = (
                reach + float(step) * np.sin(angle),
                reach + float(step) * np.cos(angle),
            )
            top, left = int(row), int(column)
            for down in (0, 1):
                for right in (0, 1):
                    share = (1 - abs(row - top - down)) * (
                        1 - abs(column - left - right)
                    )
                    kernel[top + down, left + right] += share
        light = F.pad(
            torch.from_numpy(linear(clear)).float()[0][:, None],
            [reach] * 4,
            mode="replicate",
        )
        seen = F.conv2d(light, (kernel / kernel.sum())[None, None])[:, 0][None]
        yield stored(seen.numpy()), clear


def average_of_frames(data: Path) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pictures (1, 3, H, W), averages of frames of a moving camera, and their middle frames."""
    for path in sorted((data / "others" / "blur_gopro").glob("*_blurred.png")):
        sharp = path.with_name(path.name.replace("_blurred", "_sharp"))
        yield rgb_picture(path)[None], rgb_picture(sharp)[None]


def alike(one: Tensor, other: Tensor) -> float:
    """PSNR (dB) of pictures (3, H, W)."""
    return psnr(one.permute(1, 2, 0), other.permute(1, 2, 0), 1)


def main(options: Namespace) -> None:
    print(
        "| task | weights | video | to itself (dB) | brightness (levels) |\n|---|---|---|---|---|"
    )
    for task in options.task or ("dehaze", "derain", "desnow", "deblur"):
        for name, restore in networks_of(task, options.weights).items():
            for video, clip, middle in real_frames(options.data):
                restored = restore(clip)
                change = 255 * float((restored - clip[middle]).mean())
                print(
                    f"| {task} | {name} | {video} | {alike(restored, clip[middle]):.1f} | {change:+.2f} |"
                )
    if not options.task or "derain" in options.task:
        removers = {
            "as given": lambda rainy: rainy[0],
            **networks_of("derain", options.weights),
        }
        table("rain", removers, {"of others": rain_of_others}, options.data)
    if not options.task or "deblur" in options.task:
        sharpeners = {
            "as given": lambda blurred: blurred[0],
            **networks_of("deblur", options.weights),
        }
        sets = {"along straight paths": straight, "GoPro": average_of_frames}
        table("blur", sharpeners, sets, options.data)
    if options.task and "dehaze" not in options.task:
        return
    (prior,) = METHODS["dehaze"]
    ways: dict[str, Restorer] = {
        "as given": lambda hazy: hazy[0],
        prior.name: prior.middle,
        **networks_of("dehaze", options.weights),
    }
    sets = {
        "as drawn for training": drawn,
        "even, on photos": even,
        "even, thin": partial(even, share=THIN),
    }
    table("haze", ways, sets, options.data)


def table(
    kind: str,
    ways: Mapping[str, Restorer],
    sets: Mapping[str, Callable[[Path], Iterator[tuple[Tensor, Tensor]]]],
    data: Path,
) -> None:
    """Print the mean PSNR of each way on sets of pairs, degraded and clear, and the least gain over the
    first way.
    """
    print(f"\n| {kind} | {' | '.join(ways)} |\n|---|{'---|' * len(ways)}")
    for name, pairs in sets.items():
        judged = [
            [alike(way(seen), clear[0]) for way in ways.values()]
            for seen, clear in pairs(data)
        ]
        found = np.array(judged)
        least = (found - found[:, :1]).min(0)
        cells = (
            f"{mean:.2f} ({gain:+.2f})"
            for mean, gain in zip(found.mean(0), least, strict=True)
        )
        print(f"| {name} ({len(found)}) | {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--task", action="append", help="one of the tasks; may be given again (all)"
    )
    main(add_sources(parser).parse_args())
