"""How much white Gaussian noise a plane carries, measured without a clean reference and without a model.

Blocks are taken to the DCT domain. White noise is as strong in every coefficient; pictures live in the low frequencies. So the flattest
blocks are chosen by their *low* frequencies and the noise is read off their *high* ones. For white noise the two are independent, which
is why choosing the flattest blocks brings no bias (choosing and measuring by the same variance would). What is left of texture only ever
adds, hence a small share of the blocks and the upper half of the frequencies. Samples that were clipped (black, white) are counted and
corrected for.

Limits: noise that was blurred, upscaled or filtered is correlated; its high frequencies are weak, and the figure says how strong those
are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BLOCK = 8  # pixels; planes thinner than that use 4 or 2
BLOCKS_PER_FRAME = 4000  # positions looked at, spread over the plane
FLAT_SHARE = 0.05  # of these, the part with the weakest low frequencies
FLAT_LEAST = 40  # blocks: fewer give a figure of more than 2 % error
FRAMES_KEPT = 32  # figures held per scene; above that every second is dropped, and half as many frames are measured from there on
CLIPPED_SHARE = 5e-4  # an extreme value held by more samples than this is a clipping bound


class NoiseEstimator:
    """Noise of one plane of one scene. `unit`: steps of a stored sample per grey level of the 0-255 scale (`PixelFormat.unit`).

    Give it every frame in order: it measures all of a short scene and ever fewer of a long one, so its cost and memory are bounded.
    """

    def __init__(self, unit: float = 1.0) -> None:
        self._unit = unit
        self._stride = 1
        self._seen = 0
        self._variances: list[float] = []  # of every `stride`-th frame, stored samples squared

    def add(self, plane: NDArray[Any]) -> None:
        """Take the next frame's plane: (height, width), any integer or float type. It is not kept."""
        if self._seen % self._stride == 0:
            self._variances.append(plane_variance(plane))
            if len(self._variances) > FRAMES_KEPT:
                self._variances = self._variances[::2]
                self._stride *= 2
        self._seen += 1

    def sigma(self) -> float:
        """Standard deviation of the noise on the 0-255 scale; 0.0 before the first frame. The median frame's, so fades don't count."""
        return float(np.median(self._variances)) ** 0.5 / self._unit if self._variances else 0.0


def plane_variance(plane: NDArray[Any]) -> float:
    """Variance of the white noise in one plane, in stored samples squared; 0.0 where there is nothing to measure (one row, one colour)."""
    size = next((size for size in (BLOCK, 4, 2) if size <= min(plane.shape)), 0)
    if not size:
        return 0.0
    low, high = clipping_bounds(plane)
    blocks = sample_blocks(plane, size)
    clipped = ((blocks <= low) | (blocks >= high)).mean(axis=1)
    pixels = blocks.astype(np.float32)
    means = pixels.mean(axis=1)
    coefficients = (pixels - means[:, None]) @ dct_basis(size).T
    flat = flattest(coefficients, clipped, size)
    if not len(flat):
        return 0.0
    variance = float(np.mean(coefficients[flat][:, frequencies(size) >= size].astype(np.float64) ** 2))
    return unclipped_variance(variance, means[flat].astype(np.float64), low, high)


def clipping_bounds(plane: NDArray[Any]) -> tuple[float, float]:
    """Smallest and largest sample where many pixels share it (they were clipped there), else -inf and inf."""
    low, high = plane.min(), plane.max()
    least = max(4, plane.size * CLIPPED_SHARE)
    return (
        float(low) if np.count_nonzero(plane == low) >= least else -np.inf,
        float(high) if np.count_nonzero(plane == high) >= least else np.inf,
    )


def sample_blocks(plane: NDArray[Any], size: int) -> NDArray[Any]:
    """(blocks, size * size) pixels, at an odd step: so they lie in all ways on the grid of whatever codec the plane came through."""
    step = max(3, int((plane.size / BLOCKS_PER_FRAME) ** 0.5)) | 1
    windows = np.lib.stride_tricks.sliding_window_view(plane, (size, size))[::step, ::step]
    return windows.reshape(-1, size * size)


@cache
def dct_basis(size: int) -> NDArray[np.float32]:
    """(size^2, size^2): each row one orthonormal two-dimensional DCT-II function of a block in row order."""
    k, n = np.mgrid[:size, :size]
    line = np.where(k == 0, 1 / size, 2 / size) ** 0.5 * np.cos(np.pi * (2 * n + 1) * k / (2 * size))
    return np.kron(line, line).astype(np.float32)


@cache
def frequencies(size: int) -> NDArray[np.int64]:
    """Horizontal plus vertical frequency index of each row of `dct_basis`: 0 is the mean."""
    return np.add.outer(np.arange(size), np.arange(size)).reshape(-1)


def flattest(coefficients: NDArray[np.float32], clipped: NDArray[Any], size: int) -> NDArray[np.intp]:
    """Indices of the blocks with the weakest low frequencies, among those that are not of one colour (borders) and the least clipped."""
    index = frequencies(size)
    low = (coefficients[:, (index >= 1) & (index <= max(1, 3 * size // 8))] ** 2).sum(axis=1)
    alive = np.flatnonzero((coefficients[:, index >= size] ** 2).sum(axis=1) > 0)
    wanted = max(FLAT_LEAST, int(FLAT_SHARE * len(clipped)))
    for limit in (0.1, 0.3, 1.0):
        usable = alive[clipped[alive] <= limit]
        if len(usable) >= 2 * wanted:
            break
    return usable[np.argsort(low[usable], kind="stable")[:wanted]]


def unclipped_variance(variance: float, means: Array, low: float, high: float) -> float:
    """Variance before clipping to [low, high] of noise that has `variance` after it, in blocks whose means are `means` after it."""
    if variance == 0 or (np.isinf(low) and np.isinf(high)):
        return variance
    observed = np.quantile(means, np.linspace(0.05, 0.95, 10))
    true_means, spread = observed, float(variance**0.5)
    for _ in range(12):  # fixed point; converges in a few rounds where less than a third is clipped
        mean, clipped_variance = clipped_moments(true_means, spread, low, high)
        true_means = np.clip(true_means + observed - mean, low, high)
        spread *= (variance / max(float(clipped_variance.mean()), 1e-12)) ** 0.5
        spread = min(spread, 3 * variance**0.5)
    return float(spread**2)


def clipped_moments(mean: Array, sigma: float, low: float, high: float) -> tuple[Array, Array]:
    """Mean and variance of N(mean, sigma^2) after clipping to [low, high]."""
    a, b = np.clip((low - mean) / sigma, -9, 9), np.clip((high - mean) / sigma, -9, 9)
    below, above = normal_cdf(a), 1 - normal_cdf(b)
    first = a * below + b * above + normal_pdf(a) - normal_pdf(b)
    second = a * a * below + b * b * above + (1 - below - above) + a * normal_pdf(a) - b * normal_pdf(b)
    return mean + sigma * first, sigma**2 * (second - first**2)


def normal_pdf(z: Array) -> Array:
    density: Array = np.exp(-(z**2) / 2) / (2 * np.pi) ** 0.5
    return density


_erf: Callable[[Array], Array] = np.vectorize(erf, otypes=[np.float64])


def normal_cdf(z: Array) -> Array:
    return 0.5 * (1 + _erf(z / 2**0.5))
