"""Rain and snow as layers of things that fall from frame to frame, each spread along its way and by the lens.

Rain: O = t ((1 - S) J + S L) + (1 - t) A with streaks S of several layers, their light L, and rain that
gathers into a veil (W. Yang et al., "Deep joint rain detection and removal from a single image", CVPR 2017;
R. Li et al., "Heavy rain image restoration", CVPR 2019). A drop shows most of what is before the camera,
upside down (K. Garg, S. Nayar, "Vision and rain", IJCV 2007), so L is brighter than most of a scene. Snow: K
= z c + (1 - z) J with opacity z and colour c (Y.-F. Liu et al., "DesnowNet", TIP 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.haze import add_haze, random_depth
from vidrestore.degrade.light import from_light, to_light
from vidrestore.degrade.particles import (
    Room,
    Swarm,
    capsule,
    random_swarm,
    room_around,
    shaped,
    soft,
    spread_all,
)

STREAKS = (1e-4, 4e-3)  # of a near layer, per pixel
FLAKES = (2e-4, 7e-3)  # of a pixel's radius, per pixel
# how near a layer of rain in focus is: 1 is the nearest, whose streaks are up to 60 pixels long
NEAR = (0.1, 1.0)
THICK_SHARE = 0.55  # of clips with rain that have streaks too near to be in focus
THICK = (1.5, 6.0)  # pixels: their softness
THICK_COUNT = (5e-5, 6e-4)  # of them, per pixel
SPLASH_SHARE = 0.15  # of clips with rain that show splashes
STRENGTH = (0.06, 0.8)  # of streaks: single faint ones have to be seen, too
OPACITY = (0.1, 1.5)  # optical depth of flakes
LARGE_SHARE = 0.5  # of clips with snow that have flakes too near to be in focus
LARGE = (4.0, 14.0)  # pixels: their radius
VEIL_SHARE = 0.8  # of clips with rain or snow that are veiled, too: what falls far away can't be told apart
# optical depth of the veil: heavy rain takes about a quarter of the light on a hundred metres
VEIL = (0.0, 0.35)
# of clips on which weather is added as light; on the others in display values, as data sets have it
LIGHT_SHARE = 0.5


def add_rain(
    clip: Tensor,
    streaks: Tensor,
    opacity: float,
    transmission: Tensor,
    airlight: Tensor,
    light: float | Tensor = 1.0,
) -> Tensor:
    """(T, 3, H, W) with streaks (T, 1, H, W) before it, of `light`, all seen through a veil.

    Streaks of `opacity` 0 add their light as in Yang et al.; at 1 they hide as much as they add and never go
    beyond their brightness.
    """
    return add_haze(clip * (1 - opacity * streaks) + light * streaks, transmission, airlight)


def add_snow(clip: Tensor, mask: Tensor, colour: Tensor) -> Tensor:
    """(T, 3, H, W) behind flakes of opacity (T, 1, H, W) in [0, 1] and colour (3,)."""
    return clip * (1 - mask) + colour[:, None, None] * mask


def drawn_rain(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Layers of streaks at as many depths, at about one angle; often thick ones near the lens, too."""
    room = room_around(clip.shape[2:])
    layers = [*_thin(len(clip), room, rng)]
    streaks = _seen(spread_all(layers, room), clip)
    light = _drops_light(clip, rng)
    transmission, airlight = _veil(clip, rng)
    opacity = rng.uniform(0.3, 1)
    if rng.random() < LIGHT_SHARE:
        rainy = add_rain(to_light(clip), streaks, opacity, transmission, to_light(airlight), to_light(light))
        return from_light(rainy)
    return add_rain(clip, streaks, opacity, transmission, airlight, light).clamp(0, 1)


def _thin(frames: int, room: Room, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Maps of streaks with the spectra of their profiles: in focus, too near for it, and splashes."""
    angle, strength = rng.normal(0, 0.35), log_uniform(rng, STRENGTH)
    down = np.array([math.cos(angle), math.sin(angle)])
    # of the longest: drops are dots under a short one
    exposure = log_uniform(rng, (0.2, 1.0)) if rng.random() < 0.3 else rng.uniform(0.5, 1)
    for _ in range(rng.integers(2, 7)):
        near = log_uniform(rng, NEAR)
        density = log_uniform(rng, STREAKS) / near
        swarm = random_swarm(
            room, density, 120 * near * down, 60 * near * exposure * rng.uniform(0.5, 1) * down, rng, 0.05
        )
        thin = near * rng.uniform(0.6, 1.2)
        yield strength * rng.uniform(0.5, 1.5) * swarm.traces(frames, room), soft(max(0.35, thin), room)
    if rng.random() < THICK_SHARE:
        sigma = log_uniform(rng, THICK)
        way = sigma * rng.uniform(4, 14) * exposure**0.5 * down
        swarm = random_swarm(room, log_uniform(rng, THICK_COUNT), 200 * down, way, rng, 0.08)
        yield (
            min(0.6, strength * rng.uniform(0.5, 1.5) + 0.08) * swarm.traces(frames, room),
            soft(sigma, room),
        )
    if rng.random() < SPLASH_SHARE:
        yield strength * _splashes(frames, room, rng), soft(rng.uniform(0.4, 0.9), room)


def _splashes(frames: int, room: Room, rng: np.random.Generator) -> Tensor:
    """(T, 1, *room): drops that burst on the ground, anew in every frame: droplets thrown up around each."""
    size, density = rng.uniform(1, 5), log_uniform(rng, (3e-4, 3e-3))
    parts = []
    for _ in range(frames):
        hits = (
            np.repeat(rng.uniform(0, 1, (2, rng.poisson(density * room[0] * room[1]))), 5, axis=1)
            * np.array(room)[:, None]
        )
        thrown = rng.normal(0, size, hits.shape)
        thrown[0] = -abs(thrown[0])
        still = np.zeros_like(hits)
        parts.append(
            Swarm(hits + thrown, still, 0.4 * thrown, rng.lognormal(0, 0.5, hits.shape[1])).traces(1, room)
        )
    return torch.cat(parts)


def _drops_light(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """(T, 3, H, W) display values of what drops show: the sky's light, and some of what is around them."""
    overall = float(clip.mean())
    sky = min(1.0, overall * rng.uniform(1.0, 1.8) + rng.uniform(0.15, 0.45))
    colour = torch.from_numpy(sky * (1 + rng.normal(0, 0.02, 3))).float()[:, None, None]
    around = F.interpolate(clip[..., 2::5, 2::5].flip(2), clip.shape[2:], mode="bilinear")
    return torch.maximum(colour + rng.uniform(0, 0.5) * (around - overall), 0.5 * colour).clamp(0, 1)


def drawn_snow(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Draw layers of flakes, larger ones fewer and more out of focus, with one wind and their own drift."""
    room = room_around(clip.shape[2:])
    mask = 1 - torch.exp(-_seen(spread_all(_flakes(len(clip), room, rng), room), clip, 20))
    transmission, airlight = _veil(clip, rng)
    bright = max(rng.uniform(0.7, 1), min(1.0, 1.3 * float(clip.mean())))
    colour = torch.from_numpy(bright * (1 + rng.normal(0, 0.02, 3))).float()
    if rng.random() < LIGHT_SHARE:
        return from_light(
            add_snow(add_haze(to_light(clip), transmission, to_light(airlight)), mask, to_light(colour))
        )
    return add_snow(add_haze(clip, transmission, airlight), mask, colour).clamp(0, 1)


def _flakes(frames: int, room: Room, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Maps of flakes by their size, with the spectra of their shapes."""
    wind, exposure, depth = rng.normal(0, 0.6), log_uniform(rng, (0.03, 0.6)), log_uniform(rng, OPACITY)
    down = np.array([math.cos(wind), math.sin(wind)])
    radii = [log_uniform(rng, (0.3, 4)) for _ in range(rng.integers(2, 6))]
    if rng.random() < LARGE_SHARE:
        radii += [log_uniform(rng, LARGE) for _ in range(rng.integers(1, 3))]
    for radius in radii:
        fall = (4 + 8 * radius) * rng.uniform(0.4, 1.2) * down
        density = log_uniform(rng, FLAKES) / radius**1.7
        swarm = random_swarm(
            room, density, fall, min(exposure, 3 * radius / np.hypot(*fall)) * fall, rng, 0.25
        )
        # light that a flake takes away is spread over its disc: larger is fainter
        opacity = depth * rng.uniform(0.5, 1.5) * min(1.0, (3 / radius) ** 0.5)
        passed = max(1.0, math.hypot(*fall) * exposure / (2 * radius + 1))
        yield opacity / passed * swarm.traces(frames, room), shaped(_flake(radius, rng), room)


def _flake(radius: float, rng: np.random.Generator) -> Tensor:
    """(side, side): one of a radius, seldom round, sharp or out of focus."""
    softness = rng.uniform(0.4, 1.6) * max(radius, 1) if rng.random() < 0.7 else 0.7
    return capsule(radius * rng.uniform(0, 1.2), rng.uniform(0, math.pi), 0.7 * radius, softness, 19)


def _seen(maps: Tensor, clip: Tensor, largest: float = 1.0) -> Tensor:
    """Cut the picture out of the maps of a larger room."""
    height, width = clip.shape[2:]
    return maps[..., :height, :width].clamp(max=largest)


def _veil(clip: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Transmission (T or 1, 1, H, W) and airlight (3, 1, 1) of what is too far away to be seen one by one."""
    density = rng.uniform(*VEIL) if rng.random() < VEIL_SHARE else 0.0
    depth = random_depth(clip, rng) if rng.random() < 0.4 else torch.ones(1, 1, 1, 1)
    return torch.exp(-density * depth), torch.full((3, 1, 1), rng.uniform(0.5, 0.95))
