"""A look before the work: some seconds of a film, the source on the left and the result on the right."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction

import numpy as np

from vidrestore.engine.excerpt import find_span
from vidrestore.engine.job import Job, RestorerLoader, Summary, check_picture, check_request, damage_summary, prepare, restored_frames
from vidrestore.engine.options import RestoreOptions
from vidrestore.engine.rgb_clips import enlarged_frame
from vidrestore.engine.run import warn
from vidrestore.errors import OptionError
from vidrestore.events import Finished, Listener, Started
from vidrestore.frames import Frame, PixelFormat
from vidrestore.media.encoders import PIPE, choose_encoder
from vidrestore.media.probe import SourceInfo
from vidrestore.media.reader import VideoReader
from vidrestore.media.streams import DROP_WORDS
from vidrestore.media.writer import VideoWriter

PLACE = Fraction(1, 3)  # of the film, where a preview begins: the first pictures are often black or a title


def preview(
    source: str, output: str, seconds: Fraction, task: str, options: RestoreOptions, loader: RestorerLoader, on_event: Listener
) -> Summary:
    """Write `seconds` of the film, before | after, without its other streams, from `options.start` or from a third of it on.

    Raises VidRestoreError as `vidrestore.restore` does.
    """
    if PIPE in (source, output):
        raise OptionError("--preview needs a file to read and a file to write, not a pipe")
    check_request(source, output, options)
    options = replace(options, drop=frozenset(DROP_WORDS.values()))
    with VideoReader(source, threads=options.threads, deinterlace=options.deinterlace) as reader:
        check_picture(source, reader.info.video)
        span = find_span(reader, _place(reader.info, seconds) if options.start is None else options.start, seconds)
        job = prepare(reader.info, output, task, options, loader, span)
        on_event(Started(source, output, task, job.restorer.name, options.device))
        warn(source, job.warnings, on_event)
        began = time.monotonic()
        count, warnings = _write_pairs(job, job.frames(reader))
        warn(source, warnings, on_event)
        damage = damage_summary(reader.damage.summary() if reader.damage.found else None)
    summary = Summary(source, output, count, time.monotonic() - began, tuple(job.plan.timeline.scenes), damage)
    on_event(Finished(source, output, count, summary.seconds, damage))
    return summary


def _place(info: SourceInfo, seconds: Fraction) -> Fraction | None:
    """Where a preview begins: a third into the film, or earlier where it is too short for that."""
    return None if info.duration is None else max(Fraction(0), min(info.duration * PLACE, info.duration - seconds))


def _write_pairs(job: Job, frames: Generator[Frame]) -> tuple[int, list[str]]:
    """How many were written, and what the writer warns of."""
    sources: deque[Frame] = deque()
    scale = job.restorer.scale
    wide = side_by_side_info(job.info, scale)
    encoder = choose_encoder(wide, job.plan.output, job.options.encoder)
    writer = VideoWriter(job.plan.output, source=wide, encoder=encoder, copy=(), overwrite=job.options.overwrite, span=job.plan.span)
    with closing(restored_frames(job, _remembered(frames, sources), job.clip_restorer())) as restored, writer:
        for after in restored:
            before = enlarged_frame(sources.popleft(), job.info.video.format, scale)
            writer.write(side_by_side(before, after, job.info.video.format))
    return writer.frames, writer.warnings


def _remembered(frames: Generator[Frame], sources: deque[Frame]) -> Iterator[Frame]:
    with closing(frames):
        for frame in frames:
            sources.append(frame)
            yield frame


def side_by_side_info(info: SourceInfo, scale: int = 1) -> SourceInfo:
    """A source `scale` times larger and twice as wide with nothing but the video; sizes are cut to what its chroma subsampling divides."""
    video = info.video
    width = _whole(scale * video.width, video.format.chroma_width_shift)
    height = _whole(scale * video.height, video.format.chroma_height_shift)
    streams = tuple(stream for stream in info.streams if stream.index == video.index)
    return replace(info, path=PIPE, video=replace(video, width=2 * width, height=height), streams=streams, chapters=0, metadata={})


def side_by_side(before: Frame, after: Frame, pixels: PixelFormat) -> Frame:
    """The two pictures in one, `before` on the left."""
    height, width = before.planes[0].shape
    height, width = _whole(height, pixels.chroma_height_shift), _whole(width, pixels.chroma_width_shift)
    sizes = [pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)]
    pairs = zip(before.planes, after.planes, sizes, strict=True)
    return replace(after, planes=tuple(np.concatenate([left[:h, :w], right[:h, :w]], axis=1) for left, right, (h, w) in pairs))


def _whole(size: int, shift: int) -> int:
    return size >> shift << shift
