"""Proof of a restoration: a JSON file beside the output that says what was made of what and how, with
checksums that `verify` compares with the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any

from vidrestore import __version__
from vidrestore.errors import MediaError
from vidrestore.events import Event, Finished, Listener, Planned, Started, Warned, plain
from vidrestore.files.atomic import write_whole
from vidrestore.files.regular import LARGEST_PLAN, read_limited
from vidrestore.jobs.request import Request, plain_options
from vidrestore.media.source import Source

SCHEMA = 1
SUFFIX = ".vidrestore.json"


class Record:
    """A listener that remembers what a sidecar needs, and passes events on."""

    def __init__(self, on_event: Listener) -> None:
        self._on_event = on_event
        self.events: list[Event] = []
        self.warnings: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started | Planned | Finished):
            self.events.append(event)
        elif isinstance(event, Warned):
            self.warnings.append(event.message)
        self._on_event(event)


def sidecar_path(output: str) -> Path:
    """Return the name of the sidecar of an output, beside it."""
    return Path(f"{output}{SUFFIX}")


def write_sidecar(path: Path, content: Mapping[str, Any]) -> None:
    """Write the `sidecar_content` to a file. Raises MediaError."""
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def sidecar_content(path: Path, request: Request, record: Record, command: str) -> dict[str, Any]:
    """Return what a sidecar at `path` holds about a restoration, or about a plan if there is no result yet.
    Raises MediaError.
    """
    events = record.events
    finished = next((each for each in events if isinstance(each, Finished)), None)
    planned = next((each.details for each in events if isinstance(each, Planned)), {})
    details = {key: value for key, value in planned.items() if key != "plan"}
    if "plan" in planned:  # of a dry run: without the time of each frame
        details["scenes"] = planned["plan"]["timeline"]["clips"]
    found = {
        "sidecar": SCHEMA,
        "vidrestore": __version__,
        "command": command,
        "began": events[0].time if events else None,
        "ended": events[-1].time if events else None,
        "steps": [
            {"task": step.task, "options": plain_options(step.options, "pixels", "file", "streams")}
            for step in request.steps
        ],
        "plan": details,
        "source": _described(path, request.source.name),
        "warnings": record.warnings,
    }
    if finished:
        found["result"] = _described(path, finished.output)
        done = {"frames": finished.frames, "seconds": finished.seconds, "damage": finished.damage}
        found["done"] = done | dict(finished.details)
    content: dict[str, Any] = plain(found)
    return content


def sidecar_lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield for a reader what a sidecar proves: the command, the times, weights and files with checksums."""
    yield f"command: {content['command']}"
    yield f"from {content['began']} to {content['ended']}"
    for name, checksum in content["plan"].get("weights", {}).items():
        yield f"weights {name}: sha256 {checksum}"
    for part in ("source", "result"):
        if part in content:
            each = content[part]
            yield f"{part} {os.path.basename(each['path'])}: {each['bytes']} bytes, sha256 {each['sha256']}"


def _described(sidecar: Path, name: str) -> dict[str, Any]:
    """Return where a video is from the sidecar's folder, and its checksums."""
    place = os.path.relpath(name, sidecar.absolute().parent)
    sizes = {each: os.path.getsize(each) for each in _files(name)}
    return {"path": place, "bytes": sum(sizes.values()), "sha256": _checksum(name)}


def _files(name: str) -> tuple[str, ...]:
    pictures = Source(name).pictures
    return pictures.files if pictures else (name,)


def _checksum(name: str) -> str:
    """Return the sha256 of a file; of several pictures that of theirs, in order. Raises MediaError."""
    digests = []
    for path in _files(name):
        try:
            with open(path, "rb") as file:
                digests.append(file_digest(file, "sha256"))
        except OSError as error:
            raise MediaError(f"{path}: can't be read ({error.strerror})") from error
    if len(digests) == 1:
        return digests[0].hexdigest()
    whole = digests[0].copy()
    for each in digests[1:]:
        whole.update(each.digest())
    return whole.hexdigest()


def verify(sidecar: str) -> Iterator[tuple[bool, str]]:
    """Yield for source and result whether the file is as recorded, with a sentence. Raises MediaError for
    what is no sidecar.
    """
    path = Path(sidecar)
    try:
        content = json.loads(read_limited(path, LARGEST_PLAN, follow=True))
        entries = [content[name] for name in ("source", "result") if name in content]
        places = [(path.parent / each["path"], each) for each in entries if isinstance(each["sha256"], str)]
    except (ValueError, KeyError, TypeError) as error:
        raise MediaError(f"{sidecar}: not a sidecar of vidrestore ({error})") from error
    except OSError as error:
        raise MediaError(f"{sidecar}: can't be read ({error.strerror})") from error
    for place, each in places:
        yield _verified(os.path.normpath(place), each)
    if "result" not in content:
        yield False, f"{sidecar}: of a dry run, which has no result"


def _verified(name: str, recorded: dict[str, Any]) -> tuple[bool, str]:
    try:
        found = _checksum(name)
    except MediaError as error:
        return False, str(error)
    if found == recorded["sha256"]:
        return True, f"{name}: as recorded (sha256 {found[:12]}…)"
    return (
        False,
        f"{name}: differs from the record (sha256 {found[:12]}…, recorded {recorded['sha256'][:12]}…)",
    )
