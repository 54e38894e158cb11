"""Check everything before the work begins, each thing once and in a fixed order; mark finished outputs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vidrestore.errors import OutputExistsError
from vidrestore.events import Listener, Started, ignore_event
from vidrestore.files.atomic import remove_partials, same_file
from vidrestore.files.locks import BusyError, is_own
from vidrestore.files.regular import digest, parse_object
from vidrestore.frames import Span
from vidrestore.jobs.request import Request, StepLoader
from vidrestore.jobs.resume import NAMED, WorkFolder
from vidrestore.jobs.summary import Summary, announced
from vidrestore.media.reader import VideoReader, find_span
from vidrestore.media.source import SourceIdentity
from vidrestore.options import RestoreOptions

if TYPE_CHECKING:
    from vidrestore.jobs.job import Job

ATTRIBUTE = "user.vidrestore"  # of the output
FindSpan: TypeAlias = Callable[[VideoReader, RestoreOptions], Span]


@contextmanager
def check(
    request: Request,
    load: StepLoader | None = None,
    on_event: Listener = ignore_event,
    *,
    find: FindSpan | None = None,
    locks: bool = True,
    own: int | None = None,
) -> Iterator[Job | Summary]:
    """Check the output, the lock of its work folder, the source, the part of it to restore, the encoder, the
    streams to copy and the weights, in this order. Yield the job, or the summary if nothing is left to do.

    `load` returns the restorer of a step, by default that of its task. `find` finds the part of the source to
    restore, by default that of `start` and `duration`. With `locks`, a job that has segments holds its work
    folder. `own` is for one of several shards: the frames of the video that it has restored. Raises
    VidRestoreError.
    """
    if earlier := earlier_summary(request, on_event, own=own):
        yield earlier
        return
    folder = WorkFolder.of(request) if locks and request.has_segments else None
    lock = folder.locked(shared=own is not None) if folder else nullcontext()
    with lock, open_job(request, load, find) as job:
        job.folder = folder
        yield job


def earlier_summary(request: Request, on_event: Listener, *, own: int | None = None) -> Summary | None:
    """Return the summary of a video that was finished earlier or is to be left alone; None if there is work
    to do.

    `own` is that of `check`: other shards may hold the folder then, or be about to name the output. Raises
    VidRestoreError if the request can be refused without opening the source.
    """
    options, output, is_shared = request.options, request.output, own is not None
    marker, is_under_way, is_half_named = None, False, False
    if not request.is_piped:
        folder = WorkFolder.of(request)
        with suppress(BusyError) if is_shared else nullcontext():
            marker = clear_up(request, folder)
        is_under_way = folder.path.is_dir() and folder.marker(output.first_file) is None
        # a run was killed while it named its pictures, of which the first gets its own name last
        is_numbered = output.is_pattern and request.has_segments
        is_half_named = is_under_way and is_numbered and folder.read("named") is not None
    exists = not output.is_pipe and os.path.exists(output.first_file)
    if marker is None and options.skip_existing and exists and not is_half_named:
        return Summary(*request.names, 0, 0.0, skipped=True)
    if marker is None and exists and not request.source.is_pipe:
        marker = None if is_shared and is_under_way else output_marker(request)
    if marker is None:
        overwrite = options.overwrite or is_half_named
        try:
            output.check(request.source, overwrite=overwrite, cfr=options.cfr)
        except OutputExistsError as error:
            raise OutputExistsError(f"{error}; `skip_existing` leaves it alone") from None
        return None
    on_event(Started(*request.names, request.steps[0].task, device=options.device))
    return announced(Summary.of_marker(request, marker, own=own or 0), on_event)


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


def mark(path: Path, job: Job, damage: str | None, target: Path | None = None) -> None:
    """Mark the finished output of a job, which is in the file `path`.

    If the job has a work folder, the marker is stored there as well, and the file is on the disk before it
    gets its name: `target`, by default that of the output.
    """
    if job.folder:
        with path.open("r+b") as file:  # Windows flushes no file that is open for reading alone
            os.fsync(file.fileno())
    found = path.stat()
    marker: dict[str, Any] = {
        "request": job.request.name,
        "size": found.st_size,
        "modified": found.st_mtime_ns,
        "frames": len(job.plan.timeline.pts),
        "damage": damage,
        "source": _source_name(job.plan.source),
        "weights": job.weights(),
    }
    with suppress(OSError, AttributeError):
        os.setxattr(path, ATTRIBUTE, json.dumps(marker).encode())
    if job.folder:
        job.folder.write("named", marker | {"file": (target or job.request.output.path).name})


def clear_up(request: Request, folder: WorkFolder) -> dict[str, Any] | None:
    """Clear up after a run that was killed once its output had its name; return the marker of that output if
    it is what the request asks for.
    """
    if not (folder.path.is_dir() and request.output.first_file.exists()):
        return None
    with folder.locked():  # which removes a folder without finished work
        if marker := folder.marker(request.output.first_file):
            remove_partials(folder.output, alone=True)
            folder.remove()
            source = _source_name(request.source.identity())
            is_same = (marker["request"], marker["source"]) == (request.name, source)
            if is_same and not _retrained(request, marker["weights"]):
                return marker
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
        marker, found = parse_object(os.getxattr(output, ATTRIBUTE), NAMED), os.stat(output)
        if marker["size"] == found.st_size and is_own(found, output.parent):
            return marker
    return None
