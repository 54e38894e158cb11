"""Detect interlaced video that isn't marked as interlaced, from a few frames at several positions.

The fields of an interlaced frame are half a frame apart in time. So one field of a frame is as close in time
to the other field of its neighbour as to that of its own frame, and the other one is three times as far. In a
progressive video both fields are equally far from those of the neighbour. Distances are measured as the combs
that rows form with the rows above and below; the part that is there without motion, from detail and noise, is
subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from itertools import islice, pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import MediaError
from vidrestore.frames import Frame

if TYPE_CHECKING:
    from vidrestore.media.probe import VideoInfo

POSITIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)  # shares of the video's length
LOOK = 4  # consecutive frames at each position
ENOUGH = 8  # moving pairs of frames after which the search ends
# largest height and frame rate of interlaced video
MOST_LINES, HIGHEST_RATE = 1088, 31
LEAST_LINES = 64
# least growth of the combs in a moving pair: in grey levels, and as a share of the combs at rest
MOTION = 0.5
MOTION_SHARE = 0.1
NEAR = 0.35  # largest ratio of the nearer to the farther field's distance; 0 in theory, 1 if progressive
SHARE = 0.7  # of the pairs must agree


def measured_order(video: VideoInfo, frames_from: Callable[[int | None], Generator[Frame]]) -> str | None:
    """Return "tff" or "bff" (top or bottom field first) if a video looks interlaced, None otherwise.

    `frames_from` yields frames from a pts on.
    """
    rate = video.rate or video.base_rate
    if not LEAST_LINES <= video.height <= MOST_LINES or (rate and rate > HIGHEST_RATE):
        return None
    orders: list[str] = []
    for start in _starts(video):
        try:
            with closing(frames_from(start)) as frames:
                few = [_luma(frame, video) for frame in islice(frames, LOOK)]
        except MediaError:  # the restoration will raise it again
            break
        orders += filter(None, (pair_order(one, other) for one, other in pairwise(few)))
        if len(orders) >= ENOUGH:
            break
    for order in ("tff", "bff"):
        if len(orders) >= 2 and orders.count(order) >= SHARE * len(orders):
            return order
    return None


def _starts(video: VideoInfo) -> list[int | None]:
    if not video.duration or video.start is None:
        return [None]
    positions = [ceil(video.start + share * video.duration) for share in POSITIONS[1:]]
    return [None, *sorted(set(positions))]


def _luma(frame: Frame, video: VideoInfo) -> NDArray[np.float32]:
    """Return every other column of the luma (or green) plane on the 0-255 scale."""
    plane = frame.planes[1 if video.format.family == "rgb" else 0][:, ::2]
    grey: NDArray[np.float32] = np.divide(plane, video.format.unit, dtype=np.float32)
    return grey


def pair_order(before: NDArray[np.float32], after: NDArray[np.float32]) -> str | None:
    """Return the field order that two frames show, "progressive", or None if there is too little motion."""
    even, odd = _distance(before, after, 2), _distance(before, after, 1)
    near, far = sorted((even, odd))
    if far < max(MOTION, MOTION_SHARE * _combs(after, after, 1)):
        return None
    if near > NEAR * far:
        return "progressive"
    return "tff" if odd < even else "bff"


def _distance(before: NDArray[np.float32], after: NDArray[np.float32], first: int) -> float:
    """Return the growth of a frame's combs if every other row from `first` is taken from the frame before."""
    return _combs(before, after, first) - _combs(after, after, first)


def _combs(rows: NDArray[Any], between: NDArray[Any], first: int) -> float:
    """Return the mean distance of rows from the mean of the rows above and below them in another picture."""
    stop = (len(between) - 1 - first) // 2 * 2 + first
    around = (between[first - 1 : stop - 1 : 2] + between[first + 1 : stop + 1 : 2]) / 2
    return float(np.abs(rows[first:stop:2] - around).mean())
