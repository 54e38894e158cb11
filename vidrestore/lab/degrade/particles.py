"""Falling particles: their traces during the exposure, and their shapes as a lens images them.

Everything is drawn on a canvas somewhat larger than the picture that wraps around at its borders. Shapes are
convolved by the canvas's Fourier transform, which wraps around in the same way, so one inverse transform
serves all layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade.counters import Counters, constants

Canvas = tuple[int, int]  # rows and columns

CANVAS_MARGIN = 40  # least number of pixels of a canvas beyond the picture
# sides of a canvas are multiples of it: a third less time for FFTs than 16
CANVAS_MULTIPLE = 20
FEWEST = 128  # least capacity, so that the numbers drawn don't depend on small counts
# steps of weights, which are added as integers, so that their order doesn't matter
SHARPEST = 2**16


@dataclass(frozen=True)
class Particles:
    """Up to N particles of B samples, in rows and columns of pixels: start, step from frame to frame, and
    path in one exposure. Those from `count` on are left out.
    """

    start: Tensor  # (B, 2, N)
    step: Tensor  # (B, 2, N)
    path: Tensor  # (B, 2, N)
    weight: Tensor  # (B, N)
    count: Tensor  # (B,), whole numbers

    @classmethod
    def drawn(
        cls,
        draw: Counters,
        canvas: Canvas,
        density: Tensor,
        step: Tensor,
        path: Tensor,
        down: Tensor,
        spread: float,
    ) -> Particles:
        """Return `density` (B,) particles per pixel. Step and path have these lengths (B,) in the direction
        `down` (B, 2) and vary by `spread`; weights are about 1.
        """
        # the number decides how many are drawn
        count = poisson(density * (canvas[0] * canvas[1]), draw)
        # in one call: the first two become uniform
        varied = draw.normal(capacity(count), 6).mT
        start = constants(tuple(map(float, canvas)))[:, None] * uniform(varied[:, :2])
        speed = 1 + 2 * spread * varied[:, 2:3]
        way = speed * down[..., None] + spread * varied[:, 3:5]
        steps, paths = (length[:, None, None] * way for length in (step, path))
        return cls(start, steps, paths, (0.4 * varied[:, 5]).exp(), count)

    def traces(self, frames: int, canvas: Canvas, factor: Tensor) -> Tensor:
        """Return (B, T, 1, *canvas): `factor` (B,) times each weight, spread over the particle's path."""
        number = self.weight.shape[1]
        lengths = self.path.norm(dim=1)
        numbers = torch.arange(number)
        longest = (lengths * (numbers < self.count[:, None])).amax(1)
        # points along the paths: the particle of each, and its place, from -0.5 to 0.5
        moments = 1 + longest.ceil()[:, None]
        points = torch.arange(capacity(self.count[:, None] * moments))
        owner = (points / moments + 1e-4).floor()
        along = (points - owner * moments + 0.5) / moments - 0.5
        weight = factor[:, None] * self.weight * lengths.clamp(min=1) / moments
        states = torch.cat((self.start, self.step, self.path, weight[:, None]), 1)
        indices = owner.long().clamp_(max=number - 1)
        states = states.gather(2, indices[:, None].expand(-1, 7, -1))
        start = states[:, :2] + states[:, 4:6] * along[:, None]
        step = states[:, 2:4]
        time = torch.arange(frames)[:, None]
        rows = start[:, :1] + step[:, :1] * time
        columns = start[:, 1:] + step[:, 1:] * time
        return splat(
            rows, columns, states[:, 6] * (owner < self.count[:, None]), canvas
        )


def uniform(normal: Tensor) -> Tensor:
    """Return uniform numbers in [0, 1] of standard normal ones."""
    numbers: Tensor = torch.special.ndtr(normal)
    return numbers


def poisson(mean: Tensor, draw: Counters, *shape: int) -> Tensor:
    """Return whole numbers of that mean, (B, *shape), by the normal distribution with Poisson's skewness."""
    normal = draw.normal(*shape)
    skewness = (normal**2 - 1) / 6
    numbers = mean + normal * mean.sqrt() + skewness
    return (numbers + 0.5).floor().clamp(min=0) * (mean > 0)


def capacity(counts: Tensor) -> int:
    """Return the number of particles to allocate: the largest count, and at least FEWEST."""
    return max(FEWEST, int(counts.max()))


def splat(rows: Tensor, columns: Tensor, weight: Tensor, canvas: Canvas) -> Tensor:
    """Return (B, T, 1, *canvas): weights (B, P) at (B, T, P) positions, shared by four pixels each."""
    # shared by the four pixels around each position
    height, width = canvas
    size, frames = rows.shape[:2]
    top, down = _whole_and_part(rows, height)
    left, across = _whole_and_part(columns, width)
    first = (
        torch.arange(size * frames, dtype=torch.int32).view(size, frames, 1) * height
    )
    total = torch.zeros(size * frames * height * width, dtype=torch.int32)
    below = torch.where(top == height - 1, 0, top + 1)
    right = torch.where(left == width - 1, 0, left + 1)
    scaled = SHARPEST * weight[:, None]
    low = scaled * down
    for row, high in ((top, scaled - low), (below, low)):
        line = (first + row) * width
        part = high * across
        for column, value in ((left, high - part), (right, part)):
            total.index_add_(
                0, (line + column).flatten(), value.round_().int().flatten()
            )
    return total.float().div_(SHARPEST).view(size, frames, 1, height, width)


def _whole_and_part(positions: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Return whole positions, wrapped to a side, int32, and the parts beyond them."""
    floor = positions.floor()
    return floor.remainder(side).int(), positions - floor


def canvas_size(size: Iterable[int]) -> Canvas:
    """Return the rows and columns of the canvas for pictures of a size."""
    height, width = (
        -(-(side + CANVAS_MARGIN) // CANVAS_MULTIPLE) * CANVAS_MULTIPLE for side in size
    )
    return height, width


def render(layers: Iterable[tuple[Tensor, Tensor]], canvas: Canvas) -> Tensor:
    """Return (B, T, 1, *canvas): the sum of maps (B, T, 1, *canvas) convolved by their spectra (B, *)."""
    spectrum: Tensor | None = None
    # one inverse transform for all layers
    for maps, shape in layers:
        layer = torch.fft.rfft2(maps).mul_(shape[:, None, None])
        spectrum = layer if spectrum is None else spectrum.add_(layer)
    assert spectrum is not None
    total: Tensor = torch.fft.irfft2(spectrum, s=canvas)
    return total.clamp_(min=0)


def gaussian_spectrum(sigma: Tensor, canvas: Canvas) -> Tensor:
    """Return spectra (B, *) of Gaussians of `sigma` (B,) pixels; wide lines are 1 in their middle."""
    # Gaussians stay Gaussians
    down = torch.fft.fftfreq(canvas[0])[:, None]
    right = torch.fft.rfftfreq(canvas[1])
    sigma = sigma[:, None, None]
    rows = torch.exp(-2 * (math.pi * sigma * down) ** 2)
    columns = torch.exp(-2 * (math.pi * sigma * right) ** 2)
    return (math.sqrt(2 * math.pi) * sigma).clamp(min=1) * rows * columns


def line_spectrum(length: Tensor, ends: Tensor, down: Tensor, canvas: Canvas) -> Tensor:
    """Return spectra (B, *) of lines of `length` (B,) pixels in the direction `down` (B, 2), 1 a pixel but at
    their ends, where they fall to 0 within `ends` / 2 (B,) pixels.
    """
    # a box, softened by another one at its ends
    rows = torch.fft.fftfreq(canvas[0])[:, None]
    columns = torch.fft.rfftfreq(canvas[1])
    length, ends, along, aside = (
        values[:, None, None] for values in (length, ends, *down.unbind(1))
    )
    frequency = rows * along + columns * aside
    middle = length - ends / 2
    return middle * torch.sinc(middle * frequency) * torch.sinc(ends / 2 * frequency)


def moved(spectra: Tensor, frames: int, step: Tensor) -> Tensor:
    """Return (B, T, *) spectra of frames, each moved from the last by `step` (B, 2) in rows and columns."""
    # moved by turning phases
    height, half = spectra.shape[1:]
    rows = torch.fft.fftfreq(height)[:, None]
    columns = torch.arange(half) / (2 * (half - 1))
    cycles = step[:, :1, None] * rows + step[:, 1:, None] * columns
    turns = cycles[:, None] * torch.arange(frames)[:, None, None]
    return spectra[:, None] * torch.polar(torch.ones_like(turns), -math.tau * turns)


def shape_spectrum(shapes: Tensor, canvas: Canvas) -> Tensor:
    """Return spectra (B, *) of shapes (B, side, side), side odd, centred at their middle."""
    side = shapes.shape[1]
    kernels = F.pad(shapes, (0, canvas[1] - side, 0, canvas[0] - side))
    kernels = kernels.roll((-(side // 2),) * 2, (1, 2))
    spectrum: Tensor = torch.fft.rfft2(kernels)
    return spectrum


def capsule(
    length: Tensor, angle: Tensor, radius: Tensor, softness: Tensor, reach: int
) -> Tensor:
    """Return (B, 2 reach + 1, 2 reach + 1): 1 within `radius` of a segment, falling to 0 over `softness`
    pixels; angle 0 points down, pi/2 right.
    """
    length, angle, radius, softness = (
        values[:, None, None] for values in (length, angle, radius, softness)
    )
    line = torch.arange(-reach, reach + 1).float()
    rows = line[:, None]
    columns = line
    along = rows * angle.cos() + columns * angle.sin()
    excess = along - along.clamp(-length / 2, length / 2)
    aside = columns * angle.cos() - rows * angle.sin()
    distance = torch.hypot(aside, excess)
    return ((radius + softness - distance) / softness).clamp(0, 1)
