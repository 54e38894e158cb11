"""The result of a restoration, the events that end it, and those of its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from vidrestore.events import DAMAGED_SOURCE, Finished, Listener, Progressed, Warned
from vidrestore.tasks import TASKS
from vidrestore.working import HERE, Meter

if TYPE_CHECKING:
    from vidrestore.jobs.request import Request
    from vidrestore.pipeline.conversions import Changes
    from vidrestore.pipeline.plan import Scene


@dataclass(frozen=True)
class Summary:
    """The result of a restoration.

    `seconds` and `fps` measure the work itself, without loading the model. `damage` describes the damage of
    the source in one sentence, None if there is none. `retried` counts the clips that half precision could
    not hold. `skipped`: the output existed, or lacks the parts of other shards. `reused` counts the frames of
    an earlier run or of other processes. `before`: the video was finished by an earlier run. `changes`: what
    the tasks on pictures changed in the frames that this process restored.
    """

    source: str
    output: str
    frames: int
    seconds: float
    scenes: tuple[Scene, ...] = ()
    damage: str | None = None
    retried: int = 0
    skipped: bool = False
    reused: int = 0
    before: bool = False
    changes: tuple[tuple[str, Changes], ...] = ()

    @classmethod
    def of_marker(cls, request: Request, marker: Mapping[str, Any]) -> Self:
        """Return the summary of an output that was finished before."""
        frames, damage = marker["frames"], marker["damage"]
        return cls(*request.names, frames, 0.0, damage=damage, reused=frames, before=True)

    @property
    def fps(self) -> float:
        return (self.frames - self.reused) / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        return DAMAGED_SOURCE if self.damage else 0


def announced(summary: Summary, on_event: Listener) -> Summary:
    """Return the summary, after its events."""
    if summary.retried:
        on_event(
            Warned(
                summary.source,
                f"{summary.retried} clips went beyond half precision and were restored again in fp32",
            )
        )
    for task, changes in summary.changes:
        if changes.unchanged and task != "deblur":
            found = f"no {TASKS[task].removes} was found in {changes.unchanged} of {changes.frames} frames"
            on_event(Warned(summary.source, f"{found}, which stay as they are"))
    measured = [scene for scene in summary.scenes if scene.rms]
    if measured and not any(level for scene in measured for level in scene.sigma):
        on_event(
            Warned(
                summary.source, "no noise was found, so nothing was removed; set its strength with `sigma`"
            )
        )
    elif measured and summary.frames == 1:
        on_event(
            Warned(
                summary.source,
                "its noise was measured on one frame, where fine texture looks the same; if texture is gone, "
                "set a lower `sigma`, if coarse noise is left, a higher one",
            )
        )
    scenes = [
        {"first": scene.first, "stop": scene.stop, "sigma": scene.sigma}
        | ({"noise": scene.noise} if scene.rms else {})
        for scene in summary.scenes
    ]
    details = {"fps": summary.fps, "scenes": scenes, "reused": summary.reused, "before": summary.before}
    if summary.changes:
        details["changes"] = [{"task": task, **changes.details} for task, changes in summary.changes]
    on_event(
        Finished(summary.source, summary.output, summary.frames, summary.seconds, summary.damage, details)
    )
    return summary


# The progress of a job, and the memory it takes

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
