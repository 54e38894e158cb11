"""Detect interlaced video that isn't marked as such, and deinterlace by FFmpeg's bwdif.

The fields of an interlaced frame are half a frame apart in time. So one field of a frame is as close in time
to the other field of its neighbour as to that of its own frame, and the other one is three times as far. In a
progressive video both are equally far. Distances are measured as the combs that rows form with the rows above
and below, less those without motion, from detail and noise.

bwdif makes one progressive picture per interlaced one, or one per field. It interpolates every other row and
leaves the rest as they are. Pictures that are marked progressive pass unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from fractions import Fraction
from itertools import chain, islice, pairwise
from math import ceil
from typing import Any

import av
import numpy as np
from av import VideoFormat
from av.filter import Graph
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from vidrestore.errors import MediaError
from vidrestore.frames import Frame, VideoInfo
from vidrestore.media.formats import layout_of, planes_of


class Deinterlacer:
    """Returns the pictures of a stream, deinterlaced if they are marked as interlaced; `count` counts those.
    `real_rows` is that of the latest picture's `Frame`.

    With `fields` each field becomes a picture, and times count halves of the stream's tick. The order of
    fields is each picture's own; if the pictures of an interlaced stream are not marked, it is the stream's.
    Raises MediaError for a size or pixel format that bwdif doesn't support.
    """

    def __init__(self, source: str, video: VideoInfo, *, fields: bool = False) -> None:
        self.video, self.fields = video, fields
        self.count = 0
        self.real_rows: int | None = None
        self._try(source)

    def _try(self, source: str) -> None:
        """Filter two blank pictures: libavfilter silently converts formats that it doesn't support."""
        size = self.video.width, self.video.height
        blank = [av.VideoFrame(*size, self.video.pix_fmt) for _ in range(2)]
        for pts, picture in enumerate(blank):
            picture.pts = pts
        try:
            made = next(self._filtered(blank))
        except av.error.FFmpegError:
            small = f"{source}: {size[0]}x{size[1]} is too small to deinterlace {self.video.pix_fmt}"
            raise MediaError(f"{small}; no way is known") from None
        if layout_of(made.format.name).format != self.video.format:
            raise MediaError(
                f"{source}: {self.video.pix_fmt} can't be deinterlaced without a loss; convert it first, "
                "for example: ffmpeg -i IN -vf format=yuv444p16le,bwdif=send_frame -c:v ffv1 -c:a copy "
                "OUT.mkv"
            )

    def pictures(self, pictures: Generator[VideoFrame]) -> Generator[VideoFrame]:
        """Yield the pictures, deinterlaced."""
        with closing(pictures):
            first = next(pictures, None)
            # The first picture is filtered twice and one result dropped: without a picture before it, the
            # filter would halve its height.
            if first is not None:
                twice = 2 if self.fields and self._is_interlaced(first) else 1
                every = chain([first], map(self._counted, chain([first], pictures)))
                yield from islice(self._filtered(every), twice, None)

    def _is_interlaced(self, picture: VideoFrame) -> bool:
        return picture.interlaced_frame or self.video.unmarked_order is not None

    def _counted(self, picture: VideoFrame) -> VideoFrame:
        self.count += self._is_interlaced(picture)
        return picture

    def _filtered(self, pictures: Iterable[VideoFrame]) -> Iterator[VideoFrame]:
        video, graph = self.video, Graph()
        stored = VideoFormat(video.pix_fmt, video.width, video.height)
        shape: dict[str, Any] = {"width": video.width, "height": video.height, "format": stored}
        nodes = [graph.add_buffer(**shape, time_base=video.time_base)]
        nodes += [graph.add("setfield", video.unmarked_order)] if video.unmarked_order else []
        mode = "send_field" if self.fields else "send_frame"
        nodes += [graph.add("bwdif", f"mode={mode}:parity=auto:deint=interlaced"), graph.add("buffersink")]
        graph.link_nodes(*nodes).configure()
        waiting: deque[VideoFrame] = deque()
        for picture in chain(pictures, [None]):
            graph.vpush(picture)
            if picture is not None:
                waiting.append(picture)
            with suppress(av.error.BlockingIOError, av.error.EOFError):
                while True:
                    made = graph.vpull()
                    # the filter counts in halves of a tick, and a second field comes before the next picture
                    while len(waiting) > 1 and (made.pts or 0) >= 2 * (waiting[1].pts or 0):
                        waiting.popleft()
                    self.real_rows = _real_rows(made, waiting[0])
                    if not self.fields:
                        made.pts, made.duration = waiting[0].pts, waiting[0].duration
                    yield made


def _real_rows(made: VideoFrame, source: VideoFrame) -> int | None:
    """Return the parity of the rows that are those of the source; None if all or none are."""
    rows, others = (planes_of(picture, layout_of(picture.format.name))[0] for picture in (made, source))
    even, odd = (np.array_equal(rows[parity::2], others[parity::2]) for parity in (0, 1))
    return None if even == odd else int(odd)


POSITIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)  # shares of the video's length
LOOK = 4  # consecutive frames at each position
ENOUGH = 8  # moving pairs of frames after which the search ends
# largest height and frame rate of interlaced video
MOST_LINES, HIGHEST_RATE = 1088, 31
LEAST_LINES = 64
_PICTURES = frozenset({"gif", "apng", "png", "webp"})  # codecs of graphics, which no camera fills by fields
# least growth of the combs in a moving pair: in grey levels, and as a share of the combs at rest
MOTION = 0.5
MOTION_SHARE = 0.1
NEAR = 0.35  # largest ratio of the nearer to the farther field's distance; 0 in theory, 1 if progressive
SHARE = 0.7  # share of the pairs that must agree


def measured_order(video: VideoInfo, frames_from: Callable[[int | None], Generator[Frame]]) -> str | None:
    """Return "tff" or "bff" (top or bottom field first) if a video looks interlaced, None otherwise.

    `frames_from` yields frames from a pts on.
    """
    rate = video.rate or video.base_rate
    if not LEAST_LINES <= video.height <= MOST_LINES or (rate and rate > HIGHEST_RATE):
        return None
    if video.codec in _PICTURES:
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
    rate = video.rate or video.base_rate
    frame = 1 / rate / video.time_base if rate else Fraction(0)  # in ticks
    look, at, last = max(LOOK * frame, Fraction(1)), video.start, video.start + video.duration - 2 * frame
    starts: list[int | None] = [None]
    for share in POSITIONS[1:]:
        start = ceil(video.start + share * video.duration)
        if at + look <= start <= last:  # in a short video most positions have the same frames
            starts.append(start)
            at = start
    return starts


def _luma(frame: Frame, video: VideoInfo) -> NDArray[np.float32]:
    """Return every other column of the luma (or green) plane on the 0-255 scale."""
    plane = frame.planes[1 if video.format.family == "rgb" else 0][:, ::2]
    grey: NDArray[np.float32] = np.divide(plane, video.format.unit, dtype=np.float32)
    return grey


def pair_order(before: NDArray[np.float32], after: NDArray[np.float32]) -> str | None:
    """Return the field order of two frames, "progressive", or None if there is too little motion."""
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
