"""Falling particles: their traces during the exposure, and their shapes as a lens images them.

Everything is drawn on a canvas somewhat larger than the picture that wraps around at its borders. Shapes are
convolved by the canvas's Fourier transform, which wraps around in the same way, so one inverse transform
serves all layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Canvas = tuple[int, int]
MARGIN = 40  # least number of pixels of a canvas beyond the picture
SIDE_MULTIPLE = 16  # of a canvas, for fast Fourier transforms


@dataclass(frozen=True)
class Swarm:
    """N particles, in rows and columns of pixels: start, step from frame to frame, and path in one
    exposure.
    """

    start: Array  # (2, N)
    step: Array  # (2, N)
    path: Array  # (2, N)
    weight: Array  # (N,)

    def traces(self, frames: int, canvas: Canvas) -> Tensor:
        """Return (T, 1, *canvas): the weight of each particle, spread over the pixels of its path."""
        lengths = np.hypot(*self.path)
        moments = 1 + math.ceil(lengths.max(initial=0))
        along = (np.arange(moments) + 0.5) / moments - 0.5
        weight = np.repeat(self.weight * np.maximum(lengths, 1) / moments, moments)
        maps = []
        for number in range(frames):
            positions = (self.start + self.step * number)[:, :, None] + self.path[:, :, None] * along
            maps.append(splat(positions.reshape(2, -1), weight, canvas))
        return torch.from_numpy(np.stack(maps))[:, None]


def random_swarm(
    canvas: Canvas, density: float, step: Array, path: Array, rng: np.random.Generator, spread: float = 0.1
) -> Swarm:
    """Return `density` particles per pixel whose step and path vary by `spread`; their weight is about 1."""
    count = rng.poisson(density * canvas[0] * canvas[1])
    start = rng.uniform(0, 1, (2, count)) * np.array(canvas)[:, None]
    size = 1 + spread * rng.normal(0, 2, count)
    aside = rng.normal(0, spread, (2, count))
    steps, ways = (size * part[:, None] + aside * np.hypot(*part) for part in (step, path))
    return Swarm(start, steps, ways, rng.lognormal(0, 0.4, count))


def splat(positions: Array, weight: Array, canvas: Canvas) -> NDArray[np.float32]:
    """Return (*canvas): weights at fractional (row, column) positions (2, N), distributed to four pixels
    each.
    """
    base = np.floor(positions)
    share = positions - base
    rows, columns = base.astype(np.int64)
    image = np.zeros(canvas[0] * canvas[1])
    for down, high in ((0, 1 - share[0]), (1, share[0])):
        for right, wide in ((0, 1 - share[1]), (1, share[1])):
            at = (rows + down) % canvas[0] * canvas[1] + (columns + right) % canvas[1]
            image += np.bincount(at, weight * high * wide, len(image))
    return image.reshape(canvas).astype(np.float32)


def canvas_size(size: Iterable[int]) -> Canvas:
    """Return the rows and columns of the canvas for pictures of a size."""
    height, width = (-(-(side + MARGIN) // SIDE_MULTIPLE) * SIDE_MULTIPLE for side in size)
    return height, width


def render(layers: Iterable[tuple[Tensor, Tensor]], canvas: Canvas) -> Tensor:
    """Return (T, 1, *canvas): the sum of maps (T, 1, *canvas), each convolved with the shape of the spectrum
    beside it.
    """
    spectrum = sum((torch.fft.rfft2(maps) * shape for maps, shape in layers), torch.zeros(1))
    total: Tensor = torch.fft.irfft2(spectrum, s=canvas)
    return total.clamp_(min=0)


def gaussian_spectrum(sigma: float, canvas: Canvas) -> Tensor:
    """Return the spectrum of a Gaussian of `sigma` pixels, scaled so that a line is 1 in its middle, or
    fainter if thin.
    """
    down, right = torch.fft.fftfreq(canvas[0])[:, None], torch.fft.rfftfreq(canvas[1])
    height = max(1.0, math.sqrt(2 * math.pi) * sigma)
    return height * torch.exp(-2 * (math.pi * sigma) ** 2 * (down.square() + right.square()))


def shape_spectrum(shape: Tensor, canvas: Canvas) -> Tensor:
    """Return the spectrum of a shape (side, side), side odd, centred at its middle."""
    reach = len(shape) // 2
    whole = torch.zeros(canvas)
    whole[: len(shape), : len(shape)] = shape
    spectrum: Tensor = torch.fft.rfft2(whole.roll((-reach, -reach), (0, 1)))
    return spectrum


def capsule(length: float, angle: float, radius: float, softness: float, largest: int = 32) -> Tensor:
    """Return (side, side), side odd: 1 within `radius` of a segment, falling to 0 over `softness` pixels.

    Angle 0 points down, pi/2 right.
    """
    reach = min(largest, math.ceil(length / 2 + radius + softness))
    rows, columns = torch.meshgrid(*[torch.arange(-reach, reach + 1).float()] * 2, indexing="ij")
    along = rows * math.cos(angle) + columns * math.sin(angle)
    beyond = along - along.clamp(-length / 2, length / 2)
    distance = torch.hypot(columns * math.cos(angle) - rows * math.sin(angle), beyond)
    return ((radius + softness - distance) / softness).clamp(0, 1)
