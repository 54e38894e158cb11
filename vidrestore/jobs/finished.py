"""Was this film restored before? What a run leaves for that question, and the answers.

A finished film carries the answer in an attribute of its file, which is no part of what is in it and is gone where a copy or a file system
keeps none. Then a look has to do: it is not older than the source, as large as asked for, and as long.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

from vidrestore.errors import MediaError, OutputExistsError
from vidrestore.files.atomic import remove_partials, same_file
from vidrestore.jobs.job import Job, Summary
from vidrestore.jobs.job_identity import request_name
from vidrestore.jobs.work_folder import WorkFolder, digest
from vidrestore.media.probe import SourceInfo, probe
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.plan import SourceIdentity
from vidrestore.restorers.base import SCALES

ATTRIBUTE = "user.vidrestore"
TOLERANCE = Fraction(1, 2)  # seconds by which containers may differ about the length of the same film


def note_named(folder: WorkFolder, path: Path, job: Job, damage: str | None) -> None:
    """Write down which file is the film, and put it on the disk, before it gets its name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        found = os.fstat(file.fileno())
    told: dict[str, Any] = {"request": request_name(job.plan.task, job.options), "size": found.st_size, "modified": found.st_mtime_ns}
    told |= {"frames": len(job.plan.timeline.pts), "damage": damage, "source": _source_name(job.plan.source)}
    with suppress(OSError, AttributeError):
        os.setxattr(path, ATTRIBUTE, json.dumps(told).encode())
    folder.write("named", told)


def finished_before(source: str, task: str, options: RestoreOptions, folder: WorkFolder) -> Summary | None:
    """What was done, where the same job got as far as naming its film and was killed before it had cleared up; clears up."""
    if not (folder.path.is_dir() and folder.output.exists()):
        return None
    with folder.locked():  # which clears up where no more than the lock is left
        if named := named_film(folder):
            remove_partials(str(folder.output))
            folder.remove()
        elif folder.read("job") is None and not (options.overwrite or options.skip_existing):  # killed while it cleared up
            named = _attribute(str(folder.output))
        if named and named["request"] == request_name(task, options) and named["source"] == _source_name(SourceIdentity.of(source)):
            return _summary(source, str(folder.output), named)
    return None


def named_film(folder: WorkFolder) -> dict[str, Any] | None:
    """What a job wrote down of its film, where that has its name now."""
    with suppress(OSError, KeyError):
        named, found = folder.read("named"), folder.output.stat()
        if named and (found.st_size, found.st_mtime_ns) == (named["size"], named["modified"]):
            return named
    return None


def done_before(source: str, output: str, task: str, options: RestoreOptions) -> Summary | None:
    """What was done, where `output` is there and is the film that this job makes of `source`; None where it isn't there.

    Raises OutputExistsError where it is there and is something else, or not certainly that.
    """
    if options.overwrite or not os.path.isfile(output) or not os.path.isfile(source) or same_file(Path(output), Path(source)):
        return None
    told = _attribute(output)
    if told is None:
        reason = _unlike(source, output, task, options)
        told = {"frames": 0, "damage": None}
    elif told["request"] != request_name(task, options):
        reason = "was made with other options"
    else:
        same = told["source"] == _source_name(SourceIdentity.of(source))
        reason = None if same else "was made of another film, or of this one before it changed"
    if reason:
        raise OutputExistsError(f"{output}: already exists and {reason}; add --overwrite to replace it, or give -o another name")
    return _summary(source, output, told)


def _summary(source: str, output: str, told: dict[str, Any]) -> Summary:
    return Summary(source, output, told["frames"], 0.0, damage=told["damage"], reused=told["frames"], before=True)


def _source_name(source: SourceIdentity) -> str:
    return digest(asdict(source) | {"path": ""})


def _attribute(output: str) -> dict[str, Any] | None:
    """What a film's file says of its making; None where it says nothing, or was written to since."""
    with suppress(OSError, AttributeError, ValueError, KeyError, TypeError):
        told = json.loads(os.getxattr(output, ATTRIBUTE))
        if told["size"] == os.stat(output).st_size and {"request", "source", "frames", "damage"} <= told.keys():
            return dict(told)
    return None


def _unlike(source: str, output: str, task: str, options: RestoreOptions) -> str | None:
    """Why a film can't be the one that is made of `source`."""
    if os.stat(output).st_mtime_ns < os.stat(source).st_mtime_ns:
        return "is older than its source"
    try:
        made = probe(output)
    except MediaError:
        return "is no film that can be read"
    film, scale = probe(source), SCALES.get(task, 1)
    if (made.video.width, made.video.height) != (film.video.width * scale, film.video.height * scale):
        return f"has a size of {made.video.width}x{made.video.height}"
    wanted = _expected_length(film, options)
    if wanted is None or made.duration is None:
        return "does not say how long it is"
    if abs(made.duration - wanted) > TOLERANCE and not options.drop:
        return f"lasts {float(made.duration):.1f} s instead of {float(wanted):.1f} s"
    return None


def _expected_length(film: SourceInfo, options: RestoreOptions) -> Fraction | None:
    """Seconds."""
    if film.duration is None:
        return None
    rest = max(film.duration - (options.start or 0), Fraction(0))
    return rest if options.duration is None else min(rest, options.duration)
