"""Check everything before the work begins, each thing once and in a fixed order; know finished outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from vidrestore.errors import OutputExistsError
from vidrestore.events import Listener, Started, Summary, ignore_event
from vidrestore.frames import Span
from vidrestore.jobs.request import Request, StepLoader
from vidrestore.jobs.resume import WorkFolder
from vidrestore.media.probe import read_tag
from vidrestore.media.reader import VideoReader, find_span
from vidrestore.options import RestoreOptions

if TYPE_CHECKING:
    from vidrestore.jobs.job import Job

FindSpan: TypeAlias = Callable[[VideoReader, RestoreOptions], Span]


@contextmanager
def check(
    request: Request,
    load: StepLoader | None = None,
    on_event: Listener = ignore_event,
    *,
    find: FindSpan | None = None,
    locks: bool = True,
    folder: WorkFolder | None = None,
) -> Iterator[Job | Summary]:
    """Check the lock of the work folder, the output, the source, the part of it to restore, the encoder, the
    streams to copy and the weights, in this order. Yield the job, or the summary if nothing is left to do.

    `load` returns the restorer of a step, by default that of its task. `find` finds the part of the source to
    restore, by default that of `start` and `duration`. With `locks`, the work folder is locked, which
    pipes don't have; `folder` is one that the caller has locked. Raises VidRestoreError.
    """
    request.output.check(request.source, overwrite=True, cfr=request.options.cfr)
    work_folder = None if folder or request.is_piped else WorkFolder.of(request)
    with work_folder.locked() if work_folder and locks else nullcontext():
        folder = folder or (work_folder if locks else None)
        try:
            earlier = earlier_summary(request, on_event, folder)
        except OutputExistsError:
            with open_job(request, load, find):  # an option that is wrong in any case is said first
                raise
        if earlier:
            yield earlier
            return
        with open_job(request, load, find) as job:
            job.folder = folder
            yield job


def earlier_summary(request: Request, on_event: Listener, folder: WorkFolder | None = None) -> Summary | None:
    """Return the summary of a video that was finished earlier; None if there is work to do, as where its job
    stands in the work `folder`. What a finished job has left in the folder is removed.

    Raises VidRestoreError if the request can be refused without opening the source.
    """
    source, output, overwrite = request.source, request.output, request.options.overwrite
    output.check(source, overwrite=True, cfr=request.options.cfr)
    tag = None if overwrite else read_tag(output)
    if tag and source.is_stored and tag.job == request.job(source.identity()):
        if folder:
            folder.remove()
        on_event(Started(*request.names, request.steps[0].task, device=request.options.device))
        summary = Summary(*request.names, tag.frames, 0.0, tag.damage, reused=tag.frames, before=True)
        on_event(summary)
        return summary
    if folder and folder.read("job") is not None:
        return None
    if tag:
        raise OutputExistsError(
            f"{output}: already exists, made with other options or weights, or from another video; add "
            "`overwrite` to replace it, or give `output` another name"
        )
    output.check(source, overwrite=overwrite)
    return None


@contextmanager
def open_job(request: Request, load: StepLoader | None = None, find: FindSpan | None = None) -> Iterator[Job]:
    """Open the source, check what depends on it, load the model last, and yield the job: the part of `check`
    that helpers of another process need, too.
    """
    measures = any(step.measures_noise or step.measures_input for step in request.steps)
    options = request.options
    with VideoReader.of(request.source, options, losses=measures) as reader:
        reader.refuse_interlaced("`scan` makes it progressive")
        span = find(reader, options) if find else find_span(reader, options.start, options.duration)
        from vidrestore.jobs.job import job_of  # loads torch, which takes seconds

        yield job_of(request, reader, span, load)
