"""Samples as files store them, as the models see them, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .frames import PixelFormat


def planes_to_grey(planes: Sequence[NDArray[Any] | Tensor], format: PixelFormat) -> tuple[Tensor, ...]:
    """Stored samples to float32 tensors on the 0-255 scale, whatever the depth (10 bits: a quarter of the sample). Always copies."""
    return tuple(_plane_to_grey(plane, format) for plane in planes)


def _plane_to_grey(plane: NDArray[Any] | Tensor, format: PixelFormat) -> Tensor:
    if isinstance(plane, Tensor):
        grey = plane.to(torch.float32, copy=True)
    else:
        grey = torch.from_numpy(np.array(plane, dtype=np.float32, order="C"))  # the copy also takes read-only and strided views
    return grey if format.unit == 1 else grey.mul_(1 / format.unit)


def grey_to_planes(planes: Sequence[Tensor], format: PixelFormat) -> tuple[NDArray[Any], ...]:
    """The way back from `planes_to_grey`: uint8 or uint16 samples, rounded to nearest and clipped to [0, 2^depth - 1].

    Float formats are neither rounded nor clipped: linear light goes beyond white. Works on the planes' device; the result is on the CPU.
    """
    return tuple(_grey_to_plane(plane, format) for plane in planes)


def _grey_to_plane(plane: Tensor, format: PixelFormat) -> NDArray[Any]:
    samples = plane.detach().to(torch.float32) * format.unit
    if format.depth != 32:
        samples = samples.round_().clamp_(0, 2**format.depth - 1)
        samples = samples.to(torch.uint8 if format.depth <= 8 else torch.uint16)
    array: NDArray[Any] = samples.cpu().numpy()
    return array
