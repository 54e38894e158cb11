"""A second estimate of a plane, guided by the first: an empirical Wiener filter, with fitted gains, on groups
that follow the motion.

As in the second step of BM3D (Dabov et al., 2007) and of VNLB (Arias and Morel, 2018), the first estimate
gives the signal power in every coefficient of a group, and so the share of the source's coefficient to keep.
The transform is the DCT within patches and, along time, the principal components of the group.

Wiener's filter takes the first estimate for the picture. It isn't: what it lost can't be found by it, and
what it kept is better than one noisy group shows. With a for a coefficient of the first estimate, d for that
of source minus first, and t = a^2 / (a^2 + variance), Wiener's change is d t - a (1 - t). Here it is

    d t (b0 + b1 t) - a (1 - t) (c0 + c1 t),

so that the result is a mixture of both estimates. The factors depend on the rank of the component along time,
on the spatial frequency and on the noise level, and were fitted by the error of whole pictures, in which
groups overlap (examples/experiments/fit_second.py).

The noise may depend on the brightness: the residual of the first estimate is compared between groups of
different means.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from vidrestore.models.dust import Transform
from vidrestore.models.dust_sigma import noise_level
from vidrestore.models.fast.eigenvectors import eigenvectors
from vidrestore.models.fitted import fitted, on_device
from vidrestore.models.grouping import add_patches, coverage, patches_at
from vidrestore.models.noise_model import noise_curve

CHUNK = 16  # tracks filtered at once, so that they stay in the processor's cache
RANKS = 8  # components with factors of their own; the weaker ones share the last
KNOTS = (0.0, 1.0, 2.0, 3.5, 5.5, 8.0, 11.0, 15.0, 21.3)  # frequencies of a patch of SIDE; linear between
SIDE = 16
SIGMA_RANGE = (5.0, 40.0)  # that they were fitted for; beyond, the nearest is taken
KEPT = 24  # sets of factors: enough for the planes of a few scenes
LEAST_FRAMES = 12  # groups of fewer have other components, and are filtered by Wiener's factors


class Gains(NamedTuple):
    """Factors for coefficients (..., T, N), components in ascending order: b0, b1, c0, c1, each (T, N)."""

    returned: Tensor
    returned_slope: Tensor
    taken: Tensor
    taken_slope: Tensor


@lru_cache(KEPT)
def wiener_gains(name: str, stage: int, sigma: float, frames: int, side: int, device: torch.device) -> Gains:
    """Return the fitted factors of the first estimate by the filter (`stage` 0), or of one after it, for
    groups of `frames` patches. `name`: the quality, followed by " colour" for a colour difference. Estimates
    after the last that was fitted have its factors.
    """
    stages = fitted("models/second_gains")[name]
    found = gains_of(stages[min(stage, len(stages) - 1)], sigma, frames, side)
    return Gains(*on_device(torch.stack(found), device))


def gains_of(values: Tensor, sigma: float, frames: int, side: int) -> Gains:
    """Return the factors for `frames` patches of `side` pixels from fitted `values` (4, 2, RANKS, KNOTS): of
    b0, b1, c0 and c1, constant and by the noise level.
    """
    low, high = SIGMA_RANGE
    level = noise_level(min(max(sigma, low), high))
    ranks = torch.arange(frames - 1, -1, -1).clamp(max=RANKS - 1)
    found = (values[:, 0] + level * values[:, 1])[:, ranks] @ _between_knots(side).mT
    return Gains(*found)


def _between_knots(side: int) -> Tensor:
    """Return (side^2, KNOTS): the weight of each knot at each frequency of a patch's DCT."""
    line = torch.arange(side) * (SIDE / side)
    radius = (line[:, None].square() + line.square()).sqrt().flatten().clamp(max=KNOTS[-1])
    knots = torch.tensor(KNOTS)
    above = torch.searchsorted(knots, radius, right=True).clamp(1, len(knots) - 1)
    share = (radius - knots[above - 1]) / (knots[above] - knots[above - 1])
    weights = torch.zeros(side**2, len(knots))
    weights.scatter_(1, above[:, None], share[:, None])
    return weights.scatter_(1, above[:, None] - 1, 1 - share[:, None])


def in_pairs(tracks: Tensor) -> Tensor:
    """Join (S, M, T) tracks to (S/2, 2M, T), so that two neighbours share the components; an odd last one is
    repeated.
    """
    even = torch.cat([tracks, tracks[-1:]]) if len(tracks) % 2 else tracks
    return even.reshape(len(even) // 2, -1, even.shape[2])


def refine(
    noisy: Tensor,
    estimate: Tensor,
    sigma: float,
    tracks: Tensor,
    transform: Transform,
    guide: Tensor | None,
    chunk: int = CHUNK,
    spectrum: Tensor | None = None,
    gains: Gains | None = None,
) -> Tensor:
    """Return the second estimate of a plane (T, H, W) with noise `sigma`, from the first one.

    tracks: (S, M, T) flat origins of patches; the M patches of a track are close to each other and share the
    components. `chunk` tracks are filtered at once. guide: (T, H, W), the brightness that the noise may
    follow; None for noise of the same strength everywhere. spectrum: (side^2,), as
    `noise_model.relative_spectrum` gives it; None for white noise. gains: for tracks of T patches; None
    for Wiener's.
    """
    noisy, estimate = noisy.contiguous(), estimate.contiguous()
    side = transform.side
    curve = None if guide is None else noise_curve(noisy, estimate, guide, tracks[:, 0], side)
    total = torch.zeros_like(estimate).view(-1)
    for part in tracks.split(chunk):
        groups = part.flatten(0, 1)
        first, source = (patches_at(plane, groups, side).view(*part.shape, -1) for plane in (estimate, noisy))
        variance = first.new_full((), sigma**2)
        if guide is not None and curve is not None:
            brightness = first if guide is estimate else patches_at(guide, groups, side).view_as(first)
            variance = variance * curve.at(brightness.mean((2, 3), keepdim=True))
        if spectrum is not None:
            variance = variance * spectrum
        change = filtered_change(first, source.sub_(first), variance, transform, gains)
        add_patches(total, groups, noisy.shape[2], change)
    counts = coverage(tracks.flatten(0, 1), (len(noisy), *noisy.shape[1:]), side)
    return total.view_as(estimate).div_(counts.clamp_(min=1)).add_(estimate)


def filtered_change(
    first: Tensor, residual: Tensor, variance: Tensor, transform: Transform, gains: Gains | None = None
) -> Tensor:
    """Return the difference of the second estimate from the first in groups (S, M, T, N); `residual` is
    source minus first.

    With a for the coefficients of `first` and d for those of `residual`, a + d are those of the source, and
    Wiener's filter gives t (a + d) with t = a^2 / (a^2 + variance): a change by d t - a (1 - t). Both terms
    are multiplied by the gains. The change is small, so low precision suffices.
    """
    centred = first - first.mean((2, 3), keepdim=True)
    joint = centred.transpose(1, 2).flatten(2)  # (S, T, M N)
    # of NaN and infinity there are no eigenvectors; they remain in `residual`
    products = (joint @ joint.mT).nan_to_num_(0.0, 0.0, 0.0)
    components = eigenvectors(products)[:, None]  # (S, 1, T, T)
    a, d = (transform.forward(components.mT @ patches) for patches in (centred, residual))
    share = a.square()
    share.div_(share + variance)
    a.addcmul_(a, share, value=-1)
    if gains is not None:
        d.mul_(torch.addcmul(gains.returned, gains.returned_slope, share))
        a.mul_(torch.addcmul(gains.taken, gains.taken_slope, share))
    lost = a.addcmul_(d, share, value=-1)  # minus the change, in a single pass
    moved: Tensor = components.neg() @ transform.back(lost)
    return moved.flatten(0, 1)
