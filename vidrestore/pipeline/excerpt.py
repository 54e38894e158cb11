"""The frames that a start and a duration mean."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from math import ceil

from vidrestore.errors import OptionError
from vidrestore.media.probe import SourceInfo
from vidrestore.media.reader import VideoReader
from vidrestore.media.span import WHOLE, Span


def find_span(reader: VideoReader, start: Fraction | None, duration: Fraction | None) -> Span:
    """Return the frames whose time lies in [start, start + duration) seconds after the video's first one; its
    `start` is that of a real frame.

    No start, or one of 0, leaves the beginning as it is, sound from before the first frame included. Raises
    OptionError if no frame begins there.
    """
    if not start and duration is None:
        return WHOLE
    tick, origin = reader.info.video.time_base, _first_pts(reader)
    stop = None if duration is None else ceil(origin + ((start or 0) + duration) / tick)
    if not start:
        return Span(None, stop)
    with closing(reader.frames(ceil(origin + start / tick))) as frames:
        first = next(frames, None)
    if first is None:
        length = f" (it lasts {float(reader.info.duration):.3f} s)" if reader.info.duration else ""
        raise OptionError(
            f"{reader.source}: no frame begins at {float(start):g} s or later{length}; choose an earlier "
            "`start`"
        )
    if stop is not None and first.pts >= stop:
        at = float((first.pts - origin) * tick)
        raise OptionError(
            f"{reader.source}: no frame begins in the chosen part, the next one at {at:.3f} s; choose a "
            "longer `duration`"
        )
    return Span(first.pts, stop)


def _first_pts(reader: VideoReader) -> int:
    """Return the pts of the first frame itself: the start that Matroska states for a stream is always 0."""
    if reader.source.is_pipe:
        return 0
    with closing(reader.frames()) as frames:
        first = next(frames, None)
    return first.pts if first else 0


def expected_frames(info: SourceInfo, span: Span) -> int | None:
    """Return how many frames to expect, for progress: the file's own count, else duration times rate."""
    video = info.video
    whole = video.frames or (round(info.duration * video.rate) if info.duration and video.rate else None)
    if span == WHOLE or not video.rate:
        return whole
    origin = video.start or 0
    last = origin + round(info.duration / video.time_base) if info.duration else span.stop
    if last is None:
        return None
    stop = last if span.stop is None else min(span.stop, last)
    return ceil((stop - (origin if span.start is None else span.start)) * video.time_base * video.rate)
