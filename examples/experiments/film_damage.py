"""Judge deflicker and dedust on held-out clips with drawn flicker and dust, and on clips without.

    python examples/experiments/film_damage.py [--time-lapses]

Prints PSNR of luma over all frames but the first and last: as drawn, by FFmpeg's deflicker, restored, and the
best obtainable, which knows the light of each frame or the place of each speck. Each strength is drawn
with SEEDS over slow and fast clips of half size. With `--time-lapses` the clips are drawn from photographs: a
pan, a shadow that grows, a sun that sets, and patches that are elsewhere in each frame.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from statistics import fmean

import av
import numpy as np
import torch
import torch.nn.functional as F
from held_out_table import DATA, rgb_picture
from torch import Tensor

from vidrestore.models.alignment import luma_of
from vidrestore.restorers.flicker import FlickerRestorer, light_terms
from vidrestore.restorers.specks import SpeckRestorer
from vidrestore.restorers.temporal import TemporalRestorer
from vidrestore.settings.options import RestoreOptions

SLOW, FAST = "davis480p_heldout", "davis480p_fast"
# standard deviation of gain, gamma, and shading across and down, in frames
FLICKER = (0.03, 0.06, 0.1)
DUST = (5, 15, 33)  # specks a frame of 427x240
SEEDS = (1, 2)
BORDER = 8  # pixels left out
HAIRS = 0.15  # of all specks
PHOTOGRAPHS = "boruszyn_img-4854", "popos_tony-webster-97532", "mate_Garden"
# of a time-lapse; share of the room in the photograph that it pans over
SIDES, PAN = (240, 426), 0.15
# of a frame, that are elsewhere in the next one, and their side
PATCHES, PATCH = 12, 16


def clips(data: Path, folder: str, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the first frames (T, 3, H, W) in [0, 1] of each clip, at half size."""
    for path in sorted((data / "eval" / folder).iterdir()):
        frames = torch.stack(
            [rgb_picture(file) for file in sorted(path.iterdir())[:count]]
        )
        size = [side // 2 for side in frames.shape[2:]]
        yield (
            path.name,
            F.interpolate(frames, size, mode="bicubic", antialias=True).clamp(0, 1),
        )


def time_lapses(data: Path, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the frames (T, 3, H, W) in [0, 1] of each time-lapse."""
    down, across = (torch.linspace(0, 1, side) for side in SIDES)
    along = 0.6 * across + 0.4 * down[:, None]
    for name in PHOTOGRAPHS:
        photograph = rgb_picture(data / "photos" / f"{name}.jpg")
        rng = np.random.default_rng(len(name))
        room = [
            full - side for full, side in zip(photograph.shape[1:], SIDES, strict=True)
        ]
        frames = []
        for time in np.linspace(0, 1, count):
            top, left = (int(PAN * time * length) for length in room)
            frame = photograph[:, top : top + SIDES[0], left : left + SIDES[1]].clone()
            for _ in range(PATCHES):
                corners = [rng.integers(0, side - PATCH, 2) for side in SIDES]
                (row, other_row), (column, other_column) = corners
                patch = frame[
                    :,
                    other_row : other_row + PATCH,
                    other_column : other_column + PATCH,
                ].clone()
                frame[:, row : row + PATCH, column : column + PATCH] = patch
            shadow = torch.sigmoid((0.2 + 0.3 * time - along) / 0.03)
            frames.append(frame * (1 - 0.4 * shadow) * (1 - 0.15 * float(time)))
        yield name, torch.stack(frames)


def stored(clip: Tensor) -> Tensor:
    return (clip.clamp(0, 1) * 255).round() / 255


def with_flicker(clip: Tensor, strength: float, seed: int) -> Tensor:
    """Draw gain, gamma and shading for each frame."""
    rng = np.random.default_rng(seed)
    down = torch.linspace(-1, 1, clip.shape[2])[:, None]
    across = torch.linspace(-1, 1, clip.shape[3])
    frames = []
    for frame in clip:
        gain, gamma, tilt, slope = rng.normal(0, strength / 1.5, 4)
        shade = (1 + gain) * (1 + tilt * across + slope * down)
        frames.append(shade * frame.clamp(min=1e-4) ** (1 + gamma))
    return stored(torch.stack(frames))


def with_dust(clip: Tensor, specks: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw specks and hairs, seven of ten of them dark; return the clip and their share (T, 1, H, W)."""
    rng = np.random.default_rng(seed)
    height, width = clip.shape[2:]
    result, shares = clip.clone(), torch.zeros(len(clip), 1, height, width)
    for frame, share in zip(result, shares, strict=True):
        for _ in range(rng.poisson(specks)):
            shape = hair(rng) if rng.random() < HAIRS else blob(rng)
            level = rng.uniform(0, 0.15) if rng.random() < 0.7 else rng.uniform(0.8, 1)
            side = len(shape)
            row, column = rng.integers(0, height - side), rng.integers(0, width - side)
            area = slice(row, row + side), slice(column, column + side)
            opacity = torch.from_numpy(shape).float() * rng.uniform(0.6, 1)
            frame[:, *area] = frame[:, *area].lerp(
                torch.full_like(frame[:, *area], level), opacity
            )
            share[0, *area] = torch.maximum(share[0, *area], opacity)
    return stored(result), shares


def blob(rng: np.random.Generator) -> np.ndarray:
    """Return the share of each pixel of an uneven speck of 1 to 12 pixels."""
    radius = np.exp(rng.uniform(np.log(0.7), np.log(6)))
    reach = int(2.5 * radius) + 3
    down, across = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    angle = np.arctan2(down, across)
    waves = sum(
        rng.uniform(0, 0.2) * np.sin(n * angle + rng.uniform(0, 6)) for n in (2, 3)
    )
    return np.clip(radius * (1 + waves) - np.hypot(down, across) + 0.5, 0, 1)


def hair(rng: np.random.Generator) -> np.ndarray:
    """Return the share of each pixel of a bent hair of 8 to 30 pixels."""
    length, angle, bend = rng.uniform(8, 30), rng.uniform(0, np.pi), rng.normal(0, 0.04)
    along = np.linspace(-length / 2, length / 2, int(3 * length))
    across = along * np.cos(angle) + bend * along**2 * np.sin(angle)
    down = along * np.sin(angle) - bend * along**2 * np.cos(angle)
    reach = int(max(np.abs(across).max(), np.abs(down).max())) + 3
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    distance = np.hypot(rows[..., None] - down, columns[..., None] - across).min(-1)
    return np.clip(1.3 - distance, 0, 1)


def by_ffmpeg(clip: Tensor) -> Tensor:
    """Return the clip after FFmpeg's deflicker, with its default of five frames."""
    graph = av.filter.Graph()
    height, width = clip.shape[2:]
    source = graph.add_buffer(
        width=width, height=height, format="yuv444p", time_base=Fraction(1, 25)
    )
    nodes = [source, graph.add("deflicker"), graph.add("buffersink")]
    graph.link_nodes(*nodes).configure()
    for number, frame in enumerate(clip):
        samples = (255 * frame.permute(1, 2, 0)).round().byte().numpy()
        picture = av.VideoFrame.from_ndarray(samples, format="rgb24").reformat(
            format="yuv444p"
        )
        picture.pts, picture.time_base = number, Fraction(1, 25)
        graph.vpush(picture)
    graph.vpush(None)
    frames = []
    while len(frames) < len(clip):
        frames.append(
            torch.from_numpy(graph.vpull().to_ndarray(format="rgb24")).permute(2, 0, 1)
            / 255
        )
    return torch.stack(frames)


def best_light(drawn: Tensor, clean: Tensor) -> Tensor:
    """Return the drawn clip with the light of the clean one as far as the terms of the fit can give it."""
    frames = []
    for frame, truth in zip(drawn, clean, strict=True):
        luma, goal = (luma_of(picture[None])[0, 0] for picture in (frame, truth))
        terms, weight = (
            light_terms(luma).flatten(0, 1),
            luma.flatten()[:, None].clamp(min=0.02),
        )
        change = (goal.clamp(min=0.02) / luma.clamp(min=0.02)).log().flatten()[:, None]
        coefficients = torch.linalg.lstsq(weight * terms, weight * change).solution
        frames.append(frame * (terms @ coefficients).exp().view_as(luma))
    return torch.stack(frames)


def restored(restorer: TemporalRestorer, clip: Tensor) -> Tensor:
    return torch.stack(list(restorer.frames(clip, (0, len(clip))))).clamp(0, 1)


def luma_psnr(clip: Tensor, truth: Tensor) -> float:
    """Return the PSNR of luma, without the border and the first and last frame; at most 100 dB."""
    inner = (slice(1, -1), slice(None), slice(BORDER, -BORDER), slice(BORDER, -BORDER))
    error = (luma_of(clip) - luma_of(truth))[inner].double().square().mean()
    return float(-10 * error.clamp(min=1e-10).log10())


def rows(options: Namespace) -> Iterator[tuple[str, list[float]]]:
    """Yield the name of each case and its figures, the mean over the seeds."""
    flicker, specks = FlickerRestorer(RestoreOptions()), SpeckRestorer(RestoreOptions())
    drawn = (
        time_lapses(options.data, options.frames)
        if options.time_lapses
        else film_clips(options)
    )
    for name, clip in drawn:
        clean = stored(clip)
        unchanged = [
            luma_psnr(restored(restorer, clean), clean)
            for restorer in (flicker, specks)
        ]
        yield f"{name}, clean: deflicker; dedust", unchanged
        for strength in FLICKER:
            yield (
                f"{name}, flicker {strength:.0%}",
                means(strength, clean, judged_flicker(flicker)),
            )
        for count in () if options.time_lapses else DUST:
            yield f"{name}, {count} specks", means(count, clean, judged_dust(specks))


def film_clips(options: Namespace) -> Iterator[tuple[str, Tensor]]:
    for folder in (SLOW, FAST):
        yield from clips(options.data, folder, options.frames)


Judge = Callable[[Tensor, float, int], list[float]]


def means(strength: float, clean: Tensor, judge: Judge) -> list[float]:
    figures = [judge(clean, strength, seed) for seed in SEEDS]
    return [fmean(column) for column in zip(*figures, strict=True)]


def judged_flicker(restorer: FlickerRestorer) -> Judge:
    def judge(clean: Tensor, strength: float, seed: int) -> list[float]:
        drawn = with_flicker(clean, strength, seed)
        results = (
            drawn,
            by_ffmpeg(drawn),
            restored(restorer, drawn),
            best_light(drawn, clean),
        )
        return [luma_psnr(result, clean) for result in results]

    return judge


def judged_dust(restorer: SpeckRestorer) -> Judge:
    def judge(clean: Tensor, strength: float, seed: int) -> list[float]:
        drawn, shares = with_dust(clean, strength, seed)
        beside = (drawn[:-2] + drawn[2:]) / 2
        still = torch.cat(
            (
                drawn[:1],
                drawn[1:-1].lerp(beside, (shares[1:-1] > 0).float()),
                drawn[-1:],
            )
        )
        return [
            luma_psnr(result, clean)
            for result in (drawn, still, restored(restorer, drawn))
        ]

    return judge


def print_table(
    purpose: str,
    rows: Callable[[Namespace], Iterator[tuple[str, list[float]]]],
    figures: str,
    frames: int,
) -> None:
    """Print the rows for the arguments of the command line; `frames` of a clip by default."""
    parser = ArgumentParser(description=purpose.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--frames", type=int, default=frames, help="of a clip")
    parser.add_argument(
        "--time-lapses", action="store_true", help="those drawn from photographs"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| clip | {figures} |")
    print("|---|---|")
    for name, values in rows(options):
        print(
            f"| {name} | {'; '.join(f'{value:.2f}' for value in values)} |", flush=True
        )


if __name__ == "__main__":
    print_table(
        __doc__,
        rows,
        "given; FFmpeg or the mean of the frames beside at each speck; restored; best",
        20,
    )
