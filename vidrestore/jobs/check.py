"""Every question before work, each asked once and in a fixed order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TypeAlias

from vidrestore.errors import OutputExistsError, PlanError
from vidrestore.events import Listener, Started
from vidrestore.files.locks import BusyError
from vidrestore.frames import VideoInfo
from vidrestore.jobs.request import Request, StepLoader, check_files, ignore
from vidrestore.jobs.resume import WorkFolder, done_before, finished_before, named_output
from vidrestore.jobs.summary import Summary, announced
from vidrestore.media.reader import PIPE_DEINTERLACED, VideoReader, find_span
from vidrestore.media.source import Source
from vidrestore.media.span import Span
from vidrestore.options import RestoreOptions

if TYPE_CHECKING:
    from vidrestore.jobs.job import Job

FindSpan: TypeAlias = Callable[[VideoReader, RestoreOptions], Span]


@contextmanager
def check(
    request: Request,
    load: StepLoader | None = None,
    on_event: Listener = ignore,
    *,
    find: FindSpan | None = None,
    locks: bool = True,
    own: int | None = None,
) -> Iterator[Job | Summary]:
    """Check all that can be checked before work, each once and in this order: the output, the lock of its
    work folder, the source, the part of it, the encoder, the streams to copy, the weights. Yield the job, or
    the summary if nothing is left to do.

    `load` returns the restorer of a step, by default that of its task. `find` finds the part of the source to
    restore, by default that of `start` and `duration`. With `locks`, a job that has segments holds its work
    folder. `own` is for one of several shards: the frames of the video that it has restored. Raises
    VidRestoreError.
    """
    if before := nothing_to_do(request, on_event, own=own):
        yield before
        return
    folder = WorkFolder.of(request) if locks and request.has_segments else None
    lock = folder.locked(shared=own is not None) if folder else nullcontext()
    with lock, open_job(request, load, find) as job:
        job.folder = folder
        yield job


def nothing_to_do(request: Request, on_event: Listener, *, own: int | None = None) -> Summary | None:
    """Return the summary of a video that is finished or is to be left alone; None if there is work.

    `own` as in `check`; others may hold the folder then, or be about to name the output. Raises
    VidRestoreError if the request can be refused without opening the source.
    """
    options, output, is_shared = request.options, request.output, own is not None
    before, is_under_way, is_half_named = None, False, False
    if not request.is_piped:
        folder = WorkFolder.of(request)
        with suppress(BusyError) if is_shared else nullcontext():
            before = finished_before(request, folder)
        is_under_way = folder.path.is_dir() and named_output(request, folder) is None
        # a run was killed while it named its pictures, of which the first gets its own name last
        is_numbered = output.is_pattern and request.has_segments
        is_half_named = is_under_way and is_numbered and folder.read("named") is not None
    exists = not output.is_pipe and os.path.exists(output.first_file)
    if before is None and options.skip_existing and exists and not is_half_named:
        return Summary(*request.names, 0, 0.0, skipped=True)
    if before is None and exists and not request.source.is_pipe:
        before = None if is_shared and is_under_way else done_before(request)
    if before is None:
        overwrite = options.overwrite or is_half_named
        try:
            check_files(request.source, output, overwrite=overwrite, cfr=options.cfr)
        except OutputExistsError as error:
            raise OutputExistsError(f"{error}; `skip_existing` leaves it alone") from None
        return None
    on_event(Started(*request.names, request.steps[0].task, device=options.device))
    return announced(Summary.of_marker(request, before, own=own or 0), on_event)


@contextmanager
def open_job(request: Request, load: StepLoader | None = None, find: FindSpan | None = None) -> Iterator[Job]:
    """Open the source, check what follows from it, load the model last, and yield the job: the part of
    `check` that each of several processes at one output needs.
    """
    asks = any(step.measures_noise or step.measures_input for step in request.steps)
    with reader_of(request.source, request.options, losses=asks) as reader:
        check_picture(request.source, reader.info.video)
        options = request.options
        span = find(reader, options) if find else find_span(reader, options.start, options.duration)
        from vidrestore.jobs.job import job_of  # loads torch, which takes seconds

        yield job_of(request, reader, span, load)


def reader_of(source: str | Source, options: RestoreOptions, *, losses: bool = False) -> VideoReader:
    """Return the reader of a source with the settings of the options; `losses` as in VideoReader."""
    return VideoReader(
        source,
        threads=options.threads,
        deinterlace=options.deinterlace,
        double_rate=options.double_rate,
        fps=options.fps,
        losses=losses,
    )


def check_picture(source: Source, video: VideoInfo, way_out: str | None = None) -> None:
    """Refuse interlaced video."""
    if video.interlaced:
        way_out = way_out or (
            f"do it before: {PIPE_DEINTERLACED}" if source.is_pipe else "`deinterlace` makes it progressive"
        )
        raise PlanError(
            f"{source}: the video is interlaced, and its fields would be blurred into each other; {way_out}"
        )
