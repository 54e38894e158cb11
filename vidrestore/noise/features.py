"""Features that separate noise from picture: the power of blocks by frequency, in a frame and in differences
along motion.

Blocks of 8 x 8 are transformed by the DCT; 3 x 3 bands of frequencies are kept apart, so that coarse noise,
fine noise and noise that is smeared along lines differ. In each band the weaker blocks count (low quantiles
over the blocks), because they contain little picture. Differences between frames show noise without texture,
but less of it where a codec copied it, so differences over two distances are used. Noise is spread evenly
over the frequencies of a block; texture, spray and JPEG artefacts favour a few, which the concentration
measures.

A camera's noise follows the brightness. Then the weaker blocks are those of the brightness with the least
noise, so the features are taken once more of blocks that are scaled until all have equally strong noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.noise.brightness import BrightnessCurve, brightness_at, brightness_curve
from vidrestore.noise.motion import BLOCK, blocks_at, motion_of
from vidrestore.noise.white import clipping_bounds, dct_basis, frequencies

Array = NDArray[np.float64]
Planes = tuple[NDArray[np.float32], ...]

SIDE = 8
DISTANCES = (1, 3)  # frames
EDGES = (0, 2, 4, 8)  # borders of the bands, in DCT frequencies
QUANTILES = (0.03, 0.1, 0.3, 0.6)
FLOOR = 0.02  # grey levels squared; below the power of rounding to 8 bits
REPEATED = 0.05  # mean difference in grey levels below which two frames count as the same picture
MOST_BLOCKS = 500
FEWEST_BLOCKS = 12
MOST_CLIPPED = 0.1  # share of a block's samples
FINE = 6  # least sum of the two frequencies that is fine
CALM = 0.5  # quantile of the blocks' power up to which blocks count for the concentration
PART = 9 * len(QUANTILES) + 3  # features of a frame, or of the differences over one distance
COUNT = (1 + len(DISTANCES)) * PART


@dataclass(frozen=True)
class PlaneFeatures:
    """Features (COUNT,) of a plane as it is, and with noise that is equally strong at every brightness."""

    seen: Array
    evened: Array


def plane_features(frames: list[Planes]) -> list[PlaneFeatures | None]:
    """Return the features of every plane of the first of `frames`; None for a plane with too few blocks.

    Planes are on the 0-255 scale; brightness is that of the first. If there is no frame at one of the
    `DISTANCES`, or it repeats the first, a nearer one or the frame itself is used.
    """
    now, motions = frames[0], [_aligned(frames, distance) for distance in DISTANCES]
    return [_features(now, index, motions, frames) for index in range(len(now))]


# frame number, corners of blocks and their motion, in pixels of the first plane
Aligned = tuple[int, NDArray[np.intp], NDArray[np.intp]] | None


def _aligned(frames: list[Planes], distance: int) -> Aligned:
    others = sorted(range(1, len(frames)), key=lambda number: abs(number - distance))
    number = next(
        (number for number in others if np.abs(frames[number][0] - frames[0][0]).mean() > REPEATED), None
    )
    if number is None:
        return None
    return number, *motion_of(frames[0][0], frames[number][0], MOST_BLOCKS)


@dataclass(frozen=True)
class _Blocks:
    """Blocks (B, SIDE, SIDE) of a plane, or of scaled differences, that may be used, and their brightness."""

    pixels: NDArray[np.float32]
    brightness: Array


def _features(now: Planes, index: int, motions: list[Aligned], frames: list[Planes]) -> PlaneFeatures | None:
    plane = now[index]
    if min(plane.shape) < SIDE:
        return None
    within = _within(now, index)
    found = [_between(now, index, aligned, frames) if aligned else None for aligned in motions]
    curve = brightness_curve(within.pixels, within.brightness)
    seen, evened = (_joined(within, found, each) for each in (None, curve))
    return None if seen is None or evened is None else PlaneFeatures(seen, evened)


def _joined(within: _Blocks, between: list[_Blocks | None], curve: BrightnessCurve | None) -> Array | None:
    """Return the features of blocks, scaled by a curve; what lacks blocks has the features before it."""
    found = [_bands(within, curve)]
    if found[0] is None:
        return None
    for blocks in between:
        bands = None if blocks is None else _bands(blocks, curve)
        found.append(found[-1] if bands is None else bands)
    return np.concatenate(found)  # type: ignore[arg-type]


def _within(now: Planes, index: int) -> _Blocks:
    """Return blocks of a plane, spread over it."""
    plane = now[index]
    step = max(3, int((plane.size / (2 * MOST_BLOCKS)) ** 0.5)) | 1
    corners = [np.arange(0, side - SIDE + 1, step) for side in plane.shape]
    positions = np.stack(np.meshgrid(*corners, indexing="ij"), -1).reshape(-1, 2)
    blocks = blocks_at(plane, positions, SIDE)
    usable = _usable(blocks, plane)
    return _Blocks(blocks[usable], brightness_at(now[0], plane.shape, positions[usable], SIDE))


def _between(now: Planes, index: int, aligned: Aligned, frames: list[Planes]) -> _Blocks:
    """Return differences between blocks of a plane and those that they became."""
    assert aligned is not None
    number, corners, motion = aligned
    plane, other = now[index], frames[number][index]
    scale = np.array(plane.shape) / np.array(now[0].shape)
    room = np.array(plane.shape) - SIDE
    positions = np.rint((corners + (BLOCK - SIDE) // 2) * scale).astype(np.intp)
    there = np.clip(positions + np.rint(motion * scale).astype(np.intp), 0, room)
    positions = np.clip(positions, 0, room)
    blocks, others = blocks_at(plane, positions, SIDE), blocks_at(other, there, SIDE)
    usable = _usable(blocks, plane)
    differences = (blocks[usable] - others[usable]) * np.float32(0.5**0.5)
    return _Blocks(differences, brightness_at(now[0], plane.shape, positions[usable], SIDE))


def _usable(blocks: NDArray[Any], plane: NDArray[Any]) -> NDArray[np.bool_]:
    """Return True for blocks with few clipped samples, or for all blocks if there are too few of them."""
    low, high = clipping_bounds(plane)
    whole = ((blocks <= low) | (blocks >= high)).mean((1, 2)) < MOST_CLIPPED
    return np.asarray(whole if whole.sum() >= FEWEST_BLOCKS else np.ones(len(blocks), bool))


def _bands(blocks: _Blocks, curve: BrightnessCurve | None) -> Array | None:
    """Return logarithms of quantiles of the blocks' mean power in each band, the share of blocks without
    power, and the concentrations. With a curve the blocks are scaled first.
    """
    if len(blocks.pixels) < FEWEST_BLOCKS:
        return None
    chosen = blocks.pixels.reshape(-1, SIDE**2).astype(np.float32)
    chosen = chosen - chosen.mean(1, keepdims=True)
    squares = np.square(chosen @ dct_basis(SIDE).T)
    if curve is not None:
        squares *= curve.evening(blocks.brightness)[:, None]
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
    even = calm / calm.mean(0)
    index, found = frequencies(SIDE), []
    for part in ((index > 0) & (index < FINE), index >= FINE):
        ratio = np.square(even[:, part]).mean(1) / np.square(even[:, part].mean(1))
        found.append(float(np.log(np.median(ratio))))
    return np.array(found)


def concentration(features: Array) -> Array:
    """Return (1 + len(DISTANCES), 2) concentrations on coarse and on fine frequencies, first those within the
    frame.
    """
    return features.reshape(-1, PART)[:, -2:]


def bands_alone(features: Array) -> Array:
    """Return the features without the concentrations."""
    return features.reshape(-1, PART)[:, :-2].reshape(-1)


def strength_between(features: Array) -> float:
    """Return the noise's sigma, in grey levels, from the calmer differences between neighbouring frames.

    It is that of the bands with most of the power, sqrt(sum(S^2) / sum(S)); exact for noise alone with flat
    bands.
    """
    row = QUANTILES.index(0.1)
    sizes = np.bincount(band_index()[1:], minlength=9)
    quantiles = features.reshape(-1, PART)[1, 9 * row : 9 * row + 9]
    power = np.maximum(np.exp(quantiles) - FLOOR, 1e-4) / _mean_share(QUANTILES[row], sizes)
    return float(((sizes * np.square(power)).sum() / (sizes * power).sum()) ** 0.5)


def _mean_share(quantile: float, sizes: NDArray[Any]) -> Array:
    """Return a quantile of the mean of `sizes` squared Gaussians of variance 1 (Wilson and Hilferty,
    1931).
    """
    spread = 2 / (9 * sizes)
    return np.asarray((1 - spread + NormalDist().inv_cdf(quantile) * spread**0.5) ** 3)


@cache
def band_index() -> NDArray[np.intp]:
    """Return the band of each of the 64 frequencies."""
    band = np.digitize(np.arange(SIDE), EDGES[1:-1])
    return np.asarray(np.add.outer(3 * band, band).reshape(-1))


@cache
def band_means() -> NDArray[np.float32]:
    """Return (64, 9): the matrix of means over the frequencies of each band, without the block's mean."""
    member = np.equal.outer(band_index(), np.arange(9)).astype(np.float32)
    member[0] = 0
    means: NDArray[np.float32] = member / member.sum(0)
    return means
