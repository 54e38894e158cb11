"""Noise as real footage has it, on clean windows: drawn anew each time, from many kinds, and coded by x264 or
MJPEG as often as not.

White noise, noise of any coarseness along and across lines, noise whose strength follows the brightness, a
camera's behind a Bayer filter, chroma noise of its own strength, what sharpening and smoothing over time make
of it (as much of both in all planes; in the samples behind the fits so far it was drawn for each plane). Some
windows stay clean: a denoiser has to leave those alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from coloured_noise import CHROMA, LUMA, blurred, coloured_noise, processed, white
from torch import Tensor

from vidrestore.lab.degrade import DEGRADATIONS
from vidrestore.lab.degrade.counters import log_uniform
from vidrestore.media.writing.recompress import recompress, recompress_pictures

Planes = tuple[Tensor, ...]  # Y, U, V (T, H, W) of 4:2:0, float32 on the 0-255 scale

PRESETS = ("ultrafast", "veryfast", "medium")
CLEAN, WHITE, CAMERA = 0.08, 0.27, 0.15  # shares of windows
DARKENED = 0.25
CODED = 0.6  # of those that are not white; a third of the white ones


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
    bright = (clean[0], *(F.avg_pool2d(clean[0], 2) for _ in clean[1:]))
    noise = (
        camera_noise(clean, rng)
        if kind < CLEAN + WHITE + CAMERA
        else coloured_noise(bright, rng)
    )
    noise = processed(noise, rng)
    seen = whole(tuple(plane + part for plane, part in zip(clean, noise, strict=True)))
    coded = rng.random() < CODED
    return Noisy(coded_by_x264(seen, rng) if coded else seen, clean, coded=coded)


def noise_of_any_kind(clean: Planes, rng: np.random.Generator) -> Noisy:
    """White noise, a camera's or coloured, on a window that is darkened now and then; of luma or of colour
    alone in a quarter.
    """
    if rng.random() < DARKENED:
        contrast = rng.uniform(0.3, 0.9)
        clean = (
            16 + (clean[0] - 16) * contrast,
            *(128 + (plane - 128) * contrast for plane in clean[1:]),
        )
    bright, kind = (
        (clean[0], *(F.avg_pool2d(clean[0], 2) for _ in clean[1:])),
        rng.random(),
    )
    if kind < 0.25:
        noise = tuple(log_uniform(rng, (2, 40)) * white(plane, rng) for plane in clean)
    elif kind < 0.45:
        noise = camera_noise(clean, rng)
    else:
        noise = coloured_noise(bright, rng)
    if rng.random() < 0.4:
        noise = processed(noise, rng)
    if (one := rng.random()) < 0.25:
        noise = tuple(
            plane * float((index > 0) == (one < 0.15))
            for index, plane in enumerate(noise)
        )
        clean = whole(clean)
    seen = whole(tuple(plane + part for plane, part in zip(clean, noise, strict=True)))
    coded = one > 0.25 and rng.random() < 0.4
    return Noisy(coded_by_any(seen, rng) if coded else seen, clean, coded=coded)


def clean_window(planes: Planes, rng: np.random.Generator) -> Planes:
    """As filmed, made smaller, sharpened, or in few flat colours as drawn pictures are; coded by x264 or JPEG
    more often than not.
    """
    kind = rng.random()
    if kind < 0.2:
        planes = tuple(F.avg_pool2d(plane, 2) for plane in planes)
    elif kind < 0.3:
        step, side = float(rng.choice([12, 24, 48])), int(rng.choice([1, 3, 5]))
        planes = tuple(
            (F.avg_pool2d(plane, side, 1, side // 2) / step).round() * step
            for plane in planes
        )
    elif kind < 0.5:
        amount = [rng.uniform(0.3, 1.5) for _ in planes]
        planes = tuple(
            plane + more * (plane - smoothed(plane))
            for plane, more in zip(planes, amount, strict=True)
        )
    return coded_by_any(whole(planes), rng) if rng.random() < 0.7 else whole(planes)


def smoothed(plane: Tensor) -> Tensor:
    return F.avg_pool2d(F.pad(plane[:, None], (1, 1, 1, 1), mode="replicate"), 3, 1)[
        :, 0
    ]


def coded_by_any(planes: Planes, rng: np.random.Generator) -> Planes:
    """Through x264 or, now and then, Motion JPEG, and back."""
    if rng.random() < 0.7:
        return coded_by_x264(planes, rng)
    frames = [
        tuple(part.to(torch.uint8).numpy() for part in frame)
        for frame in zip(*planes, strict=True)
    ]
    back = recompress_pictures(frames, int(rng.integers(2, 10)))
    return tuple(
        torch.from_numpy(np.stack(plane)).float() for plane in zip(*back, strict=True)
    )


def clean_as_it_is(clean: Planes, share: float, rng: np.random.Generator) -> Noisy:
    """Without noise; coded in `share` of the cases."""
    coded = rng.random() < share
    return Noisy(
        coded_by_x264(clean, rng) if coded else clean, clean, (0.0,) * len(clean), coded
    )


def _white(clean: Planes, rng: np.random.Generator) -> Noisy:
    """The same on all planes, as often as not; coded now and then."""
    luma = log_uniform(rng, LUMA)
    chroma = luma if rng.random() < 0.6 else log_uniform(rng, CHROMA)
    sigma = (luma, chroma, chroma)
    seen = whole(
        tuple(
            plane + level * white(plane, rng)
            for plane, level in zip(clean, sigma, strict=True)
        )
    )
    if rng.random() < 0.33:
        return Noisy(coded_by_x264(seen, rng), clean, coded=True)
    return Noisy(seen, clean, sigma)


def camera_noise(clean: Planes, rng: np.random.Generator) -> Planes:
    """A sensor's noise behind a Bayer filter, in a picture that is often dark; chroma smoothed by the camera
    now and then.
    """
    y, u, v = clean
    u, v = (
        F.interpolate(plane[None], size=y.shape[1:], mode="bilinear")[0]
        for plane in (u, v)
    )
    rgb = torch.stack(rgb_of(y, u, v), 1).clamp(0, 1)
    noise = DEGRADATIONS["noise"](rgb, rng) - rgb
    luma = noise[:, 0] * 0.299 + noise[:, 1] * 0.587 + noise[:, 2] * 0.114
    chroma = [
        F.avg_pool2d((noise[:, channel] - luma) / span, 2)
        for channel, span in ((2, 1.772), (0, 1.402))
    ]
    if rng.random() < 0.5:
        size = rng.uniform(0.5, 1.5)
        chroma = [blurred(plane, size, size, same=False) for plane in chroma]
    return 219 * luma, 224 * chroma[0], 224 * chroma[1]


def rgb_of(y: Tensor, u: Tensor, v: Tensor) -> list[Tensor]:
    """Return R, G, B, from 0 to 1 but for overshoots, of planes of one size (BT.601, limited range)."""
    y, u, v = (y - 16) / 219, (u - 128) / 224, (v - 128) / 224
    return [y + 1.402 * v, y - 0.344 * u - 0.714 * v, y + 1.772 * u]


def whole(planes: Planes) -> Planes:
    return tuple(plane.round().clamp(0, 255) for plane in planes)


def coded_by_x264(planes: Planes, rng: np.random.Generator) -> Planes:
    """Through x264 and back."""
    crf, preset = rng.uniform(14, 32), str(rng.choice(PRESETS))
    whole = [plane.round().clamp(0, 255).to(torch.uint8).numpy() for plane in planes]
    frames = recompress(
        [(y, u, v) for y, u, v in zip(*whole, strict=True)], crf, preset
    )
    return tuple(
        torch.from_numpy(np.stack(plane)).float() for plane in zip(*frames, strict=True)
    )
