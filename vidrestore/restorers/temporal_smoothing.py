"""Reduce the flicker of networks that restore single pictures: mix each restored frame with its neighbours.

This is a bilateral filter along time. Flicker changes an area by a few grey levels, motion by more. So a
neighbour's pixel has the weight exp(-(d / SPREAD)^2 / 2), where d is the mean absolute difference of the two
frames over all channels and a box around the pixel. Areas that move are hardly changed: they leave no ghosts,
and motion need not be estimated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

RADIUS = 1  # frames on either side
SPREAD = 4 / 255  # mean difference, for samples in [0, 1]
BOX = 9  # side of the box in pixels


def smooth(frame: Tensor, neighbours: Sequence[Tensor]) -> Tensor:
    """Return a restored frame (C, H, W) mixed with restored neighbours of the same size; RGB in [0, 1]."""
    total, weights = frame.clone(), torch.ones_like(frame[:1])
    for other in neighbours:
        weight = _agreement(frame, other)
        total.addcmul_(weight, other)
        weights += weight
    return total.div_(weights)


def _agreement(frame: Tensor, other: Tensor) -> Tensor:
    """Return the weight (1, H, W) of a neighbour in (0, 1]."""
    apart = (frame - other).abs_().mean(0, keepdim=True)
    around = F.avg_pool2d(apart[None], BOX, stride=1, padding=BOX // 2, count_include_pad=False)[0]
    return around.div_(SPREAD).square_().mul_(-0.5).exp_()
