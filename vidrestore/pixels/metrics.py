"""Metrics of a picture against its reference: PSNR, and SSIM as in Wang et al., "Image quality assessment",
2004.

A picture is an array or tensor (H, W) or (H, W, C), integer or float; everything is computed in float64.
`data_range` is the step from black to white: 255 for 8 bits, 1023 for 10, 1 for [0, 1]. `crop` pixels are
removed along each edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d

Picture: TypeAlias = NDArray[Any] | Tensor

SSIM_WINDOW, SSIM_SIGMA = 11, 1.5  # pixels
SSIM_K1, SSIM_K2 = 0.01, 0.03
# BT.601, limited range, of B, G, R in [0, 1]: the papers' Y channel
BGR_TO_LUMA = (24.966, 128.553, 65.481)


def psnr(
    restored: Picture, reference: Picture, data_range: float = 255.0, crop: int = 0
) -> float:
    """Return the peak signal-to-noise ratio over all samples in dB; infinite for equal pictures.

    Raises ValueError if the shapes differ.
    """
    return planes_psnr([restored], [reference], data_range, crop)


def planes_psnr(
    restored: Sequence[Picture],
    reference: Sequence[Picture],
    data_range: float = 255.0,
    crop: int = 0,
) -> float:
    """Return the PSNR in dB over the samples of all planes of a frame together, each plane (H, W) at its own
    size.
    """
    errors = [
        _difference(plane, target, crop)
        for plane, target in zip(restored, reference, strict=True)
    ]
    squared = sum(float(error.square().sum()) for error in errors) / sum(
        error.numel() for error in errors
    )
    return float(10 * np.log10(data_range**2 / squared)) if squared else float("inf")


def ssim(
    restored: Picture, reference: Picture, data_range: float = 255.0, crop: int = 0
) -> float:
    """Return the structural similarity, at most 1: 11x11 Gaussian window of sigma 1.5, mean over positions
    and channels.

    Only positions where the whole window fits count. Raises ValueError if the shapes differ or the picture is
    smaller than the window.
    """
    _difference(restored, reference, crop)
    # (C, 1, H, W)
    a, b = (
        _cropped(picture, crop).movedim(-1, 0).unsqueeze(1)
        for picture in (restored, reference)
    )
    if min(a.shape[-2:]) < SSIM_WINDOW:
        raise ValueError(
            f"SSIM needs at least {SSIM_WINDOW}x{SSIM_WINDOW} pixels, got {a.shape[-1]}x{a.shape[-2]}"
        )
    # means, variances and covariance under the window
    mean_a = _blurred(a)
    mean_b = _blurred(b)
    square_a = _blurred(a * a)
    square_b = _blurred(b * b)
    product = _blurred(a * b)
    c1 = (SSIM_K1 * data_range) ** 2
    c2 = (SSIM_K2 * data_range) ** 2
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    variances = (square_a - mean_a**2) + (square_b - mean_b**2)
    structure = (2 * (product - mean_a * mean_b) + c2) / (variances + c2)
    return float((luminance * structure).mean())


def bgr_to_luma(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Convert 8-bit B, G, R (H, W, 3) to the papers' Y (H, W, 1): BT.601 on the 16-235 scale, float32, not
    rounded.
    """
    weights = np.array(BGR_TO_LUMA, dtype=np.float32)
    luma = (picture.astype(np.float32) / 255) @ weights[:, None] + 16
    return luma.astype(np.float32, copy=False)


def _cropped(picture: Picture, crop: int) -> Tensor:
    """Return (H, W, C) in float64 without the edges."""
    values = (
        picture.double()
        if isinstance(picture, Tensor)
        else torch.from_numpy(np.array(picture, dtype=np.float64))
    )
    height, width = values.shape[:2]
    return values.reshape(height, width, -1)[crop : height - crop, crop : width - crop]


def _difference(restored: Picture, reference: Picture, crop: int) -> Tensor:
    if tuple(restored.shape) != tuple(reference.shape):
        raise ValueError(
            f"the restored picture is {tuple(restored.shape)}, its reference {tuple(reference.shape)}"
        )
    difference = _cropped(restored, crop) - _cropped(reference, crop)
    if not difference.numel():
        raise ValueError(
            f"a crop of {crop} leaves no pixels of a picture of {tuple(restored.shape)}"
        )
    return difference


def _blurred(values: Tensor) -> Tensor:
    """Return the Gaussian mean at each position of (C, 1, H, W) where the window fits."""
    offset = (
        torch.arange(SSIM_WINDOW, dtype=values.dtype, device=values.device)
        - SSIM_WINDOW // 2
    )
    window = torch.exp(-(offset**2) / (2 * SSIM_SIGMA**2))
    window = window / window.sum()
    return conv2d(
        conv2d(values, window.reshape(1, 1, -1, 1)), window.reshape(1, 1, 1, -1)
    )
