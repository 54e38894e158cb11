"""The progress of a job, and the memory it takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable
from typing import TypeVar

from vidrestore.events import Listener, Progressed

PROGRESS_SECONDS = 0.2  # between two events

T = TypeVar("T")


class FrameProgress:
    """`Progressed` events of a stage that deals with `total` frames, now and then."""

    def __init__(self, source: str, total: int | None, stage: str, on_event: Listener) -> None:
        self.source, self.total, self.stage, self.on_event = source, total, stage, on_event
        self._began = self._last = time.monotonic()

    def show(self, done: int) -> None:
        """Send an event if it is time for one: `done` frames are finished."""
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            self.on_event(Progressed(self.source, done, self.total, now - self._began, self.stage, peak_memory()))


def counted(frames: Iterable[T], source: str, total: int | None, stage: str, on_event: Listener) -> Generator[T]:
    """Yield the same frames; between them `Progressed` events of `stage`, each after the frame that it counts
    was dealt with.
    """
    progress = FrameProgress(source, total, stage, on_event)
    for done, frame in enumerate(frames, 1):
        yield frame
        progress.show(done)


def peak_memory() -> int | None:
    """Return the peak resident bytes of this process; None if the system doesn't say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
