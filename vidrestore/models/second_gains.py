"""Gains of the second estimate, fitted to training clips.

Wiener's filter takes the first estimate for the picture. It isn't: what it lost can't be found by it, and
what it kept is better than one noisy group shows. With a for a coefficient of the first estimate, d for that
of source minus first, and t = a^2 / (a^2 + variance), Wiener's change is d t - a (1 - t). Here it is

    d t (b0 + b1 t) - a (1 - t) (c0 + c1 t),

so that the result is a mixture of both estimates. The factors depend on the rank of the component along time,
on the spatial frequency and on the noise level, and were fitted by the error of whole pictures, in which
groups overlap (examples/experiments/fit_second.py).
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import torch
from torch import Tensor

from vidrestore.models.dust_sigma import noise_level

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


def gains_name(quality: str, *, colour: bool) -> str:
    """Return the name of the factors for luma, or for a colour difference, at a quality."""
    return f"{quality} colour" if colour else quality


@lru_cache(KEPT)
def gains(name: str, stage: int, sigma: float, frames: int, side: int, device: torch.device) -> Gains:
    """Return the fitted factors `name` of the first estimate by the filter (`stage` 0), or of one after it,
    for groups of `frames` patches. Estimates after the last that was fitted have its factors.
    """
    stages = fitted()[name]
    found = factors(stages[min(stage, len(stages) - 1)], sigma, frames, side)
    return Gains(*(each.to(device) for each in found))


def factors(values: Tensor, sigma: float, frames: int, side: int) -> Gains:
    """Return the factors of `values`, as `fitted` gives them, for `frames` patches of `side` pixels."""
    low, high = SIGMA_RANGE
    level = noise_level(min(max(sigma, low), high))
    ranks = torch.arange(frames - 1, -1, -1).clamp(max=RANKS - 1)
    found = (values[:, 0] + level * values[:, 1])[:, ranks] @ _between_knots(side).mT
    return Gains(*found)


@cache
def fitted() -> dict[str, list[Tensor]]:
    """Return the values (4, 2, RANKS, KNOTS) of every set and stage: of b0, b1, c0 and c1, constant and by
    the noise level.
    """
    stored = json.loads(files("vidrestore.models").joinpath("second_gains.json").read_text())
    return {quality: [torch.tensor(stage) for stage in stages] for quality, stages in stored.items()}


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
