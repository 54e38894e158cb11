"""One process that plans and joins, and a team of workers that restore the segments for it, on devices of this machine or of many.

Workers are told paths and numbers, never frames; what they have restored lies in the job's folder. A worker that dies takes nothing with it
but the segment it was at: the rest of its run is given to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

from vidrestore.errors import VidRestoreError
from vidrestore.events import Warned
from vidrestore.jobs.segmented import SegmentedWork
from vidrestore.jobs.segments import Segment, consecutive
from vidrestore.scale.runs import run_length
from vidrestore.scale.team_progress import Progress
from vidrestore.scale.worker import Film, WorkerError

DEATHS = 3  # of workers at the same segment, after which it is not tried again
LOOK = 0.5  # seconds to wait for news


@dataclass(frozen=True)
class News:
    """What happened to a worker: it has restored `frames` more, is done with its run, failed at it for a good reason, or died."""

    worker: int
    kind: Literal["frames", "done", "failed", "died"]
    frames: int = 0
    retried: int = 0
    error: VidRestoreError | None = None
    reason: str = ""


class Workers(Protocol):
    """Workers that are there, one after the other from 0; a dead one is replaced before it is given work again."""

    count: int

    def give(self, worker: int, film: Film, run: list[Segment]) -> None:
        """Have a worker restore a run; its news follow."""

    def news(self, seconds: float) -> Iterable[News]:
        """What happened since, waiting so long for something to happen."""

    def stop(self) -> None:
        """End all workers, at once."""


def restore_with(workers: Workers, work: SegmentedWork) -> None:
    """Restore what is missing of a film. Raises VidRestoreError; what was finished until then stays."""
    work.check_output()
    work.plan()
    for attempt in range(DEATHS):  # a segment that can't be read in the end is made anew
        missing = work.missing()
        if attempt == 0:
            work.reused = len(work.job.plan.timeline.pts) - sum(segment.frames for segment in missing)
            work.tell_plan()
        if not missing:
            return
        try:
            _Turn(workers, work, missing).run()
        except BaseException:
            workers.stop()
            with suppress(OSError):
                work.folder.discard_unfinished()
            raise


class _Turn:
    """All missing segments, given to workers until they are there."""

    def __init__(self, workers: Workers, work: SegmentedWork, missing: list[Segment]) -> None:
        self.workers, self.work, self.waiting = workers, work, missing
        self.film = Film.of(work.job.plan)
        self.given: dict[int, list[Segment]] = {}
        self.counted: Counter[int] = Counter()  # frames of the run that a worker is at
        self.deaths: Counter[int] = Counter()
        self.progress = Progress(work.job.info.path, sum(segment.frames for segment in missing), work.on_event)

    def run(self) -> None:
        while self.waiting or self.given:
            for worker in range(self.workers.count):
                if worker not in self.given and self.waiting:
                    self._give(worker)
            for news in self.workers.news(LOOK):
                self._hear(news)
            self.work.folder.beat()

    def _give(self, worker: int) -> None:
        run = next(consecutive(self.waiting))[: run_length(len(self.waiting), self.workers.count)]
        self.waiting = self.waiting[len(run) :]
        self.given[worker], self.counted[worker] = run, 0
        self.workers.give(worker, self.film, run)

    def _hear(self, news: News) -> None:
        if news.kind == "frames":
            self.counted[news.worker] += news.frames
            self.progress.add(news.frames)
            return
        run = self.given.pop(news.worker, [])
        self.work.retried_elsewhere += news.retried
        if news.kind == "died":
            self._take_back(run, news)
        elif news.error is not None:
            raise news.error
        else:
            self.progress.add(sum(segment.frames for segment in run) - self.counted[news.worker])

    def _take_back(self, run: list[Segment], news: News) -> None:
        """What a dead worker had not finished waits for another."""
        finished = set(self.work.folder.finished())
        left = [segment for segment in run if segment.number not in finished]
        self.progress.add(sum(segment.frames for segment in run if segment not in left) - self.counted[news.worker])
        self.waiting = sorted([*left, *self.waiting], key=lambda segment: segment.number)
        source = self.work.job.info.path
        if left:
            self.deaths[left[0].number] += 1
            if self.deaths[left[0].number] >= DEATHS:
                where = f"{source}, frame {left[0].first} and on"
                raise WorkerError(f"{where}: {DEATHS} workers died there, the last one {news.reason}; is there enough memory?")
            self.work.on_event(Warned(source, f"a worker died {news.reason}; another does what it was at"))
