"""Noise: white and Gaussian on samples as they are stored, and a camera's, in light.

Camera noise is of a variance that grows with the light (A. Foi et al., "Practical Poissonian-Gaussian noise modeling and fitting for
single-image raw-data", TIP 2008), from that of bright light to that of dim light, as T. Brooks et al. draw it ("Unprocessing images for
learned raw denoising", CVPR 2019), with the readout of many cameras instead of one.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.draws import log_uniform
from vidrestore.degrade.light import from_light, to_light

SHOT = (3e-4, 2e-2)  # variance of the noise of white, light in [0, 1], in log steps
READ = (0.7, 8.0)  # standard deviation of the readout in electrons, of which white then has 1 / shot
SHARPNESS = (0.0, 0.7)  # what demosaicing that follows edges keeps of the noise between the sites of a colour

DEMOSAICED, SMOOTHED = 0.6, 0.2  # shares of clips
GREEN_FILL = ((0.0, 0.25, 0.0), (0.25, 1.0, 0.25), (0.0, 0.25, 0.0))
OTHER_FILL = ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25))


def add_gaussian_noise(
    samples: Tensor, sigma: float, generator: torch.Generator | int, clip_and_round: bool = True, depth: int = 8
) -> Tensor:
    """White Gaussian noise of standard deviation `sigma` (0-255 scale) on samples of any shape; same shape, dtype and device back.

    `samples` are integers of `depth` bits, or floats on their scale. `generator` draws the noise, on its own device; a seed stands for a
    new one on the CPU, which draws the same on every machine. Frames of a video need one generator: with the same seed for each, their
    noise would stand still. `clip_and_round` gives what a file can hold, whole samples in [0, 2^depth - 1]; integers can't do without it
    (ValueError).
    """
    if not (clip_and_round or samples.dtype.is_floating_point):
        raise ValueError(f"noise on {samples.dtype} samples has to be clipped and rounded; convert to float to keep it as drawn")
    if isinstance(generator, int):
        generator = torch.Generator().manual_seed(generator)
    noise = torch.randn(samples.shape, generator=generator, device=generator.device).to(samples.device)
    noisy = noise.mul_(sigma * 2 ** (depth - 8)).add_(samples.to(torch.float32))
    if clip_and_round:
        noisy = noisy.round_().clamp_(0, 2**depth - 1)
    return noisy.to(samples.dtype)


def add_camera_noise(clip: Tensor, shot: Tensor, read: Tensor, noise: Tensor) -> Tensor:
    """(T, 3, H, W) with noise of variance shot * light + read, each (3,) for R, G, B; `noise` is normal, of unit variance."""
    light = to_light(clip)
    return from_light(light + noise * (shot[:, None, None] * light + read[:, None, None]).sqrt())


def drawn_noise(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """Noise of a drawn camera: stronger in red and blue, which white balance amplifies; mostly as demosaicing leaves it, or smoothed."""
    level = log_uniform(draw, SHOT)
    gains = torch.tensor([draw.uniform(1, 2.2), 1.0, draw.uniform(1, 2.2)])
    read = (log_uniform(draw, READ) * level) ** 2
    noise = torch.from_numpy(draw.standard_normal(clip.shape, dtype=np.float32))
    kind = draw.random()
    if kind < DEMOSAICED:
        follow = draw.uniform(0, 1), draw.uniform(0, 1)
        rows = torch.from_numpy(draw.standard_normal((len(clip), 1, clip.shape[2], 1), dtype=np.float32)) * draw.uniform(0, 0.3)
        noise = demosaiced_noise(noise + rows, follow).lerp(noise + rows, draw.uniform(*SHARPNESS))
    elif kind < DEMOSAICED + SMOOTHED:
        noise = smoothed(noise, draw.uniform(0, 0.5))
    return add_camera_noise(clip, level * gains, read * gains**2, noise)


def demosaiced_noise(noise: Tensor, follow: tuple[float, float]) -> Tensor:
    """Noise (T, 3, H, W) of which a sensor behind red, green / green, blue keeps one colour per pixel, interpolated again.

    Green is interpolated bilinearly; red and blue as differences from `follow` times green (D. Cok's constant colour differences, US patent
    4,642,678, 1987; 0: bilinearly, each by itself). So noise is coarse, and partly the same in all colours.
    """
    sites = torch.zeros(3, 2, 2)
    sites[0, 0, 0] = sites[1, 0, 1] = sites[1, 1, 0] = sites[2, 1, 1] = 1
    height, width = noise.shape[2:]
    raw = noise * sites.repeat(1, -(-height // 2), -(-width // 2))[:, :height, :width]
    green = _filled(raw[:, 1:2], GREEN_FILL)
    others = []
    for colour, share in zip((0, 2), follow, strict=True):
        there = sites[colour].repeat(-(-height // 2), -(-width // 2))[:height, :width]
        others.append(_filled(raw[:, colour : colour + 1] - share * green * there, OTHER_FILL) + share * green)
    return torch.cat((others[0], green, others[1]), 1)


def _filled(sparse: Tensor, kernel: tuple[tuple[float, ...], ...]) -> Tensor:
    """(T, 1, H, W) with values at some pixels, the others interpolated from those."""
    return F.conv2d(F.pad(sparse, (1, 1, 1, 1), mode="circular"), torch.tensor(kernel)[None, None])


def smoothed(noise: Tensor, share: float) -> Tensor:
    """White noise (T, 3, H, W) with `share` of each sample given to either neighbour across and down, of the same variance again."""
    line = torch.tensor([share, 1.0, share])
    kernel = torch.outer(line, line) / line.square().sum()
    padded = F.pad(noise, (1, 1, 1, 1), mode="circular").flatten(0, 1)[:, None]
    return F.conv2d(padded, kernel[None, None]).view_as(noise)
