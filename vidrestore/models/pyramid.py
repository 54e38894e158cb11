"""Downscaled and smoothed pictures for a coarse-to-fine motion search."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def halved(picture: Tensor) -> Tensor:
    """Return means of 2 x 2 pixels of (H, W); an odd last row or column is replicated."""
    height, width = picture.shape
    even = F.pad(picture[None], (0, width % 2, 0, height % 2), mode="replicate")[0]
    return (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / 4


def blurred(picture: Tensor) -> Tensor:
    """Filter (H, W) by the binomial [1 2 1] / 4 in both directions."""
    padded = F.pad(picture[None], (1, 1, 1, 1), mode="replicate")[0]
    rows = padded[:-2] + 2 * padded[1:-1] + padded[2:]
    return (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 16
