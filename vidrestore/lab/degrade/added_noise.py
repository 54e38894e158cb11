"""Noise: white and Gaussian on stored samples, or a camera's, in linear light.

The variance of camera noise grows with the light (A. Foi et al., "Practical Poissonian-Gaussian noise
modeling and fitting for single-image raw-data", TIP 2008). Its strength ranges from bright to dim light, as
in T. Brooks et al. ("Unprocessing images for learned raw denoising", CVPR 2019), with the readout of many
cameras instead of one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade.counters import Counters, constants
from vidrestore.lab.degrade.per_sample import Rows, changed, in_turn, of_sample
from vidrestore.pixels.linear_light import from_light, to_light

# variance of the noise at white, for light in [0, 1], log-uniform
SHOT = (3e-4, 1.2e-2)
# standard deviation of the readout in electrons; white has 1 / shot of them
READ = (0.7, 8.0)
# the camera's demosaicing; see `demosaiced`
GREEN_BEND, GREEN_FOLLOW = (0.4, 1.0), (0.6, 1.0)
# standard deviation of noise common to a row, relative to each pixel's own
ROW_NOISE = (0.0, 0.3)

DEMOSAICED, SMOOTHED = 0.8, 0.1  # shares of clips
# share of clips with coarse chroma noise, as after a camera's denoising
CHROMA_SHARE = 0.15
CHROMA_SIGMA = (0.008, 0.05)  # its standard deviation in display values
CHROMA_GRAIN = (2, 9)  # its grain size in pixels, down and across
# standard deviation of white noise in display values, log-uniform
WHITE_SIGMA = (3 / 255, 60 / 255)


def add_gaussian_noise(
    samples: Tensor,
    sigma: float,
    generator: torch.Generator | int,
    clip_and_round: bool = True,
    depth: int = 8,
) -> Tensor:
    """Add white Gaussian noise of `sigma` (0-255 scale) to samples of any shape, dtype and device, which it
    keeps.

    `samples` are integers of `depth` bits, or floats on their scale. A seed stands for a new `generator` on
    the CPU, which gives the same noise on every machine; use one generator for all frames of a video.
    `clip_and_round` returns whole samples in [0, 2^depth - 1], as files hold them; ValueError for integers
    without it.
    """
    if not (clip_and_round or samples.dtype.is_floating_point):
        raise ValueError(
            f"noise on {samples.dtype} samples has to be clipped and rounded; convert to float to keep it "
            "as drawn"
        )
    # a generator of its own, or a shared one
    if isinstance(generator, int):
        generator = torch.Generator().manual_seed(generator)
    noise = torch.randn(samples.shape, generator=generator, device=generator.device).to(
        samples.device
    )
    noisy = noise.mul_(sigma * 2 ** (depth - 8)).add_(samples.to(torch.float32))
    if clip_and_round:
        noisy = noisy.round_().clamp_(0, 2**depth - 1)
    return noisy.to(samples.dtype)


def scaled_noise(noise: Tensor, light: Tensor, shot: Tensor, read: Tensor) -> Tensor:
    """Scale normal noise to the variance shot * light + read, (..., 3) each, of light (..., T, 3, H, W)."""
    shot, read = (level[..., None, :, None, None] for level in (shot, read))
    return noise * (shot * light + read).sqrt()


@in_turn
def camera_noise(clips: Tensor, draw: Counters) -> Tensor:
    """Add a random camera's noise: stronger in red and blue (white balance), mostly demosaiced."""
    noisy = _sensed(clips, draw)
    coarse = draw.chance(CHROMA_SHARE)
    branch = draw.branch()

    def with_chroma(rows: Rows) -> Tensor:
        chroma = random_chroma(clips[rows], branch.part(rows))
        return (noisy[rows] + chroma).clamp_(0, 1)

    return changed(noisy, coarse, with_chroma)


@in_turn
def white_noise(clips: Tensor, draw: Counters) -> Tensor:
    """Add white noise of random strength to R', G', B', or to luma and half-size colour differences."""
    # noise of R, G, B, or of luma with colours at half the size
    height, width = clips.shape[3:]
    noise = draw.normal(*clips.shape[1:])

    def as_stored(rows: Rows) -> Tensor:
        luma = noise[rows, :, :1]
        chroma = noise[rows, :, 1:]
        halves = chroma[..., : -(-height // 2), : -(-width // 2)].flatten(0, 1)
        blue, red = (
            F.interpolate(halves, (height, width), mode="bilinear")
            .view_as(chroma)
            .split(1, 2)
        )
        return luma + colours(blue, red)

    noise = changed(noise, draw.chance(0.5), as_stored)
    return torch.addcmul(clips, noise, of_sample(draw.log_uniform(WHITE_SIGMA))).clamp_(
        0, 1
    )


def random_chroma(clips: Tensor, draw: Counters) -> Tensor:
    """Return (B, T, 3, H, W) of coarse colour noise that does not change the luma."""
    # grains are larger than pixels, and differ in size down and across
    frames, _, height, width = clips.shape[1:]
    most = height // CHROMA_GRAIN[0] + 2, width // CHROMA_GRAIN[0] + 2
    coarse = draw.normal(frames, 2, *most) * (
        1.5 * of_sample(draw.log_uniform(CHROMA_SIGMA))
    )
    down = straight_lines(height, height // draw.integers(*CHROMA_GRAIN) + 2, most[0])
    across = straight_lines(width, width // draw.integers(*CHROMA_GRAIN) + 2, most[1])
    blue, red = (down[:, None, None] @ coarse @ across[:, None, None].mT).split(1, 2)
    return colours(blue, red)


def straight_lines(size: int, cells: Tensor, most: int) -> Tensor:
    """Return (B, size, most): weights that stretch the first `cells` (B,) samples bilinearly to `size`."""
    positions = (torch.arange(size) + 0.5) * (cells[:, None] / size) - 0.5
    positions = torch.minimum(positions.clamp(min=0), cells[:, None] - 1)[..., None]
    return (1 - (positions - torch.arange(most)).abs()).clamp(min=0)


def colours(blue: Tensor, red: Tensor) -> Tensor:
    """Return R'G'B' (..., 3, H, W) of colour differences (..., 1, H, W) alone, by BT.601."""
    return torch.cat((1.402 * red, -0.344 * blue - 0.714 * red, 1.772 * blue), -3)


def _sensed(clips: Tensor, draw: Counters) -> Tensor:
    """Add a sensor's noise, with or without demosaicing."""
    # the sensor: gains of its white balance, shot and readout
    shape = clips.shape
    level = draw.log_uniform(SHOT)[:, None]
    red, blue = draw.uniform(1, 2.2, 2).unbind(1)
    # a list of numbers would be copied to a GPU
    gains = torch.stack((red, torch.ones_like(red), blue), 1)
    read = (draw.log_uniform(READ)[:, None] * level) ** 2
    # what comes after it: smoothing, demosaicing, noise of rows
    white = draw.normal(*shape[1:])
    kind = draw.uniform()
    share = of_sample(draw.uniform(0, 0.5))
    noise = changed(
        white, kind >= 1 - SMOOTHED, lambda rows: smoothed(white[rows], share[rows])
    )
    through = kind < DEMOSAICED
    lines = of_sample(draw.uniform(*ROW_NOISE) * through) * draw.normal(
        shape[1], 1, shape[3], 1
    )
    light = to_light(clips)
    noise = scaled_noise(noise + lines, light, level * gains, read * gains**2)
    settings = [
        of_sample(draw.uniform(*bounds)) for bounds in (GREEN_BEND, GREEN_FOLLOW)
    ]

    def interpolated(rows: Rows) -> Tensor:
        """Return noise as demosaicing shapes it, without demosaicing's own artefacts at edges."""
        bend, follow = (setting[rows] for setting in settings)
        noisy = demosaiced(light[rows] + noise[rows], bend, follow)
        return noisy - demosaiced(light[rows], bend, follow)

    return from_light(light + changed(noise, through, interpolated))


def smoothed(noise: Tensor, share: float | Tensor) -> Tensor:
    """Smooth white noise (..., H, W), wrapped, with weight `share` for direct neighbours, at its variance."""
    for dim in (-1, -2):
        noise = noise + share * (noise.roll(1, dim) + noise.roll(-1, dim))
    return noise / (1 + 2 * share**2)


# Pictures of a sensor behind a Bayer filter, after interpolation. Green is interpolated along edges and
# corrected by the second difference of the colour measured there (J. Hamilton and J. Adams, US patent
# 5,629,734, 1997); red and blue are interpolated as differences to green (D. Cok, US patent 4,642,678, 1987).
# So noise becomes coarse and partly the same in all colours.
BILINEAR = (0.25, 0.5, 0.25, 0.5, 1.0, 0.5, 0.25, 0.5, 0.25)


def demosaiced(
    light: Tensor, bend: float | Tensor = 1.0, follow: float | Tensor = 1.0
) -> Tensor:
    """Keep one colour per site (red, green / green, blue) of (..., 3, H, W), 3x3 or more; interpolate the
    others.

    `bend` is the share of the measured colour's second difference that corrects green, `follow` the share of
    green that is subtracted from red and blue for interpolation.
    """
    # green first, as red and blue are differences to it
    sites = _sites(light)
    raw = (light * sites).sum(-3, keepdim=True)
    green = torch.where(sites[1] > 0, raw, _green_between(raw, bend))
    differences = ((raw - follow * green) * sites[::2]).flatten(0, -4)
    kernel = constants(BILINEAR).view(3, 3).expand(2, 1, 3, 3)
    chroma = F.conv2d(
        F.pad(differences, (1, 1, 1, 1), mode="reflect"), kernel, groups=2
    )
    red, blue = (chroma.unflatten(0, light.shape[:-3]) + follow * green).split(1, -3)
    return torch.cat((red, green, blue), -3)


def _sites(light: Tensor) -> Tensor:
    """Return (3, H, W), 1 where a colour is measured."""
    sites = torch.zeros(light.shape[-3:])
    for colour, row, column in ((0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 1, 1)):
        sites[colour, row::2, column::2] = 1
    return sites


def _green_between(raw: Tensor, bend: float | Tensor) -> Tensor:
    """Interpolate green where red or blue is measured, in the direction that changes less."""
    across, change_across = _along(raw, bend)
    down, change_down = (values.mT for values in _along(raw.mT, bend))
    green = torch.where(change_across < change_down, across, down)
    return torch.where(change_across == change_down, (across + down) / 2, green)


def _along(raw: Tensor, bend: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the value between neighbours in a row, and the amount of change of the row there."""
    padded = F.pad(raw.flatten(0, -4), (2, 2, 0, 0), mode="reflect").unflatten(
        0, raw.shape[:-3]
    )
    second_left, left, _, right, second_right = padded.unfold(
        -1, raw.shape[-1], 1
    ).unbind(-2)
    second = 2 * raw - second_left - second_right
    return (left + right) / 2 + bend * second / 4, (left - right).abs() + second.abs()
