"""Resize as MATLAB's imresize does, with which super-resolution papers make their low-resolution frames."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor


def imresize(pictures: Tensor, scale: float) -> Tensor:
    """Resize (..., H, W) float to (..., ceil(H scale), ceil(W scale)): bicubic (a = -0.5), antialiased when
    downscaling.

    Borders are mirrored; the result is neither rounded nor clipped. R. Keys, "Cubic convolution interpolation
    for digital image processing", 1981.
    """
    down, right = (
        resizing_matrix(length, scale).to(pictures) for length in pictures.shape[-2:]
    )
    return down @ pictures @ right.mT


@cache
def resizing_matrix(length: int, scale: float) -> Tensor:
    """Return (ceil(length scale), length), float64: the weights of every output sample."""
    # output samples lie at these places of the input
    count = math.ceil(length * scale)
    stretch = min(scale, 1.0)
    centres = (torch.arange(count, dtype=torch.float64) + 0.5) / scale - 0.5
    reach = math.ceil(4 / stretch)
    first = (centres - 2 / stretch).floor()
    positions = first[:, None] + torch.arange(reach + 2)
    weights = stretch * keys_cubic(stretch * (centres[:, None] - positions))
    weights /= weights.sum(1, keepdim=True)
    # what lies outside is mirrored
    mirrored = positions.long() % (2 * length)
    mirrored = torch.where(mirrored < length, mirrored, 2 * length - 1 - mirrored)
    return torch.zeros(count, length, dtype=torch.float64).scatter_add_(
        1, mirrored, weights
    )


def keys_cubic(distance: Tensor) -> Tensor:
    """Return the cubic convolution kernel at distances in samples."""
    d = distance.abs()
    inner = 1.5 * d**3 - 2.5 * d**2 + 1
    outer = -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2
    return torch.where(d <= 1, inner, torch.where(d <= 2, outer, torch.zeros_like(d)))
