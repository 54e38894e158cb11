"""Noise as real footage has it, on clean windows: drawn anew each time, from many kinds, and coded by x264 or
MJPEG as often as not.

White noise, noise of any coarseness along and across lines, noise whose strength follows the brightness, a
camera's behind a Bayer filter, chroma noise of its own strength, what sharpening and smoothing over time make
of it. Some windows stay clean: a denoiser has to leave those alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.added_noise import random_noise
from vidrestore.degrade.draws import log_uniform
from vidrestore.media.recompress import recompress

Planes = tuple[Tensor, ...]  # Y, U, V (T, H, W) of 4:2:0, float32 on the 0-255 scale

LUMA, CHROMA = (1.0, 55.0), (0.7, 40.0)  # standard deviations
PRESETS = ("ultrafast", "veryfast", "medium")
CLEAN, WHITE, CAMERA = 0.08, 0.27, 0.15  # shares of windows
CODED = 0.6  # of those that are not white; a third of the white ones
COARSEST = 2.2  # pixels, standard deviation of the blur


@dataclass(frozen=True)
class Noisy:
    """`seen`: what a denoiser is given, whole numbers; `clean`: what it should return; `sigma`: per plane, of
    white noise and of none.
    """

    seen: Planes
    clean: Planes
    sigma: tuple[float, ...] | None = None
    coded: bool = False


def noisy_window(clean: Planes, rng: np.random.Generator) -> Noisy:
    """Noise of a drawn kind on a window with even sides."""
    kind = rng.random()
    if kind < CLEAN:
        return clean_as_it_is(clean, 0.5, rng)
    if kind < CLEAN + WHITE:
        return _white(clean, rng)
    noise = _camera(clean, rng) if kind < CLEAN + WHITE + CAMERA else _coloured(clean, rng)
    if rng.random() < 0.2:
        noise = tuple(_sharpened(plane, rng.uniform(0.2, 0.9)) for plane in noise)
    if rng.random() < 0.15:
        noise = tuple(_lingering(plane, rng.uniform(0.2, 0.6)) for plane in noise)
    seen = _whole(tuple(plane + part for plane, part in zip(clean, noise, strict=True)))
    coded = rng.random() < CODED
    return Noisy(_coded(seen, rng) if coded else seen, clean, coded=coded)


def clean_as_it_is(clean: Planes, share: float, rng: np.random.Generator) -> Noisy:
    """Without noise; coded in `share` of the cases."""
    coded = rng.random() < share
    return Noisy(_coded(clean, rng) if coded else clean, clean, (0.0,) * len(clean), coded)


def _white(clean: Planes, rng: np.random.Generator) -> Noisy:
    """The same on all planes, as often as not; coded now and then."""
    luma = log_uniform(rng, LUMA)
    chroma = luma if rng.random() < 0.6 else log_uniform(rng, CHROMA)
    sigma = (luma, chroma, chroma)
    seen = _whole(
        tuple(plane + level * _normal(plane, rng) for plane, level in zip(clean, sigma, strict=True))
    )
    return Noisy(_coded(seen, rng), clean, coded=True) if rng.random() < 0.33 else Noisy(seen, clean, sigma)


def _coloured(clean: Planes, rng: np.random.Generator) -> Planes:
    """Draw strength, coarseness and curve over brightness per plane; both chroma planes share one kind."""
    luma, chroma = log_uniform(rng, LUMA), log_uniform(rng, CHROMA)
    strengths, shapes = (luma, chroma, chroma), [_shape(rng, 0.6), _shape(rng, 1.2)]
    curve = _curve(rng)
    brightness = (clean[0], *(F.avg_pool2d(clean[0], 2) for _ in clean[1:]))
    noise = []
    for number, (plane, strength) in enumerate(zip(clean, strengths, strict=True)):
        drawn = _blurred(_normal(plane, rng), *shapes[min(number, 1)])
        if rng.random() < 0.25:  # of two grains
            drawn = 0.8 * drawn + 0.6 * _normal(plane, rng)
        noise.append(strength * drawn * _at(curve, brightness[number]))
    return tuple(noise)


def _shape(rng: np.random.Generator, typical: float) -> tuple[float, float]:
    """Blur down and across in pixels: none, the same both ways, or along lines."""
    kind = rng.random()
    if kind < 0.2:
        return 0.0, 0.0
    size = min(COARSEST * typical, rng.exponential(typical) + 0.2)
    if kind < 0.75:
        return size, size
    return 0.3 * rng.random() * size, rng.uniform(1, 3.5) * size


def _curve(rng: np.random.Generator) -> tuple[float, ...]:
    """Strength at black, a quarter, the middle, three quarters and white; about 1 on average."""
    if rng.random() < 0.3:
        return (1.0,) * 5
    tilt, bow = rng.uniform(-0.8, 0.8), rng.uniform(-0.5, 1.0)
    return tuple(
        max(0.1, 1 + tilt * (2 * x - 1) + bow * (4 * x * (1 - x) - 0.6)) for x in (0.0, 0.25, 0.5, 0.75, 1.0)
    )


def _at(curve: tuple[float, ...], brightness: Tensor) -> Tensor:
    """The curve at a brightness on the 0-255 scale, by straight lines."""
    place = (brightness / 255 * (len(curve) - 1)).clamp(0, len(curve) - 1.001)
    knots = torch.tensor(curve)
    low = place.long()
    return torch.lerp(knots[low], knots[low + 1], place - low)


def _camera(clean: Planes, rng: np.random.Generator) -> Planes:
    """A sensor's noise behind a Bayer filter, in a picture that is often dark; chroma smoothed by the camera
    now and then.
    """
    y, u, v = (
        (plane - offset) / scale
        for plane, offset, scale in zip(clean, (16, 128, 128), (219, 224, 224), strict=True)
    )
    u, v = (F.interpolate(plane[None], size=y.shape[1:], mode="bilinear")[0] for plane in (u, v))
    rgb = torch.stack([y + 1.402 * v, y - 0.344 * u - 0.714 * v, y + 1.772 * u], 1).clamp(0, 1)
    noise = random_noise(rgb, rng) - rgb
    luma = noise[:, 0] * 0.299 + noise[:, 1] * 0.587 + noise[:, 2] * 0.114
    chroma = [
        F.avg_pool2d((noise[:, channel] - luma) / span, 2) for channel, span in ((2, 1.772), (0, 1.402))
    ]
    if rng.random() < 0.5:
        size = rng.uniform(0.5, 1.5)
        chroma = [_blurred(plane, size, size, same=False) for plane in chroma]
    return 219 * luma, 224 * chroma[0], 224 * chroma[1]


def _blurred(noise: Tensor, down: float, across: float, *, same: bool = True) -> Tensor:
    """Under a Gaussian of these standard deviations; with `same`, of the variance that white noise had
    before.
    """
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


def _sharpened(noise: Tensor, amount: float) -> Tensor:
    return noise + amount * (noise - _blurred(noise, 0.8, 0.8, same=False))


def _lingering(noise: Tensor, share: float) -> Tensor:
    """As a camera's smoothing over time leaves it."""
    frames = [noise[0]]
    for frame in noise[1:]:
        frames.append(share * frames[-1] + (1 - share) * frame)
    return torch.stack(frames)


def _normal(plane: Tensor, rng: np.random.Generator) -> Tensor:
    return torch.randn(plane.shape, generator=torch.Generator().manual_seed(int(rng.integers(2**62))))


def _whole(planes: Planes) -> Planes:
    return tuple(plane.round().clamp(0, 255) for plane in planes)


def _coded(planes: Planes, rng: np.random.Generator) -> Planes:
    """Through x264 and back."""
    crf, preset = rng.uniform(14, 32), str(rng.choice(PRESETS))
    whole = [plane.round().clamp(0, 255).to(torch.uint8).numpy() for plane in planes]
    frames = recompress([(y, u, v) for y, u, v in zip(*whole, strict=True)], crf, preset)
    return tuple(torch.from_numpy(np.stack(plane)).float() for plane in zip(*frames, strict=True))
