"""Previews: some seconds of a video, the source on the left and the result on the right as it is shown."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from vidrestore import __version__
from vidrestore.errors import OptionError
from vidrestore.events import Listener, Summary
from vidrestore.jobs.job import Job
from vidrestore.jobs.request import Request, StepLoader
from vidrestore.jobs.run import check
from vidrestore.jobs.steps import write_frames
from vidrestore.media.formats.source import PIPE
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.reading.reader import VideoReader, find_span
from vidrestore.media.writing.finished import PREVIEW_JOB, is_foreign, read_tag
from vidrestore.media.writing.streams import EVERY_KIND
from vidrestore.media.writing.writer import VideoWriter
from vidrestore.pipeline.conversions import enlarged_frame
from vidrestore.pixels.colour import matrix_of
from vidrestore.pixels.frames import (
    UNSPECIFIED,
    Frame,
    Scale,
    Span,
    VideoInfo,
    enlarged_size,
)
from vidrestore.settings.options import RestoreOptions

PREVIEW_TAG = f"vidrestore {PREVIEW_JOB} {__version__}"
# of the video, where a preview begins: the first pictures are often black or a title
PLACE = Fraction(1, 3)


def preview(
    request: Request, seconds: Fraction, load: StepLoader, on_event: Listener
) -> Summary:
    """Write `seconds` of the video as before | after, from `start` or a third of the way in; no sound.

    Raises VidRestoreError as `vidrestore.restore` does.
    """
    source, output = request.names
    if request.is_piped:
        raise OptionError(
            "`preview` needs a file to read and a file to write, not a pipe"
        )
    tag = read_tag(request.output)
    output_tag = PREVIEW_TAG if request.options.tags else None
    # another excerpt, or other options
    if tag and tag.is_preview and not is_foreign(request.output):
        # a preview may replace a preview, never a result
        request = request.with_options(overwrite=True)
    video_only = request.with_options(drop=EVERY_KIND)
    with check(
        video_only, load, on_event, find=partial(_span, seconds), locks=False
    ) as job:
        if isinstance(job, Summary):
            return job
        job.begin(on_event)
        began = time.monotonic()
        writer = _write_pairs(job, output_tag)
        job.warn(writer.warnings, on_event)
        damage = job.damage
    scenes = tuple(job.plan.timeline.scenes)
    summary = Summary(
        source, output, writer.frames, time.monotonic() - began, damage, scenes
    )
    on_event(summary)
    return summary


def _span(seconds: Fraction, reader: VideoReader, options: RestoreOptions) -> Span:
    """Return the part from `start`, or from a third of the video, or earlier if that is too short for it."""
    video, start = reader.info.video, options.start
    # sound may last longer than the picture
    video_length = None if video.duration is None else video.duration * video.time_base
    lengths = [
        length for length in (reader.info.duration, video_length) if length is not None
    ]
    if start is None and lengths:
        start = max(Fraction(0), min(min(lengths) * PLACE, min(lengths) - seconds))
    return find_span(reader, start, seconds)


def _write_pairs(job: Job, tag: str | None) -> VideoWriter:
    """Write the pictures, and return the writer that is finished."""
    # frames before, until those after come out of the restorer
    sources: deque[Frame] = deque()
    scale = job.steps.scale
    wide = side_by_side_info(job.info, scale)
    writer = job.writer(source=wide, encoder=job.options.encoder, tag=tag)

    def pairs(restored: Iterator[Frame]) -> Iterator[Frame]:
        video = job.info.video
        for after in restored:
            yield side_by_side(
                enlarged_frame(sources.popleft(), video, scale), after, video
            )

    write_frames(job.restored(_tee(job.decoded(), sources)), writer, pairs)
    return writer


def _tee(frames: Generator[Frame], sources: deque[Frame]) -> Generator[Frame]:
    with closing(frames):
        for frame in frames:
            sources.append(frame)
            yield frame


def side_by_side_info(info: SourceInfo, scale: Scale) -> SourceInfo:
    """Return a source `scale` times larger and, as it is shown, twice as wide, with nothing but the video.

    Sizes are cut to what its chroma subsampling divides. A matrix that isn't tagged is tagged here as that of
    the restored video: players guess it by the height, which may be another one here.
    """
    video = info.video
    height, width = enlarged_size(video.height, video.width, scale)
    lines, width = height, _multiple(width, video.format.chroma_width_shift)
    height = _multiple(height, video.format.chroma_height_shift)
    if video.format.family == "yuv" and video.colour.matrix == UNSPECIFIED:
        video = replace(
            video,
            colour=replace(
                video.colour, matrix=matrix_of(video.format, video.colour, lines)
            ),
        )
    axis, _ = _orientation(video)
    streams = tuple(stream for stream in info.streams if stream.index == video.index)
    video = replace(video, width=width * (1 + axis), height=height * (2 - axis))
    return replace(
        info, path=PIPE, video=video, streams=streams, chapters=0, metadata={}
    )


def _orientation(video: VideoInfo) -> tuple[int, bool]:
    """Return the axis of stored rows and columns along which a shown picture runs from left to right, and
    whether it runs backwards.

    The display matrix (ISO/IEC 14496-12) takes column p and row q to x = a p + c q.
    """
    if video.display_matrix is None:
        return 1, False
    a, c = video.display_matrix[0], video.display_matrix[3]
    return (1, a < 0) if abs(a) >= abs(c) else (0, c < 0)


def side_by_side(before: Frame, after: Frame, video: VideoInfo) -> Frame:
    """Return the two pictures as one, `before` on the left as it is shown."""
    # stored rows and columns may be turned when the picture is shown
    pixels, (axis, backwards) = video.format, _orientation(video)
    height, width = before.planes[0].shape
    height, width = (
        _multiple(height, pixels.chroma_height_shift),
        _multiple(width, pixels.chroma_width_shift),
    )
    sizes = [
        pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)
    ]
    first, second = (after, before) if backwards else (before, after)
    pairs = zip(first.planes, second.planes, sizes, strict=True)
    planes = []
    for one, other, (rows, columns) in pairs:
        planes.append(
            np.concatenate([one[:rows, :columns], other[:rows, :columns]], axis=axis)
        )
    return replace(after, planes=tuple(planes))


def _multiple(size: int, shift: int) -> int:
    return size >> shift << shift
