"""Noise as it is in finished pictures: counted by a sensor in linear light, demosaiced, reduced, sharpened,
scaled, and coded as JPEG or by x264. Beside it drawn pictures and text, which have none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import av
import numpy as np
import torch
import torch.nn.functional as F
from coloured_noise import blurred
from torch import Tensor

from vidrestore.lab.degrade.added_noise import demosaiced
from vidrestore.lab.degrade.counters import log_uniform
from vidrestore.pixels.linear_light import from_light

LEVEL = (1e-4, 6e-2)  # variance of the noise at white, for light in [0, 1]
READ = (0.5, 8.0)  # electrons
REDUCED = (0.6, 3.0)  # thresholds of noise reduction, over the deviation of the noise
WEIGHTS = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Camera:
    """What one camera does to light (T, 3, H, W), drawn at random."""

    level: float
    gains: Tensor
    read: float
    steps: tuple[Callable[[Tensor], Tensor], ...]

    def exposed(self, light: Tensor, rng: np.random.Generator) -> Tensor:
        """Return R'G'B' with noise that is drawn anew, not yet coded."""
        gains = self.gains[:, None, None]
        variance = self.level * gains * light + (self.read * self.level * gains) ** 2
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        return self.developed(
            light + variance.sqrt() * torch.randn(light.shape, generator=generator)
        )

    def developed(self, light: Tensor) -> Tensor:
        for step in self.steps:
            light = step(light)
        return light.clamp(0, 1)


def random_camera(
    light: Tensor, rng: np.random.Generator, level: float | None = None
) -> Camera:
    """Draw a camera for pictures like `linear_light`, at a level of noise of its own or the given one."""
    level = log_uniform(rng, LEVEL) if level is None else level
    gains = torch.tensor([rng.uniform(1, 2.2), 1.0, rng.uniform(1, 2.2)])
    plain = Camera(
        level, gains, log_uniform(rng, READ), (*_demosaicing(rng), from_light)
    )
    part = light[:1, :, :160, :160]
    noise = yuv(plain.exposed(part, rng)) - yuv(plain.developed(part))
    strengths = noise.std((0, 2, 3)).clamp(min=1e-3)
    steps = (
        *plain.steps,
        *_reduction(strengths, rng),
        *_sharpening(rng),
        *_scaling(rng),
    )
    return Camera(level, gains, plain.read, steps)


def _demosaicing(rng: np.random.Generator) -> list[Callable[[Tensor], Tensor]]:
    if rng.random() < 0.15:
        return []
    bend, follow = (
        (0.0, 0.0)
        if rng.random() < 0.25
        else (rng.uniform(0.4, 1), rng.uniform(0.6, 1))
    )
    return [lambda light: demosaiced(light, bend, follow)]


def _reduction(
    strengths: Tensor, rng: np.random.Generator
) -> list[Callable[[Tensor], Tensor]]:
    """Smoothing of luma and, mostly stronger, of colour differences."""
    luma = _smoothing(
        rng.choice(4, p=(0.15, 0.35, 0.25, 0.25)), float(strengths[0]), rng
    )
    chroma = _smoothing(
        rng.choice(4, p=(0.2, 0.3, 0.2, 0.3)), 1.5 * float(strengths[1:].mean()), rng
    )
    left = rng.uniform(0, 0.4, 2)

    def reduced(rgb: Tensor) -> Tensor:
        y, *colours = yuv(rgb).unbind(1)
        planes = [left[0] * y + (1 - left[0]) * luma(y)]
        planes += [left[1] * plane + (1 - left[1]) * chroma(plane) for plane in colours]
        return rgb_of(torch.stack(planes, 1))

    return [reduced]


def _smoothing(
    kind: int, strength: float, rng: np.random.Generator
) -> Callable[[Tensor], Tensor]:
    threshold = strength * rng.uniform(*REDUCED)
    if kind == 0:
        return lambda plane: plane
    if kind == 1:
        reach = int(rng.choice([1, 1, 2, 2, 3]))
        return lambda plane: near_in_value(plane, reach, threshold)
    if kind == 2:
        levels = int(rng.integers(1, 4))
        return lambda plane: shrunk(plane, threshold, levels)
    size = rng.uniform(0.4, 1.6)
    return lambda plane: blurred(plane, size, size, same=False)


def near_in_value(plane: Tensor, reach: int, threshold: float) -> Tensor:
    """Means of those pixels around that differ by less than about a threshold."""
    height, width = plane.shape[1:]
    padded = F.pad(plane[:, None], (reach,) * 4, mode="replicate")[:, 0]
    total, weights = torch.zeros_like(plane), torch.zeros_like(plane)
    for down, across in product(range(2 * reach + 1), repeat=2):
        other = padded[:, down : down + height, across : across + width]
        change = other - plane
        weight = 1 / (1 + (change / threshold) ** 4)
        total, weights = total + weight * change, weights + weight
    return plane + total / weights


def shrunk(plane: Tensor, threshold: float, levels: int) -> Tensor:
    """Soft thresholds on the differences between a plane and its blurred versions."""
    details = []
    for level in range(levels):
        smooth = blurred(plane, 0.8 * 2**level, 0.8 * 2**level, same=False)
        detail = plane - smooth
        details.append(
            detail.sign() * (detail.abs() - threshold / 2**level).clamp(min=0)
        )
        plane = smooth
    return plane + sum(details)


def _sharpening(rng: np.random.Generator) -> list[Callable[[Tensor], Tensor]]:
    if rng.random() < 0.4:
        return []
    amount, size = rng.uniform(0.2, 1.4), rng.uniform(0.6, 1.5)

    def sharpened(rgb: Tensor) -> Tensor:
        y = (rgb * rgb.new_tensor(WEIGHTS)[:, None, None]).sum(1)
        return rgb + amount * (y - blurred(y, size, size, same=False))[:, None]

    return [sharpened]


def _scaling(rng: np.random.Generator) -> list[Callable[[Tensor], Tensor]]:
    if rng.random() < 0.5:
        return []
    factor, mode = (
        log_uniform(rng, (0.6, 1.8)),
        str(rng.choice(["bilinear", "bicubic"])),
    )

    def scaled(rgb: Tensor) -> Tensor:
        size = [2 * round(factor * side / 2) for side in rgb.shape[2:]]
        return F.interpolate(rgb, size, mode=mode, antialias=True, align_corners=False)

    return [scaled]


def yuv(rgb: Tensor) -> Tensor:
    """Y, U, V of BT.601 in full range, colour differences around 0."""
    red, green, blue = rgb.unbind(1)
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    return torch.stack((y, (blue - y) / 1.772, (red - y) / 1.402), 1)


def rgb_of(planes: Tensor) -> Tensor:
    y, u, v = planes.unbind(1)
    return torch.stack(
        (y + 1.402 * v, y - 0.344136 * u - 0.714136 * v, y + 1.772 * u), 1
    )


def planes_of(rgb: Tensor, *, halved: bool) -> tuple[Tensor, ...]:
    """Y, U, V on the 0-255 scale of R'G'B' from 0 to 1, of whole numbers."""
    y, *colours = yuv(rgb).unbind(1)
    if halved:
        colours = [F.avg_pool2d(plane[:, None], 2)[:, 0] for plane in colours]
    planes = (255 * y, *(127.5 + 255 * plane for plane in colours))
    return tuple(plane.round().clamp(0, 255) for plane in planes)


def as_jpeg(planes: tuple[Tensor, ...], scale: int) -> tuple[Tensor, ...]:
    """Through JPEG, one frame, by a quantiser of FFmpeg from 1 (best) to 31."""
    halved = planes[1].shape != planes[0].shape
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.height, encoder.width = planes[0].shape[1:]
    encoder.pix_fmt, encoder.time_base = (
        "yuvj420p" if halved else "yuvj444p",
        Fraction(1, 25),
    )
    encoder.qmin = encoder.qmax = scale
    encoder.thread_count = 1
    whole = [plane[0].to(torch.uint8).numpy() for plane in planes]
    flat = np.concatenate([plane.reshape(-1) for plane in whole]).reshape(
        -1, encoder.width
    )
    frame = av.VideoFrame.from_ndarray(
        flat if halved else np.stack(whole), format=encoder.pix_fmt
    )
    frame.pts, frame.time_base = 0, encoder.time_base
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    decoder = av.CodecContext.create("mjpeg", "r")
    (decoded,) = [
        each for packet in [*packets, None] for each in decoder.decode(packet)
    ]
    found = []
    for part, plane in zip(decoded.planes, planes, strict=True):
        rows = np.frombuffer(part, np.uint8).reshape(part.height, part.line_size)[
            :, : part.width
        ]
        found.append(torch.from_numpy(rows.copy()).float().view_as(plane))
    return tuple(found)


def drawn(rng: np.random.Generator, frames: int, height: int, width: int) -> Tensor:
    """R'G'B' (T, 3, H, W) of a drawn picture or a page of text, which moves by whole pixels, or not at
    all.
    """
    tall, wide = height + 3 * frames, width + 3 * frames
    kind = (_page, _shapes, _waves)[rng.choice(3, p=(0.25, 0.3, 0.45))]
    picture = kind(rng, tall, wide)
    down, across = (int(rng.choice([0, 0, 0, 1, 2, 3])) for _ in range(2))
    cuts = [(down * at, across * at) for at in range(frames)]
    return torch.stack([picture[:, y : y + height, x : x + width] for y, x in cuts])


def _page(rng: np.random.Generator, height: int, width: int) -> Tensor:
    """Letters of random strokes in lines, sharp or smooth, some bold, of any size."""
    scale = int(rng.integers(1, 5))
    rows, columns = height // (12 * scale) + 1, width // (7 * scale) + 1
    letters = np.zeros((30, 12, 7), np.float32)
    for letter in letters[3:]:
        for _ in range(rng.integers(2, 6)):
            y, x = rng.integers(0, 8), rng.integers(0, 6)
            if rng.random() < 0.5:
                letter[y, : rng.integers(2, 6)] = 1
            else:
                letter[y : rng.integers(4, 9), x] = 1
    lines = [
        np.concatenate(letters[rng.integers(30, size=columns)], 1) for _ in range(rows)
    ]
    ink = (
        torch.from_numpy(np.concatenate(lines))
        .repeat_interleave(scale, 0)
        .repeat_interleave(scale, 1)
    )
    if rng.random() < 0.5:
        ink = blurred(ink[None], 0.5, 0.5, same=False)[0]
    paper, colour = (torch.tensor(rng.uniform(0, 1, 3)).float() for _ in range(2))
    if rng.random() < 0.6:
        paper, colour = torch.full((3,), 0.95), torch.full((3,), 0.05)
    return torch.lerp(paper[:, None, None], colour[:, None, None], ink[:height, :width])


def _waves(rng: np.random.Generator, height: int, width: int) -> Tensor:
    """Smooth shading, as of a wall or the sky."""
    rows, columns = torch.meshgrid(
        torch.arange(height), torch.arange(width), indexing="ij"
    )
    lengths = [log_uniform(rng, (10, 150)) for _ in range(2)]
    wave = torch.sin(rows / lengths[0]) * torch.cos(columns / lengths[1])
    base, strength = (
        torch.tensor(rng.uniform(*span, 3)).float()[:, None, None]
        for span in ((0.2, 0.8), (0, 0.3))
    )
    return (base + strength * wave).clamp(0, 1)


def _shapes(rng: np.random.Generator, height: int, width: int) -> Tensor:
    """Discs, bars and stripes of one colour each or shaded, over a gradient; dithered now and then."""
    rows, columns = torch.meshgrid(
        torch.arange(height), torch.arange(width), indexing="ij"
    )
    slope = torch.tensor(rng.uniform(-0.5, 0.5, (3, 2)) * (rng.random() < 0.7)).float()
    base = torch.tensor(rng.uniform(0.1, 0.9, 3)).float()[:, None, None]
    picture = (
        base + slope[:, :1, None] * rows / height + slope[:, 1:, None] * columns / width
    )
    for _ in range(rng.integers(3, 60)):
        y, x, size = (
            rng.integers(height),
            rng.integers(width),
            log_uniform(rng, (4, 120)),
        )
        kind, turn = rng.random(), rng.uniform(0, np.pi)
        along = (rows - y) * np.cos(turn) + (columns - x) * np.sin(turn)
        beside = (columns - x) * np.cos(turn) - (rows - y) * np.sin(turn)
        distance = torch.maximum(along.abs(), beside.abs() * rng.uniform(0.3, 6))
        if kind < 0.4:
            distance = (along.square() + beside.square()).sqrt()
        inside = (size - distance).clamp(0, 1)
        if kind > 0.85:
            inside = inside * (along % (2 * size / rng.integers(2, 9)) < size / 6)
        colour = torch.tensor(rng.uniform(0, 1, 3)).float()[:, None, None]
        if rng.random() < 0.3:
            colour = colour + 0.3 * along / size
        picture = torch.lerp(picture, colour.expand_as(picture), inside)
    if rng.random() < 0.12:
        steps = int(rng.integers(3, 24))
        bayer = (
            torch.tensor([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]])
            / 16
        )
        dither = bayer.repeat(height // 4 + 1, width // 4 + 1)[:height, :width]
        picture = (picture * steps + dither).floor() / steps
    return picture.clamp(0, 1)
