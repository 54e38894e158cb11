"""The progress of a job, and the memory it takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable
from typing import TypeAlias, TypeVar

from vidrestore.events import Listener, Progressed
from vidrestore.working import HERE, Meter

PROGRESS_SECONDS = 0.2  # between two events
# times the wait for the first part: by then the rest of its clip is counted, too
SETTLED = 1.25

T = TypeVar("T")
# called for each event, as it may be an estimate
Total: TypeAlias = int | Callable[[], int | None] | None


class FrameProgress:
    """`Progressed` events of a stage of `total` frames: at its begin and end, and now and then."""

    def __init__(
        self, source: str, total: Total, stage: str, on_event: Listener
    ) -> None:
        self.source, self.stage, self.on_event = source, stage, on_event
        self._total = total if callable(total) else lambda: total
        self._began = self._last = time.monotonic()
        self._shown: tuple[int, int | None] = 0, self.total
        # seconds until the first frame, and those of its clip, were done
        self._first: float | None = None
        on_event(
            Progressed(source, 0, self.total, 0.0, stage, peak_memory(), settled=False)
        )

    @property
    def total(self) -> int | None:
        return self._total()

    def show(self, count: int, worked: float = 0.0) -> None:
        """Send an event if it is time for one: `count` frames are finished, `worked` counts parts, too."""
        now = time.monotonic()
        if self._first is None and (count or worked):
            # the first part takes longest: until it is done no rate is known
            self._first = now - self._began
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            self._send(count, self.total, now - self._began, worked)

    def finish(self, count: int) -> None:
        """Send the last event, unless it was: `count` is the number of all frames."""
        if self._shown != (count, count):
            self._send(count, count, time.monotonic() - self._began)

    def _send(
        self, count: int, total: int | None, seconds: float, worked: float = 0.0
    ) -> None:
        """Send an event of `count` frames finished, and of parts of clips once they are more."""
        # clips at the ends of a part may be whole
        worked = worked if total is None else min(worked, total)
        count = max(count, int(worked))
        self._shown = count, total
        settled = count == total or (
            self._first is not None and seconds >= SETTLED * self._first
        )
        # parts of clips count once they are more than the frames that are finished
        memory, part = peak_memory(), worked if worked > count else None
        self.on_event(
            Progressed(
                self.source,
                count,
                total,
                seconds,
                self.stage,
                memory,
                settled=settled,
                worked=part,
            )
        )


def counted(
    frames: Iterable[T], source: str, total: Total, stage: str, on_event: Listener
) -> Generator[T]:
    """Yield the same frames; between them, and while this thread waits for workers, `Progressed` events of
    `stage`, each after the frame that it counts was processed.
    """
    progress, count = FrameProgress(source, total, stage, on_event), 0
    before = HERE.meter
    # workers report to the meter of the thread that waits for them
    HERE.meter = meter = Meter(lambda: progress.show(count, meter.frames))
    try:
        for count, frame in enumerate(frames, 1):
            yield frame
            progress.show(count, meter.frames)
    finally:
        HERE.meter = before
    progress.finish(count)


def peak_memory() -> int | None:
    """Return the peak resident bytes of this process; None if the system has no such counter."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, others KiB
    return peak if sys.platform == "darwin" else peak * 1024
