"""Features that separate noise from picture: the power of blocks by frequency, in a frame and in differences
along motion.

Blocks of 8 x 8 are transformed by the DCT; 3 x 3 bands of frequencies are kept apart, so that coarse noise,
fine noise and noise that is smeared along lines differ. In each band the weaker blocks count (low quantiles
over the blocks), because they contain little picture. Differences between frames show noise without texture,
but less of it where a codec copied it. Noise is spread evenly over the frequencies of a block; texture, spray
and JPEG artefacts favour a few, which the concentration measures. A frame at half its size shows the coarsest
noise.

A camera's noise follows the brightness. Then the weaker blocks are those of the brightness with the least
noise, so the features of luma are taken once more of blocks that are scaled until all have equally strong
noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.noise.white import BLOCK_SIDE, clipping_bounds, dct_basis, frequencies

Array = NDArray[np.float64]
Planes = tuple[NDArray[np.float32], ...]

# the first of them, and those after it in which something may have changed
FRAMES_SEEN = 4
EDGES = (0, 2, 4, 8)  # borders of the bands, in DCT frequencies
POWER_QUANTILES = (0.03, 0.1, 0.3, 0.6)  # of the power of a band over the blocks
FLOOR = 0.02  # grey levels squared; below the power of rounding to 8 bits
# mean difference in grey levels below which two frames count as the same picture
REPEATED = 0.05
BLOCKS_PER_PLANE = 500  # about as many are transformed
FEWEST_BLOCKS = 12
MOST_CLIPPED = 0.1  # share of a block's samples
FINE_FREQUENCY = 6  # least sum of the two frequencies that is fine
# quantile of the blocks' power up to which blocks count for the concentration
CALM = 0.5
# features of the blocks of a frame, or of differences
ROW_LENGTH = 9 * len(POWER_QUANTILES) + 3
# rows of `plane_features` that are read alone
WITHIN_ROW, BETWEEN_ROW, HALVED_ROW = 0, 1, 4


def plane_features(frames: list[Planes]) -> list[Array | None]:
    """Return the features (5, ROW_LENGTH) of every plane of the first of `frames`; None for a plane with too
    few blocks.

    The rows are those of the frame, of differences to a frame after it, the same two of luma with noise that
    is equally strong at every brightness, and of the frame at half its size. Planes are on the 0-255 scale.
    If no frame differs from the first, or a row lacks blocks, it is the row of the frame.
    """
    frame, aligned = frames[0], _aligned(frames)
    return [_features(frame, index, aligned, frames) for index in range(len(frame))]


# frame number, corners of blocks and their motion, in pixels of the first plane
Aligned = tuple[int, NDArray[np.intp], NDArray[np.intp]] | None


def _aligned(frames: list[Planes]) -> Aligned:
    for number in range(1, len(frames)):
        if np.abs(frames[number][0] - frames[0][0]).mean() > REPEATED:
            return number, *motion_of(frames[0][0], frames[number][0], BLOCKS_PER_PLANE)
    return None


@dataclass(frozen=True)
class _Blocks:
    """Powers (B, 64) of the DCT of a plane's blocks, or of scaled differences, and their brightness."""

    powers: NDArray[np.float32]
    brightness: Array


def _features(
    frame: Planes, index: int, aligned: Aligned, frames: list[Planes]
) -> Array | None:
    """Return the features of a plane, a row a kind of measurement; None if it is too small for a block."""
    plane = frame[index]
    if min(plane.shape) < BLOCK_SIDE:
        return None
    # a frame that differs from none after it is its own difference
    spatial = _within(plane)
    temporal = _between(frame, index, aligned, frames) if aligned else spatial
    small = halved(plane)
    coarse = _within(small) if min(small.shape) >= BLOCK_SIDE else spatial
    # luma alone is taken once more with noise that is equally strong at every brightness
    curve = None if index else brightness_curve(spatial.powers, spatial.brightness)
    bands = _bands(spatial, None)
    if bands is None:
        return None
    evened = _bands(spatial, curve)
    # rows that lack blocks repeat that of the frame
    rows = [
        bands,
        _bands(temporal, None),
        evened,
        _bands(temporal, curve),
        _bands(coarse, None),
    ]
    return np.array([bands if row is None else row for row in rows])


def _within(plane: NDArray[np.float32]) -> _Blocks:
    """Return blocks of a plane, spread over it."""
    # an odd step, so that the blocks have every offset to a codec's grid
    step = max(3, int((plane.size / (2 * BLOCKS_PER_PLANE)) ** 0.5)) | 1
    views = np.lib.stride_tricks.sliding_window_view(plane, (BLOCK_SIDE, BLOCK_SIDE))[
        ::step, ::step
    ]
    blocks = views.reshape(-1, BLOCK_SIDE, BLOCK_SIDE)
    blocks = blocks[_usable(blocks, plane)]
    return _Blocks(_powers(blocks), _brightness(blocks))


def _between(
    frame: Planes, index: int, aligned: Aligned, frames: list[Planes]
) -> _Blocks:
    """Return differences between blocks of a plane and their matches in a later frame."""
    assert aligned is not None
    number, corners, motion = aligned
    plane, target = frame[index], frames[number][index]
    # corners and motion are those of the first plane, in its pixels
    scale = np.array(plane.shape) / np.array(frame[0].shape)
    positions = np.rint(
        (corners + (MOTION_SEARCH.block - BLOCK_SIDE) // 2) * scale
    ).astype(np.intp)
    room = np.array(plane.shape) - BLOCK_SIDE
    matches = np.clip(positions + np.rint(motion * scale).astype(np.intp), 0, room)
    blocks = blocks_at(plane, np.clip(positions, 0, room), BLOCK_SIDE)
    partners = blocks_at(target, matches, BLOCK_SIDE)
    usable = _usable(blocks, plane)
    differences = (blocks[usable] - partners[usable]) * np.float32(0.5**0.5)
    return _Blocks(_powers(differences), _brightness(blocks[usable]))


def _powers(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    # without their mean: zero exactly for a block of one colour
    flat = blocks.reshape(-1, BLOCK_SIDE**2).astype(np.float32)
    powers: NDArray[np.float32] = np.square(
        (flat - flat.mean(1, keepdims=True)) @ dct_basis(BLOCK_SIDE).T
    )
    return powers


def _brightness(blocks: NDArray[np.float32]) -> Array:
    return np.asarray(blocks.mean((1, 2), dtype=np.float64))


def _usable(blocks: NDArray[Any], plane: NDArray[Any]) -> NDArray[np.bool_]:
    """Return True for blocks with few clipped samples, or for all blocks if there are too few of them."""
    low, high = clipping_bounds(plane)
    unclipped = ((blocks <= low) | (blocks >= high)).mean((1, 2)) < MOST_CLIPPED
    return np.asarray(
        unclipped if unclipped.sum() >= FEWEST_BLOCKS else np.ones(len(blocks), bool)
    )


def _bands(blocks: _Blocks, curve: BrightnessCurve | None) -> Array | None:
    """Return logarithms of quantiles of the blocks' mean power in each band, the share of blocks without
    power, and the concentrations. With a curve the blocks are scaled first.
    """
    if len(blocks.powers) < FEWEST_BLOCKS:
        return None
    squares = blocks.powers
    if curve is not None:
        squares = squares * curve.equalising(blocks.brightness)[:, None]
    power = squares @ band_means()
    empty = float((power.max(1) <= FLOOR).mean())
    quantiles = np.log(np.quantile(power, POWER_QUANTILES, axis=0) + FLOOR).reshape(-1)
    return np.concatenate([quantiles, [empty], _concentration(squares)])


def _concentration(squares: NDArray[np.float32]) -> Array:
    """Return the concentration of power on coarse and on fine frequencies: the median over the calmer half of
    the blocks (B, 64).

    It is the logarithm of the mean square over the squared mean of the powers. Each frequency is divided by
    its mean first, so the shape of the spectrum doesn't matter.
    """
    # the calmer half contains the least picture
    total = squares[:, 1:].sum(1)
    calm = squares[total <= np.quantile(total, CALM)] + np.float32(FLOOR)
    scaled = calm / calm.mean(0)
    index, concentrations = frequencies(BLOCK_SIDE), []
    for selection in ((index > 0) & (index < FINE_FREQUENCY), index >= FINE_FREQUENCY):
        selected = scaled[:, selection]
        ratio = np.square(selected).mean(1) / np.square(selected.mean(1))
        concentrations.append(float(np.log(np.median(ratio))))
    return np.array(concentrations)


@cache
def band_means() -> NDArray[np.float32]:
    """Return (64, 9): the matrix of means over the frequencies of each band, without the block's mean."""
    band = np.digitize(np.arange(BLOCK_SIDE), EDGES[1:-1])
    numbers = np.add.outer(3 * band, band).reshape(-1)
    member = np.equal.outer(numbers, np.arange(9)).astype(np.float32)
    member[0] = 0
    means: NDArray[np.float32] = member / member.sum(0)
    return means


# The blocks of one frame in another, accurately enough to cancel the picture and leave the noise.

Picture = NDArray[np.float32]


@dataclass(frozen=True)
class MotionSearch:
    """Pixels of blocks of the luma plane, and of the radius searched at a quarter of its size."""

    block: int = 16
    reach: int = 4  # 16 at full size


MOTION_SEARCH = MotionSearch()


def motion_of(
    source: Picture, target: Picture, most: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return corners (B, 2) of blocks of `source`, and the motion (B, 2) in pixels to their best match in
    `target`.

    Blocks near the border, whose search would leave the picture, are omitted; small pictures have none. About
    `most` blocks are used, evenly spread.
    """
    margin, side = 4 * MOTION_SEARCH.reach + 4, MOTION_SEARCH.block
    rows, columns = (
        np.arange(margin, size - margin - side + 1, side) for size in source.shape
    )
    corners = (
        np.stack(np.meshgrid(rows, columns, indexing="ij"), -1)
        .reshape(-1, 2)
        .astype(np.intp)
    )
    if not len(corners):
        return corners, corners
    corners = corners[:: max(1, len(corners) // most)]
    motion = np.zeros_like(corners)
    levels = [(source, target)]
    while len(levels) < 3:
        levels.append(tuple(halved(picture) for picture in levels[-1]))  # type: ignore[arg-type]
    # a wide search at a quarter of the size, then by one pixel at each larger one
    for scale, radius in ((2, MOTION_SEARCH.reach), (1, 1), (0, 1)):
        earlier, later = levels[scale]
        motion = motion * 2  # in pixels of this level
        motion = _refined(
            earlier, later, corners >> scale, motion, side >> scale, radius
        )
    return corners, motion


def halved(picture: Picture) -> Picture:
    """Return a picture at half its size, by means of 2 x 2 pixels."""
    height, width = (size // 2 * 2 for size in picture.shape)
    crop = picture[:height, :width]
    left = crop[::2, ::2] + crop[1::2, ::2]
    result: Picture = (left + crop[::2, 1::2] + crop[1::2, 1::2]) / np.float32(4)
    return result


def _refined(
    source: Picture,
    target: Picture,
    corners: NDArray[Any],
    motion: NDArray[Any],
    side: int,
    radius: int,
) -> NDArray[np.intp]:
    """Return the best motion within `radius` of the given one; the given one wins ties."""
    template = blocks_at(source, corners, side)
    shape = np.array(target.shape) - side
    best = np.full(len(corners), np.inf, np.float32)
    best_motion = motion
    shifts = [
        (y, x) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1)
    ]
    # the nearest first, so that a tie keeps the shorter motion
    for shift in sorted(shifts, key=lambda offset: offset[0] ** 2 + offset[1] ** 2):
        candidate = motion + np.array(shift)
        cost = np.abs(
            blocks_at(target, np.clip(corners + candidate, 0, shape), side) - template
        ).mean((1, 2))
        better = cost < best
        best = np.where(better, cost, best)
        best_motion = np.where(better[:, None], candidate, best_motion)
    return np.asarray(np.clip(corners + best_motion, 0, shape) - corners, np.intp)


def blocks_at(picture: NDArray[Any], corners: NDArray[Any], side: int) -> NDArray[Any]:
    """Return the (B, side, side) blocks of a picture at (B, 2) corners."""
    views = np.lib.stride_tricks.sliding_window_view(picture, (side, side))
    return np.asarray(views[corners[:, 0], corners[:, 1]])


# How the noise follows the brightness: measured as in white.py, at high frequencies in the blocks with the
# weakest low ones, but for a few levels of brightness apart. Only the ratio between levels is used, so it
# also holds for noise with weaker high frequencies. `models/noise_model.py` measures it better, from an
# estimate.
@dataclass(frozen=True)
class CurveMeasurement:
    """How the noise's variance at each level of brightness is measured."""

    levels: int = 5  # levels of brightness, with equal numbers of blocks
    level_blocks: int = 12  # least number of a level's blocks
    # share of a level's blocks, with the weakest low frequencies, ...
    flat_share: float = 0.25
    flat_blocks: int = 10  # ... and their least number
    low: int = 3  # largest sum of the two frequencies that is low
    high: int = 8  # smallest sum of the two frequencies that is high
    least_variance: float = 0.05  # squared grey levels, added to the variances
    factors: tuple[float, float] = (0.2, 8.0)  # range of the factors of powers


NOISE_CURVE = CurveMeasurement()


@dataclass(frozen=True)
class BrightnessCurve:
    """The variance of the noise at a few levels of brightness, and its mean over all blocks."""

    brightness: Array  # (L,), rising, on the 0-255 scale
    variance: Array  # (L,)
    mean: float

    def equalising(self, brightness: Array) -> NDArray[np.float32]:
        """Return factors (B,) for the powers of blocks, with which the noise of all has the mean variance."""
        factors = self.mean / np.interp(brightness, self.brightness, self.variance)
        return np.clip(factors, *NOISE_CURVE.factors).astype(np.float32)


def brightness_curve(
    powers: NDArray[np.float32], brightness: Array
) -> BrightnessCurve | None:
    """Return the curve of blocks of these mean brightnesses, None for too few of them.

    powers: (B, N), the squares of their DCT, in the order of `white.frequencies`.
    """
    if len(powers) < NOISE_CURVE.levels * NOISE_CURVE.level_blocks:
        return None
    index = frequencies(math.isqrt(powers.shape[1]))
    low = powers[:, (index > 0) & (index <= NOISE_CURVE.low)].sum(1)
    high = powers[:, index >= NOISE_CURVE.high].mean(1)
    levels = np.array_split(np.argsort(brightness, kind="stable"), NOISE_CURVE.levels)
    places = np.array([brightness[level].mean() for level in levels])
    variances = np.array(places)
    # the low frequencies select, the high ones measure
    for number, level in enumerate(levels):
        count = max(NOISE_CURVE.flat_blocks, int(NOISE_CURVE.flat_share * len(level)))
        flattest = level[np.argsort(low[level])[:count]]
        variances[number] = (
            high[flattest].mean(dtype=np.float64) + NOISE_CURVE.least_variance
        )
    return BrightnessCurve(
        places, variances, float(np.interp(brightness, places, variances).mean())
    )
