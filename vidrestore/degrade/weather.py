"""Rain and snow as layers of particles that fall from frame to frame, blurred along their path and by the
lens.

Rain: O = t ((1 - S) J + S L) + (1 - t) A with streaks S of several layers, their light L, and distant rain as
a veil (W. Yang et al., "Deep joint rain detection and removal from a single image", CVPR 2017; R. Li et al.,
"Heavy rain image restoration", CVPR 2019). A drop shows a wide view of the scene upside down (K. Garg, S.
Nayar, "Vision and rain", IJCV 2007), so L is brighter than most of a scene. Snow: K = z c + (1 - z) J with
opacity z and colour c (Y.-F. Liu et al., "DesnowNet", TIP 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.degrade.branches import counters
from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.haze import add_haze, random_depth
from vidrestore.light import from_light, to_light

STREAKS = (1e-4, 4e-3)  # streaks per pixel in the nearest layer
FLAKES = (2e-4, 7e-3)  # flakes per pixel of a layer with a radius of 1
# nearness of a layer of rain in focus: 1 is the nearest, with streaks of up to 60 pixels
NEAR = (0.1, 1.0)
FINE_SHARE = 0.3  # of clips with rain, those with many fine streaks, long or short
FINE_COUNT = (4e-3, 2.5e-2)  # such streaks per pixel
FINE_LENGTH = (5.0, 45.0)
THICK_SHARE = 0.55  # of clips with rain, those with streaks too near to be in focus
THICK = (1.5, 6.0)  # sigma of their blur in pixels
THICK_COUNT = (5e-5, 6e-4)  # such streaks per pixel
SPLASH_SHARE = 0.15  # of clips with rain, those with splashes
STRENGTH = (0.06, 0.8)  # of streaks, from single faint ones
OPACITY = (0.1, 1.5)  # optical depth of flakes
SNOW_SPEED = (0.4, 4.0)  # of flakes; 1 is 4 pixels a frame and 8 more per pixel of radius
STREAK = (3.0, 16.0)  # longest path of a flake in one exposure, in radii
LARGE_SHARE = 0.5  # of clips with snow, those with flakes too near to be in focus
LARGE = (4.0, 14.0)  # their radius in pixels
VEIL_SHARE = 0.8  # of clips with rain or snow, those with a veil of distant particles
# optical depth of the veil; heavy rain absorbs about a quarter of the light per hundred metres
VEIL = (0.0, 0.35)
# share of clips with weather added in linear light; in the others in display values, as in datasets
LIGHT_SHARE = 0.5


def add_rain(
    clip: Tensor,
    streaks: Tensor,
    opacity: float,
    transmission: Tensor,
    airlight: Tensor,
    light: float | Tensor = 1.0,
) -> Tensor:
    """Add streaks (T, 1, H, W) of `light` to (T, 3, H, W), all seen through a veil.

    Streaks of `opacity` 0 add their light as in Yang et al.; at 1 they hide as much as they add and never
    exceed their brightness.
    """
    return add_haze(clip * (1 - opacity * streaks) + light * streaks, transmission, airlight)


def add_snow(clip: Tensor, mask: Tensor, colour: Tensor) -> Tensor:
    """Add flakes of opacity (T, 1, H, W) in [0, 1] and colour (3,) in front of (T, 3, H, W)."""
    return clip * (1 - mask) + colour[:, None, None] * mask


def random_rain(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Add layers of streaks at several depths, at about one angle; often thick ones near the lens as well."""
    canvas = canvas_size(clip.shape[2:])
    layers = [*_streaks(len(clip), canvas, rng)]
    streaks = _crop(render(layers, canvas), clip)
    light = _drop_light(clip, rng)
    transmission, airlight = _veil(clip, rng)
    opacity = rng.uniform(0.3, 1)
    if rng.random() < LIGHT_SHARE:
        rainy = add_rain(to_light(clip), streaks, opacity, transmission, to_light(airlight), to_light(light))
        return from_light(rainy)
    return add_rain(clip, streaks, opacity, transmission, airlight, light).clamp(0, 1)


def _streaks(frames: int, canvas: Canvas, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield maps of streaks with the spectra of their profiles: in focus, too near for it, and splashes."""
    angle, strength = rng.normal(0, 0.35), log_uniform(rng, STRENGTH)
    down = np.array([math.cos(angle), math.sin(angle)])
    # relative to the longest exposure; drops are dots in a short one
    exposure = log_uniform(rng, (0.2, 1.0)) if rng.random() < 0.3 else rng.uniform(0.5, 1)
    for _ in range(rng.integers(2, 7)):
        near = log_uniform(rng, NEAR)
        density = log_uniform(rng, STREAKS) / near
        swarm = random_swarm(
            canvas, density, 120 * near * down, 60 * near * exposure * rng.uniform(0.5, 1) * down, rng, 0.05
        )
        thin = near * rng.uniform(0.6, 1.2)
        yield (
            strength * rng.uniform(0.5, 1.5) * swarm.traces(frames, canvas),
            gaussian_spectrum(max(0.35, thin), canvas),
        )
    if rng.random() < FINE_SHARE:
        length = log_uniform(rng, FINE_LENGTH)
        density = min(log_uniform(rng, FINE_COUNT), 0.25 / length)
        swarm = random_swarm(canvas, density, rng.uniform(1, 4) * length * down, length * down, rng, 0.05)
        yield (
            log_uniform(rng, (0.05, 0.5)) * swarm.traces(frames, canvas),
            gaussian_spectrum(rng.uniform(0.35, 0.8), canvas),
        )
    if rng.random() < THICK_SHARE:
        sigma = log_uniform(rng, THICK)
        path = sigma * rng.uniform(4, 14) * exposure**0.5 * down
        swarm = random_swarm(canvas, log_uniform(rng, THICK_COUNT), 200 * down, path, rng, 0.08)
        yield (
            min(0.6, strength * rng.uniform(0.5, 1.5) + 0.08) * swarm.traces(frames, canvas),
            gaussian_spectrum(sigma, canvas),
        )
    if rng.random() < SPLASH_SHARE:
        yield strength * _splashes(frames, canvas, rng), gaussian_spectrum(rng.uniform(0.4, 0.9), canvas)


def _splashes(frames: int, canvas: Canvas, rng: np.random.Generator) -> Tensor:
    """Return (T, 1, *canvas): drops that burst on the ground, different in every frame, each with droplets
    around it.
    """
    size, density = rng.uniform(1, 5), log_uniform(rng, (3e-4, 3e-3))
    parts = []
    for _ in range(frames):
        hits = (
            np.repeat(rng.uniform(0, 1, (2, rng.poisson(density * canvas[0] * canvas[1]))), 5, axis=1)
            * np.array(canvas)[:, None]
        )
        thrown = rng.normal(0, size, hits.shape)
        thrown[0] = -abs(thrown[0])
        still = np.zeros_like(hits)
        parts.append(
            Swarm(hits + thrown, still, 0.4 * thrown, rng.lognormal(0, 0.5, hits.shape[1])).traces(1, canvas)
        )
    return torch.cat(parts)


def _drop_light(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T, 3, H, W) display values of drops: the sky's light, and some of their surroundings."""
    overall = float(clip.mean())
    sky = min(1.0, overall * rng.uniform(1.0, 1.8) + rng.uniform(0.15, 0.45))
    colour = torch.from_numpy(sky * (1 + rng.normal(0, 0.02, 3))).float()[:, None, None]
    around = F.interpolate(clip[..., 2::5, 2::5].flip(2), clip.shape[2:], mode="bilinear")
    return torch.maximum(colour + rng.uniform(0, 0.5) * (around - overall), 0.5 * colour).clamp(0, 1)


def random_snow(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Add layers of flakes, larger ones fewer and more out of focus, with a common wind and individual
    drift.
    """
    canvas = canvas_size(clip.shape[2:])
    mask = 1 - torch.exp(-_crop(render(_flakes(len(clip), canvas, rng), canvas), clip, 20))
    transmission, airlight = _veil(clip, rng)
    bright = max(rng.uniform(0.7, 1), min(1.0, 1.3 * float(clip.mean())))
    colour = torch.from_numpy(bright * (1 + rng.normal(0, 0.02, 3))).float()
    if rng.random() < LIGHT_SHARE:
        return from_light(
            add_snow(add_haze(to_light(clip), transmission, to_light(airlight)), mask, to_light(colour))
        )
    return add_snow(add_haze(clip, transmission, airlight), mask, colour).clamp(0, 1)


def _flakes(frames: int, canvas: Canvas, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield maps of flakes of one size each, with the spectra of their shapes."""
    wind, exposure, depth = rng.normal(0, 0.8), log_uniform(rng, (0.03, 0.6)), log_uniform(rng, OPACITY)
    down = np.array([math.cos(wind), math.sin(wind)])
    radii = [log_uniform(rng, (0.3, 4)) for _ in range(rng.integers(2, 6))]
    if rng.random() < LARGE_SHARE:
        radii += [log_uniform(rng, LARGE) for _ in range(rng.integers(1, 3))]
    for radius in radii:
        fall = (4 + 8 * radius) * log_uniform(rng, SNOW_SPEED) * down
        density = log_uniform(rng, FLAKES) / radius**1.7
        speed = float(np.hypot(*fall))
        streak = min(speed * exposure, radius * log_uniform(rng, STREAK))
        swarm = random_swarm(canvas, density, fall, streak / speed * fall, rng, 0.25)
        # the light that a flake absorbs is spread over its disc, so larger flakes are fainter
        opacity = depth * rng.uniform(0.5, 1.5) * min(1.0, (3 / radius) ** 0.5)
        passed = max(1.0, streak / (2 * radius + 1))
        yield opacity / passed * swarm.traces(frames, canvas), shape_spectrum(_flake(radius, rng), canvas)


def _flake(radius: float, rng: np.random.Generator) -> Tensor:
    """Return (side, side): a flake of a radius, rarely round, sharp or out of focus."""
    softness = rng.uniform(0.4, 1.6) * max(radius, 1) if rng.random() < 0.7 else 0.7
    return capsule(radius * rng.uniform(0, 1.2), rng.uniform(0, math.pi), 0.7 * radius, softness, 19)


def _crop(maps: Tensor, clip: Tensor, largest: float = 1.0) -> Tensor:
    """Crop the picture from the maps of a larger canvas."""
    height, width = clip.shape[2:]
    return maps[..., :height, :width].clamp(max=largest)


def _veil(clip: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return transmission (T or 1, 1, H, W) and airlight (3, 1, 1) of particles too far away to be seen
    individually.
    """
    density = rng.uniform(*VEIL) if rng.random() < VEIL_SHARE else 0.0
    depth = random_depth(clip[None], counters(rng))[0] if rng.random() < 0.4 else torch.ones(1, 1, 1, 1)
    # the light of the sky, which lights the scene as well
    airlight = min(rng.uniform(0.5, 0.95), 0.1 + 2 * float(clip.mean()))
    return torch.exp(-density * depth), torch.full((3, 1, 1), airlight)


Array = NDArray[np.float64]
Canvas = tuple[int, int]
# Falling particles: their traces during the exposure, and their shapes as a lens images them.
#
# Everything is drawn on a canvas somewhat larger than the picture that wraps around at its borders. Shapes
# are convolved by the canvas's Fourier transform, which wraps around in the same way, so one inverse
# transform serves all layers.

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
