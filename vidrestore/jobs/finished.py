"""Was this video restored before? The marker that a run leaves on its output, and the answers.

The marker is an attribute of the file, which is not part of its content; a copy or a file system may not keep
it. Then only `skip_existing` leaves an existing output alone.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vidrestore.errors import OutputExistsError
from vidrestore.events import Finished, Listener, Started, Warned
from vidrestore.files.atomic import remove_partials, same_file
from vidrestore.files.checked_json import parse_object
from vidrestore.files.lease import BusyError, is_own
from vidrestore.jobs.job import Job, Summary
from vidrestore.jobs.request import Request, check_request, is_half_named
from vidrestore.jobs.work_folder import NAMED, WorkFolder, digest
from vidrestore.media.source import SourceIdentity

ATTRIBUTE = "user.vidrestore"
REMOVED = {"dehaze": "haze", "derain": "rain", "desnow": "snow", "deblur": "blur", "denoise": "noise"}


def nothing_to_do(request: Request, on_event: Listener, *, own: int | None = None) -> Summary | None:
    """Return the summary of a video that is finished or is to be left alone; None if there is work.

    `own` is for one of several shards: the frames of the video that it has restored. Others may hold the
    folder then, or be about to name the output. Raises VidRestoreError if the request can be refused without
    opening the source.
    """
    folder, is_shared = None if request.is_piped else request.work_folder(), own is not None
    before = None
    if folder:
        with suppress(BusyError) if is_shared else nullcontext():
            before = finished_before(request, folder)
    if before is None and (there := left_alone(request)):
        return there
    is_under_way = folder and is_shared and named_output(request, folder) is None and folder.path.is_dir()
    if folder and before is None and not is_under_way:
        before = done_before(request)
    if before is None:
        check_request(request)
        return None
    if own:
        before = replace(before, reused=max(0, before.frames - own), before=False)
    on_event(Started(*request.names, request.task, device=request.options.device))
    return announced(before, on_event)


def left_alone(request: Request) -> Summary | None:
    """Return the summary of an output that exists and is to be skipped; None if there is work, as there is if
    only some of its pictures exist yet.
    """
    skips = request.options.skip_existing and not request.output.is_pipe
    there = skips and request.output.first_file.exists() and not is_half_named(request)
    return Summary(*request.names, 0, 0.0, skipped=True) if there else None


def announced(summary: Summary, on_event: Listener) -> Summary:
    """Return the summary, after its events."""
    if summary.retried:
        on_event(
            Warned(
                summary.source,
                f"{summary.retried} clips went beyond half precision and were restored again in fp32",
            )
        )
    for task, changes in summary.changes:
        if changes.unchanged:
            found = f"no {REMOVED[task]} was found in {changes.unchanged} of {changes.frames} frames"
            on_event(Warned(summary.source, f"{found}, which stay as they are"))
    measured = [scene for scene in summary.scenes if scene.rms]
    if measured and not any(level for scene in measured for level in scene.sigma):
        on_event(
            Warned(
                summary.source, "no noise was found, so nothing was removed; set its strength with `sigma`"
            )
        )
    elif measured and summary.frames == 1:
        on_event(
            Warned(
                summary.source,
                "its noise was measured on one frame, where fine texture looks the same; if texture is gone, "
                "set a lower `sigma`, if coarse noise is left, a higher one",
            )
        )
    scenes = [
        {"first": scene.first, "stop": scene.stop, "sigma": scene.sigma}
        | ({"noise": scene.noise} if scene.rms else {})
        for scene in summary.scenes
    ]
    details = {"fps": summary.fps, "scenes": scenes, "reused": summary.reused, "before": summary.before}
    if summary.changes:
        details["changes"] = [
            {"task": task, "frames": each.frames, "unchanged": each.unchanged, "mean": round(each.mean, 3)}
            for task, each in summary.changes
        ]
    on_event(
        Finished(summary.source, summary.output, summary.frames, summary.seconds, summary.damage, details)
    )
    return summary


def mark(folder: WorkFolder, path: Path, job: Job, damage: str | None) -> None:
    """Mark the finished file `path` and put it on the disk, before it gets its name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    folder.write("named", _marked(path, job, damage))


def mark_file(job: Job, damage: str | None) -> None:
    """Mark the finished output of a job that has no work folder."""
    with suppress(OSError):
        _marked(job.request.output.first_file, job, damage)


def _marked(path: Path, job: Job, damage: str | None) -> dict[str, Any]:
    """Mark a file and return the marker."""
    found = path.stat()
    marker: dict[str, Any] = {
        "request": job.request.name,
        "size": found.st_size,
        "modified": found.st_mtime_ns,
        "frames": len(job.plan.timeline.pts),
        "damage": damage,
        "source": _source_name(job.plan.source),
    }
    with suppress(OSError, AttributeError):
        os.setxattr(path, ATTRIBUTE, json.dumps(marker).encode())
    return marker


def finished_before(request: Request, folder: WorkFolder) -> Summary | None:
    """Return the summary of a run that was killed after it had named its output and before it had cleared up;
    clear up.
    """
    if not (folder.path.is_dir() and request.output.first_file.exists()):
        return None
    with folder.locked():  # which removes a folder with nothing but the lock
        if named := named_output(request, folder):
            remove_partials(folder.output, alone=True)
            folder.remove()
            source = _source_name(request.source.identity())
            if (named["request"], named["source"]) == (request.name, source):
                return _summary(request, named)
    return None


def named_output(request: Request, folder: WorkFolder) -> dict[str, Any] | None:
    """Return the marker that a job left in its folder, if its output has its name now."""
    with suppress(OSError, KeyError):
        named, found = folder.read("named"), request.output.first_file.stat()
        if named and (found.st_size, found.st_mtime_ns) == (named["size"], named["modified"]):
            return named
    return None


def done_before(request: Request) -> Summary | None:
    """Return the summary if the output has the marker of this very request; None if it has none, or is to be
    replaced.

    Raises OutputExistsError if it has the marker of another request.
    """
    source, output = request.source, request.output
    if request.options.overwrite or not source.is_stored or same_file(output.path, source.path):
        return None
    trusted = request.options.trust_group
    if (marker := _marker(output.first_file, trust_group=trusted)) is None:
        return None
    if marker["request"] != request.name:
        reason = "was made with other options"
    elif marker["source"] != _source_name(source.identity()):
        reason = "was made from another video, or from this one before it changed"
    else:
        return _summary(request, marker)
    raise OutputExistsError(
        f"{output}: already exists and {reason}; add `overwrite` to replace it, or give `output` another name"
    )


def _summary(request: Request, marker: dict[str, Any]) -> Summary:
    frames = marker["frames"]
    return Summary(*request.names, frames, 0.0, damage=marker["damage"], reused=frames, before=True)


def _source_name(source: SourceIdentity) -> str:
    return digest(asdict(source) | {"path": ""})


def _marker(output: Path, *, trust_group: bool) -> dict[str, Any] | None:
    """Return the marker of a file; None if it has none, was written to since, or belongs to another user."""
    with suppress(OSError, AttributeError, ValueError, KeyError, TypeError):
        marker, found = parse_object(os.getxattr(output, ATTRIBUTE), NAMED), os.stat(output)
        if marker["size"] == found.st_size and (trust_group or is_own(found, output.parent)):
            return marker
    return None
