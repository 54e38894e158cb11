"""Locks on jobs, and claims on parts of them: one process at a time, on this machine or on others that share
the folder.

Both are files that name their holder, who touches them every `BEAT` seconds. On the holder's machine the
system's lock on the open file (flock) decides, which ends with its process in any case. Elsewhere a holder
counts as dead after `LEASE` seconds without a touch.

A job has one `Lock`, of a process alone or of several that share it. A claim is a file NAME.GENERATION.claim,
created in one step in which only one process can succeed; that of a dead process is taken over by creating
the file of the next generation, in which again only one can succeed. Clocks of machines are never compared
for it: a process that waits for a claim remembers when it last saw it change, by its own monotonic clock. A
claim has a count, such as the number of finished frames, for displays of the total progress.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from vidrestore.errors import MediaError
from vidrestore.files.checked_json import parse_object, read_object
from vidrestore.files.regular import create_new, open_descriptor, private_mode, write_problem

try:
    import fcntl
except ImportError:  # Windows: only the content of the file counts
    fcntl = None  # type: ignore[assignment]

# Seconds without a touch after which a process on another machine counts as dead: network file systems may
# show the state of a minute ago.
LEASE = 180.0
BEAT = 20.0  # seconds between two touches
POLL = 0.5  # seconds between two looks at the claim of another
LOOK, LOOKS = 0.02, 10  # seconds that a look at a file takes, and how many of them are waited for
NOTE = 0.5  # seconds between two updates of a count
LONGEST = 4096  # most bytes of a lock or claim
WIDTH = 256  # bytes of a record: a new one covers the old one whole
_CLAIM = re.compile(r"(\w+)\.(\d+)\.claim")
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
                # others may share it
                if self._reliable and try_lock(self._descriptor) and not os.fstat(self._descriptor).st_size:
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
                if _is_named(descriptor, self.path):
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
            alive = not self._reliable and _is_alive(holder["pid"])
            if alive:
                raise self._busy(holder)
            if alive is not None:
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
        """Let others in; the file stays."""
        with suppress(OSError):
            if not self.shared or holder_of(self._descriptor).items() >= this_process().items():
                os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def remove(self) -> None:
        """Remove the file and let others in; if others share the lock, leave the file to them."""
        alone = False
        with suppress(OSError):
            alone = try_lock(self._descriptor) is not False and _is_named(self._descriptor, self.path)
        if alone:
            remove_open(self.path, self.release)
        else:
            self.release()


def remove_open(path: Path, close: Callable[[], None]) -> None:
    """Remove an open file, then `close` it, so that nobody takes the lock of a file that goes.

    Windows removes no open file. There the file goes once it is closed, unless another process opens it.
    """
    refused = False
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        refused = isinstance(error, PermissionError)
    close()
    if refused:
        _remove_patiently(path)


def _remove_patiently(path: Path) -> None:
    """Remove a file, unless another process has it open for longer than a look at it takes."""
    for _ in range(LOOKS):
        with suppress(PermissionError):
            path.unlink(missing_ok=True)
            return
        time.sleep(LOOK)


def _is_named(descriptor: int, path: Path) -> bool:
    """Return True if a name leads to an open file."""
    return os.fstat(descriptor).st_ino == os.stat(path).st_ino


@contextmanager
def heartbeat(beat: Callable[[], None]) -> Iterator[None]:
    """Call `beat` every `BEAT` seconds during a block, from a thread."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(BEAT):
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


def _is_alive(process: int) -> bool | None:
    """Return True if a process of this machine runs; None where that can't be asked."""
    if sys.platform == "win32":  # where signal 0 is Ctrl-C
        return None
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
        self._beating.enter_context(heartbeat(self._beat))
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
            _remove_patiently(before)
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
        remove_open(path, lambda: os.close(descriptor))

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
        _remove_patiently(path)
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
