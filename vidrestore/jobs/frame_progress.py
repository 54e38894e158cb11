"""The progress of a job, and the memory it takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable
from typing import TypeVar

from vidrestore.events import Listener, Progressed
from vidrestore.working import HERE, Meter

PROGRESS_SECONDS = 0.2  # between two events
SETTLED = 1.25  # times the wait for the first part: by then the rest of its clip is counted, too

T = TypeVar("T")


class FrameProgress:
    """`Progressed` events of a stage of `total` frames: at its begin and end, and now and then."""

    def __init__(self, source: str, total: int | None, stage: str, on_event: Listener) -> None:
        self.source, self.total, self.stage, self.on_event = source, total, stage, on_event
        self._began = self._last = time.monotonic()
        self._shown: tuple[int, int | None] = 0, total
        self._first: float | None = None  # seconds until the first frame, and those of its clip, were done
        on_event(Progressed(source, 0, total, 0.0, stage, peak_memory(), settled=False))

    def show(self, done: int, worked: float = 0.0) -> None:
        """Send an event if it is time for one: `done` frames are finished, `worked` counts parts, too."""
        now = time.monotonic()
        if self._first is None and (done or worked):
            self._first = now - self._began
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            self._send(done, self.total, now - self._began, worked)

    def finish(self, done: int) -> None:
        """Send the last event, unless it was: `done` frames are all there are."""
        if self._shown != (done, done):
            self._send(done, done, time.monotonic() - self._began)

    def _send(self, done: int, total: int | None, seconds: float, worked: float = 0.0) -> None:
        worked = worked if total is None else min(worked, total)  # clips at the ends of a part may be whole
        done = max(done, int(worked))
        self._shown = done, total
        settled = done == total or (self._first is not None and seconds >= SETTLED * self._first)
        memory, part = peak_memory(), worked if worked > done else None
        self.on_event(
            Progressed(self.source, done, total, seconds, self.stage, memory, settled=settled, worked=part)
        )


def counted(
    frames: Iterable[T], source: str, total: int | None, stage: str, on_event: Listener
) -> Generator[T]:
    """Yield the same frames; between them, and while this thread waits for workers, `Progressed` events of
    `stage`, each after the frame that it counts was processed.
    """
    progress, done = FrameProgress(source, total, stage, on_event), 0
    before = HERE.meter
    HERE.meter = meter = Meter(lambda: progress.show(done, meter.frames))
    try:
        for done, frame in enumerate(frames, 1):
            yield frame
            progress.show(done, meter.frames)
    finally:
        HERE.meter = before
    progress.finish(done)


def peak_memory() -> int | None:
    """Return the peak resident bytes of this process; None if the system has no such counter."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
