"""Sidecars: JSON files beside outputs that record source, steps and result, with checksums that `verify`
compares with the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from vidrestore import __version__
from vidrestore.errors import MediaError
from vidrestore.events import Event, Listener, Planned, Started, Summary, Warned, plain
from vidrestore.files.atomic import write_whole
from vidrestore.files.regular import (
    LARGEST_PLAN,
    open_regular,
    parse_object,
    read_limited,
    stored,
)
from vidrestore.jobs.request import Request, plain_options
from vidrestore.media.formats.source import MUXERS, Source, Target
from vidrestore.media.writing.finished import unfinished_output
from vidrestore.settings.checking import Checked, checked, converted

SCHEMA = 1
SIDECAR_SUFFIX = ".vidrestore.json"
BATCH_LIST = "vidrestore-batch.json"
_BATCH = stored(vidrestore_batch=int, inputs=list[dict[str, Any]])
_BATCH_ENTRY = stored(input=str, output=str | None, state=str, reason=str | None)
LACKS = "made after the run, of which it lacks the plan, the noise and the times"


@dataclass(frozen=True)
class RecordedFile(Checked):
    """A file, or numbered pictures, as a sidecar records them."""

    path: Annotated[str, Field(pattern=r"^[^\x00]+$")]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Recorded(Checked):
    """The part of a sidecar that `verify` compares with the files."""

    sidecar: Literal[1]
    source: RecordedFile
    result: RecordedFile


class Record:
    """A listener that remembers what a sidecar needs, and passes events on."""

    def __init__(self, on_event: Listener) -> None:
        self._on_event = on_event
        self.events: list[Event] = []
        self.warnings: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started | Planned | Summary):
            self.events.append(event)
        elif isinstance(event, Warned):
            self.warnings.append(event.message)
        self._on_event(event)


def sidecar_path(output: str) -> Path:
    """Return the name of the sidecar of an output, beside it."""
    return Path(f"{output}{SIDECAR_SUFFIX}")


def write_sidecar(path: Path, content: Mapping[str, Any]) -> None:
    """Write the `sidecar_content` to a file. Raises MediaError."""
    write_whole(
        path,
        json.dumps(content, indent=1, ensure_ascii=False).encode(
            "utf-8", "backslashreplace"
        ),
    )


def sidecar_content(
    path: Path, request: Request, record: Record, command: str
) -> dict[str, Any]:
    """Return the content of a sidecar at `path` for a finished restoration. Raises MediaError."""
    events = record.events
    finished = next(event for event in events if isinstance(event, Summary))
    # a finished job is known from its tag, without a plan
    planned = next(
        (event.details for event in events if isinstance(event, Planned)), {}
    )
    done = finished.to_dict()
    values = {
        "sidecar": SCHEMA,
        "of": "run",
        "vidrestore": __version__,
        "command": command,
        "began": events[0].time,
        "ended": events[-1].time,
        "steps": [
            {
                "task": step.task,
                "options": plain_options(step.options, "pixels", "file", "streams"),
            }
            for step in request.steps
        ],
        "plan": planned,
        "source": _described(path, request.source.name),
        "warnings": record.warnings,
        **({} if planned else {"lacks": LACKS}),
        "result": _described(path, finished.output),
        "done": {name: done[name] for name in ("frames", "seconds", "damage")}
        | done["details"],
    }
    content: dict[str, Any] = plain(values)
    return content


def sidecar_lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report on a sidecar: the command, the times, weights and files with checksums."""
    yield f"command: {content['command']}"
    yield content.get("lacks", f"from {content['began']} to {content['ended']}")
    for name, checksum in content["plan"].get("weights", {}).items():
        yield f"weights {name}: sha256 {checksum}"
    for part in ("source", "result"):
        file = content[part]
        yield f"{part} {os.path.basename(file['path'])}: {file['bytes']} bytes, sha256 {file['sha256']}"


def _described(sidecar: Path, name: str) -> dict[str, Any]:
    """Return where a video is from the sidecar's folder, and its checksums."""
    # relative, so that a folder can be moved with all that is in it
    place = os.path.relpath(name, sidecar.absolute().parent)
    sizes = {path: os.path.getsize(path) for path in Source(name).files}
    return {"path": place, "bytes": sum(sizes.values()), "sha256": _checksum(name)}


def _checksum(name: str) -> str:
    """Return the sha256 of a file; of several pictures that of theirs, in order. Raises MediaError."""
    digests = []
    if Source(name).is_pipe:
        raise MediaError(f"{name}: standard input, which is no file to compare")
    for path in Source(name).files:
        try:
            with open_regular(path) as file:
                digests.append(file_digest(file, "sha256"))
        except OSError as error:
            raise MediaError(f"{path}: can't be read ({error.strerror})") from error
    # the checksum of many files is that of their checksums
    if len(digests) == 1:
        return digests[0].hexdigest()
    digest = digests[0].copy()
    for part in digests[1:]:
        digest.update(part.digest())
    return digest.hexdigest()


def read_sidecar(path: Path) -> Recorded:
    """Return what a sidecar records. Raises MediaError if it is not a sidecar."""
    where = f"{path}: not a sidecar of vidrestore"
    # the file is a stranger's until it is checked
    try:
        content = parse_object(read_limited(path, LARGEST_PLAN))
    except ValueError as error:
        raise MediaError(f"{where} ({error})") from error
    except OSError as error:
        raise MediaError(f"{path}: can't be read ({error.strerror})") from error
    fields = {
        name: content[name]
        for name in ("sidecar", "source", "result")
        if name in content
    }
    return checked(Recorded, fields, where, MediaError)


def verify(name: str) -> Iterator[tuple[bool, str]]:
    """Yield True for each source and result that is as recorded, else False, with a sentence.

    `name` is a sidecar, a restored video that has one beside it, the list of a batch, or a folder: with all
    sidecars in it and below. Raises MediaError if it is none of these.
    """
    path = Path(name)
    if path.is_dir():
        yield from _verified_folder(path)
    elif (sidecar := sidecar_path(name)).is_file():
        yield from _verified_files(sidecar)
    elif path.name == BATCH_LIST:
        yield from _verified_batch(path)
    elif Target(name).holds_pictures or path.suffix.lower() in MUXERS:
        raise MediaError(
            f"{name}: it has no sidecar, {sidecar.name}; `sidecar` writes one beside each output"
        )
    else:
        yield from _verified_files(path)


def record_is_of(sidecar: Path, output: str) -> bool:
    """Return True if a sidecar can be read, and records an output as it is now."""
    try:
        return read_sidecar(sidecar).result.sha256 == _checksum(output)
    except MediaError:
        return False


def _verified_folder(folder: Path) -> Iterator[tuple[bool, str]]:
    """Verify the sidecars in a folder and below, and name what the list of its batch didn't finish."""
    sidecars = sorted(
        path
        for path in folder.rglob(f"*{SIDECAR_SUFFIX}")
        if not path.name.startswith(".")
    )
    lists = [path for path in (folder / BATCH_LIST,) if path.is_file()]
    if not sidecars and not lists:
        raise MediaError(
            f"{folder}: no sidecar (*{SIDECAR_SUFFIX}) is in it or below; `sidecar` writes them"
        )
    for sidecar in sidecars:
        yield from _verified_or_problem(sidecar)
    for path in lists:
        yield from (check for entry in _entries(path) if (check := _unfinished(entry)))


def _verified_batch(path: Path) -> Iterator[tuple[bool, str]]:
    """Verify the sidecars of all inputs of a batch by its list, which may have been moved with its folder."""
    for entry in _entries(path):
        if check := _unfinished(entry):
            yield check
        elif output := entry["output"]:
            # the output as it was named, or beside the list, where the folder was moved
            places = (
                Path(output),
                path.parent / output,
                path.parent / Path(output).name,
            )
            sidecars = [sidecar_path(str(place)) for place in places]
            yield from _verified_or_problem(
                next(filter(Path.is_file, sidecars), sidecars[0])
            )


def _entries(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a batch's list. Raises MediaError for other content."""
    try:
        content = parse_object(read_limited(path, LARGEST_PLAN), _BATCH)
        entries: list[dict[str, Any]] = content["inputs"]
        for entry in entries:
            converted(entry, _BATCH_ENTRY)
        return entries
    except (OSError, ValueError) as error:
        raise MediaError(f"{path}: not the list of a batch ({error})") from error


def _unfinished(entry: Mapping[str, Any]) -> tuple[bool, str] | None:
    if entry["state"] not in ("failed", "interrupted", "not begun"):
        return None
    return (
        False,
        f"{entry['input']}: {entry['state']}{': ' * bool(entry['reason'])}{entry['reason'] or ''}",
    )


def _verified_or_problem(sidecar: Path) -> Iterator[tuple[bool, str]]:
    try:
        yield from _verified_files(sidecar)
    except MediaError as error:
        yield False, str(error)


def _verified_files(sidecar: Path) -> Iterator[tuple[bool, str]]:
    recorded = read_sidecar(sidecar)
    source, result = (
        os.path.normpath(sidecar.parent / file.path)
        for file in (recorded.source, recorded.result)
    )
    yield _verified(source, recorded.source.sha256)
    # the same bytes as recorded may be those of an output that was cut before
    is_same, line = _verified(result, recorded.result.sha256)
    problem = unfinished_output(Target(result)) if is_same else None
    yield (
        (False, f"{result}: as recorded, but not whole: {problem}")
        if problem
        else (is_same, line)
    )


def _verified(name: str, recorded: str) -> tuple[bool, str]:
    try:
        checksum = _checksum(name)
    except MediaError as error:
        return False, str(error)
    if checksum == recorded:
        return True, f"{name}: as recorded (sha256 {checksum[:12]}…)"
    return (
        False,
        f"{name}: differs from the record (sha256 {checksum[:12]}…, recorded {recorded[:12]}…)",
    )
