"""Less flicker from networks that see one picture at a time: each restored frame is mixed with its neighbours
where they agree.

A bilateral filter along time. What flickers is the network's mind about a place, a few levels over several
pixels; what moves differs by more. So a neighbour counts by how little its surroundings differ: exp(-(d /
SPREAD)^2 / 2), d the mean over a box of the difference in all channels. Where something moves, the frame
stays as it is: there are no ghosts, and no motion is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

RADIUS = 1  # frames on either side
SPREAD = 4 / 255  # of the mean difference, of a range of 1
BOX = 9  # pixels along the side of the surroundings


def steadied(frame: Tensor, neighbours: Sequence[Tensor]) -> Tensor:
    """Return a restored frame (C, H, W) mixed with restored neighbours of the same size; RGB in [0, 1].
    Without neighbours it is itself.
    """
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
