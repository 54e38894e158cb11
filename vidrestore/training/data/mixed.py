"""Realistic mixtures of degradations: sometimes two at once, often compressed afterwards, sometimes none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from vidrestore.degrade import DEGRADATIONS
from vidrestore.training.data.compressed import random_compression

SECOND = {  # degradations that may be combined with each
    "haze": ("noise", "rain", "snow"),
    "rain": ("haze", "blur", "noise"),
    "snow": ("haze", "blur", "noise"),
    "blur": ("noise",),
}
# from the scene through the lens to the sensor
ORDER = ("haze", "rain", "snow", "blur", "noise", "white", "coloured")


@dataclass(frozen=True)
class Shares:
    """Shares in [0, 1]: samples left clean; of the others, those degraded twice, and those compressed
    afterwards. Samples with fast motion, single frames among the others, samples with bright moving things.
    """

    untouched: float = 0.0
    combined: float = 0.0
    recompressed: float = 0.0
    fast: float = 0.0
    alone: float = 0.0
    distracted: float = 0.0


def degrade_clip(
    clip: Tensor, name: str, shares: Shares, rng: np.random.Generator, precomputed: Tensor | None = None
) -> Tensor:
    """Degrade a clip (T, 3, H, W) in [0, 1], of even sides, by `name` and by what `shares` adds at random.

    `precomputed` is the clip with the degradation `name`, if that was computed already.
    """
    untouched, combined, recompressed = rng.random(3) < (
        shares.untouched,
        shares.combined,
        shares.recompressed,
    )
    if untouched:
        return clip
    names = [name]
    if combined and name in SECOND:
        names.append(SECOND[name][rng.integers(len(SECOND[name]))])
    for each in sorted(names, key=ORDER.index):
        clip = precomputed if precomputed is not None and each == name else DEGRADATIONS[each](clip, rng)
    return random_compression(clip, rng) if recompressed else clip
