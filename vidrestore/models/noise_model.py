"""Estimate the spectrum of a plane's noise, and how it depends on brightness, from a first estimate of the
plane.

The spectrum is the variance of the noise in every coefficient of a patch's DCT.

Noise that was blurred, coded or copied from frame to frame is not equally strong at all frequencies. Three
measurements contain it, each with an error of its own. The residual of the first estimate lacks the noise
that is still in the estimate. The changes of the source along the motion lack noise that a codec copied, and
contain texture if the motion is wrong. The changes of the estimate show how much texture that is. A small
regression, fitted to training clips with many kinds of noise (examples/experiments/fit_spectrum.py), combines
the three.

The curve over brightness is measured on the residual of the first estimate. The estimate leaves noise in
texture, and coarse noise nearly everywhere, so only fine differences between neighbouring pixels are
compared, in the groups of patches that vary least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.dust import Transform
from vidrestore.models.fitted import fitted, on_device
from vidrestore.models.grouping import patches_at

BANDS = 8  # bands of frequencies, down and across
GROUPS_SAMPLED = 400  # sampled from a clip, at most
# measured in the middle of a group: few, so that patches follow the motion well
FRAMES = 5
# quantiles of the powers of groups; groups with more power contain texture
QUANTILES = (0.15, 0.5)
# share of groups, those that vary least, and their least number
FLAT_SHARE, FLAT_LEAST = 0.25, 20
LEAST = 0.05  # squared grey levels, added to powers before taking their logarithm
# bands are high above, and low below, this sum of frequencies down and across, 0 to 2
HIGH, LOW = 1.0, 0.35
# largest variance, over the residual's power in flat groups; more is texture
RESIDUAL_RATIO = 2.0
LIMITS = (-4.0, 3.0)  # range of the logarithm of variance over sigma squared
# Mean size of the logarithm below which noise counts as white: that of white noise is 0.02 to 0.14, with and
# without a codec that keeps most of it, of other noise 0.16 to 3.6. Of noise that is even at high frequencies
# more of it is texture.
WHITE, WHITE_AND_TEXTURE = 0.15, 0.25
MIDDLE_QUANTILES = (0.1, 0.5, 0.9)  # quantiles of high frequencies
# range of the logarithm between the outer two below which noise is even there
EVEN_SPAN = 0.2
# limits of the variance over sigma squared between which sigma was too high
LOWER = (0.35, 0.75)
# Of coarse noise: least ratio of the sigma of the powers where most of it is to its root mean square; weight
# of the latter's logarithm in that of the best sigma; share of sigma below which that was measured too high;
# least sigma in grey levels. By grain of sigma 3 to 12, blurred by 0.5 to 1.2 pixels, on five training clips.
COARSENESS, EVERYWHERE, WEAKER, LEAST_COARSE = 1.12, 0.3, 0.93, 4.5
RESIDUAL_OF_FLAT = 4  # its column in `powers`
LAYERS = 3  # layers of the regression

# sampled for the curve, and the step between their frames
CURVE_GROUPS, CURVE_STEP = 300, 4
BRIGHTNESS_LEVELS = 6  # levels of brightness
GROUPS_PER_LEVEL = 10  # least number of groups per level
FLAT_GROUPS = 0.25  # share of a level's groups, those that vary least
LEAST_POWER = 1e-6  # squared grey levels: least power of noise
# limits of the variance at a brightness relative to the (geometric) mean
RATIO = (0.1, 6.0)
# share of the noisiest level's power; a level with less is that of black bars
NOISELESS = 1 / 300


def relative_spectrum(
    noisy: Tensor, estimate: Tensor, sigma: float, groups: Tensor, transform: Transform
) -> Tensor:
    """Return (side^2,): the noise's variance in every coefficient over `sigma` squared, 1 for white noise.

    noisy, estimate: (T, H, W), a plane and its first estimate, on the 0-255 scale. groups: (S, T) flat
    origins of patches that follow the motion; T is FRAMES at least.
    """
    measured = powers(noisy, estimate, groups, transform)
    level = 2 * math.log(sigma)
    logarithms = logarithms_of(inputs_of(measured, level))
    most = measured[:, RESIDUAL_OF_FLAT] - level + math.log(RESIDUAL_RATIO)
    bands = torch.minimum(logarithms, most).clamp(*LIMITS).view(1, 1, BANDS, BANDS)
    side = transform.side
    return (
        F.interpolate(bands, (side, side), mode="bilinear", align_corners=False)
        .flatten()
        .exp()
    )


def is_white(spectrum: Tensor) -> bool:
    """Return True if a relative spectrum is that of white noise, but for texture and errors."""
    unevenness, level = _evenness(spectrum)
    beside_texture = level is not None and level >= LOWER[1]
    return unevenness < (WHITE_AND_TEXTURE if beside_texture else WHITE)


def may_be_white(spectrum: Tensor) -> bool:
    """Return True if a relative spectrum is that of white noise of about that strength, with texture."""
    return _evenness(spectrum)[0] < WHITE_AND_TEXTURE


def lower_level(spectrum: Tensor) -> float | None:
    """Return the variance over sigma squared of what may be white noise that was measured too high, else
    None. Moving texture such as spray looks like coarse noise between frames. White noise is even at high
    frequencies, where the spectrum shows its strength. A first estimate at that strength decides: it keeps
    coarse noise, and texture no longer counts as noise.
    """
    (_, level), (least, most) = _evenness(spectrum), LOWER
    return level if level is not None and least < level < most else None


def coarse_level(spectrum: Tensor, sigma: float) -> float | None:
    """Return the sigma that denoises best if coarse noise with this relative spectrum is weaker than was
    measured, `sigma`, else None. It lies between the root mean square and the sigma of the powers where most
    of the noise is, since much of the picture is there, too. Weak noise is mostly what a coder left of
    stronger one, and stays.
    """
    mean, square = (
        torch.stack((spectrum.mean(), spectrum.square().mean())).sqrt().tolist()
    )
    most = square / mean
    level = max(mean**EVERYWHERE * most ** (1 - EVERYWHERE) * sigma, LEAST_COARSE)
    return level if most > COARSENESS * mean and level < WEAKER * sigma else None


def _evenness(spectrum: Tensor) -> tuple[float, float | None]:
    """Return the mean size of a spectrum's logarithm, and the spectrum's median at high frequencies if it is
    even there. All is read from a device at once.
    """
    logarithm, device = spectrum.log(), spectrum.device
    line = torch.linspace(0, 1, math.isqrt(len(spectrum)))
    numbers = (line[:, None] + line > HIGH).flatten().nonzero()[:, 0]
    high = logarithm.index_select(0, on_device(numbers, device))
    quantiles = high.quantile(on_device(torch.tensor(MIDDLE_QUANTILES), device))
    size, least, middle, most = torch.cat(
        (logarithm.abs().mean()[None], quantiles)
    ).tolist()
    return size, math.exp(middle) if most - least < EVEN_SPAN else None


def powers(
    noisy: Tensor, estimate: Tensor, groups: Tensor, transform: Transform
) -> Tensor:
    """Return (BANDS^2, 9): logarithms of powers in each band of frequencies.

    The columns are quantiles over the groups of the source's changes along time (2) and of the residual (2),
    means over flat groups of the residual and of those changes (2), and quantiles and mean over flat groups
    of the estimate's changes (3).
    """
    start = (groups.shape[1] - FRAMES) // 2
    groups = groups[:: math.ceil(len(groups) / GROUPS_SAMPLED), start : start + FRAMES]
    source, first = (
        patches_at(plane.contiguous(), groups, transform.side)
        for plane in (noisy, estimate)
    )
    changes = _bands(source - source.mean(1, keepdim=True), transform).sum(1) / (
        FRAMES - 1
    )
    residual = _bands(source - first, transform).mean(1)
    estimate = _bands(first - first.mean(1, keepdim=True), transform)
    remaining = estimate.sum(1) / (FRAMES - 1)
    count = min(len(groups), max(FLAT_LEAST, int(FLAT_SHARE * len(groups))))
    flat = first.var(2).mean(1).argsort()[:count]
    shares = on_device(torch.tensor(QUANTILES), noisy.device)
    statistics = [
        *changes.quantile(shares, 0),
        *residual.quantile(shares, 0),
        residual[flat].mean(0),
        changes[flat].mean(0),
        *remaining.quantile(shares, 0),
        remaining[flat].mean(0),
    ]
    return torch.stack(statistics, 1).add(LEAST).log()


def inputs_of(statistics: Tensor, level: float) -> Tensor:
    """Return (BANDS^2, 32), the inputs of the regression: `powers` over sigma squared, whose logarithm is
    `level`; the same at high and at low frequencies; the frequencies of the band; and the level.
    """
    relative, (places, high, low) = statistics - level, _frequencies(statistics.device)
    highest = relative[high].median(0).values.expand_as(relative)
    lowest = relative[low].mean(0).expand_as(relative)
    levels = torch.full_like(relative[:, :1], level / 4)
    return torch.cat((relative, highest, lowest, places, levels), 1)


def logarithms_of(inputs: Tensor) -> Tensor:
    """Map inputs (BANDS^2, 32) by the regression to logarithms (BANDS^2,) of variance over sigma squared."""
    stored = regression(inputs.device)
    values = (inputs - stored["mean"]) / stored["spread"]
    for layer in range(LAYERS):
        values = values.relu() if layer else values
        values = (
            values @ stored[f"layers.{layer}.weight"].mT
            + stored[f"layers.{layer}.bias"]
        )
    return values[:, 0]


@cache
def regression(device: torch.device) -> dict[str, Tensor]:
    """Return the fitted regression on a device: mean and spread of the inputs, weight and bias of layers."""
    return {
        name: on_device(tensor, device)
        for name, tensor in fitted("models/noise_spectrum").items()
    }


@cache
def _frequencies(device: torch.device) -> tuple[Tensor, ...]:
    """Return the frequencies of the bands (BANDS^2, 4), from 0 to 1: the lower and the higher of both, that
    down and that across; and the numbers of high and of low bands.
    """
    line = torch.linspace(0, 1, BANDS)
    down, across = (
        axis.flatten() for axis in torch.meshgrid(line, line, indexing="ij")
    )
    places = torch.stack(
        (torch.minimum(down, across), torch.maximum(down, across), down, across), 1
    )
    total = down + across
    results = (places, (total > HIGH).nonzero()[:, 0], (total < LOW).nonzero()[:, 0])
    return tuple(on_device(result, device) for result in results)


def _bands(patches: Tensor, transform: Transform) -> Tensor:
    """Return the mean power of patches (S, T, N) in each band: (S, T, BANDS^2)."""
    power = (
        transform.forward(patches)
        .square()
        .unflatten(-1, (transform.side, transform.side))
    )
    return F.adaptive_avg_pool2d(power, (BANDS, BANDS)).flatten(-2)


@dataclass(frozen=True)
class NoiseCurve:
    """The relative noise variance at a few brightness levels, linearly interpolated; 1 without levels."""

    brightness: Tensor  # (L,), ascending, on the 0-255 scale
    variance: Tensor  # (L,)

    def at(self, brightness: Tensor) -> Tensor:
        if len(self.brightness) < 2:
            return torch.ones_like(brightness)
        shares = (
            brightness[..., None] - self.brightness[:-1]
        ) / self.brightness.diff().clamp_(min=1e-6)
        return self.variance[0] + shares.clamp_(0, 1) @ self.variance.diff()


def noise_curve(
    noisy: Tensor, estimate: Tensor, guide: Tensor, groups: Tensor, side: int
) -> NoiseCurve:
    """Estimate the noise by brightness from a first estimate's residual in groups at flat (S, T) origins."""
    groups = groups[:: math.ceil(len(groups) / CURVE_GROUPS), ::CURVE_STEP]
    size = len(groups) // BRIGHTNESS_LEVELS
    if size < GROUPS_PER_LEVEL:
        return NoiseCurve(guide.new_empty(0), guide.new_empty(0))
    groups = groups[: BRIGHTNESS_LEVELS * size]
    first = patches_at(estimate, groups, side)
    residual = (patches_at(noisy, groups, side) - first).unflatten(-1, (side, side))
    # power of neighbours' differences
    power = residual.diff(dim=-1).diff(dim=-2).square().mean((1, 2, 3))
    brightness, order = patches_at(guide, groups, side).mean((1, 2)).sort()
    levels = order.view(BRIGHTNESS_LEVELS, size)
    flat = first.var(2).mean(1)[levels].argsort(1)[:, : math.ceil(FLAT_GROUPS * size)]
    logarithms = power[levels.gather(1, flat)].mean(1).clamp_(min=LEAST_POWER).log_()
    noisy_levels = logarithms >= logarithms.max() + math.log(NOISELESS)
    mean = (logarithms * noisy_levels).sum() / noisy_levels.sum()
    relative = (logarithms - mean).exp_().clamp_(*RATIO)
    return NoiseCurve(brightness.view(BRIGHTNESS_LEVELS, size).mean(1), relative)
