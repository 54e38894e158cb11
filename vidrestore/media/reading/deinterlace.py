"""Make whole frames of fields by FFmpeg's filters, as a video was scanned (`media.reading.scan`).

bwdif makes one progressive picture per interlaced one, or one per field. It interpolates every other row and
leaves the rest as they are. fieldmatch pairs the fields of one moment, which may lie in neighbouring frames;
where what it pairs has combs still, bwdif takes its place. Of film, one of five frames is then a repetition.
All depend on a picture and its two neighbours only, so that a read from the middle gives the same. Video in
fields loses the dropouts of its tape first (`tape_fields`), by two more pictures on either side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from copy import copy
from dataclasses import replace
from fractions import Fraction
from itertools import chain, groupby, islice, pairwise, tee
from math import ceil
from typing import Any, TypeAlias

import av
import numpy as np
from av import VideoFormat
from av.filter import Graph
from av.video.frame import VideoFrame

from vidrestore.errors import MediaError
from vidrestore.media.formats.pixel_formats import layout_of, planes_of
from vidrestore.media.reading.scan import CYCLE, MATCHED, TAPE_REACH, Scan
from vidrestore.pixels.frames import VideoInfo

# a whole frame and its `Frame.real_rows`
Whole: TypeAlias = tuple[VideoFrame, int | None]
# a result and the picture that it is of
Filtered: TypeAlias = tuple[VideoFrame, VideoFrame]

FILTERS = {
    "bwdif": "mode={}:parity=auto:deint=all",
    "fieldmatch": "order=auto:combmatch=full",
}
AROUND = 1 + TAPE_REACH  # pictures before and after those wanted, on which they depend


class Deinterlacer:
    """Returns the pictures of a stream as whole frames, with `fields` one for each field; with `fill` without
    the dropouts of a tape. Raises MediaError for a size or pixel format that the filters don't support.
    """

    # without `fields`, that of the latest interlaced one, half a frame later
    second: VideoFrame | None = None

    def __init__(
        self,
        source: str,
        video: VideoInfo,
        scan: Scan,
        *,
        fields: bool = False,
        fill: bool = True,
    ) -> None:
        self.video, self.scan, self.fields = video, scan, fields
        self._is_tape = fill and scan.kind == "fields"
        self.ticks, share = (2, Fraction(2)) if fields else (1, Fraction(1))
        if scan.kind == "film":
            self.ticks, share = CYCLE - 1, Fraction(CYCLE - 1, CYCLE)
        self.info = _timed(video, self.ticks, share)
        rate = video.rate or video.base_rate or Fraction(30000, 1001)
        self._frame = 1 / rate / video.time_base  # in ticks of the stream
        self._try(source)
        from vidrestore.media.reading.tape_fields import DropoutFilter  # loads torch

        order = scan.order or video.marked_order or video.unmarked_order
        self._tape = DropoutFilter(
            video.format, int(order == "bff"), self.is_interlaced
        )

    def _try(self, source: str) -> None:
        """Filter two blank pictures: libavfilter silently converts formats that it doesn't support."""
        size = self.video.width, self.video.height
        blank = [av.VideoFrame(*size, self.video.pix_fmt) for _ in range(2)]
        for pts, picture in enumerate(blank):
            picture.pts = pts
        try:
            result, _ = next(self._filtered(blank, "bwdif"))
        except av.error.FFmpegError:
            small = f"{source}: {size[0]}x{size[1]} is too small to deinterlace {self.video.pix_fmt}"
            raise MediaError(
                f"{small}; `scan=progressive` leaves it as it is"
            ) from None
        if layout_of(result.format.name).format != self.video.format:
            raise MediaError(
                f"{source}: {self.video.pix_fmt} can't be deinterlaced without a loss; convert it first, "
                "for example: ffmpeg -i IN -vf format=yuv444p16le,bwdif=send_frame -c:v ffv1 -c:a copy "
                "OUT.mkv"
            )
        if self.scan.kind != "fields" and self.video.pix_fmt not in MATCHED:
            raise MediaError(
                f"{source}: fields of {self.video.pix_fmt} can't be matched, only those of "
                f"{', '.join(sorted(MATCHED))}; convert it first, for example: ffmpeg -i IN -pix_fmt yuv422p "
                "-c:v ffv1 -c:a copy OUT.mkv"
            )

    def stored_span(
        self, start: int | None, stop: int | None
    ) -> tuple[int | None, int | None]:
        """Return the part of the stream, in its ticks, that pictures with start <= pts < stop come from; of
        film, with the other frames of their cycles.
        """
        reach = ceil(CYCLE * self._frame) if self.scan.kind == "film" else 0
        first = None if start is None else start // self.ticks - reach
        return first, None if stop is None else -(-stop // self.ticks) + reach

    def pictures(self, pictures: Generator[VideoFrame]) -> Generator[Whole]:
        """Yield the pictures as whole frames, each with its `Frame.real_rows`."""
        self._tape = copy(self._tape)  # other copies of this object may be in use
        with closing(pictures):
            frames = self._deinterlaced(
                self._tape.pictures(pictures) if self._is_tape else pictures
            )
            yield from self._film(frames) if self.scan.kind == "film" else frames

    def dropouts(self, pts: int) -> int:
        """Return how many dropouts were removed from the picture with a time; to be asked once."""
        return self._tape.counts.pop(pts // self.ticks, 0)

    def _deinterlaced(self, pictures: Iterator[VideoFrame]) -> Iterator[Whole]:
        """Yield the pictures, filtered from the first interlaced one on."""
        before = self.second = None
        for picture in pictures:
            if self.is_interlaced(picture):
                # without a picture before it, bwdif would halve the height
                yield from self._results(chain([before or picture, picture], pictures))
            else:
                yield picture, None
                before = picture

    def is_interlaced(self, picture: VideoFrame) -> bool:
        return picture.interlaced_frame or self.scan.order is not None

    def _results(self, pictures: Iterator[VideoFrame]) -> Iterator[Whole]:
        """Yield the pictures, filtered, but for the first."""
        if self.scan.kind == "fields":
            filtered = self._filtered(pictures, "bwdif")
            yield from chain.from_iterable(
                map(self._halves, islice(zip(filtered, filtered, strict=True), 1, None))
            )
            return
        copies = zip(tee(pictures), ("bwdif", "fieldmatch"), strict=True)
        pairs = zip(*(self._filtered(copy, name) for copy, name in copies), strict=True)
        for (single, source), (match, _) in islice(pairs, 1, None):
            if not self.is_interlaced(source):
                yield source, None
            elif not match.interlaced_frame:
                yield match, None
            else:
                yield single, _real_rows(single, source)

    def _halves(self, pair: tuple[Filtered, Filtered]) -> Iterator[Whole]:
        """Yield a picture's fields as frames, or the first alone."""
        (first, source), (second, _) = pair
        if not self.is_interlaced(source):
            self.second = None
            yield source, None
            return
        self.second = None if self.fields else second
        yield first, _real_rows(first, source)
        if self.fields:
            # the filter takes the time between two fields from another picture, which a lone one lacks
            if second.pts == first.pts:
                second.pts = (first.pts or 0) + max(1, round(self._frame))
            yield second, _real_rows(second, source)

    def _filtered(
        self, pictures: Iterable[VideoFrame], name: str
    ) -> Iterator[Filtered]:
        """Yield the results of a filter, each with the picture that it is of; of video one for each field."""
        video, graph = self.video, Graph()
        stored = VideoFormat(video.pix_fmt, video.width, video.height)
        shape: dict[str, Any] = {
            "width": video.width,
            "height": video.height,
            "format": stored,
        }
        nodes = [graph.add_buffer(**shape, time_base=video.time_base)]
        nodes += [graph.add("setfield", self.scan.order)] if self.scan.order else []
        count, mode = (
            (2, "send_field") if self.scan.kind == "fields" else (1, "send_frame")
        )
        nodes += [graph.add(name, FILTERS[name].format(mode)), graph.add("buffersink")]
        graph.link_nodes(*nodes).configure()
        sources: deque[VideoFrame] = deque()
        for picture in chain(pictures, [None]):
            graph.vpush(picture)
            sources.extend([picture] * count if picture else [])
            with suppress(av.error.BlockingIOError, av.error.EOFError):
                while True:
                    result, source = graph.vpull(), sources.popleft()
                    if not self.fields:  # the filter counts in halves of a tick
                        result.pts, result.duration = source.pts, source.duration
                    yield result, source

    def _cycle(self, pts: int) -> int:
        """Return the number of the cycle of five frames that a time lies in, counted from the first frame."""
        return int(
            ((pts - (self.video.start or 0)) / self._frame + Fraction(1, 2)) // CYCLE
        )

    def _film(self, frames: Iterator[Whole]) -> Iterator[Whole]:
        """Yield the frames of film: in each whole cycle the one most like that before it is left out, and the
        others have even times. Cycles that are mostly video keep all.
        """
        groups = groupby(frames, lambda frame: self._cycle(frame[0].pts or 0))
        cycles = ((number, list(group)) for number, group in groups)
        before: list[Whole] = []
        for (number, cycle), (next_number, next_cycle) in pairwise(
            chain(cycles, [(-1, [])])
        ):
            start, last = cycle[0][0].pts or 0, cycle[-1:]
            is_next = next_number == number + 1
            end = (
                next_cycle[0][0].pts or 0
                if is_next
                else round(start + len(cycle) * self._frame)
            )
            if (
                len(cycle) >= CYCLE
                and sum(rows is None for _, rows in cycle) > CYCLE / 2
            ):
                del cycle[_repetition(before + cycle) - len(before)]
            length = self.ticks * (end - start)
            for index, (picture, rows) in enumerate(cycle):
                picture.pts = self.ticks * start + index * length // len(cycle)
                picture.duration = length // len(cycle)
                yield picture, rows
            before = last


def _repetition(frames: list[Whole]) -> int:
    """Return the index, from the second frame on, of the one with the least change from that before it."""
    lumas = [planes_of(picture)[0][:, ::2].astype(np.int16) for picture, _ in frames]
    return 1 + int(
        np.argmin([np.abs(after - before).mean() for before, after in pairwise(lumas)])
    )


def _real_rows(result: VideoFrame, source: VideoFrame) -> int | None:
    """Return the parity of the rows that are those of the source; None if all or none are."""
    luma, source_luma = planes_of(result)[0], planes_of(source)[0]
    even, odd = (
        np.array_equal(luma[parity::2], source_luma[parity::2]) for parity in (0, 1)
    )
    return None if even == odd else int(odd)


def _timed(video: VideoInfo, ticks: int, share: Fraction) -> VideoInfo:
    """Return the same video as whole frames, `share` times as many, with `ticks` in one of its own."""
    return replace(
        video,
        interlaced=False,
        marked_order=None,
        unmarked_order=None,
        time_base=video.time_base / ticks,
        rate=video.rate and video.rate * share,
        base_rate=video.base_rate and video.base_rate * share,
        frames=video.frames and round(video.frames * share),
        start=None if video.start is None else video.start * ticks,
        duration=None if video.duration is None else video.duration * ticks,
    )
