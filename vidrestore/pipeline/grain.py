"""Add even film grain to restored pictures that look too smooth, or to hide banding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

RADIUS = 0.6  # pixels, standard deviation of the blur
LEAST = 0.35  # strength at black and white over that in mid tones


def with_grain(planes: tuple[Tensor, ...], sigma: float, first: int, *, colour: bool) -> tuple[Tensor, ...]:
    """Return planes (T, H, W) on the 0-255 scale with grain of `sigma` in mid tones; less at black and white.

    The grain of a frame follows from its number alone, `first` for the first one. With `colour` the planes
    after the first are colour differences and stay as they are; otherwise all get the same grain.
    """
    frames, height, width = planes[0].shape
    noise = torch.stack([_frame(height, width, first + index) for index in range(frames)]).to(
        planes[0].device
    )
    grained = planes[:1] if colour else planes
    return (*(plane + sigma * noise * _tone(plane) for plane in grained), *planes[len(grained) :])


def _frame(height: int, width: int, number: int) -> Tensor:
    """Return (H, W) blurred noise of unit variance."""
    white = torch.randn(1, 1, height + 4, width + 4, generator=torch.Generator().manual_seed(number))
    line = torch.exp(-0.5 * (torch.arange(-2.0, 3.0) / RADIUS) ** 2)
    line = line / line.norm()
    across = F.conv2d(white, line.view(1, 1, 1, 5))
    return F.conv2d(across, line.view(1, 1, 5, 1))[0, 0]


def _tone(plane: Tensor) -> Tensor:
    """Share of the grain by brightness: 1 in mid tones."""
    light = (plane / 255).clamp(0, 1)
    return LEAST + (1 - LEAST) * 4 * light * (1 - light)
