"""How the noise of a plane follows the brightness, estimated from what a first estimate took off."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vidrestore.models.grouping import patches_at

GROUPS = 300  # sampled for the curve
LEVELS = 6  # of brightness
GROUPS_PER_LEVEL = 10  # least number of groups per level
POWER_QUANTILE = 0.4  # of the groups' residual power, which is higher in groups with texture
RATIO = (0.1, 6.0)  # limits of the variance at a brightness relative to that of all


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
    residual = patches_at(noisy, groups, side).sub_(patches_at(estimate, groups, side))
    power = residual.square().mean((1, 2))
    brightness, order = patches_at(guide, groups, side).mean((1, 2)).sort()
    levels = power[order].tensor_split(LEVELS)
    ratio = torch.stack([level.quantile(POWER_QUANTILE) for level in levels]) / power.quantile(
        POWER_QUANTILE
    ).clamp(min=1e-6)
    means = torch.stack([level.mean() for level in brightness.tensor_split(LEVELS)])
    return NoiseCurve(means, ratio.clamp(*RATIO))
