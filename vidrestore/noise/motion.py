"""Find the blocks of one frame in another, accurately enough to cancel the picture and leave the noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.float32]
BLOCK = 16  # pixels of the luma plane
REACH = 4  # search radius in pixels at a quarter of the size, 16 at full size


def motion_of(before: Picture, now: Picture, most: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return corners (B, 2) of blocks of `before`, and the motion (B, 2) in pixels to their best match in
    `now`.

    Blocks near the border, whose search would leave the picture, are omitted; small pictures have none. About
    `most` blocks are used, evenly spread.
    """
    margin = 4 * REACH + 4
    height, width = before.shape
    rows, columns = (np.arange(margin, size - margin - BLOCK + 1, BLOCK) for size in (height, width))
    corners = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2).astype(np.intp)
    if not len(corners):
        return corners, corners
    corners = corners[:: max(1, len(corners) // most)]
    motion = np.zeros_like(corners)
    levels = [(before, now)]
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
    even = picture[:height, :width]
    result: Picture = (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / np.float32(4)
    return result


def _refined(
    before: Picture, now: Picture, corners: NDArray[Any], motion: NDArray[Any], side: int, radius: int
) -> NDArray[np.intp]:
    """Return the best motion within `radius` of the given one; the given one wins ties."""
    template = blocks_at(before, corners, side)
    shape = np.array(now.shape) - side
    best, found = np.full(len(corners), np.inf, np.float32), motion
    shifts = [(y, x) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1)]
    for shift in sorted(shifts, key=lambda each: each[0] ** 2 + each[1] ** 2):
        tried = motion + np.array(shift)
        cost = np.abs(blocks_at(now, np.clip(corners + tried, 0, shape), side) - template).mean((1, 2))
        better = cost < best
        best, found = np.where(better, cost, best), np.where(better[:, None], tried, found)
    return np.asarray(np.clip(corners + found, 0, shape) - corners, np.intp)


def blocks_at(picture: NDArray[Any], corners: NDArray[Any], side: int) -> NDArray[Any]:
    """Return the (B, side, side) blocks of a picture at (B, 2) corners."""
    views = np.lib.stride_tricks.sliding_window_view(picture, (side, side))
    return np.asarray(views[corners[:, 0], corners[:, 1]])
