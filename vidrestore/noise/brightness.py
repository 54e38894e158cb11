"""How the noise of a plane follows the brightness, from the blocks of a frame.

White noise measures itself at high frequencies, in the blocks with the weakest low ones (white.py). Here that
is done for a few levels of brightness apart. Only the ratio between levels is used, so other noise, whose
high frequencies are weaker, will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.noise.motion import blocks_at
from vidrestore.noise.white import dct_basis, frequencies

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


def brightness_curve(blocks: NDArray[np.float32], brightness: Array) -> BrightnessCurve | None:
    """Return the curve of blocks (B, side, side) with these mean brightnesses, None for too few of them."""
    if len(blocks) < LEVELS * BLOCKS_PER_LEVEL:
        return None
    side = blocks.shape[1]
    pixels = blocks.reshape(-1, side**2)
    powers = np.square((pixels - pixels.mean(1, keepdims=True)) @ dct_basis(side).T)
    index = frequencies(side)
    low, fine = powers[:, (index > 0) & (index <= LOW)].sum(1), powers[:, index >= FINE].mean(1)
    levels = np.array_split(np.argsort(brightness, kind="stable"), LEVELS)
    flat = [
        level[np.argsort(low[level])[: max(FLAT_LEAST, int(FLAT_SHARE * len(level)))]] for level in levels
    ]
    places = np.array([brightness[level].mean() for level in levels])
    variances = np.array([fine[chosen].mean(dtype=np.float64) for chosen in flat]) + LEAST
    return BrightnessCurve(places, variances, float(np.interp(brightness, places, variances).mean()))


def _flattest(level: NDArray[np.intp], low: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return those blocks of a level, given by their numbers, whose power `low` is weakest."""
    count = max(FLAT_LEAST, int(FLAT_SHARE * len(level)))
    return level[np.argsort(low[level], kind="stable")[:count]]


def brightness_at(
    luma: NDArray[np.float32], shape: tuple[int, ...], corners: NDArray[Any], side: int
) -> Array:
    """Return the mean of `luma` (B,) around blocks of a plane of another shape, at their (B, 2) corners."""
    side_there = min(side, *luma.shape)
    scale = np.array(luma.shape) / np.array(shape)
    there = np.rint((corners + side / 2) * scale - side_there / 2).astype(np.intp)
    there = np.clip(there, 0, np.array(luma.shape) - side_there)
    return np.asarray(blocks_at(luma, there, side_there).mean((1, 2), dtype=np.float64))
