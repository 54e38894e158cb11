"""Coloured noise: of any coarseness, along and across lines, whose strength follows the brightness, as film,
tapes and processing inside cameras make it.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade.counters import log_uniform

# standard deviations on the 0-255 scale, log-uniform
LUMA, CHROMA = (1.0, 55.0), (0.7, 40.0)
# typical blur of luma and of colour differences, standard deviation in their pixels
COARSE = (0.6, 1.2)
COARSEST = 2.2  # times the typical blur, at most
# shares that are not blurred, and blurred alike both ways; others are along lines
WHITE, EVEN = 0.2, 0.55
TWO_GRAINS = 0.25  # share of planes with white noise beside the blurred
FLAT = 0.3  # share whose strength doesn't follow the brightness
SHARPENED, LINGERING = 0.2, 0.15  # shares of clips


def coloured_noise(
    brightness: tuple[Tensor, ...], rng: np.random.Generator
) -> tuple[Tensor, ...]:
    """Return noise for planes Y, U, V with the luma `brightness` (T, H, W) at their sizes; all on the 0-255
    scale. Both colour differences have one kind.
    """
    luma, chroma = log_uniform(rng, LUMA), log_uniform(rng, CHROMA)
    strengths, shapes = (
        (luma, chroma, chroma),
        [_shape(rng, typical) for typical in COARSE],
    )
    curve = _curve(rng)
    noise = []
    for number, (bright, strength) in enumerate(
        zip(brightness, strengths, strict=True)
    ):
        grain = blurred(white(bright, rng), *shapes[min(number, 1)])
        if rng.random() < TWO_GRAINS:
            grain = 0.8 * grain + 0.6 * white(bright, rng)
        noise.append(strength * grain * _at(curve, bright))
    return tuple(noise)


def processed(
    noise: tuple[Tensor, ...], rng: np.random.Generator
) -> tuple[Tensor, ...]:
    """Sharpen planes of noise, or smooth them over time as a camera does; most are unchanged."""
    if rng.random() < SHARPENED:
        amount = rng.uniform(0.2, 0.9)
        noise = tuple(
            plane + amount * (plane - blurred(plane, 0.8, 0.8, same=False))
            for plane in noise
        )
    if rng.random() < LINGERING:
        share = rng.uniform(0.2, 0.6)
        noise = tuple(_smoothed_in_time(plane, share) for plane in noise)
    return noise


def _shape(rng: np.random.Generator, typical: float) -> tuple[float, float]:
    """Draw blur down and across in pixels: none, the same both ways, or along lines."""
    kind = rng.random()
    if kind < WHITE:
        return 0.0, 0.0
    size = min(COARSEST * typical, rng.exponential(typical) + 0.2)
    if kind < WHITE + EVEN:
        return size, size
    return 0.3 * rng.random() * size, rng.uniform(1, 3.5) * size


def _curve(rng: np.random.Generator) -> tuple[float, ...]:
    """Draw the strength at black, a quarter, the middle, three quarters and white; about 1 on average."""
    if rng.random() < FLAT:
        return (1.0,) * 5
    tilt, bow = rng.uniform(-0.8, 0.8), rng.uniform(-0.5, 1.0)
    return tuple(
        max(0.1, 1 + tilt * (2 * x - 1) + bow * (4 * x * (1 - x) - 0.6))
        for x in (0.0, 0.25, 0.5, 0.75, 1.0)
    )


def _at(curve: tuple[float, ...], brightness: Tensor) -> Tensor:
    """Return the curve at a brightness on the 0-255 scale, by straight lines."""
    place = (brightness / 255 * (len(curve) - 1)).clamp(0, len(curve) - 1.001)
    knots = torch.tensor(curve)
    low = place.long()
    return torch.lerp(knots[low], knots[low + 1], place - low)


def blurred(noise: Tensor, down: float, across: float, *, same: bool = True) -> Tensor:
    """Blur (T, H, W) by a Gaussian of these sigmas; with `same`, at the variance of white noise."""
    for dim, size in ((1, down), (2, across)):
        if size >= 0.15:
            reach = max(1, int(3 * size + 0.5))
            line = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / size) ** 2)
            line = line / (line.norm() if same else line.sum())
            kernel = line.view(1, 1, -1, 1) if dim == 1 else line.view(1, 1, 1, -1)
            pad = (0, 0, reach, reach) if dim == 1 else (reach, reach, 0, 0)
            mode = "circular" if min(noise.shape[1:]) > reach else "replicate"
            noise = F.conv2d(F.pad(noise[:, None], pad, mode=mode), kernel)[:, 0]
    return noise


def white(plane: Tensor, rng: np.random.Generator) -> Tensor:
    """Return standard normal noise of a plane's shape."""
    return torch.randn(
        plane.shape, generator=torch.Generator().manual_seed(int(rng.integers(2**62)))
    )


def _smoothed_in_time(noise: Tensor, share: float) -> Tensor:
    frames = [noise[0]]
    for frame in noise[1:]:
        frames.append(share * frames[-1] + (1 - share) * frame)
    return torch.stack(frames)
