"""One process at a time at one job, with the name of the one that is there for everybody else.

The lock is the system's own on an open file (flock), which is gone with its process however that ends. What the file says is for messages,
and for machines that share the folder but not the lock: they go by how long ago its holder touched it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from vidrestore.errors import MediaError

try:
    import fcntl
except ImportError:  # Windows: only what the file says counts
    fcntl = None  # type: ignore[assignment]

LEASE = 600.0  # seconds without a sign of life after which a process on another machine counts as dead
BEAT = 30.0  # seconds between two signs of life


class BusyError(MediaError):
    """Another process works on the same job."""


class Lock:
    """The lock of a job; `shared` ones go beside each other, but not beside one that isn't.

    Raises BusyError, naming host and process, where the lock is held; a lock whose process is dead is taken over.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self.path, self.shared = path, shared
        self._reliable = fcntl is not None
        self._descriptor = self._open()
        self._next = 0.0
        try:
            self._refuse_living()
            self._write()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _open(self) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if fcntl is not None:
                    fcntl.flock(descriptor, (fcntl.LOCK_SH if self.shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_ino == os.stat(self.path).st_ino:
                    return descriptor
            except FileNotFoundError:  # its last holder was just done and removed it
                pass
            except BlockingIOError:
                os.close(descriptor)
                raise self._busy(_holder(self.path)) from None
            except OSError:  # a file system without locks
                self._reliable = False
                return descriptor
            os.close(descriptor)

    def _refuse_living(self) -> None:
        """The system's lock may not reach beyond this machine, where a dead process can't hold it; one elsewhere shows signs of life."""
        holder = _holder(self.path)
        if not holder or (self.shared and holder.get("shared")):
            return
        if _here() & {holder["host"], holder.get("boot")}:
            if not self._reliable and _is_alive(holder["pid"]):
                raise self._busy(holder)
            return
        silent = _now(self.path) - self.path.stat().st_mtime
        if silent < LEASE:
            raise self._busy(holder, f"; last sign of life {max(0, silent):.0f} s ago")

    def _busy(self, holder: dict[str, Any], more: str = "") -> BusyError:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        return BusyError(f"{self.path.parent}: {who} works on this already{more}; wait for it, or stop it and run again to go on")

    def _write(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, json.dumps(here() | {"shared": self.shared}).encode())

    def beat(self) -> None:
        """Show a sign of life, if it is time for one."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + BEAT
            with suppress(OSError):
                if self.shared and not os.fstat(self._descriptor).st_size:  # one of us is done and has left
                    self._write()
                os.utime(self.path)

    def release(self) -> None:
        """Let others in. The file stays, unless the job's folder goes."""
        with suppress(OSError):
            if not self.shared or _holder(self.path).items() >= here().items():
                os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def here() -> dict[str, Any]:
    """What names this process to others, on other machines too."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot": _boot()}


def try_lock(descriptor: int) -> bool | None:
    """Take the system's lock on an open file; False where another process on this machine has it, None where there are no locks."""
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError:
            pass
    return None


def _holder(path: Path) -> dict[str, Any]:
    """What a lock says of its holder; nothing where it says nothing."""
    try:
        found = json.loads(path.read_text())
        return found if {"host", "pid"} <= set(found) else {}
    except (OSError, ValueError, TypeError):
        return {}


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _here() -> set[str | None]:
    return {socket.gethostname(), _boot() or socket.gethostname()}


def _boot() -> str | None:
    """What names this start of this machine, in containers too."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _now(beside: Path) -> float:
    """The time by the clock of the file system that a file lies on."""
    probe = beside.with_name(f"{beside.name}.{os.getpid()}.partial")
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
