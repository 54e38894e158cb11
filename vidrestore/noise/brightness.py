"""How the noise of a plane follows the brightness, from the blocks of a frame.

White noise measures itself at high frequencies, in the blocks with the weakest low ones (white.py). Here that
is done for a few levels of brightness apart. Only the ratio between levels is used, so other noise, whose
high frequencies are weaker, will do. Once there is a first estimate, `models/noise_model.py` knows better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vidrestore.noise.white import frequencies

Array = NDArray[np.float64]

LEVELS = 5  # of brightness, with as many blocks each
BLOCKS_PER_LEVEL = 12  # at least, or there is no curve
FLAT_SHARE, FLAT_LEAST = 0.25, 10  # of a level's blocks: those with the weakest low frequencies
LOW, FINE = 3, 8  # largest and smallest sum of the two frequencies that is low, and that is fine
LEAST = 0.05  # squared grey levels, added to the variances
LIMITS = (0.2, 8.0)  # of what powers are multiplied by


@dataclass(frozen=True)
class BrightnessCurve:
    """The variance of the noise at a few levels of brightness, and its mean over all blocks."""

    brightness: Array  # (L,), rising, on the 0-255 scale
    variance: Array  # (L,)
    mean: float

    def evening(self, brightness: Array) -> NDArray[np.float32]:
        """Return (B,): what the powers of blocks are multiplied by, so that noise of the mean variance is in
        all of them.
        """
        factors = self.mean / np.interp(brightness, self.brightness, self.variance)
        return np.clip(factors, *LIMITS).astype(np.float32)


def brightness_curve(powers: NDArray[np.float32], brightness: Array) -> BrightnessCurve | None:
    """Return the curve of blocks of these mean brightnesses, None for too few of them.

    powers: (B, N), the squares of their DCT, in the order of `white.frequencies`.
    """
    if len(powers) < LEVELS * BLOCKS_PER_LEVEL:
        return None
    index = frequencies(math.isqrt(powers.shape[1]))
    low, fine = powers[:, (index > 0) & (index <= LOW)].sum(1), powers[:, index >= FINE].mean(1)
    levels = np.array_split(np.argsort(brightness, kind="stable"), LEVELS)
    places = np.array([brightness[level].mean() for level in levels])
    variances = np.array([fine[_flattest(level, low)].mean(dtype=np.float64) for level in levels]) + LEAST
    return BrightnessCurve(places, variances, float(np.interp(brightness, places, variances).mean()))


def _flattest(level: NDArray[np.intp], low: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return those blocks of a level, given by their numbers, whose power `low` is weakest."""
    count = max(FLAT_LEAST, int(FLAT_SHARE * len(level)))
    return level[np.argsort(low[level])[:count]]
