"""Scene changes: hard cuts found while frames stream by, from small thumbnails of
their luma.

A cut at frame t is
(1) a jump: thumbnails t-1 and t differ much more than their neighbours do; fades, dissolves and whip pans
change steadily; (2) a new picture: blocks of one can't be found in the other, at any shift, whatever its
brightness; fast motion and flashes can; (3) for good: no frame just after t looks like the one before it, nor
one just before t-1 like t. So a flash of up to 3 frames is no cut.

A fade to or from black and a dissolve give no cut: they have no frame at which one picture ends.
Scenes of fewer than 4 frames aren't told apart.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

Thumbnail = NDArray[np.float32]

THUMBNAIL = 32  # pixels of the longer side
JUMP = 1.2  # times the largest difference around it: less is no jump
# a cut's novelty is more than the first plus the second over its jump: the lonelier, the less it takes
NOVELTY, NOVELTY_BY_JUMP = (0.2, 0.5)
RESUMED = 0.5  # times the novelty at the cut: less at the frames around it means that the scene goes on there
SAME_LEVEL = 0.5  # grey levels: differences of this size are as good as none
BLOCK_GRID = 4  # blocks along the longer side of a thumbnail
FLAT = 2.0  # variance in grey levels squared: blocks with less have no picture to speak of


class SceneDetector:
    """Finds the first frame of every scene but the first. Holds 8 thumbnails, however long the video."""

    lag = 3
    """After n frames were added, `cuts()` is final for every frame up to n - 1 - lag."""

    def __init__(self) -> None:
        self._thumbnails: deque[Thumbnail] = deque(maxlen=2 * self.lag + 2)
        self._changes: deque[float] = deque(maxlen=2 * self.lag + 2)  # difference to the frame before
        self._seen = 0
        self._decided = 1  # frames up to here need no more thought
        self._cuts: list[int] = []

    def add(self, luma: NDArray[Any], unit: float = 1.0) -> None:
        """Take the next frame's luma (height, width); `unit`: steps of a stored sample per grey level. It is
        not kept.
        """
        current = thumbnail(luma, unit)
        self._changes.append(
            float(np.abs(current - self._thumbnails[-1]).mean()) if self._thumbnails else 0.0
        )
        self._thumbnails.append(current)
        self._seen += 1
        if self._seen > self.lag + 1:
            self._decide(self._seen - 1 - self.lag)

    def finish(self) -> None:
        """The video has ended: decide the last frames."""
        for frame in range(self._decided, self._seen):
            self._decide(frame)

    def cuts(self) -> list[int]:
        """Frame indices, rising: the first frame of each new scene, as far as decided."""
        return list(self._cuts)

    def _decide(self, frame: int) -> None:
        self._decided = frame + 1
        at = len(self._thumbnails) - (self._seen - frame)  # this frame's place among those held
        jump = self._jump(at)
        if jump > JUMP and self._is_new(at, NOVELTY + NOVELTY_BY_JUMP / jump):
            self._cuts.append(frame)

    def _jump(self, at: int) -> float:
        """Return how many times larger the change is than any within `lag` frames: a video that shows each
        picture thrice thus moves steadily.
        """
        changes = list(self._changes)
        around = changes[max(1, at - self.lag) : at] + changes[at + 1 : at + 1 + self.lag]
        return changes[at] / (max(around, default=0.0) + SAME_LEVEL)

    def _is_new(self, at: int, least: float) -> bool:
        """Return True if the picture at a jump is new and the old one doesn't return, as after a flash."""
        held = list(self._thumbnails)
        found = novelty(held[at - 1], held[at])
        if found <= least:
            return False
        after = [(held[at - 1], later) for later in held[at + 1 : at + 1 + self.lag]]
        before = [(held[at], earlier) for earlier in held[max(0, at - 1 - self.lag) : at - 1]]
        return all(novelty(one, other) > max(least, RESUMED * found) for one, other in after + before)


def thumbnail(luma: NDArray[Any], unit: float = 1.0) -> Thumbnail:
    """Box average with the longer side about `THUMBNAIL` pixels, in grey levels of the 0-255 scale. What
    doesn't fill a box is left out.
    """
    height, width = luma.shape
    side = max(1, -(-max(height, width) // THUMBNAIL))
    side = min(side, height, width)
    rows, columns = height // side, width // side
    kind = np.float32 if luma.dtype.kind == "f" else np.uint32
    sums = luma[: rows * side, : columns * side].reshape(rows, side, columns * side).sum(axis=1, dtype=kind)
    boxes: Thumbnail = sums.reshape(rows, columns, side).sum(axis=2).astype(np.float32)
    boxes /= side * side * unit
    return boxes


def novelty(old: Thumbnail, new: Thumbnail) -> float:
    """Share of the contrast of either thumbnail that isn't in the other: 0 for one picture shifted, around
    0.75 for two unlike ones.
    """
    return max(unexplained(old, new), unexplained(new, old))


def unexplained(source: Thumbnail, target: Thumbnail) -> float:
    """Share of the variance in blocks of `target` that is left when each is predicted by the best shift of
    `source`, brightness apart.
    """
    height, width = target.shape
    reach_y, reach_x = -(-height // 4), -(-width // 4)
    padded = np.pad(source, ((reach_y, reach_y), (reach_x, reach_x)), mode="edge")
    shifted = np.lib.stride_tricks.sliding_window_view(padded, (height, width)).reshape(-1, height, width)
    remaining = block_variances(shifted - target).min(axis=0)
    return float(remaining.sum() / (block_variances(target) + FLAT).sum())


def block_variances(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """(..., height, width) -> (..., block rows, block columns): variance within each block of a grid with
    about square blocks.
    """
    height, width = pictures.shape[-2:]
    side = max(1, max(height, width) // BLOCK_GRID)
    top, left = block_starts(height, side), block_starts(width, side)

    areas = np.outer(np.diff([*top, height]), np.diff([*left, width]))

    def block_means(values: NDArray[np.float32]) -> NDArray[np.float32]:
        sums: NDArray[np.float32] = np.add.reduceat(np.add.reduceat(values, top, axis=-2), left, axis=-1)
        sums /= areas
        return sums

    return block_means(pictures**2) - block_means(pictures) ** 2


def block_starts(length: int, side: int) -> list[int]:
    """Starts of blocks of about `side`; none is much shorter."""
    count = max(1, round(length / side))
    return [length * block // count for block in range(count)]
