"""PSNR and SSIM as the scripts of each paper compute them.

Pictures are (C, H, W) tensors of R, G, B: uint8, or float in [0, 1] if the function says so.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.evaluation.sequence_frames import channels_last
from vidrestore.metrics import SSIM_K1, SSIM_K2, SSIM_SIGMA, SSIM_WINDOW, bgr_to_luma, psnr, ssim

MATLAB_LUMA = (65.481, 128.553, 24.966)  # weights of rgb2ycbcr for R, G, B in [0, 1]; the offset is 16


def rgb_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR over all samples and SSIM as the mean of the channels; uint8, or floats in [0, 1]."""
    top = 255.0 if restored.dtype == torch.uint8 else 1.0
    one, other = channels_last(restored), channels_last(clean)
    return {"psnr": psnr(one, other, top), "ssim": ssim(one, other, top)}


def luma_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR and SSIM of BasicSR's Y (BT.601, limited range, not rounded) of uint8 pictures."""
    one, other = (
        bgr_to_luma(channels_last(picture.flip(0)).astype(np.uint8)) for picture in (restored, clean)
    )
    return {"psnr": psnr(one, other), "ssim": ssim(one, other)}


def matlab_luma(picture: Tensor) -> NDArray[np.uint8]:
    """Return Y of MATLAB's rgb2ycbcr of a uint8 picture, rounded to 8 bits: (H, W)."""
    weights = torch.tensor(MATLAB_LUMA, dtype=torch.float64)[:, None, None]
    luma = (picture.double() / 255 * weights).sum(0) + 16
    return (luma + 0.5).floor_().to(torch.uint8).numpy()


def matlab_luma_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR and SSIM of `matlab_luma` of uint8 pictures, as the deraining papers' scripts do."""
    one, other = matlab_luma(restored), matlab_luma(clean)
    return {"psnr": psnr(one, other), "ssim": ssim(one, other)}


def volume_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR over all samples and MATLAB's `ssim` of a colour picture; uint8, or floats in [0, 1]."""
    top = 255.0 if restored.dtype == torch.uint8 else 1.0
    return {
        "psnr": psnr(channels_last(restored), channels_last(clean), top),
        "ssim": volume_ssim(restored, clean, top),
    }


def volume_ssim(restored: Tensor, clean: Tensor, top: float) -> float:
    """Return the SSIM of a colour picture read as a volume, as MATLAB's `ssim` does: an 11x11x11 Gaussian
    window that mixes the channels, borders padded by replication, the mean over all positions.
    """
    a, b = restored.double(), clean.double()
    mean_a, mean_b = _smooth(a), _smooth(b)
    variance_a, variance_b = _smooth(a * a) - mean_a**2, _smooth(b * b) - mean_b**2
    covariance = _smooth(a * b) - mean_a * mean_b
    c1, c2 = (SSIM_K1 * top) ** 2, (SSIM_K2 * top) ** 2
    index = (
        (2 * mean_a * mean_b + c1)
        * (2 * covariance + c2)
        / ((mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2))
    )
    return float(index.mean())


def _smooth(volume: Tensor) -> Tensor:
    """Filter (C, H, W) by a Gaussian along all three axes."""
    for axis in range(3):
        matrix = _gaussian(volume.shape[axis])
        volume = torch.tensordot(matrix, volume, dims=([1], [axis])).movedim(0, axis)
    return volume


def _gaussian(length: int) -> Tensor:
    """Return (length, length): rows are windows; what is outside is added to the border samples."""
    offset = torch.arange(SSIM_WINDOW, dtype=torch.float64) - SSIM_WINDOW // 2
    window = torch.exp(-(offset**2) / (2 * SSIM_SIGMA**2))
    window /= window.sum()
    positions = (torch.arange(length)[:, None] + offset.long()).clamp(0, length - 1)
    return torch.zeros(length, length, dtype=torch.float64).scatter_add_(
        1, positions, window.expand(length, -1)
    )
