"""What tells noise from picture, in numbers: how strong blocks are at each frequency, within a frame and
between frames along motion, and how evenly that is spread within blocks.

Blocks of 8 x 8 go to the DCT; 3 x 3 bands of frequencies are kept apart, so that coarse noise, fine noise and
noise that is smeared along lines differ. Of each band the weaker blocks count (quantiles over the blocks):
there is little picture in them. Differences between frames show noise without texture, but less of it where a
codec copied it, so those of two distances are looked at. Noise spreads over the frequencies of a block alike;
texture, spray and JPEG's leftovers favour a few.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.noise.motion import BLOCK, blocks_at, motion_of
from vidrestore.noise.white import clipping_bounds, dct_basis, frequencies

Array = NDArray[np.float64]
Planes = tuple[NDArray[np.float32], ...]

SIDE = 8
DISTANCES = (1, 3)  # frames
EDGES = (0, 2, 4, 8)  # of the bands, in DCT frequencies
QUANTILES = (0.03, 0.1, 0.3, 0.6)
FLOOR = 0.02  # grey levels squared: weaker than rounding to 8 bits
REPEATED = 0.05  # grey levels of mean difference: frames that differ less are the same picture again
MOST_BLOCKS = 500
FEWEST_BLOCKS = 12
MOST_CLIPPED = 0.1  # share of a block's samples
FINE = 6  # sum of the two frequencies: from there on spread is looked at by itself
CALM = 0.5  # quantile of the blocks' power: up to there their spread is looked at
PART = 9 * len(QUANTILES) + 3
COUNT = (1 + len(DISTANCES)) * PART


def plane_features(frames: list[Planes]) -> list[Array | None]:
    """Features (COUNT,) of every plane, seen from the first of `frames`, of which some follow it; None where
    it shows none.

    Planes are on the 0-255 scale. Where there is no frame at one of the `DISTANCES`, or it is the same again,
    a nearer one or the frame itself stands for it.
    """
    now, motions = frames[0], [_aligned(frames, distance) for distance in DISTANCES]
    return [_features(now, index, motions, frames) for index in range(len(now))]


# frame, corners and motion in the first plane
Aligned = tuple[int, NDArray[np.intp], NDArray[np.intp]] | None


def _aligned(frames: list[Planes], distance: int) -> Aligned:
    others = sorted(range(1, len(frames)), key=lambda number: abs(number - distance))
    number = next(
        (number for number in others if np.abs(frames[number][0] - frames[0][0]).mean() > REPEATED), None
    )
    if number is None:
        return None
    return number, *motion_of(frames[0][0], frames[number][0], MOST_BLOCKS)


def _features(now: Planes, index: int, motions: list[Aligned], frames: list[Planes]) -> Array | None:
    plane = now[index]
    low, high = clipping_bounds(plane)
    if min(plane.shape) < SIDE:
        return None
    step = max(3, int((plane.size / (2 * MOST_BLOCKS)) ** 0.5)) | 1
    views = np.lib.stride_tricks.sliding_window_view(plane, (SIDE, SIDE))[::step, ::step].reshape(
        -1, SIDE, SIDE
    )
    within = _bands(views, _usable(views, low, high))
    if within is None:
        return None
    found = [within]
    for aligned in motions:
        between = _between(now, index, aligned, frames, low, high) if aligned else None
        found.append(found[-1] if between is None else between)
    return np.concatenate(found)


def _between(
    now: Planes, index: int, aligned: Aligned, frames: list[Planes], low: float, high: float
) -> Array | None:
    assert aligned is not None
    number, corners, motion = aligned
    plane, other = now[index], frames[number][index]
    scale = np.array(plane.shape) / np.array(now[0].shape)
    places = np.rint((corners + (BLOCK - SIDE) // 2) * scale).astype(np.intp)
    room = np.array(plane.shape) - SIDE
    there = np.clip(places + np.rint(motion * scale).astype(np.intp), 0, room)
    blocks, others = blocks_at(plane, np.clip(places, 0, room), SIDE), blocks_at(other, there, SIDE)
    return _bands((blocks - others) * np.float32(0.5**0.5), _usable(blocks, low, high))


def _usable(blocks: NDArray[Any], low: float, high: float) -> NDArray[np.bool_]:
    """Blocks that are hardly clipped, or all where these are few."""
    whole = ((blocks <= low) | (blocks >= high)).mean((1, 2)) < MOST_CLIPPED
    return np.asarray(whole if whole.sum() >= FEWEST_BLOCKS else np.ones(len(blocks), bool))


def _bands(blocks: NDArray[Any], usable: NDArray[np.bool_]) -> Array | None:
    """Logarithms of quantiles of the blocks' mean power in each band, the share of blocks that show nothing,
    and the concentration of power on coarse and on fine frequencies.
    """
    if usable.sum() < FEWEST_BLOCKS:
        return None
    chosen = blocks[usable].reshape(-1, SIDE**2).astype(np.float32)
    chosen = chosen - chosen.mean(1, keepdims=True)
    squares = np.square(chosen @ dct_basis(SIDE).T)
    power = squares @ band_means()
    empty = float((power.max(1) <= FLOOR).mean())
    quantiles = np.log(np.quantile(power, QUANTILES, axis=0) + FLOOR).reshape(-1)
    return np.concatenate([quantiles, [empty], _concentration(squares)])


def _concentration(squares: NDArray[np.float32]) -> Array:
    """Logarithms of the mean square over the squared mean of powers, of coarse and of fine frequencies: the
    median over the calmer half of the blocks (B, 64). Each frequency is held against its mean first, so the
    shape of the spectrum doesn't matter.
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
    """(1 + len(DISTANCES), 2) concentrations on coarse and on fine frequencies, within the frame first."""
    return features.reshape(-1, PART)[:, -2:]


def bands_alone(features: Array) -> Array:
    """The features without the concentrations."""
    return features.reshape(-1, PART)[:, :-2].reshape(-1)


def strength_between(features: Array) -> float:
    """The sigma of the power where most of it is, sqrt(sum(S^2) / sum(S)), as the calmer differences between
    neighbouring frames show it, in grey levels. Of noise alone, if its bands are flat, it is the truth.
    """
    row = QUANTILES.index(0.1)
    sizes = np.bincount(band_index()[1:], minlength=9)
    quantiles = features.reshape(-1, PART)[1, 9 * row : 9 * row + 9]
    power = np.maximum(np.exp(quantiles) - FLOOR, 1e-4) / _mean_share(QUANTILES[row], sizes)
    return float(((sizes * np.square(power)).sum() / (sizes * power).sum()) ** 0.5)


def _mean_share(quantile: float, sizes: NDArray[Any]) -> Array:
    """A quantile of the means of so many squared Gaussians, of variance 1 (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * sizes)
    return np.asarray((1 - spread + NormalDist().inv_cdf(quantile) * spread**0.5) ** 3)


@cache
def band_index() -> NDArray[np.intp]:
    """The band of each of the 64 frequencies."""
    band = np.digitize(np.arange(SIDE), EDGES[1:-1])
    return np.asarray(np.add.outer(3 * band, band).reshape(-1))


@cache
def band_means() -> NDArray[np.float32]:
    """(64, 9): means over the frequencies of each band, without the mean of the block."""
    member = np.equal.outer(band_index(), np.arange(9)).astype(np.float32)
    member[0] = 0
    means: NDArray[np.float32] = member / member.sum(0)
    return means
