"""Restore planes with little detail, such as colour differences, at half the size, except for detailed
patches.

At half the size there is half the noise and a quarter of the patches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.grouping import CHUNK, frames_at_once, windows

KEYS_WEIGHTS = (-9 / 128, 111 / 128, 29 / 128, -3 / 128)  # of samples 1.25, 0.25, 0.75 and 1.75 away
DETAIL_NOISE = 0.75  # share of white noise's variance in the differences from the means of 2 x 2 pixels


def halve(plane: Tensor) -> Tensor:
    """Downscale (T, H, W) to (T, H/2, W/2), rounded up, by means of 2 x 2 pixels, which halves white noise.

    An odd last row or column is averaged alone.
    """
    height, width = plane.shape[1:]
    if height % 2 or width % 2:
        plane = F.pad(plane[:, None], (0, width % 2, 0, height % 2), mode="replicate")[:, 0]
    rows = plane[:, ::2] + plane[:, 1::2]
    return (rows[..., ::2] + rows[..., 1::2]).mul_(0.25)  # four times as fast as avg_pool2d


def double(small: Tensor, height: int, width: int) -> Tensor:
    """Upscale (T, H/2, W/2) to (T, height, width) by cubic interpolation (Keys, a = -0.5)."""
    doubled = small.new_empty(len(small), height, width)
    padded, at_once = F.pad(small, (2, 2, 2, 2), mode="replicate"), frames_at_once(small)
    for target, frames in zip(doubled.split(at_once), padded.split(at_once), strict=True):
        for row, line in enumerate(_between(frames, 1)):
            for column, pixels in enumerate(_between(line, 2)):
                samples = target[:, row::2, column::2]
                samples.copy_(pixels[:, : samples.shape[1], : samples.shape[2]])
    return doubled


def _between(padded: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Interpolate at a quarter before and a quarter after each sample of a dimension that is padded by two at
    both ends.
    """
    first, second, third, fourth, last = (
        padded.narrow(dim, start, padded.shape[dim] - 4) for start in range(5)
    )
    return _cubic(fourth, third, second, first), _cubic(second, third, fourth, last)


def _cubic(far: Tensor, near: Tensor, other: Tensor, last: Tensor) -> Tensor:
    """Interpolate at a quarter of the way from `near` to `other`; `far` and `last` are their outer
    neighbours.
    """
    return (
        far.mul(KEYS_WEIGHTS[0])
        .add_(near, alpha=KEYS_WEIGHTS[1])
        .add_(other, alpha=KEYS_WEIGHTS[2])
        .add_(last, alpha=KEYS_WEIGHTS[3])
    )


def detailed_groups(
    plane: Tensor, small: Tensor, origins: Tensor, patch: int, least: float, chunk: int = CHUNK
) -> Tensor:
    """Return the groups at flat (S, T) origins of `plane` that have more detail than `least`, `chunk` groups
    at once.

    Detail is the mean squared difference between `plane` and `small`, its `halve`. It is measured in blocks
    of 2 x 2 pixels: for a patch at an odd position, in the blocks that begin within it.
    """
    height, width = plane.shape[1:]
    power = torch.cat([halve(frame.square()) for frame in plane.split(frames_at_once(plane))]).sub_(
        small.square()
    )
    row, column = origins.div(width, rounding_mode="floor"), origins % width
    frame, row = row.div(height, rounding_mode="floor"), row % height
    side = patch // 2
    y, x = (row // 2).clamp(max=power.shape[1] - side), (column // 2).clamp(max=power.shape[2] - side)
    blocks = (frame * power.shape[1] + y) * power.shape[2] + x
    views = windows(power, side)
    means = [
        views.index_select(0, groups.flatten()).view(len(groups), -1).mean(1)
        for groups in blocks.split(chunk)
    ]
    return origins[torch.cat(means) > least]
