"""Restorations from a source to its output: of a file to a file in segments, so that the next run can resume;
of pipes in one go. Everything is checked before the work begins, in a fixed order (`check`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Literal, TypeAlias, Unpack

from vidrestore.errors import MediaError, OutputExistsError, VidRestoreError
from vidrestore.event_log import Logged
from vidrestore.events import (
    Event,
    Failed,
    Listener,
    Started,
    Summary,
    Warned,
    ignore_event,
)
from vidrestore.files.atomic import Partial, remove_partials
from vidrestore.files.regular import write_problem
from vidrestore.jobs.naming import is_our_output, output_for, suffix_of
from vidrestore.jobs.request import Request, Step, StepLoader
from vidrestore.jobs.resume import WorkFolder
from vidrestore.media.formats.source import (
    PIPE,
    Source,
    Target,
    is_picture,
    standard_input,
)
from vidrestore.media.reading.reader import VideoReader, expected_frames, find_span
from vidrestore.media.writing.finished import (
    Tag,
    broken_output,
    is_foreign,
    read_tag,
    stump,
)
from vidrestore.pixels.frames import Span
from vidrestore.settings.options import RestoreKeywords, RestoreOptions, chosen_options
from vidrestore.settings.tasks import TASKS

if TYPE_CHECKING:
    from vidrestore.jobs.job import Job
    from vidrestore.jobs.segmented import SegmentedWork
    from vidrestore.pipeline.conversions import Changes
    from vidrestore.pipeline.plan import Scene

FindSpan: TypeAlias = Callable[[VideoReader, RestoreOptions], Span]

Y4M_MAGIC = b"YUV4MPEG2"
_FORMER = "made by an earlier version, whose tag can't prove that it is whole"


def restore(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    task: str = "denoise",
    options: RestoreOptions | None = None,
    on_event: Listener | None = None,
    **overrides: Unpack[RestoreKeywords],
) -> Summary:
    """Restore the video `source` into `output` (by default beside it); done when it returns.

        summary = vidrestore.restore("in.mp4", "out.mp4", task="denoise", sigma=20)
        vidrestore.restore("small.mkv", task="sr", scale=2, on_event=print)

    Returns a Summary. Raises VidRestoreError, if possible before any work; then nothing is written. A run
    that ends early leaves what it has finished in the folder OUTPUT.vidrestore, and the same call resumes
    from there; once the output is finished, the same call does nothing. Events are also logged, by the logger
    `vidrestore`.

    Args:
        source (str or path): Video, photo, folder or pattern of pictures to restore; "-" for a y4m video on
            standard input.
        output (str or path): File to write, or a folder for it; "-" for a y4m video on standard output;
            default None: a file beside the source, named after the task.
        task (str): "denoise", "dehaze", "derain", "desnow", "deblur", "deflicker", "dedust" or "sr"; default
            "denoise".
        options (RestoreOptions): Settings of the restoration; default None: those of `RestoreOptions()`.
        on_event (callable): Called with every event of the run; what it raises ends the run and is raised
            here; default None: events are only logged.
        overrides: Fields of RestoreOptions by name (`sigma=20`), which win over `options`.
    """
    step_options = chosen_options(RestoreOptions, options, overrides)
    request = request_for(source, output, Step(task, step_options))
    return restore_request(request, on_event=Logged(on_event or ignore_event))


def request_for(
    source: str | os.PathLike[str], output: str | os.PathLike[str] | None, step: Step
) -> Request:
    """Return the request for a file, whose output by default is beside it."""
    video = Source.of(source)
    suffix = suffix_of(step.task, step.options)
    target = output_for(
        video, None if output is None else Target.of(output).name, suffix
    )
    target.make_folder()
    return Request(video, target, (step,))


def restore_request(
    request: Request,
    load: StepLoader | None = None,
    on_event: Listener = ignore_event,
    run: Callable[[SegmentedWork], None] = lambda work: work.run(),
) -> Summary:
    """Restore one source. `load` returns the restorer of a step, by default that of its task; it is called
    after everything else was checked.

    `run` restores all segments. Raises VidRestoreError.
    """
    # a container on standard input must be stored; y4m is read as it comes
    if request.source.is_pipe and is_container():
        options = request.options
        request.output.check(
            request.source, overwrite=options.overwrite, cfr=options.cfr
        )
        with (
            spooled(request, on_event) as (stored, listener),
            open_job(stored, load) as job,
        ):
            return replace(_stream(job, listener), source=str(request.source))
    # else a file, whose work can be resumed
    with check(request, load, on_event) as job:
        if isinstance(job, Summary):
            return job
        if job.folder is None:
            return _stream(job, on_event)
        from vidrestore.jobs.segmented import SegmentedWork  # loads torch

        work = SegmentedWork.begin(job, job.folder, on_event)
        with warn_if_stopped(work):
            began = time.monotonic()
            job.begin(on_event)
            run(work)
            return join(work, began)


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
    # what the file system refuses, before anything of it is locked
    request.output.check(request.source, overwrite=True, cfr=request.options.cfr)
    work_folder = None if folder or request.is_piped else WorkFolder.of(request)
    with work_folder.locked() if work_folder and locks else nullcontext():
        folder = folder or (work_folder if locks else None)
        # the state of the output decides what is left to do
        try:
            left = earlier_summary(request, on_event, folder)
        except OutputExistsError:
            # an option that is wrong in any case is said first
            with open_job(request, load, find):
                raise
        if isinstance(left, Summary):
            yield left
            return
        with open_job(left, load, find) as job:
            job.folder = folder
            yield job


def earlier_summary(
    request: Request, on_event: Listener, folder: WorkFolder | None = None
) -> Summary | Request:
    """Return the summary of a video that was finished earlier, or the request for the work that is left, as
    where its job stands in the work `folder`. One whose output was finished but isn't whole any more is made
    again, with a warning. What a finished job has left in the folder is removed.

    Raises OutputExistsError if there is another output.
    """
    # an output that the user wants replaced needs no look
    source, output = request.source, request.output
    if request.options.overwrite:
        return request
    # one with our tag: finished by this request, perhaps cut or changed since
    tag, problem = read_tag(output), None
    if tag and source.is_stored and (maker := _maker(request, tag)):
        problem = _FORMER if maker == "former" else broken_output(output, tag)
        if not problem:
            if folder:
                folder.remove()
            on_event(
                Started(
                    *request.names, request.steps[0].task, device=request.options.device
                )
            )
            summary = Summary(
                *request.names,
                tag.frames,
                0.0,
                tag.damage,
                reused=tag.frames,
                before=True,
            )
            on_event(summary)
            return summary
    # one without: a job that was begun here, or an empty or broken file of ours
    elif folder and folder.read("job") is not None:
        return request
    elif tag is None:
        problem = _own_stump(output)
    # what remains is made again, refused, or not there
    if problem:
        on_event(Warned(source.name, f"{output}: {problem}; it is made again"))
        return request.with_options(overwrite=True)
    if tag and not tag.is_preview:
        raise OutputExistsError(
            f"{output}: already exists, made with other options, weights or version, or from another video; "
            "add `overwrite` to replace it, or give `output` another name"
        )
    output.check(source, overwrite=False)
    return request


def _own_stump(output: Target) -> str | None:
    """Return why an output without a tag isn't whole, if it is empty or named as our outputs are; None if it
    is whole, or isn't there. Raises MediaError for a broken file of another name.
    """
    if output.is_pattern or output.is_pipe or not (problem := stump(output)):
        return None
    if is_our_output(output.name) or not output.path.stat().st_size:
        return problem
    raise MediaError(
        f"{output}: already exists, but {problem}; remove it, or add `overwrite` to replace it"
    )


def _maker(request: Request, tag: Tag) -> Literal["this", "former"] | None:
    """Return the version of vidrestore, this or a former one, by which the request made the output that has
    the tag; None if another request made it. Raises OutputExistsError if another user may have put the output
    there.
    """
    # the digest of this version, or of one before it
    identity = request.source.identity()
    maker: Literal["this", "former"] | None = None
    if tag.job == request.job(identity):
        maker = "this"
    elif tag.checksum is None and tag.job == request.former_job(identity):
        maker = "former"
    if maker and is_foreign(request.output):
        raise OutputExistsError(
            f"{request.output}: already exists, and belongs to another user, who may have forged its tag; "
            "add `overwrite` to replace it, or give `output` another name"
        )
    return maker


@contextmanager
def open_job(
    request: Request, load: StepLoader | None = None, find: FindSpan | None = None
) -> Iterator[Job]:
    """Open the source, check what depends on it, load the model last, and yield the job: the part of `check`
    that helpers of another process need, too.
    """
    # decoders measure losses only where a step will ask for them
    steps, options = request.steps, request.options
    measures = any(step.measures_noise or step.measures_input for step in steps)
    measures |= is_picture(request.source.name) and any(
        step.removes_loss for step in steps
    )
    with VideoReader.of(request.source, options, losses=measures) as reader:
        reader.refuse_interlaced("`scan` makes it progressive")
        span = (
            find(reader, options)
            if find
            else find_span(reader, options.start, options.duration)
        )
        from vidrestore.cores import one_thread  # loads torch, which takes seconds
        from vidrestore.jobs.job import job_of

        with one_thread():
            yield job_of(request, reader, span, load)


def join(work: SegmentedWork, began: float) -> Summary:
    """Join the segments and announce the summary; `began` is when this run did, by `time.monotonic`."""
    job, on_event = work.job, work.on_event
    job.warn(work.join(), on_event)
    return finish(job, began, work.damage, work.retried, on_event, work.reused)


@contextmanager
def warn_if_stopped(work: SegmentedWork) -> Iterator[None]:
    """Warn how many frames are kept if the run ends early, or that nothing is."""
    try:
        yield
    except BaseException:
        # count what the next run can use
        count = work.finished_frames()
        amount = "1 frame is" if count == 1 else f"{count} frames are"
        text = f"stopped; {amount} kept in {work.folder.path}, and the same command resumes from there"
        if not count:  # a bar counts parts of clips, too
            text = "stopped before a clip was finished; nothing is kept, and the same command starts over"
        work.on_event(Warned(work.job.info.path, text))
        raise


def _stream(job: Job, on_event: Listener) -> Summary:
    """Restore from or to a pipe, in one go."""
    from vidrestore.jobs.job import damage_summary
    from vidrestore.jobs.steps import write_frames

    # frames are written as they come: a pipe can't be resumed
    total = expected_frames(job.info, job.plan.span)
    job.begin(on_event)
    job.announce_plan(total, on_event)
    began = time.monotonic()
    writer = job.writer()
    write_frames(
        job.restored(),
        writer,
        lambda frames: job.watched(frames, "restore", total, on_event),
    )
    job.warn(writer.warnings, on_event)
    return finish(
        job,
        began,
        damage_summary(job.damage, writer.damage),
        job.steps.retried,
        on_event,
    )


def finish(
    job: Job,
    began: float,
    damage: str | None,
    retried: int,
    on_event: Listener,
    reused: int = 0,
) -> Summary:
    """Warn of what the user should know about the result; return its summary, the last event."""
    # the same facts for files and for pipes
    timeline = job.plan.timeline
    changes = job.steps.changes
    seconds = time.monotonic() - began
    scenes, frames = tuple(timeline.scenes), len(timeline.pts)
    job.warn(result_warnings(frames, scenes, retried, changes), on_event)
    summary = Summary(
        job.info.path,
        job.plan.output,
        frames,
        seconds,
        damage,
        scenes,
        retried,
        reused,
        changes=changes,
        dropouts=(timeline.dropouts, timeline.spoiled),
    )
    on_event(summary)
    return summary


def result_warnings(
    frames: int,
    scenes: Sequence[Scene],
    retried: int,
    changes: Iterable[tuple[str, Changes]],
) -> Iterator[str]:
    """Yield warnings about clips restored twice, frames left as they are, and noise that may be wrong."""
    if retried:
        yield f"{retried} clips went beyond half precision and were restored again in fp32"
    # deblur leaves sharp frames as they are, which is no surprise
    for task, change in changes:
        if change.unchanged and not change.shakes:
            frames_of_all = f"{change.unchanged} of {change.frames} frames"
            yield f"no {TASKS[task].removes} was found in {frames_of_all}, which stay as they are"
    measured = [scene for scene in scenes if scene.rms]
    if measured and not any(level for scene in measured for level in scene.sigma):
        yield "no noise was found, so nothing was removed; set its strength with `sigma`"
    # where all that was removed is a coder's loss, texture isn't in doubt
    elif frames == 1 and any(level for scene in measured for level in scene.measured):
        luma, *_ = sigma = measured[0].sigma
        yield (
            "its noise was measured on one frame, where fine texture looks the same, and removed as with "
            f"`sigma={luma or max(sigma):.1f}`: if texture is gone, set a lower one, if noise is left, a "
            "higher one"
        )


# A container on standard input: stored in a file while it is restored, as it is read more than once


def is_container() -> bool:
    """Return True if standard input holds something other than y4m."""
    stream = standard_input()
    peek = getattr(stream, "peek", None)
    head = peek(len(Y4M_MAGIC))[: len(Y4M_MAGIC)] if peek else b""
    return bool(head) and not Y4M_MAGIC.startswith(head)


@contextmanager
def spooled(request: Request, on_event: Listener) -> Iterator[tuple[Request, Listener]]:
    """Store standard input in a file beside the output, or in `work_dir`, until the block ends.

    Yield the request for that file, and a listener whose events name "-" instead of it.

    Raises MediaError if there is no room; errors in the block name "-", too.
    """
    output_folder = (
        gettempdir()
        if request.output.is_pipe
        else str(request.output.absolute().path.parent)
    )
    folder = request.options.work_dir or output_folder
    on_event(
        Warned(
            PIPE,
            f"not y4m: stored in {folder} first, as containers are read more than once",
        )
    )
    target = Path(folder) / "stdin"  # a partial file, which never gets this name
    try:
        remove_partials(target)  # a killed run left one, as large as its input
        with ExitStack() as end:
            file = Partial(target, private=True)
            end.callback(file.discard)
            path = str(file.path)
            shutil.copyfileobj(standard_input(), file.file, 1 << 20)
            file.file.flush()

            # events and errors name the pipe, not the file that stands for it
            def renamed(event: Event) -> None:
                event = replace(event, source=PIPE) if event.source == path else event
                if isinstance(event, Warned | Failed):
                    event = replace(event, message=event.message.replace(path, PIPE))
                on_event(event)

            try:
                yield replace(request, source=Source(path)), renamed
            except VidRestoreError as error:
                error.args = (str(error).replace(path, PIPE),)
                raise
    except OSError as error:
        raise write_problem(folder, error) from error
