"""Noise: white and Gaussian on stored samples, or a camera's, in linear light.

The variance of camera noise grows with the light (A. Foi et al., "Practical Poissonian-Gaussian noise
modeling and fitting for single-image raw-data", TIP 2008). Its strength ranges from bright to dim light, as
in T. Brooks et al. ("Unprocessing images for learned raw denoising", CVPR 2019), with the readout of many
cameras instead of one.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade.draws import log_uniform
from vidrestore.light import from_light, to_light

SHOT = (3e-4, 1.2e-2)  # variance of the noise at white, for light in [0, 1], log-uniform
READ = (0.7, 8.0)  # standard deviation of the readout in electrons; white has 1 / shot of them
BEND, FOLLOW = (0.4, 1.0), (0.6, 1.0)  # the camera's demosaicing; see `demosaiced`
ROWS = (0.0, 0.3)  # standard deviation of noise common to a row, relative to each pixel's own

DEMOSAICED, SMOOTHED = 0.8, 0.1  # shares of clips
CHROMA_SHARE = 0.15  # of clips with coarse chroma noise in addition, as a camera's denoising leaves it
CHROMA = (0.008, 0.05)  # its standard deviation in display values
COARSE = (2, 9)  # its grain size in pixels, down and across
WHITE = (3 / 255, 60 / 255)  # standard deviation of white noise in display values, log-uniform


def add_gaussian_noise(
    samples: Tensor,
    sigma: float,
    generator: torch.Generator | int,
    clip_and_round: bool = True,
    depth: int = 8,
) -> Tensor:
    """Add white Gaussian noise of standard deviation `sigma` (0-255 scale) to samples of any shape; keep
    shape, dtype and device.

    `samples` are integers of `depth` bits, or floats on their scale. The noise comes from `generator`, on its
    device; a seed stands for a new generator on the CPU, which gives the same noise on every machine. Use one
    generator for all frames of a video: with the same seed for each, their noise would be the same.
    `clip_and_round` returns whole samples in [0, 2^depth - 1], as a file holds them; ValueError for integers
    without it.
    """
    if not (clip_and_round or samples.dtype.is_floating_point):
        raise ValueError(
            f"noise on {samples.dtype} samples has to be clipped and rounded; convert to float to keep it "
            "as drawn"
        )
    if isinstance(generator, int):
        generator = torch.Generator().manual_seed(generator)
    noise = torch.randn(samples.shape, generator=generator, device=generator.device).to(samples.device)
    noisy = noise.mul_(sigma * 2 ** (depth - 8)).add_(samples.to(torch.float32))
    if clip_and_round:
        noisy = noisy.round_().clamp_(0, 2**depth - 1)
    return noisy.to(samples.dtype)


def add_camera_noise(clip: Tensor, shot: Tensor, read: Tensor, noise: Tensor) -> Tensor:
    """Add noise of variance shot * light + read, each (3,) for R, G, B, to (T, 3, H, W); `noise` is standard
    normal.
    """
    light = to_light(clip)
    return from_light(light + _scaled(noise, light, shot, read))


def _scaled(noise: Tensor, light: Tensor, shot: Tensor, read: Tensor) -> Tensor:
    return noise * (shot[:, None, None] * light + read[:, None, None]).sqrt()


def random_noise(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Add the noise of a random camera: stronger in red and blue, which white balance amplifies; mostly
    demosaiced, or smoothed.
    """
    noisy = _sensed(clip, rng)
    return (noisy + random_chroma(clip, rng)).clamp_(0, 1) if rng.random() < CHROMA_SHARE else noisy


def random_white_noise(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Add white noise of random strength: to R', G' and B', or to luma and to colour differences of half the
    size, as video stores them.
    """
    sigma, (height, width) = log_uniform(rng, WHITE), clip.shape[2:]
    if rng.random() < 0.5:
        noise = torch.from_numpy(rng.standard_normal(clip.shape, dtype=np.float32))
        return (clip + sigma * noise).clamp_(0, 1)
    luma = torch.from_numpy(rng.standard_normal((len(clip), 1, height, width), dtype=np.float32))
    halves = (len(clip), 2, -(-height // 2), -(-width // 2))
    chroma = torch.from_numpy(rng.standard_normal(halves, dtype=np.float32))
    blue, red = F.interpolate(chroma, (height, width), mode="bilinear").split(1, 1)
    return (clip + sigma * (luma + colours(blue, red))).clamp_(0, 1)


def random_chroma(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Return (T, 3, H, W) of coarse colour noise that does not change the luma."""
    height, width = clip.shape[2:]
    cells = height // int(rng.integers(*COARSE)) + 2, width // int(rng.integers(*COARSE)) + 2
    coarse = torch.from_numpy(rng.standard_normal((len(clip), 2, *cells), dtype=np.float32))
    blue, red = (
        F.interpolate(coarse, (height, width), mode="bilinear")
        .mul_(1.5 * log_uniform(rng, CHROMA))
        .split(1, 1)
    )
    return colours(blue, red)


def colours(blue: Tensor, red: Tensor) -> Tensor:
    """Return R'G'B' (T, 3, H, W) of colour differences (T, 1, H, W) alone, by BT.601."""
    return torch.cat((1.402 * red, -0.344 * blue - 0.714 * red, 1.772 * blue), 1)


def _sensed(clip: Tensor, rng: np.random.Generator) -> Tensor:
    """Add a sensor's noise, with or without demosaicing."""
    level = log_uniform(rng, SHOT)
    gains = torch.tensor([rng.uniform(1, 2.2), 1.0, rng.uniform(1, 2.2)])
    read = (log_uniform(rng, READ) * level) ** 2
    noise = torch.from_numpy(rng.standard_normal(clip.shape, dtype=np.float32))
    kind = rng.random()
    if kind < DEMOSAICED:
        return _demosaiced_noise(clip, level * gains, read * gains**2, noise, rng)
    if kind < DEMOSAICED + SMOOTHED:
        noise = smoothed(noise, rng.uniform(0, 0.5))
    return add_camera_noise(clip, level * gains, read * gains**2, noise)


def _demosaiced_noise(
    clip: Tensor, shot: Tensor, read: Tensor, noise: Tensor, rng: np.random.Generator
) -> Tensor:
    """Add noise as demosaicing shapes it, without demosaicing's own artefacts at edges."""
    rows = torch.from_numpy(rng.standard_normal((len(clip), 1, clip.shape[2], 1), dtype=np.float32))
    light = to_light(clip)
    noisy = light + _scaled(noise + rng.uniform(*ROWS) * rows, light, shot, read)
    settings = rng.uniform(*BEND), rng.uniform(*FOLLOW)
    return from_light(light + demosaiced(noisy, *settings) - demosaiced(light, *settings))


def smoothed(noise: Tensor, share: float) -> Tensor:
    """Smooth white noise (T, 3, H, W) by a kernel with `share` for the direct neighbours, at unchanged
    variance.
    """
    line = torch.tensor([share, 1.0, share])
    kernel = torch.outer(line, line) / line.square().sum()
    padded = F.pad(noise, (1, 1, 1, 1), mode="circular").flatten(0, 1)[:, None]
    return F.conv2d(padded, kernel[None, None]).view_as(noise)


# Pictures of a sensor behind a Bayer filter, after interpolation. Green is interpolated along edges and
# corrected by the second difference of the colour measured there (J. Hamilton and J. Adams, US patent
# 5,629,734, 1997); red and blue are interpolated as differences to green (D. Cok, US patent 4,642,678, 1987).
# So noise becomes coarse and partly the same in all colours.
BILINEAR = ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25))


def demosaiced(light: Tensor, bend: float = 1.0, follow: float = 1.0) -> Tensor:
    """Keep one colour per site (red, green / green, blue) of (T, 3, H, W) and interpolate the others; at
    least 3x3 pixels.

    `bend` is the share of the measured colour's second difference that corrects green; `follow` is the share
    of green that is subtracted from red and blue for interpolation (0, 0: all colours are interpolated by
    themselves).
    """
    sites = _sites(light)
    raw = (light * sites).sum(1, keepdim=True)
    green = torch.where(sites[1] > 0, raw, _green_between(raw, bend))
    differences = (raw - follow * green) * sites[::2]
    kernel = torch.tensor(BILINEAR).expand(2, 1, 3, 3)
    red, blue = (
        F.conv2d(F.pad(differences, (1, 1, 1, 1), mode="reflect"), kernel, groups=2) + follow * green
    ).split(1, 1)
    return torch.cat((red, green, blue), 1)


def _sites(light: Tensor) -> Tensor:
    """Return (3, H, W), 1 where a colour is measured."""
    height, width = light.shape[2:]
    cell = torch.zeros(3, 2, 2)
    cell[0, 0, 0] = cell[1, 0, 1] = cell[1, 1, 0] = cell[2, 1, 1] = 1
    return cell.repeat(1, -(-height // 2), -(-width // 2))[:, :height, :width]


def _green_between(raw: Tensor, bend: float) -> Tensor:
    """Interpolate green where red or blue is measured, in the direction that changes less."""
    across, change_across = _along(raw, bend)
    down, change_down = (each.mT for each in _along(raw.mT, bend))
    chosen = torch.where(change_across < change_down, across, down)
    return torch.where(change_across == change_down, (across + down) / 2, chosen)


def _along(raw: Tensor, bend: float) -> tuple[Tensor, Tensor]:
    """Return the value between neighbours in a row, and the amount of change of the row there."""
    padded = F.pad(raw, (2, 2, 0, 0), mode="reflect")
    second_left, left, _, right, second_right = padded.unfold(3, raw.shape[3], 1).unbind(3)
    second = 2 * raw - second_left - second_right
    return (left + right) / 2 + bend * second / 4, (left - right).abs() + second.abs()
