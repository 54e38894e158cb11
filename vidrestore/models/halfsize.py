"""Planes that hold little detail, as colour differences do: restored at half the size, where half the noise
and a quarter of the patches are left, but for the patches that show detail.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.grouping import CHUNK, windows

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
    size = (2 * small.shape[1], 2 * small.shape[2])
    doubled = small.new_empty(len(small), height, width)
    for target, frame in zip(doubled, small.split(1), strict=True):
        target.copy_(
            F.interpolate(frame[None], size=size, mode="bicubic", antialias=True)[0, 0, :height, :width]
        )
    return doubled


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
