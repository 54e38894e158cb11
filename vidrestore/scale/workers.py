"""One process that plans and joins, and workers that restore the segments for it, on devices of this machine
or of many.

Each worker is a shard: it claims segments in the job's folder until none is left. If one dies, its claims are
removed and a new one begins.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from vidrestore.errors import PlanError, VidRestoreError
from vidrestore.events import Warned
from vidrestore.files.claims import Claims, bury, counts
from vidrestore.jobs.frame_progress import FrameProgress
from vidrestore.jobs.job import ignore, open_job
from vidrestore.jobs.request import Request
from vidrestore.jobs.segmented import SegmentedWork
from vidrestore.jobs.segments import Segment, frame_count
from vidrestore.jobs.steps import LoadedSteps
from vidrestore.scale.shards import ClaimedWork, Shard, claim_name

DEATHS = 3  # deaths of workers at one segment, after which it is not tried again
LOOK = 0.5  # seconds between two looks at how far the workers are
GRACE = 10.0  # seconds for workers to end once nothing is left; one whose machine is gone may never begin


class WorkerError(VidRestoreError):
    """Processes that should restore parts of a video ended before they had."""


class Worker:
    """Restores what is missing of one video after the other, with one loaded model; its claims have its
    number in their names.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._load = LoadedSteps()

    def restore(self, request: Request) -> int | VidRestoreError:
        """Restore segments until others have claimed all that are missing.

        Return how many clips half precision could not hold, or the error that stopped it, for it is to go to
        another process.
        """
        try:
            return self._restore(request)
        except VidRestoreError as error:
            return error

    def _restore(self, request: Request) -> int:
        folder = request.work_folder()
        with open_job(request, self._load) as job:
            if folder.read("plan") is None:
                raise PlanError(
                    f"{folder.path}: a worker finds no plan there; all workers must see the same folders"
                )
            with Claims(folder.path, owner=str(self.shard.number)) as claims:
                claimed = ClaimedWork(SegmentedWork(job, folder, ignore, beside=True), claims, self.shard)
                while (missing := claimed.missing()) and claimed.step(missing):
                    pass
                return claimed.work.retried


@dataclass(frozen=True)
class Ended:
    """A worker has ended its work on a video; `outcome` is the result of `Worker.restore`, or how it died."""

    worker: int
    outcome: int | VidRestoreError | str


class Workers(Protocol):
    """Workers numbered from 0; one that died is replaced when it is next given work."""

    count: int

    def give(self, worker: int, request: Request) -> None:
        """Have a worker restore what is missing of a video."""

    def ended(self, seconds: float) -> Iterable[Ended]:
        """Yield what has ended since, after at most so many seconds."""

    def drop(self, worker: int) -> None:
        """End one worker, at once, and forget what it was given."""

    def stop(self) -> None:
        """End all workers, at once."""


def restore_with(workers: Workers, work: SegmentedWork) -> None:
    """Restore what is missing of a video. Raises VidRestoreError; what was finished until then stays."""
    work.check_output()
    work.plan()
    missing = work.missing()
    work.reused = len(work.job.plan.timeline.pts) - frame_count(missing)
    work.announce_plan()
    try:
        for _ in range(DEATHS):  # a segment that can't be read in the end is restored again
            if missing:
                _Turn(workers, work, missing).run()
                missing = work.missing()
    except BaseException:
        workers.stop()
        with suppress(OSError):
            work.folder.discard_unfinished()
        raise


class _Turn:
    """All workers at work on the missing segments, until each has ended."""

    def __init__(self, workers: Workers, work: SegmentedWork, missing: list[Segment]) -> None:
        self.workers, self.work, self.missing = workers, work, missing
        self.all = set(range(min(workers.count, len(missing))))
        self.busy = set[int]()
        self.again = set[int]()  # those that may have found nothing because a dead one had claimed it
        self.deaths: Counter[int] = Counter()
        self.total = frame_count(missing)
        self.progress = FrameProgress(work.job.info.path, self.total, "restore", work.on_event)

    def run(self) -> None:
        self.work.folder.discard_unfinished()  # nobody is at work now
        for worker in sorted(self.all):
            self._give(worker)
        finished: float | None = None  # when nothing was left
        while self.busy:
            for ended in self.workers.ended(LOOK):
                self._end(ended.worker, ended.outcome)
            self.progress.show(self._done())
            if finished is None and not self._left():
                finished = time.monotonic()
            if finished is not None and time.monotonic() - finished > GRACE:
                self._drop_busy()

    def _give(self, worker: int) -> None:
        self.again.discard(worker)
        self.busy.add(worker)
        self.workers.give(worker, self.work.job.request)

    def _drop_busy(self) -> None:
        for worker in sorted(self.busy):
            self.workers.drop(worker)
        self.busy.clear()

    def _end(self, worker: int, outcome: int | VidRestoreError | str) -> None:
        if isinstance(outcome, VidRestoreError):
            raise outcome
        self.busy.discard(worker)
        left = self._left()
        if isinstance(outcome, int):
            self.work.retried_elsewhere += outcome
            if left and worker in self.again:
                self._give(worker)
        elif left:
            self._mourn(worker, outcome, left)
            self.again |= self.busy
            for each in sorted(self.all - self.busy):
                self._give(each)

    def _left(self) -> list[Segment]:
        finished = set(self.work.folder.finished())
        return [segment for segment in self.missing if segment.number not in finished]

    def _mourn(self, worker: int, reason: str, left: list[Segment]) -> None:
        """Remove a dead worker's claims. Raises WorkerError if too many have died at the same segment."""
        claimed = bury(self.work.folder.path, str(worker + 1))
        first = next((segment for segment in left if claim_name(segment) in claimed), left[0])
        source = self.work.job.info.path
        self.deaths[first.number] += 1
        if self.deaths[first.number] >= DEATHS:
            where = f"{source}, frame {first.first} and on"
            raise WorkerError(
                f"{where}: {DEATHS} workers died there, the last one {reason}; is there enough memory?"
            )
        self.work.on_event(Warned(source, f"a worker died {reason}; another does what it was at"))

    def _done(self) -> int:
        """Return the number of restored frames, those of unfinished segments too."""
        left, noted = self._left(), counts(self.work.folder.path)
        return self.total - frame_count(left) + sum(noted.get(claim_name(segment), 0) for segment in left)
