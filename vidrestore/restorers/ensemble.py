"""The mean of two denoisers: DUST, which filters patches of planes, and MB-TaylorFormer, which sees pictures.

They err differently, so that their mean errs less than either: an ensemble (L. Hansen and P. Salamon, "Neural
Network Ensembles", IEEE TPAMI 1990).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from vidrestore.errors import CheckpointError
from vidrestore.restorers.base import PlaneRestorer, RgbRestorer, Sample

SHARE = "ensemble_share"  # parameter of weights for pictures
NOISE = (1.0, 4.0)  # sigma from which the pictures' share grows, and from which on it is full


def ensemble_share(parameters: Mapping[str, Any], name: str) -> float | None:
    """Return the share of pictures in an ensemble that the weights `name` have among their parameters; None
    if they restore alone.

    Raises CheckpointError unless it is a number above 0 and below 1.
    """
    if SHARE not in parameters:
        return None
    share = parameters[SHARE]
    if type(share) is not float or not 0 < share < 1:
        raise CheckpointError(f"{name}: {SHARE} must be above 0 and below 1, found {share!r:.40}")
    return share


class Ensemble:
    """Restorer of planes into which restored pictures are mixed; see `restorers.base.EnsembleRestorer`.

    `most` is the pictures' share where there is noise. Clips are those of `planes`, which must share at least
    twice the `radius` of `pictures`.
    """

    sees: Literal["planes and rgb"] = "planes and rgb"

    def __init__(self, planes: PlaneRestorer, pictures: RgbRestorer, most: float) -> None:
        self.planes, self.pictures, self.most = planes, pictures, most
        one, two = planes.facts, pictures.facts
        assert one.overlap >= 2 * two.radius and one.scale == two.scale == 1
        self.facts = replace(
            one,
            name=f"{one.name} and {two.name}",
            weights=f"{one.weights} and {two.weights}",
            doubts=one.doubts + two.doubts,
        )

    def clip_length(self, height: int, width: int) -> int:
        return self.planes.clip_length(height, width)

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
    ) -> tuple[Tensor, ...]:
        """See `PlaneRestorer.restore`: the estimate of planes alone."""
        return self.planes.restore(clip, sigma, precision=precision)

    def share(self, sigma: float) -> float:
        """Return the share of restored pictures in a plane with noise `sigma`. Without noise it is 0, so that
        a plane that needs nothing stays as it is.
        """
        low, high = NOISE
        return self.most * min(1.0, max(0.0, (sigma - low) / (high - low)))

    def sample(self) -> Sample | None:
        return self.planes.sample()

    def halve_batch(self) -> bool:
        """See `restorers.base.AnyRestorer.halve_batch`: both compute less at once."""
        return any([self.planes.halve_batch(), self.pictures.halve_batch()])
