"""Choose the shares of the network and of the dark channel prior in dehazing, by how hazy a scene is.

A network that was trained on hazy pictures alone darkens pictures without haze. In thick haze its errors are
as large as those of the prior, but in other places, so that the mean of both is better than either. The
estimate of brightness varies a little from frame to frame, so its change is averaged over neighbouring
frames. Only channel means are averaged, no pixels, so motion leaves no ghosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from vidrestore.errors import CheckpointError
from vidrestore.restorers.dark_channel import Haze
from vidrestore.restorers.small_picture import changed_as
from vidrestore.restorers.task_weights import increasing_numbers

LEVELS, SHARE = "haze_levels", "dark_channel"  # parameters of weights
RADIUS = 5  # frames on either side that the change of brightness is averaged over
DARKEST = 0.05  # share of pixels that are dark in a scene without haze
BLACK = 1e-3  # channel means are taken to be brighter


@dataclass(frozen=True)
class HazeShares:
    """Shares by three levels of haze: pictures up to the first remain as they are, those from the second on
    are changed in full, and from the second to the third the prior's share rises from 0 to `prior`.
    """

    levels: tuple[float, float, float]
    prior: float

    def at(self, level: float) -> tuple[float, float]:
        """Return the shares of the change and, in it, of the prior."""
        none, some, much = self.levels
        return _risen(level, none, some), self.prior * _risen(level, some, much)


def haze_shares(parameters: Mapping[str, Any], name: str) -> HazeShares | None:
    """Return the shares in the parameters of the weights `name`; None if they have none.

    Raises CheckpointError unless `haze_levels` are three increasing numbers and `dark_channel` is in [0, 1].
    """
    if LEVELS not in parameters and SHARE not in parameters:
        return None
    none, some, much = increasing_numbers(parameters, LEVELS, 3, name)
    prior = parameters.get(SHARE)
    if isinstance(prior, bool) or not isinstance(prior, (int, float)) or not 0 <= prior <= 1:
        raise CheckpointError(f"{name}: {SHARE} must be a number in [0, 1], found {prior!r:.40}")
    return HazeShares((none, some, much), float(prior))


def _risen(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True)
class Estimate:
    """A small picture (1, 3, h, w) as given, restored by the network, and by the prior; and the haze that the
    prior found.
    """

    given: Tensor
    network: Tensor
    prior: Tensor
    haze: Haze

    @cached_property
    def level(self) -> float:
        """The amount of haze, in grey levels: the mean change by the network, weighted by the brightness of
        the darkest pixels.
        """
        darkest = self.given.amin(1).flatten().quantile(DARKEST)
        return float(255 * (self.network - self.given).abs().mean() * darkest.exp())

    @cached_property
    def means(self) -> tuple[Tensor, Tensor, Tensor]:
        """Channel means (1, 3, 1, 1) of the three pictures."""
        given, network, prior = (
            picture.mean((-2, -1), keepdim=True).clamp(min=BLACK)
            for picture in (self.given, self.network, self.prior)
        )
        return given, network, prior

    def gains(self, change: float, prior: float) -> Tensor:
        """Return channel means of the picture changed by these shares, over those of the picture as given."""
        return _mixed(*self.means, change, prior) / self.means[0]


def steadily_changed(estimates: Sequence[Estimate], shares: HazeShares, frame: Tensor) -> Tensor | None:
    """Return a frame (1, 3, H, W) without haze, as the middle one of an odd number of estimates has it; None
    if it has none.

    The level of haze, and the gain of each channel's mean, are the means over all of them.
    """
    change, prior = shares.at(fmean(estimate.level for estimate in estimates))
    if not change:
        return None
    middle = estimates[len(estimates) // 2]
    gains = torch.stack([estimate.gains(change, prior) for estimate in estimates]).mean(0)
    network = changed_as(middle.given, middle.network, frame)
    changed = _mixed(frame, network, middle.haze.removed_from(frame) if prior else network, change, prior)
    return changed * (gains / middle.gains(change, prior))


def _mixed(given: Tensor, network: Tensor, by_prior: Tensor, change: float, prior: float) -> Tensor:
    return given.lerp(network.lerp(by_prior, prior), change)
