"""Motion blur as mean light over the exposure: of consecutive frames, or along ways of a camera and of
things.

Means of frames as in GoPro (S. Nah et al., "Deep multi-scale convolutional neural network for dynamic scene
deblurring", CVPR 2017); ways by a random walk with inertia (G. Boracchi, A. Foi, "Modeling the performance of
image restoration from motion blur", TIP 2012, as O. Kupyn et al., DeblurGAN, CVPR 2018 draw it). What is near
moves more, and things move by themselves: such a part of the scene has its own way, and lies before the rest.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.light import from_light, to_light
from vidrestore.degrade.regions import random_regions

MOMENTS = 64  # of one exposure
SPAN = (1.5, 32.0)  # pixels that the camera moves during one, in log steps
SHAKE = 0.03  # chance per moment of a jerk that turns it round
PART_SHARE = 0.35  # of clips of which a part moves otherwise: it is nearer, or moves by itself
STILL_SHARE = 0.4  # of these, whose camera keeps still
DEFOCUS_SHARE = 0.2  # of clips that are a little out of focus, too
DEFOCUS = (0.4, 1.8)  # pixels: radius of the circle that a point becomes
COARSE = 4  # pixels: the cells that motion is measured on


def mean_light(frames: Tensor) -> Tensor:
    """(T, 3, H, W) consecutive frames -> (1, 3, H, W), what one exposure over all of them shows."""
    return from_light(to_light(frames).mean(0, keepdim=True))


def means_of_light(clip: Tensor, exposure: int) -> Tensor:
    """(T * exposure, 3, H, W) frames -> (T, 3, H, W), the mean light of `exposure` frames each."""
    return from_light(to_light(clip).unflatten(0, (-1, exposure)).mean(1))


def motion(clip: Tensor) -> float:
    """About how many pixels a clip moves from frame to frame: its change in time over that in space."""
    if len(clip) < 2:
        return 0.0
    coarse = F.avg_pool2d(clip.mean(1), COARSE)
    along = (coarse[:, :, 1:] - coarse[:, :, :-1]).abs().mean() + (
        coarse[:, 1:] - coarse[:, :-1]
    ).abs().mean()
    return float(2 * COARSE * (coarse[1:] - coarse[:-1]).abs().mean() / along.clamp(min=1e-3))


def drawn_blur(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Blur every frame along its part of one drawn path, about the path's middle; often regions apart."""
    way, lens = scaled_way(len(clip), rng), None
    if rng.random() < DEFOCUS_SHARE:
        lens = disc(log_uniform(rng, DEFOCUS))
    if rng.random() >= PART_SHARE:
        return blurred(clip, kernels_of(way, len(clip), lens))
    part = drawn_part(clip, rng)
    if rng.random() < STILL_SHARE:
        still = kernels_of(np.zeros_like(way), len(clip), lens)
        return parts_blurred(clip, part, kernels_of(way, len(clip), lens), still)
    nearer = way * rng.uniform(1.3, 3) if rng.random() < 0.5 else way + straight_way(len(clip), rng)
    spans = [float(np.ptp(piece, axis=0).max()) for piece in np.split(nearer, len(clip))]
    nearer *= min(1.0, SPAN[1] / max(*spans, 1e-9))
    return parts_blurred(clip, part, kernels_of(nearer, len(clip), lens), kernels_of(way, len(clip), lens))


def scaled_way(frames: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(frames * MOMENTS, 2): a drawn way whose longest exposure spans a drawn number of pixels."""
    way = drawn_way(frames * MOMENTS, rng)
    spans = [float(np.ptp(part, axis=0).max()) for part in np.split(way, frames)]
    way *= log_uniform(rng, SPAN) / max(*spans, 1e-9)
    return way


def straight_way(frames: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(frames * MOMENTS, 2): evenly along a line, as most things move during an exposure."""
    angle, length = rng.uniform(0, 2 * math.pi), log_uniform(rng, SPAN)
    along = np.linspace(0, length * frames, frames * MOMENTS)
    return np.stack([math.sin(angle) * along, math.cos(angle) * along], 1)


def drawn_way(moments: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(moments, 2) rows and columns: a walk with inertia, pulled back to its start, jerked now and then."""
    inertia, noise, pull = (
        rng.uniform(0.7, 1),
        10 ** rng.uniform(-2.5, -0.3),
        rng.uniform(0, 0.05) / MOMENTS,
    )
    down, right = rng.normal(0, 1, 2).tolist()
    pushes, chances, jerks = (
        rng.normal(0, noise, (moments, 2)).tolist(),
        rng.random(moments).tolist(),
        rng.normal(0, 0.5, (moments, 2)),
    )
    row = column = 0.0
    way = []
    for (push_down, push_right), chance, jerk in zip(pushes, chances, jerks.tolist(), strict=True):
        way.append((row, column))
        turned = chance < SHAKE * noise
        jerk_down, jerk_right = (2 * down + jerk[0], 2 * right + jerk[1]) if turned else (0.0, 0.0)
        down = inertia * down + push_down - pull * row - jerk_down
        right = inertia * right + push_right - pull * column - jerk_right
        speed = max(math.hypot(down, right), 1e-9)
        down, right = down / speed, right / speed
        row, column = row + down, column + right
    return np.array(way)


def drawn_part(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """(T, 1, H, W) in [0, 1]: some regions of the scene together."""
    regions = random_regions(clip, rng)
    chosen = torch.from_numpy(rng.random(int(regions.max()) + 1) < rng.uniform(0.15, 0.6)).float()
    return chosen[regions][:, None]


def kernel_of(way: NDArray[np.float64], reach: int | None = None) -> Tensor:
    """(side, side), side odd, sum 1: how long a point stays where, with its place in the middle of the way
    (moments, 2) in the centre.
    """
    places = way - way[len(way) // 2]
    reach = reach or math.ceil(np.abs(places).max()) + 1
    side = 2 * reach + 1
    base = np.floor(places).astype(int)
    share = places - base
    kernel = np.zeros(side * side)
    for down in (0, 1):
        for right in (0, 1):
            part = np.abs(1 - down - share[:, 0]) * np.abs(1 - right - share[:, 1])
            kernel += np.bincount(
                (base[:, 0] + down + reach) * side + base[:, 1] + right + reach, part, side * side
            )
    return torch.from_numpy(kernel / kernel.sum()).float().view(side, side)


def kernels_of(way: NDArray[np.float64], frames: int, lens: Tensor | None = None) -> Tensor:
    """(frames, side, side): the kernels of the frames' parts of a way, through a lens (side, side)."""
    parts = np.split(way, frames)
    reach = max(math.ceil(np.abs(part - part[len(part) // 2]).max()) for part in parts) + 1
    kernels = torch.stack([kernel_of(part, reach) for part in parts])
    return (
        kernels if lens is None else F.conv2d(kernels[:, None], lens[None, None], padding=len(lens) - 1)[:, 0]
    )


def disc(radius: float) -> Tensor:
    """(side, side), side odd, sum 1: the circle that a lens out of focus makes of a point."""
    reach = math.ceil(radius)
    line = torch.arange(-reach, reach + 1).float()
    shape = (radius + 0.5 - torch.hypot(line[:, None], line)).clamp(0, 1)
    return shape / shape.sum()


def gaussian_blurred(clip: Tensor, sigma: float) -> Tensor:
    """(T, 3, H, W) under a Gaussian of `sigma` pixels, in display values; edge pixels are continued."""
    reach = math.ceil(3 * sigma)
    line = torch.exp(-torch.arange(-reach, reach + 1).float().square() / (2 * sigma**2))
    line /= line.sum()
    planes = F.pad(clip, [reach] * 4, mode="replicate").flatten(0, 1)[:, None]
    return F.conv2d(F.conv2d(planes, line[None, None, None]), line[None, None, :, None]).view_as(clip)


def blurred(clip: Tensor, kernels: Tensor) -> Tensor:
    """(T, 3, H, W) whose light is spread by kernels (T or 1, side, side); edge pixels are continued."""
    return from_light(Spread(clip.shape[2:], kernels)(to_light(clip)))


def parts_blurred(clip: Tensor, part: Tensor, front: Tensor, back: Tensor) -> Tensor:
    """(T, 3, H, W) of which the part (T, 1, H, W) moves by `front`, the rest behind by `back`: (T, side,
    side).

    The rest goes on behind the part as it is around it.
    """
    layers = torch.cat((to_light(clip) * part, part), 1)
    before, behind = (Spread(clip.shape[2:], kernels) for kernels in (front, back))
    moved = before(layers)
    rest = behind(torch.cat((to_light(clip), torch.ones_like(part)), 1) - layers)
    filled = (rest[:, :3] + 1e-3 * to_light(clip)) / (rest[:, 3:] + 1e-3)
    return from_light(moved[:, :3] + (1 - moved[:, 3:]) * filled)


class Spread:
    """Spread planes (T, C, H, W) by kernels (T or 1, side, side) in Fourier space, edges repeated."""

    def __init__(self, size: torch.Size, kernels: Tensor) -> None:
        self.reach, self.size = kernels.shape[-1] // 2, tuple(size)
        self.room = [-(-(side + 2 * self.reach) // 16) * 16 for side in size]
        self.spectra = torch.fft.rfft2(kernels, s=self.room)[:, None]

    def __call__(self, planes: Tensor) -> Tensor:
        height, width = self.size
        padded = F.pad(planes, [self.reach] * 4, mode="replicate")
        spread: Tensor = torch.fft.irfft2(torch.fft.rfft2(padded, s=self.room) * self.spectra, s=self.room)
        return spread[..., 2 * self.reach :, 2 * self.reach :][..., :height, :width]
