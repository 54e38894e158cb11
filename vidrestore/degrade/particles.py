"""Small things that fall before a camera: their places while it exposes, and the shapes that lenses give
them.

Everything is drawn on a room somewhat larger than the picture, whose sides meet: what leaves at one comes in
at the other. Shapes are spread over the room by its Fourier transform, which joins sides in the same way, so
that one inverse serves all layers.
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
Room = tuple[int, int]
MARGIN = 40  # pixels that a room has beyond the picture, at least
FINE = 16  # rooms have sides of a multiple, of which Fourier transforms are quick


@dataclass(frozen=True)
class Swarm:
    """N things, in rows and columns of pixels: start, step from frame to frame, and way in one exposure."""

    start: Array  # (2, N)
    step: Array  # (2, N)
    way: Array  # (2, N)
    weight: Array  # (N,)

    def traces(self, frames: int, room: Room) -> Tensor:
        """(T, 1, *room): the weight of each on all pixels of its way, or on the one that it stays at."""
        lengths = np.hypot(*self.way)
        moments = 1 + math.ceil(lengths.max(initial=0))
        along = (np.arange(moments) + 0.5) / moments - 0.5
        weight = np.repeat(self.weight * np.maximum(lengths, 1) / moments, moments)
        maps = []
        for number in range(frames):
            places = (self.start + self.step * number)[:, :, None] + self.way[:, :, None] * along
            maps.append(dropped(places.reshape(2, -1), weight, room))
        return torch.from_numpy(np.stack(maps))[:, None]


def random_swarm(
    room: Room, density: float, step: Array, way: Array, rng: np.random.Generator, spread: float = 0.1
) -> Swarm:
    """`density` things per pixel that differ by `spread` in step and way; their weight is about 1."""
    count = rng.poisson(density * room[0] * room[1])
    start = rng.uniform(0, 1, (2, count)) * np.array(room)[:, None]
    size = 1 + spread * rng.normal(0, 2, count)
    aside = rng.normal(0, spread, (2, count))
    steps, ways = (size * part[:, None] + aside * np.hypot(*part) for part in (step, way))
    return Swarm(start, steps, ways, rng.lognormal(0, 0.4, count))


def dropped(places: Array, weight: Array, room: Room) -> NDArray[np.float32]:
    """(*room): weights at fractional (row, column) places (2, N), shared among four pixels each."""
    base = np.floor(places)
    share = places - base
    rows, columns = base.astype(np.int64)
    image = np.zeros(room[0] * room[1])
    for down, high in ((0, 1 - share[0]), (1, share[0])):
        for right, wide in ((0, 1 - share[1]), (1, share[1])):
            at = (rows + down) % room[0] * room[1] + (columns + right) % room[1]
            image += np.bincount(at, weight * high * wide, len(image))
    return image.reshape(room).astype(np.float32)


def room_around(size: Iterable[int]) -> Room:
    """Rows and columns of the room for pictures of a size."""
    height, width = (-(-(side + MARGIN) // FINE) * FINE for side in size)
    return height, width


def spread_all(layers: Iterable[tuple[Tensor, Tensor]], room: Room) -> Tensor:
    """(T, 1, *room): the sum of maps (T, 1, *room), each under the shape whose spectrum comes with it."""
    spectrum = sum((torch.fft.rfft2(maps) * shape for maps, shape in layers), torch.zeros(1))
    total: Tensor = torch.fft.irfft2(spectrum, s=room)
    return total.clamp_(min=0)


def soft(sigma: float, room: Room) -> Tensor:
    """Spectrum of a Gaussian of `sigma` pixels, under which a line is 1 in its middle, or fainter if thin."""
    down, right = torch.fft.fftfreq(room[0])[:, None], torch.fft.rfftfreq(room[1])
    height = max(1.0, math.sqrt(2 * math.pi) * sigma)
    return height * torch.exp(-2 * (math.pi * sigma) ** 2 * (down.square() + right.square()))


def shaped(shape: Tensor, room: Room) -> Tensor:
    """Spectrum of a shape (side, side), side odd, about its middle."""
    reach = len(shape) // 2
    whole = torch.zeros(room)
    whole[: len(shape), : len(shape)] = shape
    spectrum: Tensor = torch.fft.rfft2(whole.roll((-reach, -reach), (0, 1)))
    return spectrum


def capsule(length: float, angle: float, radius: float, softness: float, largest: int = 32) -> Tensor:
    """(side, side), side odd: 1 within `radius` of a segment, falling to 0 over `softness` pixels. Angle 0
    points down, pi/2 right.
    """
    reach = min(largest, math.ceil(length / 2 + radius + softness))
    rows, columns = torch.meshgrid(*[torch.arange(-reach, reach + 1).float()] * 2, indexing="ij")
    along = rows * math.cos(angle) + columns * math.sin(angle)
    beyond = along - along.clamp(-length / 2, length / 2)
    distance = torch.hypot(columns * math.cos(angle) - rows * math.sin(angle), beyond)
    return ((radius + softness - distance) / softness).clamp(0, 1)
