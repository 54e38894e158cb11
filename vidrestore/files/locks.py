"""Lock files: one process at a time works on a job, on this machine or on others that share the folder.

The system holds the lock as long as the process runs; on a network share the server does. Nothing must be
cleared up after a process that was killed, or a machine that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from vidrestore.errors import MediaError
from vidrestore.files.regular import write_problem

POLL = 0.5  # seconds between two looks at the lock of another process


class BusyError(MediaError):
    """Another process is working on the same job."""


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` during the block, and remove it at the end.

    Raises BusyError if another process holds it, unless it is to `wait`; MediaError if the file can't be
    written, FileNotFoundError if its folder is missing.
    """
    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        lock.acquire(poll_interval=POLL)
    except Timeout:
        raise BusyError(
            f"{path.parent}: another process works on this already; wait for it, or stop it and run again to "
            "resume"
        ) from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise write_problem(str(path), error) from error
    try:
        yield
    finally:
        with suppress(OSError):  # as on Windows, where releasing removes it
            path.unlink()  # while it is locked: later it would be that of another process
        lock.release()
