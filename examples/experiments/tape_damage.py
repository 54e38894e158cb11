"""Judge the removal of dropouts from the fields of tapes on held-out clips, drawn and clean.

    python examples/experiments/tape_damage.py

Two pictures of a clip become the fields of one interlaced frame. Prints PSNR of luma over all frames but the
first and last: as drawn, filled, and the best obtainable, which knows the place of each dropout. Each
strength is drawn with SEEDS over slow and fast clips.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from statistics import fmean

import av
import numpy as np
import torch
from film_damage import FAST, SEEDS, SLOW, luma_psnr, print_table, stored
from held_out_table import rgb_picture
from torch import Tensor

from vidrestore.media.formats.pixel_formats import planes_of
from vidrestore.media.reading.tape_fields import DropoutFilter
from vidrestore.models.alignment import luma_of
from vidrestore.models.dropouts import Dropouts, field_motion, filled
from vidrestore.pixels.frames import PixelFormat

DROPOUTS = (1, 5, 15)  # a field
BRIGHT, THICK = 0.7, 0.15  # shares of all dropouts: white ones, and those of two lines
GREY = PixelFormat("gray", "gray", 8)


def woven_clips(data: Path, folder: str, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the luma (T, 1, H, W) in [0, 1] of each clip, woven of two pictures a frame."""
    for path in sorted((data / "eval" / folder).iterdir()):
        pictures = [rgb_picture(file) for file in sorted(path.iterdir())[: 2 * count]]
        luma = stored(luma_of(torch.stack(pictures)))
        height = luma.shape[2] // 2 * 2
        frames = luma[::2, :, :height].clone()
        frames[:, :, 1::2] = luma[1::2, :, 1:height:2]
        yield path.name, frames


def with_dropouts(clip: Tensor, count: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw dashes on rows of fields, with noise and a fading end; return the clip and their share."""
    rng = np.random.default_rng(seed)
    height, width = clip.shape[2:]
    result, shares = clip.clone(), torch.zeros_like(clip)
    for frame, share in zip(result[:, 0], shares[:, 0], strict=True):
        for field, opacity in (
            (frame[parity::2], share[parity::2]) for parity in (0, 1)
        ):
            for _ in range(rng.poisson(count)):
                length = (
                    int(np.exp(rng.uniform(np.log(8), np.log(120))) * width / 720) + 4
                )
                row, column = (
                    rng.integers(0, height // 2 - 2),
                    rng.integers(0, width - length // 2),
                )
                fade = np.minimum(1, np.arange(length, 0, -1) / (0.3 * length))
                alpha = torch.from_numpy(rng.uniform(0.7, 1) * fade).float()[
                    : width - column
                ]
                level = (
                    rng.uniform(0.8, 1)
                    if rng.random() < BRIGHT
                    else rng.uniform(0, 0.15)
                )
                dash = (
                    level + 0.05 * torch.from_numpy(rng.normal(size=len(alpha))).float()
                )
                rows = (
                    slice(row, row + 1 + (rng.random() < THICK)),
                    slice(column, column + len(alpha)),
                )
                field[rows] = field[rows].lerp(dash, alpha)
                opacity[rows] = torch.maximum(opacity[rows], alpha)
    return stored(result), shares


def mended(clip: Tensor) -> tuple[Tensor, int]:
    """Return a clip without its dropouts, and how many these were."""
    pictures = []
    for number, frame in enumerate(clip[:, 0]):
        picture = av.VideoFrame.from_ndarray(
            (255 * frame).round().byte().numpy(), format="gray"
        )
        picture.pts, picture.time_base = number, Fraction(1, 25)
        pictures.append(picture)
    tape = DropoutFilter(GREY, 0, lambda picture: True)
    frames = [
        torch.from_numpy(planes_of(picture)[0]) for picture in tape.pictures(pictures)
    ]
    return torch.stack(frames)[:, None] / 255, sum(tape.counts.values())


def best(clip: Tensor, shares: Tensor) -> Tensor:
    """Return a clip with the dropouts filled where they are known to be, but for the first and last frame."""
    result = clip.clone()
    for number in range(1, len(clip) - 1):
        for parity in (0, 1):
            field, before, after = (
                255 * clip[number + offset, None, :, parity::2] for offset in (0, -1, 1)
            )
            neighbours = torch.cat((before, after))
            dropouts = Dropouts(
                (shares[number, None, :, parity::2] > 0).float(),
                field_motion(field, neighbours),
            )
            values, pixels = filled(neighbours, dropouts)
            result[number, 0, parity::2][pixels] = values[pixels] / 255
    return stored(result)


def rows(options: Namespace) -> Iterator[tuple[str, list[float]]]:
    """Yield the name of each case and its figures, the mean over the seeds."""
    for folder in (SLOW, FAST):
        for name, clip in woven_clips(options.data, folder, options.frames):
            result, count = mended(clip)
            yield (
                f"{name}, clean: filled; dropouts found",
                [psnr_of(result, clip), count],
            )
            for strength in DROPOUTS:
                figures = [judged(clip, strength, seed) for seed in SEEDS]
                yield (
                    f"{name}, {strength} a field",
                    [fmean(column) for column in zip(*figures, strict=True)],
                )


def judged(clip: Tensor, strength: float, seed: int) -> list[float]:
    drawn, shares = with_dropouts(clip, strength, seed)
    results = drawn, mended(drawn)[0], best(drawn, shares)
    return [psnr_of(result, clip) for result in results]


def psnr_of(clip: Tensor, truth: Tensor) -> float:
    """Return the PSNR of luma (T, 1, H, W), without the border and the first and last frame."""
    return luma_psnr(clip.expand(-1, 3, -1, -1), truth.expand(-1, 3, -1, -1))


if __name__ == "__main__":
    print_table(__doc__, rows, "given; filled; best", 12)
