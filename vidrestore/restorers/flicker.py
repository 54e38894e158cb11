"""Remove flicker: brightness that differs from frame to frame, as in old films and time-lapses.

The light of a frame is compared with that of the next one along the motion, in small pictures. Its change is
a factor that depends on brightness and on the place in the picture, fitted so that what moves or has a light
of its own doesn't count: log light' = log light + polynomial. The changes add up to the course of light over
a scene. A frame gets the light of a line through that course in the frames around it, so that fades and
sunsets stay.

Steps of light stay as well, and divide scenes: a flash, a lamp, a strobe. Where the light isn't steady in
itself, because the changes of parts of the picture differ (a concert, a candle, a blinking lamp), or where
frames hardly alternate, nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.alignment import dense_motion, luma_of, means_around
from vidrestore.models.spynet import warp
from vidrestore.restorers.temporal import TemporalRestorer
from vidrestore.settings.options import RestoreOptions

TASK = "deflicker"
LEVELS = 255.0  # grey levels of a picture in [0, 1]


@dataclass(frozen=True)
class FlickerFit:
    """Constants of the fit, chosen on training clips with drawn flicker, and without; grey levels are of 255.

    side: pixels of the longer side of a small picture
    contrast: pixels of the side of the squares whose mean and contrast are evened before motion is searched
    mismatch: mean difference of evened pictures, in [0, 1], above which the motion is taken to be wrong
    darkest, brightest: light in [0, 1] outside of which the camera may have clipped it
    least_usable: share of the pixels that a change is fitted to; with fewer, as in noise alone, none is seen
    floor: light in [0, 1] below which the logarithm is that of the floor
    rounds: of the robust fit, whose weights follow the residuals of the one before
    widths: residual in standard deviations, in the first half of the rounds and later, that doesn't count
    least_deviation: grey levels, of the residuals
    ridge: share of the mean weight that is added to the diagonal of the fit
    blocks: of a side of the picture, whose residuals show uneven light
    radius: frames on either side that a line is laid through
    step: mean change in grey levels from which on light has jumped
    shortest: frames of a scene between two steps that is corrected
    alternation: least median difference in grey levels between one change and the next
    drift: least of the same over the median change; where light drifts by more, errors of the fit alternate
    weak: alternation up to which flicker may be as uneven as `weak_unevenness` grey levels; stronger flicker,
        in inverse proportion
    unevenness: largest mean residual of a block over the mean change
    most: largest logarithm of a factor
    """

    side: int = 160
    contrast: int = 17
    mismatch: float = 0.08
    darkest: float = 0.02
    brightest: float = 0.98
    least_usable: float = 0.05
    floor: float = 6 / 255
    rounds: int = 8
    widths: tuple[float, float] = (2.5, 1.8)
    least_deviation: float = 1.5
    ridge: float = 1e-5
    blocks: int = 6
    radius: int = 8
    step: float = 30.0
    shortest: int = 5
    alternation: float = 0.6
    drift: float = 0.6
    weak: float = 3.0
    weak_unevenness: float = 3.5
    unevenness: float = 0.45
    most: float = 0.3


FIT = FlickerFit()


class LightChange(NamedTuple):
    """The change of light from a frame to the next one.

    coefficients: (5,), of the logarithm of the factor (`light_terms`)
    statistics: (3,) in grey levels: its mean, its mean size, and the mean size of the residuals of blocks
    """

    coefficients: Tensor
    statistics: Tensor


def small_luma(frame: Tensor) -> Tensor:
    """Return the luma (1, h, w) of a frame (3, H, W) at a small size."""
    luma = luma_of(frame[None])
    height, width = luma.shape[-2:]
    scale = min(1.0, FIT.side / max(height, width))
    sides = [max(1, round(side * scale)) for side in (height, width)]
    return F.interpolate(luma, size=sides, mode="area")[0]


def light_terms(luma: Tensor) -> Tensor:
    """Return the terms (..., H, W, 5) of the logarithm of a factor for luma (..., H, W) in [0, 1]: 1, the
    logarithm of luma and its square, and the place across and down from -1 to 1.
    """
    height, width = luma.shape[-2:]
    down = torch.linspace(-1, 1, height, device=luma.device)[:, None]
    across = torch.linspace(-1, 1, width, device=luma.device)
    # about 0 in mid tones, so that terms are nearly independent
    light = luma.clamp(min=FIT.floor).log() + 1
    terms = (torch.ones_like(light), light, light.square(), across, down)
    return torch.stack([term.expand_as(light) for term in terms], -1)


def light_change(before: Tensor, after: Tensor) -> LightChange:
    """Return the change of light from luma (1, 1, h, w) in [0, 1] to that of the next frame, small pictures
    both.
    """
    # The light must not mislead the search for motion, nor wrong motion the light.
    evened_before, evened_after = evened(before), evened(after)
    motion = dense_motion(evened_before, evened_after)
    moved = warp(after, motion, border="border")
    mismatch = (warp(evened_after, motion, border="border") - evened_before).abs()
    least, most = torch.minimum(before, moved), torch.maximum(before, moved)
    is_usable = (
        (means_around(mismatch, 5) < FIT.mismatch)
        & (least > FIT.darkest)
        & (most < FIT.brightest)
    )

    logarithms = (picture.clamp(min=FIT.floor).log() for picture in (before, moved))
    first, second = logarithms
    light = ((first + second) / 2).exp()
    terms, change = light_terms(light).flatten(0, 3), (second - first).flatten()
    weight, usable = light.flatten(), is_usable.flatten().float()
    coefficients = robust_fit(terms, change, weight, usable) * (
        usable.mean() >= FIT.least_usable
    )

    # Residuals that are alike over a block are light that the polynomial can't follow.
    factor = terms @ coefficients
    residual = (usable * weight * (change - factor)).view_as(before)
    sums = F.adaptive_avg_pool2d(residual, FIT.blocks)
    shares = F.adaptive_avg_pool2d(usable.view_as(before), FIT.blocks)
    uneven = (sums / shares.clamp(min=0.1)).abs().mean()
    levels = factor * weight
    return LightChange(
        coefficients, LEVELS * torch.stack((levels.mean(), levels.abs().mean(), uneven))
    )


def evened(luma: Tensor) -> Tensor:
    """Return luma (B, 1, h, w) with the same mean and contrast everywhere, in [0, 1]."""
    difference = luma - means_around(luma, FIT.contrast)
    deviation = (means_around(difference.square(), FIT.contrast) + 1e-4).sqrt()
    return (0.5 + 0.15 * difference / deviation).clamp(0, 1)


def robust_fit(terms: Tensor, change: Tensor, weight: Tensor, usable: Tensor) -> Tensor:
    """Return coefficients (K,) of terms (N, K) that fit a change (N,) by least squares of the weighted
    residuals, of which those far out don't count (Tukey's biweight).
    """
    trust = usable
    diagonal = torch.eye(terms.shape[1], device=terms.device)
    coefficients = terms.new_zeros(terms.shape[1])
    for number in range(FIT.rounds):
        share = trust * weight.square()
        weighted = terms * share[:, None]
        normal = weighted.mT @ terms + FIT.ridge * (share.sum() + 1) * diagonal
        coefficients = torch.linalg.solve(normal, weighted.mT @ change)
        residual = weight * (change - terms @ coefficients)
        deviation = (1.4826 * residual.abs().median()).clamp(
            min=FIT.least_deviation / LEVELS
        )
        width = FIT.widths[2 * number // FIT.rounds]
        trust = (
            usable
            * (1 - (residual / (width * deviation)).square()).clamp(min=0).square()
        )
    return coefficients


def scene_around(means: Sequence[float], frame: int) -> tuple[int, int]:
    """Return the frames [first, last] around a frame that no step of light divides; `means` are those of the
    changes from each frame to the next.
    """
    first = last = frame
    while first > 0 and abs(means[first - 1]) <= FIT.step:
        first -= 1
    while last < len(means) and abs(means[last]) <= FIT.step:
        last += 1
    return first, last


def alternation_of(statistics: Sequence[Sequence[float]]) -> float:
    """Return by how many grey levels consecutive changes of light (`LightChange.statistics`) alternate, in
    the median; 0 unless they are flicker, which is about the same everywhere.
    """
    means = [mean for mean, _, _ in statistics]
    alternations = sorted(abs(after - before) for before, after in pairwise(means))
    alternation = alternations[len(alternations) // 2]
    size = sum(size for _, size, _ in statistics)
    unevenness = sum(uneven for _, _, uneven in statistics)
    # beside weak flicker, what moves in the picture is uneven, too
    weakness = min(1.0, FIT.weak / alternation) if alternation else 1.0
    most = FIT.weak_unevenness * weakness * len(statistics)
    is_even = unevenness < max(FIT.unevenness * size, most)
    change = sorted(abs(mean) for mean in means)[len(means) // 2]
    is_flicker = is_even and alternation >= max(FIT.alternation, FIT.drift * change)
    return alternation if is_flicker else 0.0


def correction(changes: Sequence[LightChange], frame: int) -> Tensor | None:
    """Return the coefficients (5,) of the logarithm of the factor that gives a frame the light of a line
    through the frames around it; None if it stays as it is.

    changes: from each frame to the next of `frame` and up to FIT.radius frames on either side
    """
    statistics: list[list[float]] = torch.stack(
        [change.statistics for change in changes]
    ).tolist()
    first, last = scene_around([mean for mean, _, _ in statistics], frame)
    if last - first + 1 < FIT.shortest or not alternation_of(statistics[first:last]):
        return None

    # The course of light, from 0 at the first frame
    steps = torch.stack([change.coefficients for change in changes[first:last]])
    course = F.pad(steps.cumsum(0), (0, 0, 1, 0))

    # A line through it, weighted towards the frame: its value there is a weighted mean of the course.
    offsets = torch.arange(
        first - frame, last - frame + 1, device=course.device, dtype=course.dtype
    )
    weights = (offsets * (math.pi / 2 / (FIT.radius + 1))).cos().square()
    moment, spread = (weights * offsets).sum(), (weights * offsets.square()).sum()
    weights = weights * (spread - moment * offsets)
    line = (weights[:, None] * course).sum(0) / weights.sum()
    return line - course[frame - first]


class FlickerRestorer(TemporalRestorer):
    """Restorer of `deflicker`; a look is the `LightChange` from a frame to the next."""

    name = "light-fit"
    radius = looks = FIT.radius
    reach = 1
    maps = 12
    look_maps = 0

    def __init__(self, options: RestoreOptions) -> None:
        super().__init__(TASK, options)

    def look(self, clip: Tensor, place: int) -> LightChange | None:
        if place + 1 == len(clip):
            return None
        before, after = (
            small_luma(clip[index].to(self.device))[None]
            for index in (place, place + 1)
        )
        return light_change(before, after)

    def restored(
        self, clip: Tensor, place: int, looks: dict[int, LightChange | None]
    ) -> Tensor:
        first, last = max(0, place - FIT.radius), min(len(clip) - 1, place + FIT.radius)
        changes = [
            change
            for index in range(first, last)
            if (change := looks[index]) is not None
        ]
        coefficients = correction(changes, place - first)
        if coefficients is None:
            return clip[place]
        frame = clip[place].to(self.device)
        factor = (
            (light_terms(luma_of(frame[None])[0, 0]) @ coefficients)
            .clamp(-FIT.most, FIT.most)
            .exp()
        )
        return (frame * factor).to(clip.device)
