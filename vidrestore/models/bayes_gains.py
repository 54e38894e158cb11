"""Gains of non-local Bayes, fitted to training clips.

Non-local Bayes takes the first estimate for the picture. It isn't: what it lost can't be found by it, and
what it kept is better than one noisy group shows. With L, Y and G of `nonlocal_bayes`, the change is not
(Y - L) G but

    (a Y + a' Y L + L (b Y + b' Y L - c - c' L)) G,

so that the source's part can also be averaged between similar patches (b), and what the first estimate has
alone can be given up more, or less, than its strength says (c). The factors depend on the noise level and
were fitted by the error of whole pictures, in which groups overlap (examples/experiments/fit_bayes.py).
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import torch
from torch import Tensor

from vidrestore.models.dust_sigma import noise_level

SIGMA_RANGE = (4.0, 55.0)  # that they were fitted for; beyond, the nearest is taken
KEPT = 48  # sets of factors: enough for the planes of a few scenes


class Gains(NamedTuple):
    """The factors a, a', b, b', c and c', each a tensor without dimensions."""

    returned: Tensor
    returned_weak: Tensor
    both: Tensor
    both_weak: Tensor
    taken: Tensor
    taken_weak: Tensor


@lru_cache(KEPT)
def gains(quality: str, stage: int, sigma: float, device: torch.device) -> Gains:
    """Return the fitted factors of the first estimate by non-local Bayes (`stage` 0), or of one after it, at
    a quality. Estimates after the last that was fitted have its factors.
    """
    stages = fitted()[quality]
    return Gains(*factors(stages[min(stage, len(stages) - 1)], sigma).to(device))


def factors(values: Tensor, sigma: float) -> Tensor:
    """Return the six factors of `values`, as `fitted` gives them, at a noise level."""
    low, high = SIGMA_RANGE
    return values[0] + noise_level(min(max(sigma, low), high)) * values[1]


@cache
def fitted() -> dict[str, list[Tensor]]:
    """Return the values (2, 6) of every set and stage: constant factors, and what the noise level adds."""
    stored = json.loads(files("vidrestore.models").joinpath("bayes_gains.json").read_text())
    return {name: [torch.tensor(stage) for stage in stages] for name, stages in stored.items()}
