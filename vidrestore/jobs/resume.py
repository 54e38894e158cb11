"""The work folder of a job, from which the next run resumes.

    job.json        identity: everything that alters the encoded frames; the length of clips; `drop`; whether
                    an output that exists is to be replaced
    plan.json       the plan, once the whole video was decoded
    FIRST-STOP.segment  a finished segment (`media.writing.segment_file`), its first frame and the one after
    job.lock        held by the process that works here; by shards while one plans or joins
    I-N.lock        held by shard I of N

A file gets its name when it is complete and on the disk. The locks (`files.locks`) belong to the output: they
are in the folder beside it even if `work_dir` has the rest, so that one output has one job at a time; in
`work_dir` only where they are refused there. The folder must belong to the user, and only regular files are
read in it: what others put there is refused.

Once the output has its name, job.json is removed first: a folder without it is left over, and is removed by
the next run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidrestore.errors import MediaError, PlanError
from vidrestore.files.atomic import (
    LONGEST_NAME,
    remove_all_partials,
    remove_partials,
    replacing,
    sync_folder,
)
from vidrestore.files.locks import LocksRefusedError, locked
from vidrestore.files.regular import (
    LARGEST_PLAN,
    MEGABYTE,
    as_json,
    digest,
    is_own,
    is_too_long,
    read_object,
    stored,
    write_problem,
)
from vidrestore.jobs.naming import WORK_SUFFIX

if TYPE_CHECKING:
    from vidrestore.jobs.request import Request
    from vidrestore.pixels.clips import Bounds

VERSION = 7
ATTEMPTS = 100  # tries to make the folder while others remove it
LOCK = "job.lock"
_OURS = re.compile(
    r"\d{8}-\d{8}\.segment|(job|plan)\.json|(job|\d+-\d+)\.lock|\.[0-9a-f.]+\.partial"
)
_RECORDS = {
    "job": stored(version=int, identity=dict, overwrite=bool),
    "plan": stored(name=str, timeline=dict, damage=str | None, restarted=bool),
}


class DifferentJobError(PlanError):
    """The work folder belongs to another job; `difference` says how it differs, without the way out."""

    def __init__(self, difference: str, way_out: str) -> None:
        super().__init__(f"{difference}{way_out}")
        self.difference = difference


class WorkFolder:
    """The work folder of the video `output`: beside it, or in the folder `work_dir`. `locked` makes it."""

    def __init__(self, output: str, work_dir: str | None = None) -> None:
        # the same name however the output is written, short enough for any file system
        self.output = Path(output)
        name = _short(self.output.name + WORK_SUFFIX)
        # of the locks: the same however the output is named
        self.place = Path(os.path.realpath(self.output.parent), name)
        self.path = self.output.with_name(name)
        if work_dir is not None:  # which outputs of several folders share
            if not os.path.isdir(work_dir):
                raise MediaError(
                    f"{work_dir}: the folder for the work does not exist; create it first"
                )
            place = str(self.place.parent) + os.sep + self.output.name
            self.path = Path(
                work_dir, _short(f"{self.output.name}.{_hash(place)}{WORK_SUFFIX}")
            )
        self.lock_place = self.place  # the folder of the lock that is held
        self.warnings: list[str] = []  # about broken files, and a share without locks

    @classmethod
    def of(cls, request: Request) -> WorkFolder:
        return cls(request.output.name, request.options.work_dir)

    def segment(self, bounds: Bounds) -> Path:
        """Return the file of the frames [first, stop)."""
        return self.path / "{:08}-{:08}.segment".format(*bounds)

    def finished(self) -> list[Bounds]:
        """Return the bounds of the segments that exist, in order; they are not checked."""
        names = [
            path.stem
            for path in self.path.glob("*.segment")
            if _OURS.fullmatch(path.name)
        ]
        bounds = []
        for name in names:
            first, _, stop = name.partition("-")
            bounds.append((int(first), int(stop)))
        return sorted(bounds)

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Lock the job (`files.locks`) and make the folder; at the end, remove it unless it holds finished
        segments of a job. Shards, to which the job is `shared`, wait for each other, and leave a plan, too.

        Raises BusyError if another process works on it, MediaError if the folder can't be made.
        """
        # the lock goes last, when nothing is left to protect
        with ExitStack() as stack:
            self._lock(stack, shared=shared)
            stack.callback(_remove_empty, self.path)
            try:
                yield
            finally:
                # a job without a finished segment isn't worth keeping
                is_planned = shared and (self.path / "plan.json").exists()
                if not (self.has_job and (is_planned or self.finished())):
                    self.remove()

    def _lock(self, stack: ExitStack, *, shared: bool) -> None:
        """Lock the work folder and make it; `shared` with other shards of the job. Raises MediaError."""
        # another process may remove the folder between making and locking it
        for attempt in range(ATTEMPTS):
            try:
                self._enter_lock(stack, shared=shared)
                break
            except FileNotFoundError as error:  # removed by a process that has finished
                if is_too_long(self.path):
                    raise write_problem(str(self.output), error) from error
                if not self.path.parent.is_dir():
                    raise MediaError(
                        f"{self.path}: there is no folder {self.path.parent}; create it first"
                    ) from None
                if attempt == ATTEMPTS - 1:
                    raise MediaError(
                        f"{self.path}: this folder for the work can't be made there; choose another with "
                        "`work_dir`"
                    ) from None
            except OSError as error:
                raise write_problem(str(self.path), error) from error
        # shards of this job hold locks of their own
        for path in () if shared else self.lock_place.glob("*-*.lock"):
            with locked(path):  # or a shard is at work
                pass
        # segments go into a folder of the user's own, beside the lock or in `work_dir`
        try:
            _make_own(self.path)
        except OSError as error:
            raise write_problem(str(self.path), error) from error
        # what such a folder holds is not ours to remove
        for path in self.path.iterdir():
            if _OURS.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                raise MediaError(
                    f"{path}: a folder, but vidrestore writes a file of this name; move it away, or "
                    "choose another `work_dir`"
                )

    def _enter_lock(self, stack: ExitStack, *, shared: bool) -> None:
        """Hold the lock beside the output, or where that is refused, in `work_dir`; else, unless the job is
        `shared`, none, with a warning.
        """
        # some network shares refuse locks
        refusals = []
        for place in dict.fromkeys((self.place, self.path)):
            _make_own(place)
            stack.callback(_remove_empty, place)
            try:
                stack.enter_context(locked(place / LOCK, wait=shared))
                self.lock_place = place
                return
            except LocksRefusedError as error:
                refusals.append(error)
        if shared:
            raise refusals[0]
        self.warnings.append(
            f"{refusals[0]}. The work goes on without: start no other run of this output"
        )

    def shard_locked(self, number: int, count: int) -> AbstractContextManager[None]:
        """Lock one of `count` parts of the job. Raises BusyError if another process has it."""
        return locked(self.lock_place / f"{number}-{count}.lock")

    @property
    def has_job(self) -> bool:
        """True if a job was begun here and its output has no name yet."""
        return (self.path / "job.json").exists()

    def begin(
        self,
        identity: Mapping[str, Any],
        facts: Mapping[str, Any],
        drop: Iterable[str] = (),
        *,
        restart: bool = False,
        shared: bool = False,
        overwrite: bool = False,
    ) -> dict[str, Any]:
        """Resume the job in the folder, or begin one; return its record, with the `facts` that it began with.

        `drop`, the streams to leave out, may change from run to run, but is the same for all processes that
        share the job, and so is `overwrite`. Raises DifferentJobError, with a list of the differences, if the
        folder holds another job.
        """
        dropped = {"drop": sorted(drop)}
        if not shared:  # others may be naming theirs
            remove_all_partials(self.path)
        if restart:
            self._discard(lambda name: not name.endswith(".lock"))
        before = self.read("job")
        # one of another version, or of none that is known
        if before is not None and before.get("version") != VERSION:
            raise DifferentJobError(
                f"{self.path}: begun by another version of vidrestore",
                "; add `restart` to start over",
            )
        # no record, or one without what this job needs: nothing there can be trusted
        if before is None or any(
            type(before.get(key)) is not type(fact) for key, fact in facts.items()
        ):
            # their job is unknown
            self._discard(lambda name: name.endswith((".segment", ".json")))
            content = {"version": VERSION, "identity": identity, "overwrite": overwrite}
            self.write("job", before := {**content, **dropped, **facts})
            return before
        # the same job: what may change from run to run is updated
        differences = list(_differences(before["identity"], as_json(identity)))
        changed = list(_differences({"drop": before.get("drop")}, dropped))
        if differences or (shared and changed):
            differences += changed
            raise DifferentJobError(
                f"{self.path}: the job that was begun there differs from this one: {'; '.join(differences)}",
                ". Repeat the command as it was to resume it, or add `restart` to start over",
            )
        if changed or overwrite > before["overwrite"]:
            before |= {**dropped, "overwrite": overwrite or before["overwrite"]}
            self.write("job", before)
        return before

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the content of `name`.json; None if it is missing, or broken, which adds to `warnings`.

        Raises MediaError if it is not a regular file or far too large: vidrestore did not write that.
        """
        path = self.path / f"{name}.json"
        # the content is checked as a stranger's
        try:
            content = read_object(
                path, _RECORDS[name], LARGEST_PLAN if name == "plan" else MEGABYTE
            )
            if content.pop("checksum", None) != digest(content):
                raise ValueError("its checksum is wrong")
            return content
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            self.note_broken(name, error)
            return None
        except OSError as error:
            raise MediaError(
                f"{path}: can't be read ({error.strerror}); remove it"
            ) from error

    def note_broken(self, name: str, error: ValueError) -> None:
        """Add a warning that `name`.json doesn't have the content that it should have."""
        path = self.path / f"{name}.json"
        warning = (
            f"{path}: not as vidrestore wrote it ({error}); the work is done again"
        )
        if warning not in self.warnings:
            self.warnings.append(warning)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `name`.json completely or not at all. Raises MediaError."""
        target = self.path / f"{name}.json"
        try:
            with replacing(target, private=True) as file:
                file.write(
                    json.dumps({**content, "checksum": digest(content)}).encode()
                )
            sync_folder(self.path)
        except OSError as error:
            raise write_problem(str(target), error) from error

    def size(self) -> int:
        """Return the bytes of all segments."""
        return sum(self.segment(bounds).stat().st_size for bounds in self.finished())

    def remove(self) -> None:
        """Remove all files of the job, which must be locked: first that without which the others are left
        over.
        """
        # without its record, the rest is known as left over should this be interrupted
        self._discard(lambda name: name == "job.json")
        self._discard(lambda name: name != LOCK)
        remove_partials(self.output)

    def _discard(self, unwanted: Callable[[str], bool]) -> None:
        for path in list(self.path.iterdir()):
            if _OURS.fullmatch(path.name) and unwanted(path.name):
                # harmless: what stays is of another job, or is removed later
                with suppress(OSError):
                    path.unlink()


def _make_own(folder: Path) -> None:
    """Make a folder that only its owner can use, unless the user has it already.

    Raises MediaError if the name is taken by anything else.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        return
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise MediaError(
            f"{folder}: not a folder, but one for the work is to be made there; move it away, or choose "
            "another `work_dir`"
        )
    if not is_own(status, folder.parent):
        raise MediaError(
            f"{folder}: belongs to another user (number {status.st_uid}), who could change the work in it; "
            "remove it, or give `output` another name"
        )


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # something is in it
        folder.rmdir()


# differences whose values say nothing
_IN_WORDS = {
    "source.modified": "the source was written or touched since",
    "source.places": "the source holds other bytes",
}


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any], inside: str = ""
) -> Iterator[str]:
    for key in sorted({*before, *now}):
        old, new, name = before.get(key), now.get(key), f"{inside}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{name}.")
        elif old != new:
            values = f"{name} was {json.dumps(old)}, now {json.dumps(new)}"
            yield _IN_WORDS.get(name, values)


def _short(name: str) -> str:
    """Shorten a name to the length that file systems take; its suffix stays."""
    if len(os.fsencode(name)) <= LONGEST_NAME:
        return name
    end = f".{_hash(name)}{WORK_SUFFIX}"
    stem = name.removesuffix(WORK_SUFFIX)
    while len(os.fsencode(stem + end)) > LONGEST_NAME:
        stem = stem[:-1]
    return stem + end


def _hash(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
