"""Planes that hold little detail, as colour differences do: restored at half the size, where half the noise
and a quarter of the patches are left, but for the patches that show detail.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.grouping import CHUNK, windows

KEYS = (-9 / 128, 111 / 128, 29 / 128, -3 / 128)  # of values 1.25, 0.25, 0.75 and 1.75 away
DETAIL_NOISE = 0.75  # of the variance of white noise is in the differences from the means of 2 x 2 pixels


def half_size(plane: Tensor) -> Tensor:
    """(T, H, W) -> (T, H/2, W/2), rounded up: means of 2 x 2 pixels, or of those that there are. White noise
    is halved.
    """
    return F.avg_pool2d(plane[:, None], 2, ceil_mode=True, count_include_pad=False)[:, 0]


def double_size(small: Tensor, height: int, width: int) -> Tensor:
    """(T, H/2, W/2) -> (T, height, width) by cubic interpolation (Keys, a = -0.5), frame by frame: what is
    between fits the cache.
    """
    doubled = small.new_empty(len(small), height, width)
    for target, frame in zip(doubled, F.pad(small, (2, 2, 2, 2), mode="replicate"), strict=True):
        for row, line in enumerate(_between(frame, 0)):
            for column, pixels in enumerate(_between(line, 1)):
                place = target[row::2, column::2]
                place.copy_(pixels[: place.shape[0], : place.shape[1]])
    return doubled


def _between(padded: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The values a quarter before each of a dimension, but for two at both ends, and a quarter behind."""
    first, second, third, fourth, last = (
        padded.narrow(dim, start, padded.shape[dim] - 4) for start in range(5)
    )
    return _cubic(fourth, third, second, first), _cubic(second, third, fourth, last)


def _cubic(far: Tensor, near: Tensor, other: Tensor, last: Tensor) -> Tensor:
    """The value a quarter of the way from `near` to `other`; `far` and `last` lie beyond these."""
    return far.mul(KEYS[0]).add_(near, alpha=KEYS[1]).add_(other, alpha=KEYS[2]).add_(last, alpha=KEYS[3])


def detailed_groups(
    plane: Tensor, small: Tensor, origins: Tensor, patch: int, least: float, chunk: int = CHUNK
) -> Tensor:
    """Those of the groups at flat (S, T) origins of `plane` whose mean squared difference from `small`, its
    `half_size`, is above `least`; `chunk` groups are looked at at once.

    Seen by blocks of 2 x 2 pixels: a patch at an odd place is judged by the blocks that begin within it.
    """
    height, width = plane.shape[1:]
    power = torch.cat([half_size(frame.square()) for frame in plane.split(1)]).sub_(small.square())
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
