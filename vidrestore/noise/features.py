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

from vidrestore.noise.white import clipping_bounds, dct_basis, frequencies

Array = NDArray[np.float64]
Planes = tuple[NDArray[np.float32], ...]

SIDE = 8
FRAMES_SEEN = 4  # the first of them, and those after it in which something may have changed
EDGES = (0, 2, 4, 8)  # borders of the bands, in DCT frequencies
QUANTILES = (0.03, 0.1, 0.3, 0.6)
FLOOR = 0.02  # grey levels squared; below the power of rounding to 8 bits
REPEATED = 0.05  # mean difference in grey levels below which two frames count as the same picture
MOST_BLOCKS = 500
FEWEST_BLOCKS = 12
MOST_CLIPPED = 0.1  # share of a block's samples
FINE = 6  # least sum of the two frequencies that is fine
CALM = 0.5  # quantile of the blocks' power up to which blocks count for the concentration
PART = 9 * len(QUANTILES) + 3  # features of the blocks of a frame, or of differences
WITHIN, BETWEEN, HALVED = 0, 1, 4  # rows of `plane_features` that are read alone


def plane_features(frames: list[Planes]) -> list[Array | None]:
    """Return the features (5, PART) of every plane of the first of `frames`; None for a plane with too few
    blocks.

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
            return number, *motion_of(frames[0][0], frames[number][0], MOST_BLOCKS)
    return None


@dataclass(frozen=True)
class _Blocks:
    """Powers (B, SIDE^2) of the DCT of a plane's blocks, or of scaled differences, and their brightness."""

    powers: NDArray[np.float32]
    brightness: Array


def _features(frame: Planes, index: int, aligned: Aligned, frames: list[Planes]) -> Array | None:
    plane = frame[index]
    if min(plane.shape) < SIDE:
        return None
    spatial = _within(plane)
    temporal = _between(frame, index, aligned, frames) if aligned else spatial
    small = halved(plane)
    coarse = _within(small) if min(small.shape) >= SIDE else spatial
    curve = None if index else brightness_curve(spatial.powers, spatial.brightness)
    bands = _bands(spatial, None)
    if bands is None:
        return None
    evened = _bands(spatial, curve)
    rows = [bands, _bands(temporal, None), evened, _bands(temporal, curve), _bands(coarse, None)]
    return np.array([bands if row is None else row for row in rows])


def _within(plane: NDArray[np.float32]) -> _Blocks:
    """Return blocks of a plane, spread over it."""
    step = max(3, int((plane.size / (2 * MOST_BLOCKS)) ** 0.5)) | 1
    views = np.lib.stride_tricks.sliding_window_view(plane, (SIDE, SIDE))[::step, ::step]
    blocks = views.reshape(-1, SIDE, SIDE)
    blocks = blocks[_usable(blocks, plane)]
    return _Blocks(_powers(blocks), _brightness(blocks))


def _between(frame: Planes, index: int, aligned: Aligned, frames: list[Planes]) -> _Blocks:
    """Return differences between blocks of a plane and their matches in a later frame."""
    assert aligned is not None
    number, corners, motion = aligned
    plane, target = frame[index], frames[number][index]
    scale = np.array(plane.shape) / np.array(frame[0].shape)
    positions = np.rint((corners + (BLOCK - SIDE) // 2) * scale).astype(np.intp)
    room = np.array(plane.shape) - SIDE
    matches = np.clip(positions + np.rint(motion * scale).astype(np.intp), 0, room)
    blocks, partners = blocks_at(plane, np.clip(positions, 0, room), SIDE), blocks_at(target, matches, SIDE)
    usable = _usable(blocks, plane)
    differences = (blocks[usable] - partners[usable]) * np.float32(0.5**0.5)
    return _Blocks(_powers(differences), _brightness(blocks[usable]))


def _powers(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    flat = blocks.reshape(-1, SIDE**2).astype(np.float32)
    powers: NDArray[np.float32] = np.square((flat - flat.mean(1, keepdims=True)) @ dct_basis(SIDE).T)
    return powers


def _brightness(blocks: NDArray[np.float32]) -> Array:
    return np.asarray(blocks.mean((1, 2), dtype=np.float64))


def _usable(blocks: NDArray[Any], plane: NDArray[Any]) -> NDArray[np.bool_]:
    """Return True for blocks with few clipped samples, or for all blocks if there are too few of them."""
    low, high = clipping_bounds(plane)
    unclipped = ((blocks <= low) | (blocks >= high)).mean((1, 2)) < MOST_CLIPPED
    return np.asarray(unclipped if unclipped.sum() >= FEWEST_BLOCKS else np.ones(len(blocks), bool))


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
    quantiles = np.log(np.quantile(power, QUANTILES, axis=0) + FLOOR).reshape(-1)
    return np.concatenate([quantiles, [empty], _concentration(squares)])


def _concentration(squares: NDArray[np.float32]) -> Array:
    """Return the concentration of power on coarse and on fine frequencies: the median over the calmer half of
    the blocks (B, 64).

    It is the logarithm of the mean square over the squared mean of the powers. Each frequency is divided by
    its mean first, so the shape of the spectrum doesn't matter.
    """
    total = squares[:, 1:].sum(1)
    calm = squares[total <= np.quantile(total, CALM)] + np.float32(FLOOR)
    scaled = calm / calm.mean(0)
    index, concentrations = frequencies(SIDE), []
    for part in ((index > 0) & (index < FINE), index >= FINE):
        ratio = np.square(scaled[:, part]).mean(1) / np.square(scaled[:, part].mean(1))
        concentrations.append(float(np.log(np.median(ratio))))
    return np.array(concentrations)


@cache
def band_means() -> NDArray[np.float32]:
    """Return (64, 9): the matrix of means over the frequencies of each band, without the block's mean."""
    band = np.digitize(np.arange(SIDE), EDGES[1:-1])
    member = np.equal.outer(np.add.outer(3 * band, band).reshape(-1), np.arange(9)).astype(np.float32)
    member[0] = 0
    means: NDArray[np.float32] = member / member.sum(0)
    return means


# The blocks of one frame in another, accurately enough to cancel the picture and leave the noise.

Picture = NDArray[np.float32]
BLOCK = 16  # pixels of the luma plane
REACH = 4  # search radius in pixels at a quarter of the size, 16 at full size


def motion_of(source: Picture, target: Picture, most: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return corners (B, 2) of blocks of `source`, and the motion (B, 2) in pixels to their best match in
    `target`.

    Blocks near the border, whose search would leave the picture, are omitted; small pictures have none. About
    `most` blocks are used, evenly spread.
    """
    margin = 4 * REACH + 4
    height, width = source.shape
    rows, columns = (np.arange(margin, size - margin - BLOCK + 1, BLOCK) for size in (height, width))
    corners = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2).astype(np.intp)
    if not len(corners):
        return corners, corners
    corners = corners[:: max(1, len(corners) // most)]
    motion = np.zeros_like(corners)
    levels = [(source, target)]
    while len(levels) < 3:
        levels.append(tuple(halved(picture) for picture in levels[-1]))  # type: ignore[arg-type]
    for scale, radius in ((2, REACH), (1, 1), (0, 1)):
        earlier, later = levels[scale]
        motion = _refined(
            earlier, later, corners >> scale, (motion * 2) if scale < 2 else motion, BLOCK >> scale, radius
        )
    return corners, motion


def halved(picture: Picture) -> Picture:
    """Return a picture at half its size, by means of 2 x 2 pixels."""
    height, width = (size // 2 * 2 for size in picture.shape)
    crop = picture[:height, :width]
    result: Picture = (crop[::2, ::2] + crop[1::2, ::2] + crop[::2, 1::2] + crop[1::2, 1::2]) / np.float32(4)
    return result


def _refined(
    source: Picture, target: Picture, corners: NDArray[Any], motion: NDArray[Any], side: int, radius: int
) -> NDArray[np.intp]:
    """Return the best motion within `radius` of the given one; the given one wins ties."""
    template = blocks_at(source, corners, side)
    shape = np.array(target.shape) - side
    best, best_motion = np.full(len(corners), np.inf, np.float32), motion
    shifts = [(y, x) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1)]
    for shift in sorted(shifts, key=lambda offset: offset[0] ** 2 + offset[1] ** 2):
        candidate = motion + np.array(shift)
        cost = np.abs(blocks_at(target, np.clip(corners + candidate, 0, shape), side) - template).mean((1, 2))
        better = cost < best
        best, best_motion = np.where(better, cost, best), np.where(better[:, None], candidate, best_motion)
    return np.asarray(np.clip(corners + best_motion, 0, shape) - corners, np.intp)


def blocks_at(picture: NDArray[Any], corners: NDArray[Any], side: int) -> NDArray[Any]:
    """Return the (B, side, side) blocks of a picture at (B, 2) corners."""
    views = np.lib.stride_tricks.sliding_window_view(picture, (side, side))
    return np.asarray(views[corners[:, 0], corners[:, 1]])


# How the noise follows the brightness: measured as in white.py, at high frequencies in the blocks with the
# weakest low ones, but for a few levels of brightness apart. Only the ratio between levels is used, so it
# also holds for noise with weaker high frequencies. `models/noise_model.py` measures it better, from an
# estimate.
LEVELS = 5  # levels of brightness, with equal numbers of blocks
BLOCKS_PER_LEVEL = 12  # least number of blocks for a curve
FLAT_SHARE, FLAT_LEAST = 0.25, 10  # a level's blocks with the weakest low frequencies
LOW, HIGH = 3, 8  # largest and smallest sum of the two frequencies that is low, and that is high
LEAST_VARIANCE = 0.05  # squared grey levels, added to the variances
LIMITS = (0.2, 8.0)  # range of the factors of powers


@dataclass(frozen=True)
class BrightnessCurve:
    """The variance of the noise at a few levels of brightness, and its mean over all blocks."""

    brightness: Array  # (L,), rising, on the 0-255 scale
    variance: Array  # (L,)
    mean: float

    def equalising(self, brightness: Array) -> NDArray[np.float32]:
        """Return factors (B,) for the powers of blocks, with which the noise of all has the mean variance."""
        factors = self.mean / np.interp(brightness, self.brightness, self.variance)
        return np.clip(factors, *LIMITS).astype(np.float32)


def brightness_curve(powers: NDArray[np.float32], brightness: Array) -> BrightnessCurve | None:
    """Return the curve of blocks of these mean brightnesses, None for too few of them.

    powers: (B, N), the squares of their DCT, in the order of `white.frequencies`.
    """
    if len(powers) < LEVELS * BLOCKS_PER_LEVEL:
        return None
    index = frequencies(math.isqrt(powers.shape[1]))
    low, fine = powers[:, (index > 0) & (index <= LOW)].sum(1), powers[:, index >= HIGH].mean(1)
    levels = np.array_split(np.argsort(brightness, kind="stable"), LEVELS)
    places = np.array([brightness[level].mean() for level in levels])
    variances = np.array(places)
    for number, level in enumerate(levels):
        count = max(FLAT_LEAST, int(FLAT_SHARE * len(level)))
        flattest = level[np.argsort(low[level])[:count]]
        variances[number] = fine[flattest].mean(dtype=np.float64) + LEAST_VARIANCE
    return BrightnessCurve(places, variances, float(np.interp(brightness, places, variances).mean()))
