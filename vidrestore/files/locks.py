"""Lock files: one process at a time works on a job, on this machine or on others that share the folder.

The system holds the lock as long as the process runs; on a network share the server does. Nothing must be
cleared up after a process that was killed, or a machine that is gone. Only where the system has no such locks
(ENOSYS, as on Lustre) the file itself is the lock, with the name of its host, and stays if that host is gone.
"""

from __future__ import annotations

import errno
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from vidrestore.errors import BusyError, MediaError
from vidrestore.files.regular import read_limited, write_problem

POLL = 0.5  # seconds between two looks at the lock of another process
LARGEST_LOCK = 4096  # bytes
# of file systems, or mounts, without locks
_REFUSED = {
    getattr(errno, name)
    for name in ("ENOLCK", "EOPNOTSUPP", "ENOTSUP", "EINVAL")
    if hasattr(errno, name)
}
# number of the process, and its host, in a lock that is a file alone
_HOLDER = re.compile(r"\d+\n(\S+)\n")
# `BusyError` says what follows
warnings.filterwarnings("ignore", "flock not supported", module="filelock")


class LocksRefusedError(MediaError):
    """The file system has no locks."""


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` during the block, and remove it at the end.

    Raises BusyError if another process holds it, unless it is to `wait`; LocksRefusedError if the file system
    has no locks, MediaError if the file can't be written, FileNotFoundError if its folder is missing.
    """
    # the lock of another, no folder, or a file system without locks
    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        lock.acquire(poll_interval=POLL)
    except Timeout:
        raise _busy(path) from None
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno not in _REFUSED:
            raise write_problem(str(path), error) from error
        with suppress(OSError):
            path.unlink()
        raise LocksRefusedError(
            f"{path.parent.parent}: this file system, or its mount, refuses locks ({error.strerror}), which "
            "keep two runs from one output; `work_dir` on another disk holds them"
        ) from error

    try:
        yield
    finally:
        with suppress(OSError):  # as on Windows, where releasing removes it
            # while it is locked: later it would be that of another process
            path.unlink()
        lock.release()


def _busy(path: Path) -> BusyError:
    """Return the error for a lock that another process holds, with its host and age if it may be left."""
    busy = f"{path.parent}: another process works on this already"
    with suppress(OSError):
        # a lock that is a file alone may be left by a host that has crashed
        content = read_limited(path, LARGEST_LOCK).decode(errors="replace")
        if match := _HOLDER.match(content):
            # clocks of two hosts may differ
            hours = max(0.0, time.time() - path.stat().st_mtime) / 3600
            return BusyError(
                f"{busy}, by its lock, which the host {match[1]} wrote {hours:.1f} h ago; wait for it, or "
                f"remove {path} if that host is not at work any more",
                match[1],
            )
    return BusyError(f"{busy}; wait for it, or stop it and run again to resume")
