"""Lock a job for one process, and show other processes which one holds it.

The lock is the system's on an open file (flock), which ends with its process in any case. The file names its
holder, for messages and for machines that share the folder but not the lock: these go by the time of the
holder's last touch. Used by jobs (`jobs.work_folder`), shards (`files.claims`) and training runs
(`training.checkpoints`).
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vidrestore.errors import MediaError
from vidrestore.files.checked_json import parse_object
from vidrestore.files.regular import create_new, open_descriptor, private_mode

try:
    import fcntl
except ImportError:  # Windows: only the content of the file counts
    fcntl = None  # type: ignore[assignment]

# Seconds without a touch after which a process on another machine counts as dead: network file systems may
# show the state of a minute ago.
LEASE = 180.0
BEAT = 20.0  # seconds between two touches
LONGEST = 4096  # most bytes of a lock or claim
WIDTH = 256  # bytes of a record: a new one covers the old one whole
_NAMES = {"host": str, "pid": range(1, 1 << 31)}


class BusyError(MediaError):
    """Another process is working on the same job."""


class Lock:
    """The lock of a job. Several processes can hold a `shared` one, but not while another holds it alone.

    The lock of a dead process is taken over. Raises BusyError, naming host and process, if the lock is held;
    MediaError for a file that isn't a lock, which stays unchanged; OSError for anything but a regular file,
    such as a link.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self.path, self.shared = path, shared
        self._reliable = fcntl is not None
        self._descriptor = self._open()
        try:
            self._refuse_foreign()
            self._refuse_living()
            self._write_first()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _write_first(self) -> None:
        """Write this process into the lock; if that fails, on a full disk, remove the empty file."""
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
            except FileNotFoundError:  # its last holder has just removed it
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
        """Raise MediaError for a file of another program, or a hard link to one."""
        status = os.fstat(self._descriptor)
        if status.st_nlink > 1 or (status.st_size and not holder_of(self._descriptor)):
            raise MediaError(
                f"{self.path}: there is a file of this name that vidrestore did not write; move it away"
            )

    def _refuse_living(self) -> None:
        """Raise BusyError if the holder that the file names is alive: on this machine by the system's lock,
        elsewhere by the time of its last touch.
        """
        holder = holder_of(self._descriptor)
        if not holder or (self.shared and holder.get("shared")):
            return
        if _here() & {holder["host"], holder.get("boot")}:
            if not self._reliable and _is_alive(holder["pid"]):
                raise self._busy(holder)
            return
        silent = _now(self.path) - os.fstat(self._descriptor).st_mtime
        if -BEAT <= silent < LEASE:  # a date in the future doesn't count: a holder would have corrected it
            raise self._busy(holder, f"; last sign of life {max(0, silent):.0f} s ago")

    def _busy(self, holder: dict[str, Any], more: str = "") -> BusyError:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        return BusyError(
            f"{self.path.parent}: {who} works on this already{more}; wait for it, or stop it and run again "
            "to resume"
        )

    def _write(self) -> None:
        write_holder(self._descriptor, shared=self.shared)

    def beat(self) -> None:
        """Touch the lock; to be called every `BEAT` seconds (`heartbeat`)."""
        with suppress(OSError):
            if self.shared and not os.fstat(self._descriptor).st_size:  # another holder has left
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
    """Return what identifies this process to others, on other machines too."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot": _boot()}


def holder_of(descriptor: int) -> dict[str, Any]:
    """Return the holder named in an open lock or claim, {} if there is none."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        found = parse_object(os.read(descriptor, LONGEST), _NAMES)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found.get("boot"), str | None) else {}


def write_holder(descriptor: int, **more: Any) -> None:
    """Write this process into an open lock or claim, over the old record in one step."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(this_process() | more).ljust(WIDTH).encode())


def touch(descriptor: int, path: Path) -> None:
    """Set the time of an open file to now."""
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
    if sys.platform == "win32":  # where signal 0 is Ctrl-C; a lease shows that its process is gone
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _here() -> set[str | None]:
    return {socket.gethostname(), _boot() or socket.gethostname()}


def _boot() -> str | None:
    """Return the identifier of this boot of this machine, in containers too."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _now(beside: Path) -> float:
    """Return the time by the clock of the file system that holds a file."""
    return probe(beside.parent).st_mtime


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
        path.unlink(missing_ok=True)
