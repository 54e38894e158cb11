"""Degradations as they come: sometimes two at once, often compressed afterwards, now and then none at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from vidrestore.degrade import DEGRADATIONS
from vidrestore.training.data.compressed import drawn_compression

WITH = {
    "haze": ("noise", "rain", "snow"),
    "rain": ("haze", "blur", "noise"),
    "snow": ("haze", "blur", "noise"),
    "blur": ("noise",),
}
ORDER = ("haze", "rain", "snow", "blur", "noise")  # from the scene through the lens to the sensor


@dataclass(frozen=True)
class Shares:
    """Of all samples, those left as they are; of the others, those degraded twice, and those compressed at
    last.
    """

    untouched: float = 0.0
    combined: float = 0.0
    recompressed: float = 0.0


def degraded(
    clip: Tensor, name: str, shares: Shares, draw: np.random.Generator, made: Tensor | None = None
) -> Tensor:
    """(T, 3, H, W) in [0, 1], even sides, after one degradation, or after what `shares` make of that.

    `made` is the clip with the degradation already.
    """
    untouched, combined, recompressed = draw.random(3) < (
        shares.untouched,
        shares.combined,
        shares.recompressed,
    )
    if untouched:
        return clip
    names = [name]
    if combined and name in WITH:
        names.append(WITH[name][draw.integers(len(WITH[name]))])
    for each in sorted(names, key=ORDER.index):
        clip = made if made is not None and each == name else DEGRADATIONS[each](clip, draw)
    return drawn_compression(clip, draw) if recompressed else clip
