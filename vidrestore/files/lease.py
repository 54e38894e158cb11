"""One process at a time at one thing, with the name of the one that is there for everybody else.

The lock is the system's own on an open file (flock), which is gone with its process however that ends. What
the file says is for messages, and for machines that share the folder but not the lock: they go by how long
ago its holder touched it. Jobs (`jobs.work_folder`), shards (`files.claims`) and training runs
(`training.checkpoints`) all use what is here.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vidrestore.errors import MediaError
from vidrestore.files.checked_json import parse_object
from vidrestore.files.regular import create_new, open_descriptor, private_mode

try:
    import fcntl
except ImportError:  # Windows: only what the file says counts
    fcntl = None  # type: ignore[assignment]

LEASE = 600.0  # seconds without a sign of life after which a process on another machine counts as dead
BEAT = 30.0  # seconds between two signs of life
LONGEST = 4096  # bytes of a lock or claim
WIDTH = 256  # bytes that ours have: what is written over one hides what was there
_NAMES = {"host": str, "pid": range(1, 1 << 31)}


class BusyError(MediaError):
    """Another process works on the same job."""


class Lock:
    """The lock of a job; `shared` ones go beside each other, but not beside one that isn't.

    Raises BusyError, naming host and process, if the lock is held; a lock whose process is dead is taken
    over. Raises MediaError for a file that is no lock, and leaves it as it is; OSError for what is no regular
    file, a link for example.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self.path, self.shared = path, shared
        self._reliable = fcntl is not None
        self._descriptor = self._open()
        self._next = 0.0
        try:
            self._refuse_foreign()
            self._refuse_living()
            self._write_first()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _write_first(self) -> None:
        """Write this process into the lock; where that fails, on a full disk, no empty file stays."""
        try:
            self._write()
        except OSError:
            with suppress(OSError):
                if fcntl is not None and self._reliable:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # others may share it
                    if not os.fstat(self._descriptor).st_size:
                        self.path.unlink()
            raise

    def _open(self) -> int:
        while True:
            descriptor = open_descriptor(
                self.path, os.O_RDWR | os.O_CREAT, mode=private_mode(self.path.parent)
            )
            try:
                if fcntl is not None:
                    fcntl.flock(descriptor, (fcntl.LOCK_SH if self.shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_ino == os.stat(self.path).st_ino:
                    return descriptor
            except FileNotFoundError:  # its last holder was just done and removed it
                pass
            except BlockingIOError:
                holder = holder_of(descriptor)
                os.close(descriptor)
                raise self._busy(holder) from None
            except OSError:  # a file system without locks
                self._reliable = False
                return descriptor
            os.close(descriptor)

    def _refuse_foreign(self) -> None:
        """Somebody else's file, or another name of one (a hard link), must not be written to."""
        status = os.fstat(self._descriptor)
        if status.st_nlink > 1 or (status.st_size and not holder_of(self._descriptor)):
            raise MediaError(
                f"{self.path}: there is a file of this name that vidrestore did not write; move it away"
            )

    def _refuse_living(self) -> None:
        """The system's lock may not reach beyond this machine, where a dead process can't hold it; one
        elsewhere shows signs of life.
        """
        holder = holder_of(self._descriptor)
        if not holder or (self.shared and holder.get("shared")):
            return
        if _here() & {holder["host"], holder.get("boot")}:
            if not self._reliable and _is_alive(holder["pid"]):
                raise self._busy(holder)
            return
        silent = _now(self.path) - os.fstat(self._descriptor).st_mtime
        if (
            -BEAT <= silent < LEASE
        ):  # a date in the future is no sign of life: the holder would have set it right since
            raise self._busy(holder, f"; last sign of life {max(0, silent):.0f} s ago")

    def _busy(self, holder: dict[str, Any], more: str = "") -> BusyError:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        return BusyError(
            f"{self.path.parent}: {who} works on this already{more}; wait for it, or stop it and run again "
            "to go on"
        )

    def _write(self) -> None:
        write_holder(self._descriptor, shared=self.shared)

    def beat(self) -> None:
        """Show a sign of life, if it is time for one."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + BEAT
            with suppress(OSError):
                if self.shared and not os.fstat(self._descriptor).st_size:  # one of us is done and has left
                    self._write()
                touch(self._descriptor, self.path)

    def release(self) -> None:
        """Let others in. The file stays, unless the job's folder goes."""
        with suppress(OSError):
            if not self.shared or holder_of(self._descriptor).items() >= this_process().items():
                os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


@contextmanager
def heartbeat(beat: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call `beat` every so many seconds during a block, from a thread."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            beat()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def this_process() -> dict[str, Any]:
    """Return the name of this process for others, on other machines too."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot": _boot()}


def holder_of(descriptor: int) -> dict[str, Any]:
    """Return the holder that an open lock or claim names; an empty one if none."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        found = parse_object(os.read(descriptor, LONGEST), _NAMES)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found.get("boot"), str | None) else {}


def write_holder(descriptor: int, **more: Any) -> None:
    """Write this process into an open lock or claim, in one step over what was there."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(this_process() | more).ljust(WIDTH).encode())


def touch(descriptor: int, path: Path) -> None:
    """Give an open file the date of now."""
    os.utime(descriptor if os.utime in os.supports_fd else path)


def try_lock(descriptor: int) -> bool | None:
    """Take the system's lock on an open file; False if another process on this machine has it, None if there
    are no locks.
    """
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError:
            pass
    return None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _here() -> set[str | None]:
    return {socket.gethostname(), _boot() or socket.gethostname()}


def _boot() -> str | None:
    """Return the name of this start of this machine, in containers too."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _now(beside: Path) -> float:
    """The time by the clock of the file system that a file lies on."""
    return probe(beside.parent).st_mtime


def is_own(status: os.stat_result, folder: Path) -> bool:
    """Return True if a file in a folder belongs to the user of this process, or to the user that owns all
    that is made there, as on some file systems.
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
        path.unlink(missing_ok=True)
