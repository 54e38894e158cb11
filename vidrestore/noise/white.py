"""Measure the strength of a plane's noise without a clean reference and without a model.

Blocks are taken to the DCT domain. White noise is as strong in every coefficient, pictures in the low
frequencies. So the flattest blocks are chosen by their *low* frequencies and the noise is read off their
*high* ones. For white noise the two are independent, which is why choosing the flattest blocks brings no bias
(choosing and measuring by the same variance would). What is left of texture only ever adds, hence a small
share of the blocks and the upper half of the frequencies. Samples clipped at black or white are counted and
corrected for.

A codec that is not generous zeroes the weak coefficients and keeps the strong ones: the highest frequencies
are then no longer Gaussian but sparse, and their mean square says too little: a denoiser has to deal with
what survived. There the result is that of white noise with the same tail over the middle and high
frequencies. How sparse the highest ones are decides between the two.

Limits: noise that was blurred or upscaled stays Gaussian but has weak high frequencies; the figure says how
strong those are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BLOCK = 8  # pixels; planes thinner than that use 4 or 2
BLOCKS_PER_FRAME = 2500  # positions looked at, spread over the plane
FLAT_SHARE = 0.05  # the share with the weakest low frequencies: white noise is read there
FLAT_LEAST = 40  # blocks: fewer have more than 2 % error
CALM_SHARE = 0.15  # the share in which coded noise is read: a codec takes most noise from the very flattest
# median over root mean square, 1 for a Gaussian: below, coded noise; above, white noise; mixed between
SPARSE, GAUSSIAN = (0.75, 0.95)
TAIL = 0.98  # quantile of the magnitudes by which coded noise is measured ...
# ... and sigma over it; 1.1 makes a denoiser for white noise lose least
TAIL_GAIN = 1.1 / NormalDist().inv_cdf((1 + TAIL) / 2)
# coded noise is at most this much stronger than its high frequencies: a stronger tail is texture
TAIL_LIMIT = 2.0
# codecs copy part of the noise from frame to frame: coded noise may be this much stronger than its
# differences say
COPIED = 1.6
NOISIER = 0.8  # quantile over the frames
# so many frames may (nearly) repeat others, as in 12 or 24 pictures per second at higher frame rates
REPEATED_SHARE = 0.9
# measurements held per scene; above that every second is dropped, and from there on half as many frames are
# measured
FRAMES_KEPT = 32
# an extreme value held by more samples than this is a clipping bound; less clipping needs no correction
CLIPPED_SHARE = 5e-4


class NoiseEstimator:
    """Noise of one plane of one scene. `unit`: steps of a stored sample per grey level of the 0-255 scale
    (`PixelFormat.unit`).

    Give it the frames in order, all or some: it measures each of a short scene and ever fewer of a long one.
    Cost and memory are bounded.
    """

    def __init__(self, unit: float = 1.0) -> None:
        self._unit = unit
        self._stride = 1
        self._seen = 0
        self._previous: Sample | None = None
        self._within: list[float] = []  # variances within every `stride`-th frame, stored samples squared
        self._between: list[float] = []  # and between it and the one measured before

    def add(self, plane: NDArray[Any]) -> None:
        """Take the next frame's plane: (height, width), any integer or float type. A sample of its blocks is
        kept until the next.
        """
        if self._seen % self._stride == 0:
            self._measure(sample_blocks(plane))
        if len(self._within) > FRAMES_KEPT:
            self._within, self._between = self._within[::2], self._between[::2]
            self._stride *= 2
        self._seen += 1

    def sigma(self) -> float:
        """Return the standard deviation of the noise on the 0-255 scale; 0.0 before the first frame.


        A noisier frame's than most, as codecs make every second or third frame smoother; fades and repeated
        frames don't count.
        """
        if not self._within:
            return 0.0
        between = float(np.quantile(self._between, REPEATED_SHARE)) if self._between else np.inf
        return math.sqrt(min(float(np.quantile(self._within, NOISIER)), between)) / self._unit

    def _measure(self, sample: Sample) -> None:
        self._within.append(noise_variance(sample.pixels, sample)[0])
        if self._previous is not None and self._previous.pixels.shape == sample.pixels.shape:
            difference = (sample.pixels - self._previous.pixels) * np.float32(0.5**0.5)
            clipped = np.maximum(sample.clipped, self._previous.clipped)
            variance, whiteness = noise_variance(difference, replace(sample, clipped=clipped))
            self._between.append(variance * (COPIED + (1 - COPIED) * whiteness) ** 2)
        self._previous = sample


@dataclass(frozen=True)
class Sample:
    """Blocks of one plane: (blocks, size^2) pixels, the share of clipped ones in each (blocks,), and the
    values they were clipped at.
    """

    pixels: NDArray[np.float32]
    clipped: Array
    low: float
    high: float


def sample_blocks(plane: NDArray[Any]) -> Sample:
    """Blocks at an odd step, so that they lie in all ways on the grid of whatever codec the plane came
    through.
    """
    low, high = clipping_bounds(plane)
    size = next(size for size in (BLOCK, 4, 2, 1) if size <= min(plane.shape))
    step = max(3, int((plane.size / BLOCKS_PER_FRAME) ** 0.5)) | 1
    blocks = np.lib.stride_tricks.sliding_window_view(plane, (size, size))[::step, ::step].reshape(
        -1, size * size
    )
    return Sample(blocks.astype(np.float32), ((blocks <= low) | (blocks >= high)).mean(axis=1), low, high)


def noise_variance(blocks: NDArray[np.float32], sample: Sample) -> tuple[float, float]:
    """Variance and whiteness of the noise in `blocks` (blocks, size^2): the pixels of `sample`, or scaled
    differences of such.
    """
    size = round(blocks.shape[1] ** 0.5)
    if size == 1:
        return 0.0, 1.0
    coefficients = (blocks - blocks.mean(axis=1, keepdims=True)) @ dct_basis(
        size
    ).T  # exactly zero for a block of one colour
    order = by_flatness(coefficients, sample.clipped, size)
    if not len(order):
        return 0.0, 1.0
    flat = order[: max(FLAT_LEAST, int(FLAT_SHARE * len(blocks)))]
    calm = order[: max(FLAT_LEAST, int(CALM_SHARE * len(blocks)))]
    sigma, whiteness = noise_level(coefficients[flat], coefficients[calm], size)
    if sample.clipped[flat].mean() < CLIPPED_SHARE:
        return sigma**2, whiteness
    return unclipped_variance(
        sigma**2, sample.pixels[flat].mean(axis=1, dtype=np.float64), sample.low, sample.high
    ), whiteness


def noise_level(flat: NDArray[np.float32], calm: NDArray[np.float32], size: int) -> tuple[float, float]:
    """Sigma and whiteness (0 coded, 1 white) from the DCT coefficients (blocks, size^2) of the flattest and
    of the calm blocks.
    """
    index = frequencies(size)
    highest = index >= min(size * 5 // 4, 2 * size - 2)
    white = root_mean_square(flat[:, highest])
    gaussian = (
        float(np.median(np.abs(calm[:, highest])))
        / NormalDist().inv_cdf(0.75)
        / max(root_mean_square(calm[:, highest]), 1e-12)
    )
    whiteness = min(1.0, max(0.0, (gaussian - SPARSE) / (GAUSSIAN - SPARSE)))
    if whiteness == 1:
        return white, 1.0
    coded = TAIL_GAIN * float(np.quantile(np.abs(calm[:, index >= size // 2]), TAIL))
    return whiteness * white + (1 - whiteness) * min(max(coded, white), TAIL_LIMIT * white), whiteness


def root_mean_square(values: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(values), dtype=np.float64)))


def clipping_bounds(plane: NDArray[Any]) -> tuple[float, float]:
    """Smallest and largest sample where many pixels share it (they were clipped there), else -inf and inf."""
    low, high = plane.min(), plane.max()
    least = max(4, plane.size * CLIPPED_SHARE)
    return (
        float(low) if np.count_nonzero(plane == low) >= least else -np.inf,
        float(high) if np.count_nonzero(plane == high) >= least else np.inf,
    )


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


def by_flatness(coefficients: NDArray[np.float32], clipped: NDArray[Any], size: int) -> NDArray[np.intp]:
    """Indices of blocks, the weakest low frequencies first; without those of one colour (borders) and, if
    others do, clipped ones.
    """
    index = frequencies(size)
    low = np.square(coefficients[:, (index >= 1) & (index <= max(1, 3 * size // 8))]).sum(axis=1)
    alive = np.flatnonzero(np.square(coefficients[:, index >= size]).sum(axis=1) > 0)
    wanted = max(2 * FLAT_LEAST, int(2 * FLAT_SHARE * len(clipped)))
    for limit in (0.1, 0.3, 1.0):
        usable = alive[clipped[alive] <= limit]
        if len(usable) >= wanted:
            break
    return usable[np.argsort(low[usable], kind="stable")]


def unclipped_variance(variance: float, means: Array, low: float, high: float) -> float:
    """Variance before clipping to [low, high] of noise that has `variance` after it, in blocks whose means
    are `means` after it.
    """
    if variance == 0:
        return 0.0
    observed = np.quantile(means, np.linspace(0.1, 0.9, 5))
    true_means, spread = observed, float(variance**0.5)
    for _ in range(6):  # fixed point; a few rounds do where less than a third is clipped
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


_erf: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[np.float64])


def normal_cdf(z: Array) -> Array:
    return 0.5 * (1 + _erf(z / 2**0.5))
