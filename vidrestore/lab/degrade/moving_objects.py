"""Add bright moving objects that aren't weather: lamps with their glow, signs, sparks, balls, smoke, spray.

They are added to clean clips, so that a network that removes rain or snow learns to leave them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade.counters import log_uniform

OBJECT_KINDS = ("lamps", "sign", "sparks", "balls", "smoke")
SPEED = (0.5, 40.0)  # pixels per frame: a video of few frames a second has large ones
DARK_SHARE = 0.5  # share of clips darkened to a night, where lamps outshine the rest
DARK = (0.08, 0.5)


def add_moving_objects(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T, 3, H, W) in [0, 1] with one or two kinds of bright objects that move evenly."""
    # at night lamps outshine the scene
    if rng.random() < DARK_SHARE:
        clip = clip * log_uniform(rng, DARK)
    for kind in rng.choice(OBJECT_KINDS, int(rng.integers(1, 3)), replace=False):
        light = _smoke(clip, rng) if kind == "smoke" else _objects(clip, str(kind), rng)
        clip = clip * (1 - light[:, 3:]) + light[:, :3]
    return clip.clamp(0, 1)


def _objects(clip: Tensor, kind: str, rng: np.random.Generator) -> Tensor:
    """Return objects of one kind (T, 4, H, W): the light of R, G and B, and the opacity."""
    # where they are, and how they move
    frames, _, height, width = clip.shape
    most = {"lamps": 4, "sign": 1, "sparks": 25, "balls": 3}[kind]
    count = int(rng.integers(1, most, endpoint=True))
    centres = rng.uniform(0, 1, (count, 2)) * (height, width)
    angle = rng.uniform(0, 2 * math.pi)
    speed = log_uniform(rng, SPEED)
    move = speed * np.array([math.sin(angle), math.cos(angle)])
    moves = move * rng.uniform(0.7, 1.3, (count, 1))
    if kind == "sparks":
        moves += rng.normal(0, speed / 2, moves.shape)
    # how they look
    brightness = rng.uniform(0.6, 1.0)
    tint = 1 - rng.uniform(0, 0.7, 3) * (rng.random() < 0.6)
    colour = torch.from_numpy(brightness * tint).float()
    rows, columns = torch.meshgrid(
        torch.arange(height).float(), torch.arange(width).float(), indexing="ij"
    )
    bounds = (0.6, 1.5) if kind == "sparks" else (1.5, 12.0)
    radii = [log_uniform(rng, bounds) for _ in range(count)]
    opacity = torch.zeros(frames, 1, height, width)
    letters = torch.from_numpy(rng.integers(0, 2, (1, 1, 7, 24))).float()
    for number in range(frames):
        # the shape of each object in this frame
        for centre, move, radius in zip(centres, moves, radii, strict=True):
            down = rows - centre[0] - move[0] * number
            right = columns - centre[1] - move[1] * number
            if kind == "sign":
                grid = torch.stack((right / (4 * radius), down / (1.5 * radius)), -1)[
                    None
                ]
                shape = F.grid_sample(
                    0.5 + 0.5 * letters, grid, mode="nearest", align_corners=False
                )[0, 0]
            else:
                distance = torch.hypot(down, right)
                shape = (radius + 0.5 - distance).clamp(0, 1)
                if kind == "lamps":
                    shape = torch.maximum(
                        shape, 0.6 * torch.exp(-distance / (2 * radius))
                    )
            opacity[number, 0] = torch.maximum(opacity[number, 0], shape)
    return torch.cat((opacity * colour[:, None, None], opacity), 1)


def _smoke(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T, 4, H, W): a drifting field of several octaves, bright and partly opaque."""
    # octaves of noise
    frames, _, height, width = clip.shape
    canvas = (2 * height, 2 * width)
    field = torch.zeros(1, 1, *canvas)
    for octave in range(2, int(rng.integers(5, 8))):
        grid = torch.from_numpy(rng.normal(0, 1, (1, 1, 2**octave, 2**octave))).float()
        field += 0.6**octave * F.interpolate(
            grid, canvas, mode="bicubic", align_corners=True
        )
    low = torch.quantile(field[..., ::8, ::8], rng.uniform(0.3, 0.8))
    opacity = ((field - low) / field.std()).clamp(0, 1.5) / 1.5 * rng.uniform(0.3, 0.95)
    # it drifts as a whole
    angle = rng.uniform(0, 2 * math.pi)
    speed = min(log_uniform(rng, SPEED), 12.0)
    down, right = (speed * part for part in (math.sin(angle), math.cos(angle)))
    shifts = [(round(down * number), round(right * number)) for number in range(frames)]
    masks = [opacity[0].roll(shift, (1, 2))[:, :height, :width] for shift in shifts]
    shape = torch.stack(masks)
    colour = torch.from_numpy(
        rng.uniform(0.6, 1.0) * (1 + rng.normal(0, 0.02, 3))
    ).float()
    return torch.cat((shape * colour[:, None, None], shape), 1)
