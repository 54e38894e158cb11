"""The work folder of a job, from which the next run resumes, and the marker of its finished output.

    job.json        identity: everything that alters the encoded frames; the length of clips; `drop`
    plan.json       the plan, once the whole video was decoded
    FIRST-STOP.segment  each finished segment (`media.segment_file`), with its first frame and the one after
    named.json      the marker of the output: the video is complete and about to get its name
    *.claim         the processes that work here, and the segments that each of several shards works on

A file gets its name when it is complete and on the disk. The claims (`files.locks`) belong to the output:
they are in the folder beside it even if `work_dir` has the rest, so that one output has one job at a time.
The folder must belong to the user, and only regular files are read in it: what others put there is refused.

When the folder is removed, the marker stays as an extended attribute of the output. Copies and some file
systems drop it, and Python can't write it on Windows and macOS: there only `skip_existing` leaves an existing
output alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from vidrestore.errors import MediaError, PlanError
from vidrestore.files.atomic import LONGEST_NAME, replacing, sync_folder
from vidrestore.files.locks import Claims, is_own
from vidrestore.files.regular import (
    COUNT,
    LARGEST_PLAN,
    MEGABYTE,
    Types,
    as_json,
    is_too_long,
    read_object,
    write_problem,
)
from vidrestore.jobs.naming import WORK_SUFFIX

if TYPE_CHECKING:
    from vidrestore.clips import Bounds
    from vidrestore.jobs.request import Request

VERSION = 4
ATTEMPTS = 100  # tries to make the folder while others remove it
_OURS = re.compile(r"(\d{8}-\d{8}\.segment|(job|plan|named)\.json)|\w+\.\d+\.claim|\.[0-9a-f.]+\.partial")
NAMED: Types = {
    "request": str,
    "size": COUNT,
    "modified": int,
    "frames": COUNT,
    "damage": (str, NoneType),
    "source": str,
    "weights": dict,
}
_TYPES: Mapping[str, Types] = {
    "job": {"version": int, "identity": dict},
    "plan": {
        "name": str,
        "timeline": dict,
        "damage": (str, NoneType),
        "restarted": bool,
    },
    "named": NAMED,
}


class DifferentJobError(PlanError):
    """The work folder belongs to another job; `found` says how it differs, without the way out."""

    def __init__(self, found: str, way_out: str) -> None:
        super().__init__(f"{found}{way_out}")
        self.found = found


class WorkFolder:
    """The work folder of the video `output`: beside it, or in the folder `work_dir`. `locked` makes it."""

    def __init__(self, output: str, work_dir: str | None = None) -> None:
        self.output = Path(output)
        name = _short(self.output.name + WORK_SUFFIX)
        # of the claims: the same however the output is named
        self.place = Path(os.path.realpath(self.output.parent), name)
        self.path = self.output.with_name(name)
        if work_dir is not None:  # which outputs of several folders share
            if not os.path.isdir(work_dir):
                raise MediaError(f"{work_dir}: the folder for the work does not exist; create it first")
            place = str(self.place.parent) + os.sep + self.output.name
            self.path = Path(work_dir, _short(f"{self.output.name}.{_hash(place)}{WORK_SUFFIX}"))
        self._claims: Claims | None = None
        self.warnings: list[str] = []  # about broken files

    @classmethod
    def of(cls, request: Request) -> WorkFolder:
        return cls(request.output.name, request.options.work_dir)

    def segment(self, bounds: Bounds) -> Path:
        """Return the file of the frames [first, stop)."""
        return self.path / "{:08}-{:08}.segment".format(*bounds)

    def finished(self) -> list[Bounds]:
        """Return the bounds of the segments that exist, in order; they are not checked."""
        names = [path.stem for path in self.path.glob("*.segment") if _OURS.fullmatch(path.name)]
        return sorted((int(first), int(stop)) for first, _, stop in (name.partition("-") for name in names))

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Claim the job (`files.locks`) and make the folder; at the end, remove it unless it holds finished
        segments.

        Raises BusyError if another process works on it, MediaError if the folder can't be made.
        """
        attempts = iter(range(ATTEMPTS))
        while self._claims is None:
            try:
                self._claims = self._claimed(shared=shared)
            except FileNotFoundError as error:
                if is_too_long(self.path):
                    raise write_problem(str(self.output), error) from error
                if not self.path.parent.is_dir():
                    raise MediaError(
                        f"{self.path}: there is no folder {self.path.parent}; create it first"
                    ) from None
                if next(attempts, None) is None:  # else another process that has finished removed it
                    raise MediaError(
                        f"{self.path}: this folder for the work can't be made there; choose another with "
                        "`work_dir`"
                    ) from None
            except OSError as error:
                raise write_problem(str(self.path), error) from error
        try:
            with self._claims:
                try:
                    yield
                finally:
                    if not shared and not self.finished():
                        self.remove()
        finally:
            self._claims = None
            for folder in {self.path, self.place}:
                with suppress(OSError):  # something is in it
                    folder.rmdir()

    @property
    def claims(self) -> Claims:
        """The claims of this process on the job, which must be `locked`."""
        assert self._claims is not None
        return self._claims

    def _claimed(self, *, shared: bool) -> Claims:
        """Make the folders and claim the job; a failure leaves no empty folder."""
        made, claims = _make_own(self.place), Claims(self.place)
        try:
            claims.take_job(shared=shared)
            _make_own(self.path)
            for path in self.path.iterdir():  # what such a folder holds is not ours to remove
                if _OURS.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                    raise MediaError(
                        f"{path}: a folder, but vidrestore writes a file of this name; move it away, or "
                        "choose another `work_dir`"
                    )
            return claims
        except BaseException:
            claims.release_all()
            if made:
                with suppress(OSError):
                    self.place.rmdir()  # does nothing to a folder that holds something
            raise

    def begin(
        self,
        identity: Mapping[str, Any],
        facts: Mapping[str, Any],
        drop: Iterable[str] = (),
        *,
        restart: bool = False,
        beside: bool = False,
    ) -> dict[str, Any]:
        """Resume the job in the folder, or begin one; return the `facts` that it began with. With
        `beside`, nothing of other processes is removed: for shards, one at a time.

        `drop`, the streams to leave out, may change from run to run, but is the same for all shards. Raises
        DifferentJobError, with a list of the differences, if the folder holds another job.
        """
        dropped = {"drop": sorted(drop)}
        if not beside:
            self.discard_unfinished()
        if restart:
            self._discard(lambda name: not name.endswith(".claim"))
        before = self.read("job")
        if before is not None and before.get("version") != VERSION:
            raise DifferentJobError(
                f"{self.path}: begun by another version of vidrestore", "; add `restart` to start over"
            )
        if before is None or any(type(before.get(key)) is not type(fact) for key, fact in facts.items()):
            self._discard(lambda name: name.endswith((".segment", ".json")))  # their job is unknown
            self.write("job", {"version": VERSION, "identity": identity, **dropped, **facts})
            return dict(facts)
        differences = list(_differences(before["identity"], as_json(identity)))
        changed = list(_differences({"drop": before.get("drop")}, dropped))
        if differences or (beside and changed):
            differences += changed
            raise DifferentJobError(
                f"{self.path}: the job that was begun there differs from this one: {'; '.join(differences)}",
                ". Repeat the command as it was to resume it, or add `restart` to start over",
            )
        if changed:
            self.write("job", before | dropped)
        return {key: before[key] for key in facts}

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the content of `name`.json; None if it is missing, or broken, which adds to `warnings`.

        Raises MediaError if it is not a regular file or far too large: vidrestore did not write that.
        """
        path = self.path / f"{name}.json"
        try:
            return read_object(path, _TYPES[name], LARGEST_PLAN if name == "plan" else MEGABYTE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            self.note_broken(name, error)
            return None
        except OSError as error:
            raise MediaError(f"{path}: can't be read ({error.strerror}); remove it") from error

    def marker(self, output: Path) -> dict[str, Any] | None:
        """Return the marker of the finished job if its `output`, or the first picture of it, has its name."""
        with suppress(OSError, KeyError):
            marker, found = self.read("named"), output.stat()
            facts = found.st_size, found.st_mtime_ns, output.name  # of an older picture if it has no name yet
            if marker and facts == (marker["size"], marker["modified"], marker["file"]):
                return marker
        return None

    def note_broken(self, name: str, error: ValueError) -> None:
        """Add a warning that `name`.json doesn't have the content that it should have."""
        path = self.path / f"{name}.json"
        warning = f"{path}: not as vidrestore wrote it ({error}); the work is done again"
        if warning not in self.warnings:
            self.warnings.append(warning)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `name`.json completely or not at all. Raises MediaError."""
        target = self.path / f"{name}.json"
        try:
            with replacing(target, private=True) as file:
                file.write(json.dumps(content).encode())
            sync_folder(self.path)
        except OSError as error:
            raise write_problem(str(target), error) from error

    def discard_unfinished(self) -> None:
        """Remove the partial files of dead processes."""
        self._discard(lambda name: name.endswith(".partial"))

    def size(self) -> int:
        """Return the bytes of all segments."""
        return sum(self.segment(bounds).stat().st_size for bounds in self.finished())

    def remove(self) -> None:
        """Remove all files of the job: the marker after the others, and the claims last."""
        self._discard(lambda name: name != "named.json" and not name.endswith(".claim"))
        self._discard(lambda name: name == "named.json")
        (self._claims or Claims(self.place)).remove_all()

    def _discard(self, unwanted: Callable[[str], bool]) -> None:
        with suppress(FileNotFoundError):  # the folder is gone: another shard was done at the same time
            for path in list(self.path.iterdir()):
                if _OURS.fullmatch(path.name) and unwanted(path.name):
                    path.unlink(missing_ok=True)


def _make_own(folder: Path) -> bool:
    """Make a folder that only its owner can use, unless the user has it already; return True if it is new.

    Raises MediaError if the name is taken by anything else.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        return True
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise MediaError(
            f"{folder}: not a folder, but one for the work is to be made there; move it away, or choose "
            "another `work_dir`"
        )
    if not is_own(found, folder.parent):
        raise MediaError(
            f"{folder}: belongs to another user (number {found.st_uid}), who could change the work in it; "
            "remove it, or give `output` another name"
        )
    return False


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    for key in sorted({*before, *now}):
        old, new, name = before.get(key), now.get(key), f"{inside}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{name}.")
        elif old != new:
            yield f"{name} was {json.dumps(old)}, now {json.dumps(new)}"


def _short(name: str) -> str:
    """Shorten a name to the length that file systems take; its suffix stays."""
    if len(os.fsencode(name)) <= LONGEST_NAME:
        return name
    end, stem = f".{_hash(name)}{WORK_SUFFIX}", name.removesuffix(WORK_SUFFIX)
    while len(os.fsencode(stem + end)) > LONGEST_NAME:
        stem = stem[:-1]
    return stem + end


def _hash(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
