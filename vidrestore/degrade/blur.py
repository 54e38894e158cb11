"""Motion blur as mean light over the exposure: of consecutive frames, or along a shaken camera's way.

Means of frames as in GoPro (S. Nah et al., "Deep multi-scale convolutional neural network for dynamic scene deblurring", CVPR 2017);
ways by a random walk with inertia (G. Boracchi, A. Foi, "Modeling the performance of image restoration from motion blur", TIP 2012, as
O. Kupyn et al., DeblurGAN, CVPR 2018 draw it).
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

MOMENTS = 64  # of one exposure
SPAN = (2.0, 28.0)  # pixels that the camera moves during one, in log steps
SHAKE = 0.03  # chance per moment of a jerk that turns it round


def mean_light(frames: Tensor) -> Tensor:
    """(T, 3, H, W) consecutive frames -> (1, 3, H, W), what one exposure over all of them shows."""
    return from_light(to_light(frames).mean(0, keepdim=True))


def drawn_blur(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """Every frame blurred along its part of one drawn way, and where it was in the middle of that."""
    way = drawn_way(len(clip) * MOMENTS, draw)
    spans = [float(np.ptp(part, axis=0).max()) for part in np.split(way, len(clip))]
    way *= log_uniform(draw, SPAN) / max(*spans, 1e-9)
    kernels = [kernel_of(part) for part in np.split(way, len(clip))]
    return torch.cat([blurred(frame[None], kernel) for frame, kernel in zip(clip, kernels, strict=True)])


def drawn_way(moments: int, draw: np.random.Generator) -> NDArray[np.float64]:
    """(moments, 2) rows and columns: a walk with inertia, pulled back to its start, jerked now and then."""
    inertia, noise, pull = draw.uniform(0.7, 1), 10 ** draw.uniform(-2.5, -0.3), draw.uniform(0, 0.05)
    place, velocity = np.zeros(2), draw.normal(0, 1, 2)
    way = np.empty((moments, 2))
    for number in range(moments):
        way[number] = place
        jerk = 2 * velocity + draw.normal(0, 0.5, 2) if draw.random() < SHAKE * noise else 0
        velocity = inertia * velocity + noise * draw.normal(0, 1, 2) - pull * place / MOMENTS - jerk
        velocity /= max(float(np.hypot(*velocity)), 1e-9)
        place = place + velocity
    return way


def kernel_of(way: NDArray[np.float64]) -> Tensor:
    """(side, side), side odd, sum 1: how long a point stays where, with its place in the middle of the way (moments, 2) in the centre."""
    places = way - way[len(way) // 2]
    reach = math.ceil(np.abs(places).max()) + 1
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    base = np.floor(places).astype(int)
    share = places - base
    for down in (0, 1):
        for right in (0, 1):
            part = np.abs(1 - down - share[:, 0]) * np.abs(1 - right - share[:, 1])
            np.add.at(kernel, (base[:, 0] + down + reach, base[:, 1] + right + reach), part)
    return torch.from_numpy(kernel / kernel.sum()).float()


def gaussian_blurred(clip: Tensor, sigma: float) -> Tensor:
    """(T, 3, H, W) under a Gaussian of `sigma` pixels, in display values; edge pixels are continued."""
    reach = math.ceil(3 * sigma)
    line = torch.exp(-torch.arange(-reach, reach + 1).float().square() / (2 * sigma**2))
    line /= line.sum()
    planes = F.pad(clip, [reach] * 4, mode="replicate").flatten(0, 1)[:, None]
    return F.conv2d(F.conv2d(planes, line[None, None, None]), line[None, None, :, None]).view_as(clip)


def blurred(clip: Tensor, kernel: Tensor) -> Tensor:
    """(T, 3, H, W) whose light is spread by a kernel (side, side); edge pixels are continued."""
    reach = len(kernel) // 2
    light = F.pad(to_light(clip), [reach] * 4, mode="replicate").flatten(0, 1)[:, None]
    return from_light(F.conv2d(light, kernel.flip(0, 1)[None, None])).view_as(clip)
