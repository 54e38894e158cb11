"""Detect scene changes: hard cuts found while frames stream by, from small thumbnails of their luma.

A cut at frame t has three properties:

- A jump: thumbnails t-1 and t differ much more than their neighbours do. Fades, dissolves and whip pans
  change steadily.
- A new picture: blocks of one can't be found in the other, at any shift, whatever its brightness. In fast
  motion and flashes they can.
- It is permanent: no frame just after t resembles t-1, and none just before t-1 resembles t. So a flash of up
  to 3 frames is not a cut.

Fades to or from black and dissolves are not cuts, because they don't change from one picture to another in
one frame. Scenes of fewer than 4 frames are not separated.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

Thumbnail = NDArray[np.float32]

THUMBNAIL = 32  # pixels of the longer side
JUMP = 1.2  # least ratio of a jump to the largest difference around it
# least novelty of a cut is the first plus the second over its jump: the larger the jump, the less is needed
NOVELTY, NOVELTY_BY_JUMP = (0.2, 0.5)
# share of the cut's novelty below which a frame nearby continues the other scene
RESUMED = 0.5
SAME_LEVEL = 0.5  # grey levels; smaller differences count as none
BLOCK_GRID = 4  # blocks along the longer side of a thumbnail
FLAT_VARIANCE = 2.0  # variance in grey levels squared; blocks with less are flat


class SceneDetector:
    """Finds the first frame of every scene after the first, from the last 8 thumbnails."""

    lag = 3
    """After n frames were added, `cuts` is final for every frame up to n - 1 - lag."""

    def __init__(self) -> None:
        self._thumbnails: deque[Thumbnail] = deque(maxlen=2 * self.lag + 2)
        # difference to the frame before
        self._changes: deque[float] = deque(maxlen=2 * self.lag + 2)
        self._seen = 0
        self._decided = 1  # frames before this one are decided
        # the first frame of each new scene decided so far, increasing
        self.cuts: list[int] = []

    def add(self, luma: NDArray[Any], unit: float = 1.0) -> None:
        """Add the next frame's luma (height, width); `unit`: steps of a stored sample per grey level."""
        current = thumbnail(luma, unit)
        self._changes.append(
            float(np.abs(current - self._thumbnails[-1]).mean())
            if self._thumbnails
            else 0.0
        )
        self._thumbnails.append(current)
        self._seen += 1
        # decided once the frames after it are known
        if self._seen > self.lag + 1:
            self._decide(self._seen - 1 - self.lag)

    def finish(self) -> None:
        """Decide the last frames after the end of the video."""
        for frame in range(self._decided, self._seen):
            self._decide(frame)

    def _decide(self, frame: int) -> None:
        """Add a frame to the cuts if its change is a jump, by the ratio to the largest within `lag` frames;
        repeated pictures count as steady motion.
        """
        self._decided = frame + 1
        # this frame's index in the buffer
        index = len(self._thumbnails) - (self._seen - frame)
        changes = list(self._changes)
        # the largest change around it, without the jump itself
        earlier = changes[max(1, index - self.lag) : index]
        neighbours = earlier + changes[index + 1 : index + 1 + self.lag]
        jump = changes[index] / (max(neighbours, default=0.0) + SAME_LEVEL)
        if jump > JUMP and self._is_new(index, NOVELTY + NOVELTY_BY_JUMP / jump):
            self.cuts.append(frame)

    def _is_new(self, index: int, threshold: float) -> bool:
        """Return True if the picture at a jump is new and the old one doesn't return, as after a flash."""
        buffer = list(self._thumbnails)
        score = novelty(buffer[index - 1], buffer[index])
        if score <= threshold:
            return False
        # the old picture must not come back, nor the new one have been there before
        threshold = max(threshold, RESUMED * score)
        after = buffer[index + 1 : index + 1 + self.lag]
        if not all(novelty(buffer[index - 1], later) > threshold for later in after):
            return False
        before = buffer[max(0, index - 1 - self.lag) : index - 1]
        return all(novelty(buffer[index], earlier) > threshold for earlier in before)


def thumbnail(luma: NDArray[Any], unit: float = 1.0) -> Thumbnail:
    """Average boxes to about `THUMBNAIL` pixels a side, in grey levels 0-255; partial boxes are omitted."""
    height, width = luma.shape
    # whole boxes of one side
    side = max(1, -(-max(height, width) // THUMBNAIL))
    side = min(side, height, width)
    rows = height // side
    columns = width // side
    kind = np.float32 if luma.dtype.kind == "f" else np.uint32
    whole = luma[: rows * side, : columns * side]
    sums = whole.reshape(rows, side, columns * side).sum(axis=1, dtype=kind)
    boxes: Thumbnail = sums.reshape(rows, columns, side).sum(axis=2).astype(np.float32)
    boxes /= side * side * unit
    return boxes


def novelty(old: Thumbnail, new: Thumbnail) -> float:
    """Return the share of contrast missing in the other thumbnail: 0 if shifted, about 0.75 if unlike."""
    return max(unexplained(old, new), unexplained(new, old))


def unexplained(source: Thumbnail, target: Thumbnail) -> float:
    """Return the share of the variance within blocks of `target` that remains after each block is predicted
    by the best shift of `source`, their mean brightness aside.
    """
    height, width = target.shape
    # shifts of up to a quarter of the picture
    reach_y = -(-height // 4)
    reach_x = -(-width // 4)
    padded = np.pad(source, ((reach_y, reach_y), (reach_x, reach_x)), mode="edge")
    shifted = np.lib.stride_tricks.sliding_window_view(padded, (height, width)).reshape(
        -1, height, width
    )
    remaining = block_variances(shifted - target).min(axis=0)
    return float(remaining.sum() / (block_variances(target) + FLAT_VARIANCE).sum())


def block_variances(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map (..., height, width) to (..., rows, columns): variances in a grid of about square blocks."""
    height, width = pictures.shape[-2:]
    side = max(1, max(height, width) // BLOCK_GRID)
    top, left = block_starts(height, side), block_starts(width, side)

    areas = np.outer(np.diff([*top, height]), np.diff([*left, width]))

    def block_means(values: NDArray[np.float32]) -> NDArray[np.float32]:
        sums: NDArray[np.float32] = np.add.reduceat(
            np.add.reduceat(values, top, axis=-2), left, axis=-1
        )
        sums /= areas
        return sums

    return block_means(pictures**2) - block_means(pictures) ** 2


def block_starts(length: int, side: int) -> list[int]:
    """Return the starts of blocks of about `side`; none is much shorter."""
    count = max(1, round(length / side))
    return [length * block // count for block in range(count)]
