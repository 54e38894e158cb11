"""Measure how soft a picture is by the fall of its spectrum near the finest detail.

A picture that was downscaled sharply has detail up to half a cycle per pixel, less by about 10 dB than at
half of that, as scenes have it. Optics, sensors and blur take much more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Fall:
    """What is compared, in cycles per pixel down or across.

    coarse, fine: frequencies between which the power is averaged
    other: most of the frequency in the other direction
    least_side: pixels of the square in the middle; smaller ones tell nothing
    most_side: pixels of it at most
    rounding: power of rounding to 8 bits, on the 0-255 scale, below which there is no detail
    """

    coarse: tuple[float, float] = (0.2, 0.25)
    fine: tuple[float, float] = (0.45, 0.5)
    other: float = 0.1
    least_side: int = 64
    most_side: int = 1024
    rounding: float = 1 / 12


FALL = Fall()


def spectral_fall(luma: Tensor) -> float:
    """Return by how many dB the finest detail of luma (H, W), 0-255, is weaker than that of half its
    frequency in the middle of a picture; 0 if that is too small or too even to tell.
    """
    side = min(*luma.shape, FALL.most_side)
    if side < FALL.least_side:
        return 0.0
    top, left = ((length - side) // 2 for length in luma.shape)
    square = luma[top : top + side, left : left + side]
    # without what the borders would add
    line = torch.hann_window(side, device=luma.device)
    window = line[:, None] * line
    spectrum = torch.fft.rfft2((square - square.mean()) * window)
    power = spectrum.abs().square() / window.square().sum()
    rows = torch.fft.fftfreq(side, device=luma.device).abs()[:, None]
    columns = torch.fft.rfftfreq(side, device=luma.device)
    higher, lower = torch.maximum(rows, columns), torch.minimum(rows, columns)

    def mean_power(least: float, most: float) -> Tensor:
        band = (higher >= least) & (higher < most) & (lower < FALL.other)
        mean: Tensor = power[band].mean()
        return mean

    coarse, fine = mean_power(*FALL.coarse), mean_power(*FALL.fine)
    if coarse <= FALL.rounding:
        return 0.0
    return float(10 * (coarse / fine.clamp(min=FALL.rounding)).log10())
