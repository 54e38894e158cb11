"""Check everything before the work begins, each thing once and in a fixed order; mark finished outputs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from vidrestore.errors import OutputExistsError
from vidrestore.events import Listener, Started, ignore_event
from vidrestore.files.atomic import same_file
from vidrestore.files.regular import COUNT, digest, is_own, parse_object
from vidrestore.frames import Span
from vidrestore.jobs.request import Request, StepLoader
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.summary import Summary, announced
from vidrestore.media.reader import VideoReader, find_span
from vidrestore.media.source import Source, SourceIdentity, Target
from vidrestore.options import RestoreOptions

if TYPE_CHECKING:
    from vidrestore.jobs.job import Job

ATTRIBUTE = "user.vidrestore"  # of the output
MARKER = {
    "request": str,
    "size": COUNT,
    "frames": COUNT,
    "damage": (str, NoneType),
    "source": str,
    "weights": dict,
}
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
    restore, by default that of `start` and `duration`. With `locks`, a job that has segments locks its work
    folder; `folder` is one that the caller has locked. Raises VidRestoreError.
    """
    own = WorkFolder.of(request) if locks and request.has_segments and not folder else None
    with own.locked() if own else nullcontext():
        folder = folder or own
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
    """Return the summary of a video that was finished earlier or is to be left alone; None if there is work
    to do, as where its job stands in the work `folder`. Files of a finished job in the folder are removed.

    Raises VidRestoreError if the request can be refused without opening the source.
    """
    options, output = request.options, request.output
    exists = not output.is_pipe and os.path.exists(output.first_file)
    marker = output_marker(request) if exists and not request.source.is_pipe else None
    resumes = folder is not None and folder.read("job") is not None
    if marker is None:
        if exists and options.skip_existing and not resumes:
            return Summary(*request.names, 0, 0.0, skipped=True)
        try:
            output.check(request.source, overwrite=options.overwrite or resumes, cfr=options.cfr)
        except OutputExistsError as error:
            raise OutputExistsError(f"{error}; `skip_existing` leaves it alone") from None
        return None
    if folder:
        folder.remove()
    on_event(Started(*request.names, request.steps[0].task, device=options.device))
    return announced(Summary.of_marker(request, marker), on_event)


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


# The marker


def mark(path: Path, job: Job, damage: str | None) -> None:
    """Mark the finished output of a job, which is in the file `path`. Of a job that can be resumed, it is on
    the disk before it gets its name.
    """
    if job.folder:
        with path.open("r+b") as file:  # Windows flushes no file that is open for reading alone
            os.fsync(file.fileno())
    frames = len(job.plan.timeline.pts)
    put_marker(path, job.request.name, job.plan.source, frames, damage, job.weights())


def put_marker(
    path: Path,
    request: str,
    source: SourceIdentity,
    frames: int,
    damage: str | None,
    weights: Mapping[str, str],
) -> None:
    """Mark a finished file, which gets its name next."""
    found = path.stat()
    marker: dict[str, Any] = {"request": request, "size": found.st_size}
    marker |= {"frames": frames, "damage": damage, "source": _source_name(source), "weights": weights}
    with suppress(OSError, AttributeError):
        os.setxattr(path, ATTRIBUTE, json.dumps(marker).encode())


def finished_earlier(source: Source, output: Target, request: str) -> Summary | None:
    """Return the summary of an output that has the marker of this request and source; else None."""
    marker = _read_marker(output.first_file) if source.is_stored and not output.is_pipe else None
    if marker and (marker["request"], marker["source"]) == (request, _source_name(source.identity())):
        return Summary(str(source), str(output), marker["frames"], 0.0, damage=marker["damage"], before=True)
    return None


def output_marker(request: Request) -> dict[str, Any] | None:
    """Return the marker of an output that is what the request asks for; None if the output has no marker or
    is to be overwritten.

    Raises OutputExistsError if the output has the marker of another request.
    """
    source, output = request.source, request.output
    if request.options.overwrite or not source.is_stored or same_file(output.path, source.path):
        return None
    if (marker := _read_marker(output.first_file)) is None:
        return None
    if marker["request"] != request.name:
        reason = "was made with other options"
    elif marker["source"] != _source_name(source.identity()):
        reason = "was made from another video, or from this one before it changed"
    elif retrained := _retrained(request, marker["weights"]):
        reason = f"was made with other weights than {', '.join(retrained)} has now"
    else:
        return marker
    raise OutputExistsError(
        f"{output}: already exists and {reason}; add `overwrite` to replace it, or give `output` another name"
    )


def _retrained(request: Request, weights: Mapping[str, str]) -> list[str]:
    """Return the names in `weights` whose files, or entries of the manifest, have another sha256 now."""
    from vidrestore.weights import is_file  # not for every run
    from vidrestore.weights.manifest import read_manifest, sha256_of

    asked = {str(step.options.model) for step in request.steps if step.options.model}
    files = [name for name in asked if is_file(name) and not name.startswith("hf:")]
    now = {name: card.sha256 for name, card in read_manifest().items()}
    for name in files:
        with suppress(OSError):  # loading it says what is wrong
            now[Path(name).stem] = sha256_of(Path(name))
    return [name for name, found in weights.items() if now.get(name, found) != found]


def _source_name(source: SourceIdentity) -> str:
    return digest(asdict(source) | {"path": ""})


def _read_marker(output: Path) -> dict[str, Any] | None:
    """Return the marker of a file; None if it has none, was changed since, or belongs to another user."""
    with suppress(OSError, AttributeError, ValueError, KeyError, TypeError):
        marker, found = parse_object(os.getxattr(output, ATTRIBUTE), MARKER), os.stat(output)
        if marker["size"] == found.st_size and is_own(found, output.parent):
            return marker
    return None
