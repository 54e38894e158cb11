"""How the noise of a plane follows the brightness, estimated from what a first estimate took off.

A first estimate leaves noise in texture, and coarse noise nearly everywhere. So the fine differences between
neighbouring pixels are compared, in those groups of patches that vary least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vidrestore.models.grouping import flattest, patches_at

GROUPS = 300  # sampled for the curve
LEVELS = 6  # of brightness
GROUPS_PER_LEVEL = 10  # least number of groups per level
FLAT = 0.25  # share of a level's groups, those that vary least
LEAST = 1e-6  # squared grey levels: least power of noise
RATIO = (0.1, 6.0)  # limits of the variance at a brightness relative to the (geometric) mean


@dataclass(frozen=True)
class NoiseCurve:
    """The relative noise variance at a few brightness levels, linearly interpolated; constant 1 if there are
    none.
    """

    brightness: Tensor  # (L,), ascending, on the 0-255 scale
    variance: Tensor  # (L,)

    def at(self, brightness: Tensor) -> Tensor:
        if len(self.brightness) < 2:
            return torch.ones_like(brightness)
        above = torch.searchsorted(self.brightness, brightness).clamp(1, len(self.brightness) - 1)
        low, high = self.brightness[above - 1], self.brightness[above]
        share = ((brightness - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)
        return torch.lerp(self.variance[above - 1], self.variance[above], share)


def noise_curve(noisy: Tensor, estimate: Tensor, guide: Tensor, groups: Tensor, side: int) -> NoiseCurve:
    """Estimate the noise by brightness from the residual of the first estimate in groups at flat (S, T)
    origins.
    """
    groups = groups[:: math.ceil(len(groups) / GROUPS)]
    if len(groups) < LEVELS * GROUPS_PER_LEVEL:
        return NoiseCurve(guide.new_empty(0), guide.new_empty(0))
    first = patches_at(estimate, groups, side)
    power = _fine_power(patches_at(noisy, groups, side) - first, side)
    brightness, order = patches_at(guide, groups, side).mean((1, 2)).sort()
    levels = order.tensor_split(LEVELS)
    flat = [level[flattest(first[level], math.ceil(FLAT * len(level)))] for level in levels]
    logarithms = torch.stack([power[chosen].mean() for chosen in flat]).clamp(min=LEAST).log()
    means = torch.stack([level.mean() for level in brightness.tensor_split(LEVELS)])
    return NoiseCurve(means, (logarithms - logarithms.mean()).exp().clamp(*RATIO))


def _fine_power(patches: Tensor, side: int) -> Tensor:
    """Return the mean power (S,) of the differences between neighbours, down and then across, in patches
    (S, T, side^2).
    """
    fine: Tensor = patches.unflatten(-1, (side, side)).diff(dim=-1).diff(dim=-2)
    return fine.square().mean((1, 2, 3))
