"""Measure the strength of a plane's noise without a clean reference and without a model.

Blocks are transformed by the DCT. White noise is equally strong in every coefficient; pictures are strong in
the low frequencies. So the flattest blocks are selected by their *low* frequencies, and the noise is measured
in their *high* ones. For white noise the two are independent, so that the selection adds no bias (selecting
and measuring by the same variance would). Texture only adds to the result, hence a small share of the blocks
and the upper half of the frequencies. Clipping at black and white is corrected for.

A codec at low bit rates zeroes weak coefficients and keeps strong ones: the highest frequencies are then
sparse instead of Gaussian, and their mean square underestimates the noise that a denoiser has to remove. For
such noise the result is the sigma of white noise with the same tail over the middle and high frequencies. The
sparsity of the highest frequencies decides between the two.

Limits: noise that was blurred or upscaled stays Gaussian but has weak high frequencies; the result is the
strength of those.
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

BLOCK_SIDE = 8  # pixels; planes thinner than that use 4 or 2
BLOCKS_PER_FRAME = 2500  # positions looked at, spread over the plane
# the share with the weakest low frequencies, where white noise is measured
WHITE_SHARE = 0.05
LEAST_BLOCKS = 40  # fewer give more than 2 % error
FLATTEST = 0.1  # share by whose strength at all frequencies white noise is doubted
RING = 1.5  # width of a ring of frequencies of a block, whose directions are compared
# value from which samples are white, and most of their share where skewness counts
WHITE_SAMPLE, MOST_WHITE = 254.5, 0.05
# the share where coded noise is measured: codecs remove most from the very flattest
CALM_SHARE = 0.15
# median over root mean square, 1 for a Gaussian: below, coded noise; above, white noise; mixed between
SPARSE, GAUSSIAN = (0.75, 0.95)
TAIL = 0.98  # quantile of the magnitudes by which coded noise is measured ...
# ... and sigma over it; 1.1 makes a denoiser for white noise lose least
TAIL_GAIN = 1.1 / NormalDist().inv_cdf((1 + TAIL) / 2)
# most of coded noise over its high frequencies; a stronger tail is texture
TAIL_LIMIT = 2.0
# coded noise over that of its differences: codecs copy part of the noise from frame to frame
COPIED = 1.6
NOISIER = 0.8  # quantile over the frames
# quantile over the differences: most frames may repeat others, as 12 or 24 fps in higher frame rates
REPEATED_SHARE = 0.9
# most measurements per scene; then every second is dropped, and half as many of the later frames are measured
FRAMES_KEPT = 32
# least share of samples with an extreme value for it to be a clipping bound
CLIPPED_SHARE = 5e-4


class NoiseEstimator:
    """Estimate the noise of one plane of one scene. `unit`: steps of a stored sample per grey level of the
    0-255 scale (`PixelFormat.unit`).

    `add` the frames in order, all or some. Every frame of a short scene is measured and fewer of a long one,
    so that time and memory are bounded.
    """

    def __init__(self, unit: float = 1.0) -> None:
        self._unit = unit
        self._stride = 1
        self._seen = 0
        self._previous: BlockSet | None = None
        # variances within every `stride`-th frame, stored samples squared
        self._within: list[float] = []
        # variances of the differences between measured frames
        self._between: list[float] = []

    def add(self, plane: NDArray[Any]) -> None:
        """Measure the next frame's plane (height, width), of any integer or float type."""
        if self._seen % self._stride == 0:
            self._measure(sample_blocks(plane))
        if len(self._within) > FRAMES_KEPT:
            self._within, self._between = self._within[::2], self._between[::2]
            self._stride *= 2
        self._seen += 1

    def sigma(self) -> float:
        """Return the standard deviation of the noise on the 0-255 scale; 0.0 before the first frame.

        It is a high quantile over the frames, since codecs smooth every second or third one; fades and
        repeated frames don't count.
        """
        if not self._within:
            return 0.0
        limit = (
            float(np.quantile(self._between, REPEATED_SHARE))
            if self._between
            else np.inf
        )
        return (
            math.sqrt(min(float(np.quantile(self._within, NOISIER)), limit))
            / self._unit
        )

    def _measure(self, sample: BlockSet) -> None:
        self._within.append(noise_variance(sample.pixels, sample)[0])
        # differences have twice the variance of a frame, so they are scaled to it
        if (
            self._previous is not None
            and self._previous.pixels.shape == sample.pixels.shape
        ):
            difference = (sample.pixels - self._previous.pixels) * np.float32(0.5**0.5)
            clipped = np.maximum(sample.clipped, self._previous.clipped)
            # what a codec copied is missing from differences of coded noise
            variance, whiteness = noise_variance(
                difference, replace(sample, clipped=clipped)
            )
            self._between.append(variance * (COPIED + (1 - COPIED) * whiteness) ** 2)
        self._previous = sample


@dataclass(frozen=True)
class BlockSet:
    """Blocks of one plane: pixels (blocks, size^2), the share clipped (blocks,), and at which values."""

    pixels: NDArray[np.float32]
    clipped: Array
    low: float
    high: float


def sample_blocks(plane: NDArray[Any]) -> BlockSet:
    """Return blocks at an odd step, so that they have every offset to the block grid of a codec."""
    low, high = clipping_bounds(plane)
    size = next(size for size in (BLOCK_SIDE, 4, 2, 1) if size <= min(plane.shape))
    step = max(3, int((plane.size / BLOCKS_PER_FRAME) ** 0.5)) | 1
    views = np.lib.stride_tricks.sliding_window_view(plane, (size, size))[
        ::step, ::step
    ]
    blocks = views.reshape(-1, size * size)
    clipped = ((blocks <= low) | (blocks >= high)).mean(axis=1)
    return BlockSet(blocks.astype(np.float32), clipped, low, high)


def flat_blocks(plane: NDArray[Any]) -> NDArray[np.float32]:
    """Return the flattest tenth of a plane's blocks (N, side, side), without those of one colour."""
    sample = sample_blocks(plane)
    size = round(sample.pixels.shape[1] ** 0.5)
    means = sample.pixels.mean(axis=1, keepdims=True)
    coefficients = (sample.pixels - means) @ dct_basis(size).T
    order = by_flatness(coefficients, sample.clipped, size)
    count = max(LEAST_BLOCKS, int(FLATTEST * len(coefficients)))
    return sample.pixels[order[:count]].reshape(-1, size, size)


def flat_powers(blocks: NDArray[np.float32]) -> Array:
    """Return the mean square of each DCT coefficient of `flat_blocks` (side, side), by the frequencies down
    and across; 0 without blocks.
    """
    size = blocks.shape[-1]
    if not len(blocks):
        return np.zeros((size, size))
    samples = blocks.reshape(len(blocks), -1)
    coefficients = (samples - samples.mean(axis=1, keepdims=True)) @ dct_basis(size).T
    squares = np.square(coefficients)
    powers: Array = squares.mean(axis=0, dtype=np.float64).reshape(size, size)
    return powers


def skewness_in_light(blocks: NDArray[np.float32]) -> float:
    """Return the skewness of `flat_blocks` (N, side, side), of equal strength, as light: squares of what is
    stored (0-255). A sensor's noise and grain have about 0 or more; relief of paper casts shadows, so that it
    has less. 0 without blocks, or if many samples are white: noise that is cut off there is skewed, too.
    """
    if not len(blocks) or (blocks >= WHITE_SAMPLE).mean() > MOST_WHITE:
        return 0.0
    light = np.square(blocks.reshape(len(blocks), -1), dtype=np.float64)
    light -= light.mean(axis=1, keepdims=True)
    light /= np.maximum(light.std(axis=1, keepdims=True), 1e-9)
    return float((light**3).mean())


def flat_strength(powers: Array) -> float:
    """Return the root mean square of flat blocks at all frequencies but 0, by their `flat_powers`. White
    noise is as strong there as at the high frequencies, weaves and other fine texture are weaker.
    """
    return math.sqrt(powers.ravel()[1:].mean()) if powers.size > 1 else 0.0


def noise_like_share(powers: Array) -> float:
    """Return the share (0 to 1) of the power of flat blocks that noise can have, by their `flat_powers`: what
    is there in all directions, as sharpened noise is, or doesn't rise with the frequency, as that of smeared
    noise. Threads of a weave rise at their frequency, in two directions. The lowest frequencies don't count:
    blocks are flat by these.
    """
    is_counted = frequencies(len(powers)) > 3 * len(powers) // 8
    counted = powers.ravel()[is_counted]
    if not counted.any():
        return 1.0
    falling = np.where(is_counted.reshape(powers.shape), powers, np.inf)
    for axis in (0, 1):
        falling = np.minimum.accumulate(falling, axis)
    # the least power of each ring of frequencies
    rings = np.rint(np.hypot(*np.indices(powers.shape)) / RING).astype(int)
    rings = rings.ravel()[is_counted]
    least = np.full(rings.max() + 1, np.inf)
    np.minimum.at(least, rings, counted)
    explained = np.maximum(falling.ravel()[is_counted], least[rings])
    return float(explained.sum() / counted.sum())


def noise_variance(
    blocks: NDArray[np.float32], sample: BlockSet
) -> tuple[float, float]:
    """Return the noise's variance and whiteness in `blocks` (blocks, size^2): the pixels of `sample`, or
    their differences from another frame.
    """
    size = round(blocks.shape[1] ** 0.5)
    if size == 1:
        return 0.0, 1.0
    # without their mean: exactly zero for a block of one colour
    coefficients = (blocks - blocks.mean(axis=1, keepdims=True)) @ dct_basis(size).T
    order = by_flatness(coefficients, sample.clipped, size)
    if not len(order):
        return 0.0, 1.0
    # white noise is measured in the flattest blocks, coded noise in more of them
    flat = order[: max(LEAST_BLOCKS, int(WHITE_SHARE * len(blocks)))]
    calm = order[: max(LEAST_BLOCKS, int(CALM_SHARE * len(blocks)))]
    sigma, whiteness = noise_level(coefficients[flat], coefficients[calm], size)
    if sample.clipped[flat].mean() < CLIPPED_SHARE:
        return sigma**2, whiteness
    # clipped pixels lost a part of the noise, which follows from the others
    means = sample.pixels[flat].mean(axis=1, dtype=np.float64)
    return unclipped_variance(sigma**2, means, sample.low, sample.high), whiteness


def noise_level(
    flat: NDArray[np.float32], calm: NDArray[np.float32], size: int
) -> tuple[float, float]:
    """Return sigma and whiteness (0 coded, 1 white) by coefficients (blocks, size^2) of two selections."""
    index = frequencies(size)
    highest = index >= min(size * 5 // 4, 2 * size - 2)
    white = root_mean_square(flat[:, highest])
    # a Gaussian has both sigmas alike: that of its median magnitude and its root mean square
    calmest = calm[:, highest]
    median_sigma = float(np.median(np.abs(calmest))) / NormalDist().inv_cdf(0.75)
    gaussian = median_sigma / max(root_mean_square(calmest), 1e-12)
    whiteness = min(1.0, max(0.0, (gaussian - SPARSE) / (GAUSSIAN - SPARSE)))
    if whiteness == 1:
        return white, 1.0
    coded = TAIL_GAIN * float(np.quantile(np.abs(calm[:, index >= size // 2]), TAIL))
    coded = min(max(coded, white), TAIL_LIMIT * white)
    return whiteness * white + (1 - whiteness) * coded, whiteness


def root_mean_square(values: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(values), dtype=np.float64)))


def clipping_bounds(plane: NDArray[Any]) -> tuple[float, float]:
    """Return the smallest and largest sample if many pixels have it (clipped ones), else -inf and inf."""
    low, high = plane.min(), plane.max()
    threshold = max(4, plane.size * CLIPPED_SHARE)
    is_low_clipped = np.count_nonzero(plane == low) >= threshold
    is_high_clipped = np.count_nonzero(plane == high) >= threshold
    return float(low) if is_low_clipped else -np.inf, float(
        high
    ) if is_high_clipped else np.inf


@cache
def dct_basis(size: int) -> NDArray[np.float32]:
    """Return the orthonormal 2-D DCT-II (size^2, size^2), a function of a block in row order in each row."""
    k, n = np.mgrid[:size, :size]
    norms = np.where(k == 0, 1 / size, 2 / size) ** 0.5
    line = norms * np.cos(np.pi * (2 * n + 1) * k / (2 * size))
    return np.kron(line, line).astype(np.float32)


@cache
def frequencies(size: int) -> NDArray[np.int64]:
    """Return the sum of both frequency indices for each row of `dct_basis`; 0 is the mean."""
    return np.add.outer(np.arange(size), np.arange(size)).reshape(-1)


def by_flatness(
    coefficients: NDArray[np.float32], clipped: NDArray[Any], size: int
) -> NDArray[np.intp]:
    """Return the indices of blocks by rising power of their low frequencies, without blocks of one colour
    (borders), and without clipped ones if enough others remain.
    """
    index = frequencies(size)
    lowest = (index >= 1) & (index <= max(1, 3 * size // 8))
    low = np.square(coefficients[:, lowest]).sum(axis=1)
    alive = np.flatnonzero(np.square(coefficients[:, index >= size]).sum(axis=1) > 0)
    minimum = max(2 * LEAST_BLOCKS, int(2 * WHITE_SHARE * len(clipped)))
    for limit in (0.1, 0.3, 1.0):
        # clipped blocks count only where too few others remain
        usable = alive[clipped[alive] <= limit]
        if len(usable) >= minimum:
            break
    return usable[np.argsort(low[usable], kind="stable")]


def unclipped_variance(variance: float, means: Array, low: float, high: float) -> float:
    """Return the variance of noise before it was clipped to [low, high], from that after and `means`."""
    if variance == 0:
        return 0.0
    observed = np.quantile(means, np.linspace(0.1, 0.9, 5))
    true_means, spread = observed, float(variance**0.5)
    # fixed point; a few rounds are enough if less than a third is clipped
    for _ in range(6):
        mean, clipped_variance = clipped_moments(true_means, spread, low, high)
        true_means = np.clip(true_means + observed - mean, low, high)
        spread *= (variance / max(float(clipped_variance.mean()), 1e-12)) ** 0.5
        spread = min(spread, 3 * variance**0.5)
    return float(spread**2)


def clipped_moments(
    mean: Array, sigma: float, low: float, high: float
) -> tuple[Array, Array]:
    """Return mean and variance of N(mean, sigma^2) clipped to [low, high]."""
    a, b = (np.clip((bound - mean) / sigma, -9, 9) for bound in (low, high))
    below, above = normal_cdf(a), 1 - normal_cdf(b)
    # moments of the standardised noise: the two bounds' own, then those of what lies between
    first = a * below + b * above + normal_pdf(a) - normal_pdf(b)
    bounds = a * a * below + b * b * above
    second = bounds + (1 - below - above) + a * normal_pdf(a) - b * normal_pdf(b)
    return mean + sigma * first, sigma**2 * (second - first**2)


def normal_pdf(z: Array) -> Array:
    density: Array = np.exp(-(z**2) / 2) / (2 * np.pi) ** 0.5
    return density


_erf: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[np.float64])


def normal_cdf(z: Array) -> Array:
    return 0.5 * (1 + _erf(z / 2**0.5))
