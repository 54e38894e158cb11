"""Claims: a lease on a part of a job, as a file in a folder that all processes share.

A claim is a file NAME.GENERATION.claim, created in one step in which only one process can succeed. Its holder
touches it every `BEAT` seconds; a claim that was not touched for `LEASE` seconds may be taken over by
creating the file of the next generation, in which again only one can succeed.

Clocks of machines are never compared. A process that waits for a claim remembers when it last saw it change,
by its own monotonic clock. On the holder's machine nobody has to wait: the holder keeps a lock (flock) on its
claim, which ends with its process.

A claim names its holder and has a count, such as the number of finished frames, for displays of the total
progress.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from vidrestore.errors import MediaError
from vidrestore.files.atomic import write_problem
from vidrestore.files.checked_json import read_object
from vidrestore.files.lease import (
    BEAT,
    LEASE,
    LONGEST,
    heartbeat,
    holder_of,
    this_process,
    touch,
    try_lock,
    write_holder,
)
from vidrestore.files.regular import create_new, open_descriptor, private_mode

POLL = 0.5  # seconds between two checks
NOTE = 0.5  # seconds between two updates of a count

_CLAIM = re.compile(r"(\w+)\.(\d+)\.claim")


class Claims:
    """The claims of one process on parts of the job in `folder`. A context manager: its thread touches the
    claims.
    """

    def __init__(self, folder: Path, owner: str = "") -> None:
        """Set the folder; `owner` is the name by which `bury` finds the claims."""
        self.folder, self.owner = folder, owner
        self._noted = 0.0
        self._held: dict[str, tuple[Path, int]] = {}  # path, and the descriptor that holds the lock
        # the last state of other processes' claims, and since when it is unchanged
        self._seen: dict[Path, tuple[tuple[int, int], float]] = {}
        self._beating = ExitStack()

    def __enter__(self) -> Claims:
        self._beating.enter_context(heartbeat(self._beat, BEAT))
        return self

    def __exit__(self, *error: object) -> None:
        self._beating.close()
        for name in list(self._held):
            self.release(name)

    def take(self, name: str, there: dict[str, Path] | None = None) -> bool:
        """Claim `name`, unless another living process has it; `there` is a recent result of `claims_in`.

        Raises MediaError if the folder can't be written to, FileNotFoundError if it is gone.
        """
        before = (claims_in(self.folder) if there is None else there).get(name)
        if before is not None and not self._is_dead(before):
            return False
        generation = 0 if before is None else int(before.suffixes[-2][1:]) + 1
        path = self.folder / f"{name}.{generation}.claim"
        try:
            descriptor = create_new(path, private_mode(self.folder))
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError as error:
            raise write_problem(str(path), error) from error
        self._held[name] = path, descriptor
        try_lock(descriptor)  # before the holder's name can be read
        self._write(descriptor, 0)
        if before is not None:
            before.unlink(missing_ok=True)
        return True

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Wait for a claim, and hold it during the block."""
        while not self.take(name):
            time.sleep(POLL / 5)
        try:
            yield
        finally:
            self.release(name)

    @contextmanager
    def taken(self, name: str) -> Iterator[bool]:
        """Yield True and hold a claim during the block, or False if another process has it."""
        free = self.take(name)
        try:
            yield free
        finally:
            if free:
                self.release(name)

    def note(self, name: str, count: int) -> None:
        """Update the count in a claim, at most every `NOTE` seconds; `counts` reads it."""
        if time.monotonic() - self._noted >= NOTE:
            self._noted = time.monotonic()
            self._write(self._held[name][1], count)

    def _write(self, descriptor: int, count: int) -> None:
        with suppress(OSError):  # only for display
            write_holder(descriptor, owner=self.owner, count=count)

    def release(self, name: str) -> None:
        """Give up a claim."""
        path, descriptor = self._held.pop(name)
        path.unlink(missing_ok=True)
        os.close(descriptor)

    def _is_dead(self, path: Path) -> bool:
        try:
            return self._looks_dead(path)
        except FileNotFoundError:  # released just now; the next check will see that
            return False

    def _looks_dead(self, path: Path) -> bool:
        status, holder, free = _look(path)
        if free is not None and holder.get("boot") is not None and holder["boot"] == this_process()["boot"]:
            return free
        now, look = time.monotonic(), (status.st_ino, status.st_mtime_ns)
        before, since = self._seen.get(path, (None, now))
        if look != before:
            self._seen[path] = look, now
            return False
        return now - since > LEASE

    def _beat(self) -> None:
        for path, descriptor in list(self._held.values()):
            with suppress(OSError):
                touch(descriptor, path)


def claims_in(folder: Path) -> dict[str, Path]:
    """Return the claims in a folder by name, each in its latest generation."""
    found: dict[str, tuple[int, Path]] = {}
    for entry in os.listdir(folder):
        if match := _CLAIM.fullmatch(entry):
            found[match[1]] = max(found.get(match[1], (-1, folder)), (int(match[2]), folder / entry))
    return {name: path for name, (_, path) in found.items()}


def counts(folder: Path) -> dict[str, int]:
    """Return the counts in the claims of a folder, by name."""
    found = {name: _read(path).get("count") for name, path in claims_in(folder).items()}
    return {name: count for name, count in found.items() if isinstance(count, int)}


def bury(folder: Path, owner: str) -> list[str]:
    """Remove the claims of an owner that is known to be dead, and return their names."""
    left = {name: path for name, path in claims_in(folder).items() if _read(path).get("owner") == owner}
    for path in left.values():
        path.unlink(missing_ok=True)
    return sorted(left)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_object(path, limit=LONGEST)
    except (OSError, ValueError):
        return {}


def _look(path: Path) -> tuple[os.stat_result, dict[str, Any], bool | None]:
    """Return a claim's status, its holder, and True if no process on this machine holds it; None without
    locks.
    """
    try:
        descriptor = open_descriptor(path, os.O_RDWR)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise MediaError(f"{path}: not a claim ({error.strerror}); remove it") from error
    try:
        return os.fstat(descriptor), holder_of(descriptor), try_lock(descriptor)
    finally:
        os.close(descriptor)
