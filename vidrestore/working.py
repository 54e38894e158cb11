"""Progress and cancellation of worker threads: a flag and a meter for each thread.

`pipeline.chain` passes the flag and the meter of a thread on to those that it starts. Loops over frames,
tiles and patches iterate over `steps` or call `check_stop`, which cost about a microsecond. In a thread
without a flag and a meter they do nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TypeVar

# the name of threads that may be left behind in a call of a network
WORKER = "vidrestore worker"
LOOK = 0.1  # seconds between two looks at the flag of a thread that waits
T = TypeVar("T")


class Stopped(BaseException):
    """Raised in a thread whose results are not needed any more; it never leaves the thread."""


class Meter:
    """The number of frames that are done, with parts of those in progress. `look` is called now and then
    while the thread that made it waits for others.
    """

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self.frames, self._look, self._lock = 0.0, look, threading.Lock()
        self._thread = threading.get_ident()

    def add(self, frames: float) -> None:
        with self._lock:
            self.frames += frames

    def look(self) -> None:
        if threading.get_ident() == self._thread:
            self._look()


class ThreadState(threading.local):
    """The state of a thread: its task's `frames`, those `counted` in the meter; the present step is the part
    [begin, begin + part) of the task.
    """

    flag: threading.Event | None = None
    meter: Meter | None = None
    frames = counted = 0.0
    begin, part = 0.0, 1.0

    def reach(self, share: float) -> None:
        """Count frames up to a share of the task."""
        if self.meter is not None and (more := share * self.frames - self.counted) > 0:
            self.meter.add(more)
            self.counted += more


HERE = ThreadState()


def check_stop() -> None:
    """Raise Stopped if the results of this thread are not needed any more."""
    if HERE.flag is not None and HERE.flag.is_set():
        raise Stopped


def begin_task(frames: float) -> None:
    """Begin a task that counts `frames`."""
    HERE.frames, HERE.counted, HERE.begin, HERE.part = frames, 0.0, 0.0, 1.0


def steps(items: Sequence[T], shares: Sequence[int] = ()) -> Iterator[T]:
    """Yield items, each an equal part of the present step, or in proportion to `shares`; steps can be
    nested.
    """
    begin, part, total, position = HERE.begin, HERE.part, sum(shares) or len(items), 0
    for item, share in zip(items, shares or repeat(1), strict=False):
        check_stop()
        HERE.begin, HERE.part = begin + part * position / total, part * share / total
        HERE.reach(HERE.begin)
        yield item
        position += share
    HERE.begin, HERE.part = begin, part


def available_cores() -> int:
    """Return how many cores this process may use."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


def threads_for(count: int) -> int:
    """Return how many threads to use: as many as asked for, 0 for all cores, but no more than there are, as
    more wait for each other, spinning.
    """
    cores = available_cores()
    return min(count or cores, cores)
