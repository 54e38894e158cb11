"""Rain and snow as layers of random points that move from frame to frame, each spread by the shape of one streak or flake.

Rain: O = t (J + S) + (1 - t) A with streaks S of several layers and rain that gathers into a veil (W. Yang et al., "Deep joint rain
detection and removal from a single image", CVPR 2017; R. Li et al., "Heavy rain image restoration", CVPR 2019). Snow: K = z c + (1 - z) J
with opacity z and colour c (Y.-F. Liu et al., "DesnowNet", TIP 2018).
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.haze import add_haze, drawn_depth

STREAKS = (5e-5, 4e-3)  # of a near layer, per pixel
FLAKES = (2e-4, 4e-3)  # of a pixel's radius, per pixel
NEAR = (0.1, 1.0)  # how near a layer of rain is: 1 is the nearest, whose streaks are up to 40 pixels long
STRENGTH = (0.05, 0.9)  # of streaks: single faint ones have to be seen, too
OPACITY = (0.1, 1.0)  # of flakes
VEIL_SHARE = 0.8  # of clips with rain or snow that are veiled, too: what falls far away can't be told apart
VEIL = (0.0, 0.3)  # optical depth of the veil: heavy rain takes about a quarter of the light on a hundred metres


def add_rain(clip: Tensor, streaks: Tensor, opacity: float, transmission: Tensor, airlight: Tensor, brightness: float = 1.0) -> Tensor:
    """(T, 3, H, W) with streaks (T, 1, H, W) before it, of `brightness`, all seen through a veil.

    Streaks of `opacity` 0 add their light as in Yang et al.; at 1 they hide as much as they add and never go beyond their brightness.
    """
    return add_haze(clip * (1 - opacity * streaks) + brightness * streaks, transmission, airlight)


def add_snow(clip: Tensor, mask: Tensor, colour: Tensor) -> Tensor:
    """(T, 3, H, W) behind flakes of opacity (T, 1, H, W) in [0, 1] and colour (3,)."""
    return clip * (1 - mask) + colour[:, None, None] * mask


def drawn_rain(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """Two to eight layers at as many depths, falling at about one angle: nearer streaks are longer, thicker and fewer."""
    angle, strength = draw.normal(0, 0.35), log_uniform(draw, STRENGTH)
    streaks = torch.zeros(len(clip), 1, *clip.shape[2:])
    for _ in range(draw.integers(2, 9)):
        near = log_uniform(draw, NEAR)
        shape = capsule(
            length=40 * near * draw.uniform(0.3, 1),
            angle=angle + draw.normal(0, 0.05),
            radius=1.2 * near - 0.35,
            softness=draw.uniform(0.4, 1.2),
        )
        fall = 120 * near * np.array([math.cos(angle), math.sin(angle)])
        points = drawn_points(clip.shape[2:], len(clip), log_uniform(draw, STREAKS) / near, fall, draw)
        streaks += strength * draw.uniform(0.5, 1.5) * spread(points, shape)
    transmission, airlight = _veil(clip, draw)
    return add_rain(clip, streaks.clamp(max=1), draw.uniform(0, 1), transmission, airlight, draw.uniform(0.6, 1)).clamp(0, 1)


def drawn_snow(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """Two to five layers of flakes, the largest the fewest and the most out of focus, with one wind and their own drift."""
    wind, seen = draw.normal(0, 0.6), torch.ones(len(clip), 1, *clip.shape[2:])
    for _ in range(draw.integers(2, 6)):
        radius = log_uniform(draw, (0.3, 4))
        angle = wind + draw.normal(0, 0.3)
        shape = capsule(length=radius * draw.uniform(0, 4), angle=angle, radius=radius, softness=draw.uniform(0.5, 2) * max(radius, 1))
        fall = 8 * radius * np.array([math.cos(angle), math.sin(angle)])
        points = drawn_points(clip.shape[2:], len(clip), log_uniform(draw, FLAKES) / radius**1.7, fall, draw)
        seen *= 1 - (log_uniform(draw, OPACITY) * spread(points, shape)).clamp(0, 1)
    transmission, airlight = _veil(clip, draw)
    colour = torch.from_numpy(draw.uniform(0.75, 1) * (1 + draw.normal(0, 0.02, 3))).float()
    return add_snow(add_haze(clip, transmission, airlight), 1 - seen, colour).clamp(0, 1)


def _veil(clip: Tensor, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Transmission (T or 1, 1, H, W) and airlight (3, 1, 1) of what is too far away to be seen one by one."""
    density = draw.uniform(*VEIL) if draw.random() < VEIL_SHARE else 0.0
    depth = drawn_depth(clip, draw) if draw.random() < 0.5 else torch.ones(1, 1, 1, 1)
    return torch.exp(-density * depth), torch.full((3, 1, 1), draw.uniform(0.5, 0.95))


def drawn_points(
    size: tuple[int, ...], frames: int, density: float, step: NDArray[np.float64], draw: np.random.Generator, margin: int = 32
) -> Tensor:
    """(T, 1, H + 2 margin, W + 2 margin): points of brightness about 1, `density` of them per pixel, that move by `step` in a frame.

    What leaves at one side comes in at the other, `margin` pixels beyond the picture.
    """
    room = np.array(size)[:, None] + 2 * margin
    count = draw.poisson(density * room.prod())
    start, drift = draw.uniform(0, 1, (2, count)) * room, draw.normal(0, 0.1, (2, count)) * np.hypot(*step)
    brightness = torch.from_numpy(draw.lognormal(0, 0.4, count)).float()
    maps = torch.zeros(frames, int(room.prod()))
    for number, points in enumerate(maps):
        places = ((start + (step[:, None] + drift) * number) % room).astype(int)
        points.index_add_(0, torch.from_numpy(places[0] * room[1, 0] + places[1]), brightness)
    return maps.view(frames, 1, *room[:, 0])


def spread(points: Tensor, shape: Tensor) -> Tensor:
    """Maps of `drawn_points` with a shape (side, side) at every point, the margin of 32 taken off again; larger shapes lose their ends."""
    reach, margin = shape.shape[0] // 2, 32
    inner = points[..., margin - reach : points.shape[-2] - margin + reach, margin - reach : points.shape[-1] - margin + reach]
    return F.conv2d(inner, shape.flip(0, 1)[None, None])


def capsule(length: float, angle: float, radius: float, softness: float, largest: int = 32) -> Tensor:
    """(side, side), side odd: 1 within `radius` of a segment, falling to 0 over `softness` pixels. Angle 0 points down, pi/2 right."""
    reach = min(largest, math.ceil(length / 2 + radius + softness))
    rows, columns = torch.meshgrid(*[torch.arange(-reach, reach + 1).float()] * 2, indexing="ij")
    along = rows * math.cos(angle) + columns * math.sin(angle)
    beyond = along - along.clamp(-length / 2, length / 2)
    distance = torch.hypot(columns * math.cos(angle) - rows * math.sin(angle), beyond)
    return ((radius + softness - distance) / softness).clamp(0, 1)
