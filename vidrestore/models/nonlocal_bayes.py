"""Non-local Bayes: a second estimate of a plane, guided by the first, in groups that follow the motion.

As in the second step of VNLB (Arias and Morel, "Video Denoising via Empirical Bayesian Estimation of
Space-Time Patches", 2018), similar patches of the first estimate are taken for samples of one Gaussian
distribution, and their source for those samples in noise. With G for n centred patches of the first estimate,
one per row, and Z for the same patches of the source, the estimate of least squared error is

    Z C (C + N)^-1,    C = G^T G / n, N the covariance of the noise.

Here a group is a track through the clip: in every frame the patches nearest to the mean of the track, among
those that lie within a few pixels. In a single frame candidates are some pixels apart, because neighbours
share their coarse noise. Of D = Z - G only products with G are needed (by the matrix inversion lemma), and
matrices of n rows instead of one per pixel: with

    K = G N^-1 G^T / n,    L = (K + 1)^-1,    Y = (D N^-1 G^T / n) L,

the change is (Y - L) G. L is 0 in directions that are strong in the first estimate, and 1 where it has
nothing.

Non-local Bayes treats the first estimate as the clean picture, as a Wiener filter does. Here the change is
therefore

    (a Y + a' Y L + L (b Y + b' Y L - c - c' L)) G,

so that the source's part can also be averaged between similar patches (b), and details that only the first
estimate has can be reduced by another amount than their strength implies (c). The factors depend on the noise
level and were fitted by the error of whole pictures, in which groups overlap.

The noise may depend on the brightness: the residual of the first estimate is compared between groups of
different means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.models.dust import dct_dictionary
from vidrestore.models.dust_sigma import noise_level
from vidrestore.models.fitted import fitted, on_device
from vidrestore.models.grouping import add_patches, coverage, frames_at_once, patches_at
from vidrestore.models.noise_model import noise_curve
from vidrestore.working import steps

CHUNK = 32  # tracks filtered at once, so that they stay in the processor's cache
# times as many whose groups are found at once: by many operations on few integers
CHUNKS_OF_CPU = 4
CHOICE = 2  # candidates per patch that is chosen, at least
SAMPLED = 4  # patches are compared by every fourth pixel down and across
# noise levels of the fits of clips, and of luma and colour of single frames; beyond, the nearest is taken
SIGMA_RANGES = {"clips": (4.0, 55.0), "luma": (1.0, 55.0), "chroma": (1.0, 55.0)}
FACTORS_KEPT = 48  # sets of factors: enough for the planes of a few scenes


@dataclass(frozen=True)
class Noise:
    """The noise of a plane."""

    sigma: float  # on the 0-255 scale
    # (T, H, W), which the noise may follow; None if it is even
    brightness: Tensor | None = None
    # (N, N), the inverse covariance of the noise in a patch, times sigma squared; None for white noise
    whitener: Tensor | None = None
    # sigma of each frame over `sigma`; empty if all are alike
    frames: tuple[float, ...] = ()


class Sampling(NamedTuple):
    """The choice of similar patches for a track, from at least `CHOICE` times as many candidates."""

    patches: int  # of a track in every frame
    spacing: int = 1  # pixels between candidates


class Gains(NamedTuple):
    """The factors of the change, each a tensor without dimensions."""

    transfer: Tensor  # a
    transfer_weak: Tensor  # a'
    average: Tensor  # b
    average_weak: Tensor  # b'
    reduction: Tensor  # c
    reduction_weak: Tensor  # c'


@lru_cache(FACTORS_KEPT)
def bayes_gains(kind: str, stage: int, sigma: float, device: torch.device) -> Gains:
    """Return the fitted factors of the first estimate by non-local Bayes (`stage` 0), or of one after it.
    Estimates after the last that was fitted have its factors. kind: of SIGMA_RANGES.
    """
    stages, (low, high) = fitted("models/bayes_gains")[kind], SIGMA_RANGES[kind]
    constant, slope = stages[min(stage, len(stages) - 1)]  # by the noise level
    return Gains(
        *on_device(constant + noise_level(min(max(sigma, low), high)) * slope, device)
    )


def nonlocal_bayes(
    noisy: Tensor,
    estimate: Tensor,
    tracks: Tensor,
    side: int,
    noise: Noise,
    gains: Gains,
    samples: Sampling,
    dtype: torch.dtype = torch.float32,
    chunk: int = CHUNK,
) -> Tensor:
    """Return the second estimate of a plane (T, H, W) from the first one.

    tracks: (S, T) flat origins of patches of `side` pixels; `chunk` tracks are filtered at once. dtype: of
    the products that only make the change, which is small.
    """
    noisy, estimate = noisy.contiguous(), estimate.contiguous()
    guide = noise.brightness
    if guide is not None:
        curve = noise_curve(noisy, estimate, guide, tracks, side)
    total = torch.zeros_like(estimate).view(-1)

    def groups_of(part: Tensor) -> Tensor:
        return similar(estimate, part, side, samples)

    def changed(part: tuple[Tensor, Tensor]) -> Tensor:
        """Return the change of the patches in the groups of some tracks."""
        part_tracks, groups = part
        first, source = (patches_at(plane, groups, side) for plane in (estimate, noisy))
        rest = (source - first).to(dtype)
        variance = first.new_full((len(groups), 1, 1), noise.sigma**2)
        if guide is not None:
            variance *= curve.at(
                patches_at(guide, part_tracks, side).mean((1, 2), keepdim=True)
            )
        return bayes_change(
            first, rest, variance, gains, noise.whitener, noise.frames
        ).float()

    block = chunk * (CHUNKS_OF_CPU if noisy.device.type == "cpu" else 1)
    stages = steps(("groups", "change"), (1, 9))
    next(stages)
    groups = torch.cat([*dealt(groups_of, tracks.split(block))])
    next(stages)
    parts = list(zip(tracks.split(chunk), groups.split(chunk), strict=True))
    for (_, part), change in zip(parts, dealt(changed, parts), strict=True):
        add_patches(total, part, noisy.shape[2], change)
    changes = total.view_as(estimate)
    groups, step = groups.unflatten(1, (len(estimate), -1)), frames_at_once(estimate)
    # a CPU copies the divisors to floats, so it has those of few frames at once
    for first, sums in zip(
        range(0, len(changes), step), changes.split(step), strict=True
    ):
        places = groups[:, first : first + step] - first * sums[0].numel()
        sums.div_(coverage(places, (len(sums), *sums.shape[1:]), side).clamp_(min=1))
    return changes.add_(estimate)


def similar(estimate: Tensor, tracks: Tensor, side: int, samples: Sampling) -> Tensor:
    """Return (S, T * samples) flat origins: in every frame the patches nearest to the mean of their track
    (S, T), among those around its patch in that frame. A plane with fewer patches gives them all.
    """
    _, height, width = estimate.shape
    place = tracks % (height * width)
    rows = _candidates(place // width, height - side, samples)
    columns = _candidates(place % width, width - side, samples)
    around = (
        (tracks - place)[..., None, None]
        + rows[..., None] * width
        + columns[..., None, :]
    ).flatten(2)
    line = torch.arange(SAMPLED // 2, side, SAMPLED, device=tracks.device)
    pixels = (line[:, None] * width + line).flatten()
    mean = estimate.view(-1)[tracks[..., None] + pixels].mean(1)[:, None, None]
    places = around[..., None] + pixels
    candidates = estimate.view(-1).index_select(0, places.flatten()).view_as(places)
    count = min(samples.patches, around.shape[2])
    nearest = (
        (candidates - mean)
        .square_()
        .sum(-1)
        .topk(count, 2, largest=False, sorted=False)
        .indices
    )
    return around.gather(2, nearest).flatten(1)


def _candidates(corners: Tensor, last: int, samples: Sampling) -> Tensor:
    """Return rows, or columns, of candidates (S, T, C) around those of patches (S, T), from 0 to `last`: at a
    border there are more on the other side, so that none comes twice.
    """
    reach, step = (math.isqrt(CHOICE * samples.patches - 1) + 1) // 2, samples.spacing
    count = min(2 * reach + 1, max(1, (last + 1) // step))
    before = torch.minimum(
        corners // step, (count - 1 - (last - corners) // step).clamp(min=count // 2)
    )
    return corners[..., None] + step * (
        torch.arange(count, device=corners.device) - before[..., None]
    )


def inverse_covariance(spectrum: Tensor) -> Tensor:
    """Return the (N, N) inverse covariance of noise whose variance in a patch's DCT is `spectrum` (N,)."""
    basis = on_device(
        dct_dictionary(math.isqrt(len(spectrum)), len(spectrum)), spectrum.device
    )
    return (basis / spectrum) @ basis.mT


def _inverse(factor: Tensor) -> Tensor:
    """Return the inverses of matrices (S, n, n) with these Cholesky factors.

    On a GPU by products: `cholesky_inverse` takes one matrix after the other in some versions of torch, and
    waits for the device in others.
    """
    if factor.device.type == "cpu":
        return torch.cholesky_inverse(factor)
    unit = torch.eye(factor.shape[1], device=factor.device).expand_as(factor)
    root = torch.linalg.solve_triangular(factor, unit, upper=False)
    return torch.bmm(root.mT, root)


def bayes_change(
    first: Tensor,
    residual: Tensor,
    variance: Tensor,
    gains: Gains,
    whitener: Tensor | None = None,
    frames: tuple[float, ...] = (),
) -> Tensor:
    """Return the difference of the second estimate from the first in groups (S, n, N), in the dtype of
    `residual`, which is source minus first; `variance` (S, 1, 1) is that of the noise.

    `frames`: factors of the noise's sigma in each frame, whose patches follow each other in a group. Every
    patch is estimated as if the noise of all were that of its frame, and stays as first estimated without.
    """
    dtype = residual.dtype
    centred = first - first.mean(1, keepdim=True)
    signal = centred.to(dtype)  # for the products that only make the change
    weighted, weighted_signal = centred, signal
    if whitener is not None:
        weighted = centred @ whitener
        weighted_signal = weighted.to(dtype)
    products = torch.bmm(weighted, centred.mT)
    projected = torch.bmm(residual, weighted_signal.mT)
    scale = 1 / (variance * first.shape[1])
    factors = sorted({*frames} - {0.0}) or [1.0]
    weights = [
        _weights(products, projected, scale / factor**2, gains) for factor in factors
    ]
    if len(factors) > 1:
        rows = weights[0].unflatten(1, (len(frames), -1))
        for frame, factor in enumerate(frames):
            level = (
                weights[factors.index(factor)]
                if factor
                else torch.zeros_like(weights[0])
            )
            rows[:, frame] = level.unflatten(1, (len(frames), -1))[:, frame]
    return torch.bmm(weights[0].to(dtype), signal)


def _weights(
    products: Tensor, projected: Tensor, scale: Tensor, gains: Gains
) -> Tensor:
    """Return (S, n, n) weights of the patches in the change, from the unscaled products of K and of Y."""
    kernel = products * scale
    kernel.diagonal(dim1=1, dim2=2).add_(1)
    # no error is raised for NaN and infinity; they stay in the residual
    weak = _inverse(torch.linalg.cholesky_ex(kernel).L)
    projection = torch.bmm(projected * scale, weak)  # Y; the factor in fp32
    weak_projection = torch.bmm(projection, weak)
    transfer = torch.addcmul(
        projection * gains.transfer, weak_projection, gains.transfer_weak
    )
    average = torch.addcmul(
        projection * gains.average, weak_projection, gains.average_weak
    )
    average = average.addcmul_(weak, gains.reduction_weak, value=-1)
    average.diagonal(dim1=1, dim2=2).sub_(gains.reduction)
    return torch.baddbmm(transfer, weak, average)
