"""Apply functions of batches to some samples or one clip at a time, and functions of a clip to batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade.counters import Counters

Rows = Tensor | slice
Degradation = Callable[[Tensor, Counters], Tensor]

CACHED_SAMPLES = 600_000  # samples of clips that are degraded together


def changed(values: Tensor, mask: Tensor, change: Callable[[Rows], Tensor]) -> Tensor:
    """Return `values` (B, ...) with the samples of `mask` (B,) replaced by `change`, which gets K numbers of
    samples, or a slice of all, and returns (K, ...).
    """
    # all or none need no copy
    rows = mask.nonzero()[:, 0]
    if len(rows) in (0, len(mask)):
        return change(slice(None)) if len(rows) else values
    return values.index_copy(0, rows, change(rows))


def degraded(
    clips: Tensor, mask: Tensor, degradation: Degradation, draw: Counters
) -> Tensor:
    """Return clips of which a degradation changes those of `mask`, (B,) bool."""
    return changed(clips, mask, lambda rows: degradation(clips[rows], draw.part(rows)))


def in_turn(batched: Degradation) -> Degradation:
    """Let a function of batches (B, T, C, H, W) degrade as many samples at once as fit the cache."""

    @wraps(batched)
    def degrade(clips: Tensor, draw: Counters) -> Tensor:
        branch = draw.branch()
        at_once = max(1, CACHED_SAMPLES // clips[0].numel())
        if at_once >= len(clips):
            return batched(clips, branch)
        # as many at once as stay in the cache
        starts = range(0, len(clips), at_once)
        spans = [slice(start, start + at_once) for start in starts]
        return torch.cat([batched(clips[span], branch.part(span)) for span in spans])

    return degrade


def of_one_clip(
    batched: Degradation,
) -> Callable[[Tensor, np.random.Generator], Tensor]:
    """Return `batched` as a function of one clip (T, 3, H, W) and a NumPy generator."""

    def degrade_clip(clip: Tensor, rng: np.random.Generator) -> Tensor:
        return batched(clip[None], counters(rng))[0]

    return degrade_clip


def one_by_one(single: Callable[[Tensor, np.random.Generator], Tensor]) -> Degradation:
    """Return a function of one clip (T, 3, H, W) and a NumPy generator as one of a batch."""

    def degrade(clips: Tensor, draw: Counters) -> Tensor:
        seeds = draw.integers(0, 2**31, 4).tolist()
        pairs = zip(clips, seeds, strict=True)
        return torch.stack(
            [single(clip, np.random.default_rng(seed)) for clip, seed in pairs]
        )

    return degrade


def counters(rng: np.random.Generator) -> Counters:
    """Return counters of one sample, seeded by the next number of a generator."""
    return Counters(int(rng.integers(2**63)), 0, torch.zeros(1, dtype=torch.int64))


def of_sample(numbers: Tensor) -> Tensor:
    """Return a number of each sample, (B,), as (B, 1, 1, 1, 1)."""
    return numbers.view(-1, 1, 1, 1, 1)


def filtered(planes: Tensor, lines: Tensor) -> Tensor:
    """Filter (B, C, H, W) by a line (B, K) of each sample down and across, K odd; borders are replicated."""
    # down, then across
    reach = lines.shape[1] // 2
    planes = F.pad(planes, [reach] * 4, mode="replicate")
    for dim in (2, 3):
        size = planes.shape[dim] - 2 * reach
        parts = lines.view(len(lines), -1, 1, 1, 1).unbind(1)
        total = planes.narrow(dim, 0, size) * parts[0]
        # much faster than a convolution with a group per sample
        for number in range(1, len(parts)):
            total.addcmul_(planes.narrow(dim, number, size), parts[number])
        planes = total
    return planes
