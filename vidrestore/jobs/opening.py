"""The one way to begin a restoration: everything is checked first, the model is loaded last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import TypeAlias

from vidrestore.errors import PlanError
from vidrestore.jobs.encoder_choice import choose_encoder
from vidrestore.jobs.job import Job
from vidrestore.jobs.request import Request
from vidrestore.media.deinterlace import PIPE_DEINTERLACED
from vidrestore.media.encoder_table import EncoderChoice
from vidrestore.media.pictures import losses, side_data_left_out
from vidrestore.media.probe import SourceInfo, VideoInfo
from vidrestore.media.reader import VideoReader
from vidrestore.media.side_data import hdr_warning, lost_side_data
from vidrestore.media.source import Source
from vidrestore.media.span import Span
from vidrestore.media.streams import check_packets, check_streams, other_kinds
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.excerpt import find_span
from vidrestore.pipeline.pipelines import output_scale
from vidrestore.pipeline.plan import Plan, Timeline
from vidrestore.restorers.base import SCALES, Restorer

RestorerLoader: TypeAlias = Callable[[], Restorer]
FindSpan: TypeAlias = Callable[[VideoReader, RestoreOptions], Span]


@contextmanager
def open_job(request: Request, loader: RestorerLoader, find: FindSpan | None = None) -> Iterator[Job]:
    """Open the source, check all that can be checked before work, load the model last, and yield the job.

    `find` finds the part of the source to restore, by default that of `start` and `duration`. Raises
    VidRestoreError.
    """
    options, output = request.options, request.output
    with reader_of(request.source, options) as reader:
        info = reader.info
        check_picture(request.source, info.video)
        span = (find or asked_span)(reader, options)
        copy = check_streams(info, output, options.drop)
        scale = output_scale(SCALES.get(request.task, 1), options, info.video.height)
        encoder = choose_encoder(info, output, options.encoder, scale=scale)
        warnings = reader.warnings + check_side_data(info, encoder, options.drop, strict=options.strict)
        if order := reader.field_order():
            warnings += (_combed(order),)
        others = [kind for kind in other_kinds(info) if kind not in options.drop]
        if lost := losses(info, output, encoder, others):
            warnings += (lost,)
        warnings += check_packets(info, output, copy, span)
        restorer = loader()
        warnings += restorer.facts.doubts
        length = restorer.clip_length(info.video.height, info.video.width)
        timeline = Timeline(length, restorer.facts.overlap)
        plan = Plan(request.source.identity(), output.name, request.task, encoder, copy, timeline, span)
        yield Job(request, reader, restorer, plan, warnings)


def reader_of(source: str | Source, options: RestoreOptions) -> VideoReader:
    """Return the reader of a source with the settings of the options."""
    return VideoReader(
        source,
        threads=options.threads,
        deinterlace=options.deinterlace,
        double_rate=options.double_rate,
        fps=options.fps,
    )


def asked_span(reader: VideoReader, options: RestoreOptions) -> Span:
    """Return the part of the source that the options name."""
    return find_span(reader, options.start, options.duration)


def check_picture(source: Source, video: VideoInfo, way_out: str | None = None) -> None:
    """Refuse interlaced video."""
    if video.interlaced:
        way_out = way_out or (f"do it before: {PIPE_DEINTERLACED}" if source.is_pipe else "add `deinterlace`")
        raise PlanError(
            f"{source}: the video is interlaced, and its fields would be blurred into each other; {way_out}"
        )


def _combed(order: str) -> str:
    first = "top" if order == "tff" else "bottom"
    return (
        f"not marked as interlaced, but it looks so ({first} field first): its fields blur into each other "
        "where it moves; stop, and add `deinterlace`, or `double_rate` for a frame of each field"
    )


def check_side_data(
    info: SourceInfo, encoder: EncoderChoice, drop: Set[str] = frozenset(), *, strict: bool
) -> tuple[str, ...]:
    """Return warnings about what encoding again leaves out, but for what is to be dropped. If `strict`, raise
    PlanError instead, also for lost HDR.
    """
    lost = lost_side_data(side_data_left_out(info, encoder, drop))
    hdr = hdr_warning(encoder.encoder, info.video)  # otherwise the writer warns of it
    if strict and (lost or hdr):
        found = "; ".join(part for part in (lost, hdr) if part)
        raise PlanError(f"{info.path}: {found}; leave `strict` out to restore it all the same")
    return (lost,) if lost else ()
