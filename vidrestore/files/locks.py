"""Lock jobs and parts of them: one process at a time, on this machine or on others that share the folder.

A claim is a file NAME.GENERATION.claim with the name of its owner, created in one step in which only one
process can succeed. The owner touches it every `BEAT` seconds. The claim of a dead process is taken over by
creating the file of the next generation, in which again only one can succeed. Locks of the file system are
not needed: network shares may lack them.

On the owner's machine the system reports if it runs. Elsewhere it counts as dead after `LEASE` seconds
without a touch. Machines are distinguished by their boot, not by host names, which may be equal. Their clocks
are never compared: a process that waits for a claim remembers when it last saw it change, by its own
monotonic clock; one that can't wait uses the clock of the file system.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType
from typing import Any

from vidrestore.errors import MediaError
from vidrestore.files.regular import create_new, open_regular, parse_object, write_problem

# Seconds without a touch after which a process on another machine counts as dead: network file systems may
# show the state of a minute ago.
LEASE = 180.0
BEAT = 20.0  # seconds between two touches
POLL = 0.5  # seconds between two looks at the claim of another
LOOK, LOOKS = 0.02, 10  # seconds that a look at a file takes, and how many of them are waited for
LONGEST = 4096  # most bytes of a claim
ALONE, SHARED = "alone", "shared"  # claims on a whole job
_CLAIM = re.compile(r"(.+)\.(\d+)\.claim")
_OWNER = {"host": str, "machine": str, "pid": range(1, 1 << 31), "start": (str, NoneType)}


class BusyError(MediaError):
    """Another process is working on the same job."""


class Claims:
    """The claims of one process in `folder`. A context manager: its thread touches the claims, which are
    released at the end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, Path] = {}
        # the last state of other processes' claims, and since when it is unchanged
        self._seen: dict[Path, tuple[tuple[int, int], float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Claims:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self.release_all()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            for path in list(self._held.values()):
                with suppress(OSError):
                    os.utime(path)

    def take_job(self, *, shared: bool = False) -> None:
        """Claim the whole job, alone or with others that share it. The claims of dead processes are removed.

        Raises BusyError, naming host and process, if another living process has a claim that excludes this
        one.
        """
        own = f"{SHARED}{secrets.token_hex(8)}" if shared else ALONE
        self.take_at_once(own)
        try:
            for name, path in self.all().items():
                if name != own and (name == ALONE or not shared):
                    self._refuse_living(path)
                    _remove(path)
        except BaseException:
            self.release(own)
            raise

    def take_at_once(self, name: str) -> None:
        """Claim `name`. Raises BusyError, naming host and process, if another living process has it."""
        before = self.all().get(name)
        if before is not None:
            self._refuse_living(before)
        if not self._create(name, before):
            raise self._busy(None)

    def take(self, name: str, there: dict[str, Path] | None = None) -> bool:
        """Claim `name`, unless another living process has it; `there` is a recent result of `all`.

        Raises MediaError if the folder can't be written to, FileNotFoundError if it is gone.
        """
        before = (self.all() if there is None else there).get(name)
        if before is not None and not self._is_dead(before):
            return False
        return self._create(name, before)

    def _create(self, name: str, before: Path | None) -> bool:
        generation = 0 if before is None else int(before.suffixes[-2][1:]) + 1
        path = self.folder / f"{name}.{generation}.claim"
        try:
            descriptor = create_new(path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError as error:
            raise write_problem(str(path), error) from error
        try:
            os.write(descriptor, json.dumps(this_process()).encode())
        except OSError as error:  # such as a full disk
            path.unlink(missing_ok=True)
            raise write_problem(str(path), error) from error
        finally:
            os.close(descriptor)
        self._held[name] = path
        if before is not None:
            _remove(before)
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

    def release(self, name: str) -> None:
        """Release a claim, unless another process took it over while this one slept."""
        path = self._held.pop(name, None)
        with suppress(MediaError):  # it can't be read; others see that this process has ended
            if path is not None and _owner(path) == this_process():
                _remove(path)

    def release_all(self) -> None:
        for name in list(self._held):
            self.release(name)

    def remove_all(self) -> None:
        """Remove all claims in the folder: the job is done."""
        self._held.clear()
        with suppress(OSError):
            for path in self.all().values():
                _remove(path)

    def all(self) -> dict[str, Path]:
        """Return the claims in the folder by name, each in its latest generation."""
        found: dict[str, tuple[int, Path]] = {}
        for entry in os.listdir(self.folder):
            if match := _CLAIM.fullmatch(entry):
                newest = int(match[2]), self.folder / entry
                found[match[1]] = max(found.get(match[1], newest), newest)
        return {name: path for name, (_, path) in found.items()}

    def _refuse_living(self, path: Path) -> None:
        """Raise BusyError if the owner of a claim is alive: by its last touch if it is elsewhere."""
        owner = _owner(path)
        alive = is_alive(owner)
        silent = 0.0
        with suppress(FileNotFoundError):  # released just now
            if alive is None:
                silent = probe(self.folder).st_mtime - path.stat().st_mtime
                alive = -BEAT <= silent < LEASE  # an owner would have corrected a date in the future
        if alive:
            raise self._busy(owner, f"; last sign of life {max(0, silent):.0f} s ago" if silent else "")

    def _busy(self, owner: dict[str, Any] | None, more: str = "") -> BusyError:
        other = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
        return BusyError(
            f"{self.folder}: {other} works on this already{more}; wait for it, or stop it and run again "
            "to resume"
        )

    def _is_dead(self, path: Path) -> bool:
        try:
            alive, status = is_alive(_owner(path)), path.stat()
        except FileNotFoundError:  # released just now; the next check will see that
            return False
        if alive is not None:
            return not alive
        now, look = time.monotonic(), (status.st_ino, status.st_mtime_ns)
        before, since = self._seen.get(path, (None, now))
        if look != before:
            self._seen[path] = look, now
            return False
        return now - since > LEASE


def _owner(path: Path) -> dict[str, Any]:
    """Return the owner of a claim; {} if it is not written yet, or the claim is gone.

    Raises MediaError for anything but a regular file.
    """
    try:
        with open_regular(path) as file:
            return parse_object(file.read(LONGEST), _OWNER)
    except (FileNotFoundError, ValueError):
        return {}
    except OSError as error:
        raise MediaError(f"{path}: not a claim ({error.strerror}); remove it") from error


def _remove(path: Path) -> None:
    """Remove a claim, on Windows once no other process reads it. One that stays is that of a dead process
    soon, and harmless.
    """
    for _ in range(LOOKS):
        with suppress(OSError):
            path.unlink(missing_ok=True)
            return
        time.sleep(LOOK)


def this_process() -> dict[str, Any]:
    """Return what identifies this process to others, on other machines too."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "machine": machine(), "pid": pid, "start": _start(pid)}


def machine() -> str:
    """Return the name of this boot of this machine; a container with its own process numbers has another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:
        return f"{uuid.getnode():x}"


def is_alive(owner: dict[str, Any]) -> bool | None:
    """Return True if the owner of a claim runs; None if it is on another machine or can't be queried."""
    if owner.get("machine") != machine() or sys.platform == "win32":  # where signal 0 is Ctrl-C
        return None
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return None
    start = _start(owner["pid"])
    return None if start is None else start == owner["start"]


def _start(pid: int) -> str | None:
    """Return when a process of this machine began, "" for one that has ended; None if that can't be known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in "ZX" else fields[19]


def is_own(status: os.stat_result, folder: Path) -> bool:
    """Return True if a file in a folder belongs to the user of this process, or to the user that new files
    there belong to, as on some file systems.
    """
    if not hasattr(os, "geteuid") or status.st_uid == os.geteuid():
        return True
    with suppress(OSError):
        return probe(folder).st_uid == status.st_uid
    return False


def probe(folder: Path) -> os.stat_result:
    """Return the status of a file that this process creates in a folder."""
    path = folder / f".{secrets.token_hex(8)}.partial"
    descriptor = create_new(path)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()
