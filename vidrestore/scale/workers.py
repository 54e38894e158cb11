"""One process that plans and joins, and workers that restore the segments for it: a process for each device
of this machine, or actors of a cluster (`scale.ray_actors`).

A worker does what a shard does (`scale.shards.ClaimedWork`) until nothing is missing. If one dies, its claims
are removed and a new one begins.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, Protocol, TypeAlias

from vidrestore.errors import OptionError, PlanError, VidRestoreError
from vidrestore.events import Listener, Warned
from vidrestore.files import locks
from vidrestore.files.locks import Claims, bury, counts
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.frame_progress import FrameProgress
from vidrestore.jobs.job import Request, ignore, open_job
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.run import restore_request
from vidrestore.jobs.segmented import Segment, SegmentedWork, frame_count
from vidrestore.jobs.steps import LoadedSteps, available_cores
from vidrestore.jobs.summary import Summary
from vidrestore.restorers.devices import torch_device
from vidrestore.scale.shards import ClaimedWork, Shard, check_shared, claim_name

DEATHS = 3  # deaths of workers at one segment, after which it is not tried again
LOOK = 0.5  # seconds between two looks at how far the workers are
GRACE = 10.0  # seconds for workers to end once nothing is left; one whose machine is gone may never begin
START: Literal["spawn"] = "spawn"  # a forked process can't use a GPU that its parent has used

# clips that half precision could not hold, an error for the user, or how the worker died
Outcome: TypeAlias = int | VidRestoreError | str


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
        """Restore segments that no other has claimed, until none is missing.

        Return how many clips half precision could not hold, or the error that stopped it, for it is to go to
        another process.
        """
        folder = WorkFolder.of(request)
        try:
            with open_job(request, self._load) as job:
                if folder.read("plan") is None:
                    raise PlanError(
                        f"{folder.path}: a worker finds no plan there; all workers must see the same folders"
                    )
                with Claims(folder.path, owner=str(self.shard.number)) as claims:
                    work = SegmentedWork.begin(job, folder, ignore, beside=True)
                    claimed = ClaimedWork(work, claims, self.shard)
                    while claimed.work.left():
                        if not claimed.step():
                            time.sleep(locks.POLL)
                    return claimed.work.retried
        except VidRestoreError as error:
            return error


class Workers(Protocol):
    """Workers numbered from 0; one that died is replaced when it is next given work."""

    count: int

    def give(self, worker: int, request: Request) -> None:
        """Have a worker restore what is missing of a video (`Worker.restore`)."""

    def ended(self, seconds: float) -> Iterable[tuple[int, Outcome]]:
        """Yield the workers that have ended their work since, after at most so many seconds."""

    def stop(self) -> None:
        """End all workers, at once."""


class ByWorkers:
    """The way to restore a batch (`jobs.batch.Way`) by workers that keep their models loaded."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def check(self, batch: Batch) -> None:
        for request in batch.requests():
            check_shared(request)

    def restore(self, batch: Batch, source: str, on_event: Listener) -> Summary:
        run = partial(restore_with, self.workers)
        return restore_request(batch.request(source), batch.loader(source, on_event), on_event, run)

    def close(self) -> bool:
        self.workers.stop()
        return True


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
                _restore(workers, work, missing)
                missing = work.missing()
    except BaseException:
        workers.stop()
        with suppress(OSError):
            work.folder.discard_unfinished()
        raise


def _restore(workers: Workers, work: SegmentedWork, missing: list[Segment]) -> None:
    """Have the workers restore the missing segments, and replace those that die."""
    source, total = work.job.info.path, frame_count(missing)
    progress = FrameProgress(source, total, "restore", work.on_event)
    work.folder.discard_unfinished()  # nobody is at work now
    busy, deaths, done_since = set(range(min(workers.count, len(missing)))), Counter[int](), None
    for worker in busy:
        workers.give(worker, work.job.request)
    while busy:
        ended = list(workers.ended(LOOK))
        left = work.left()
        for worker, outcome in ended:
            if isinstance(outcome, VidRestoreError):
                raise outcome
            if isinstance(outcome, int) or not left:
                work.retried_elsewhere += outcome if isinstance(outcome, int) else 0
                busy.discard(worker)
                continue
            place = _free(work, worker, left)
            deaths[place.number] += 1
            if deaths[place.number] == DEATHS:
                raise WorkerError(
                    f"{source}, frame {place.first} and on: {DEATHS} workers died there, the last one "
                    f"{outcome}; is there enough memory?"
                )
            work.on_event(Warned(source, f"a worker died {outcome}; another does what it was at"))
            workers.give(worker, work.job.request)
        noted = counts(work.folder.path)
        progress.show(total - frame_count(left) + sum(noted.get(claim_name(segment), 0) for segment in left))
        done_since = None if left else done_since or time.monotonic()
        if done_since is not None and time.monotonic() - done_since > GRACE:
            workers.stop()
            return


def _free(work: SegmentedWork, worker: int, left: list[Segment]) -> Segment:
    """Remove the claims of a dead worker; return the segment that it was at."""
    claimed = bury(work.folder.path, str(worker + 1))
    return next((segment for segment in left if claim_name(segment) in claimed), left[0])


# A process for each device of this machine


def devices_of(text: str) -> list[str]:
    """Return the devices that a text such as "cuda:0,1" or "cpu,cpu" means. Raises OptionError if it means
    none.
    """
    found: list[str] = []
    for part in text.split(","):
        name = part.strip()
        if name.isdecimal() and found and found[-1].startswith("cuda:"):
            name = f"cuda:{name}"
        if not name or name.isdecimal():
            raise OptionError(f"devices must be like cuda:0,1 or cuda:0,cuda:1, got {text!r}")
        found.append(name)
    return found


class Processes:
    """A process for each of several `devices`, started when it is first given work; they share the threads.

    Raises OptionError if a device isn't there.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        for device in devices:
            torch_device(device)
        self.devices = devices
        self.count = len(devices)
        self.running: dict[int, tuple[BaseProcess, Connection]] = {}

    def give(self, worker: int, request: Request) -> None:
        if worker not in self.running:
            context = multiprocessing.get_context(START)
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, Shard(worker + 1, self.count)), daemon=True)
            process.start()
            theirs.close()
            self.running[worker] = process, ours
        threads = max(1, (request.options.threads or available_cores()) // self.count)
        change = partial(replace, device=self.devices[worker], threads=threads)
        with suppress(OSError):  # it is dead, which `ended` finds
            self.running[worker][1].send(request.with_options(change))

    def ended(self, seconds: float) -> Iterator[tuple[int, Outcome]]:
        ready = wait([link for _, link in self.running.values()], seconds)
        for worker, (process, link) in list(self.running.items()):
            if link in ready:
                try:
                    outcome: Outcome = link.recv()
                except (EOFError, OSError):
                    process.join()
                    del self.running[worker]
                    end = process.exitcode or 0
                    how = f"killed by signal {-end}" if end < 0 else f"exit code {end}"
                    outcome = f"(process {process.pid} on {self.devices[worker]}, {how})"
                yield worker, outcome

    def stop(self) -> None:
        for process, _ in self.running.values():
            process.terminate()
        for process, link in self.running.values():
            process.join()
            link.close()
        self.running.clear()


def serve(link: Any, shard: Shard) -> None:
    """Restore the videos that come over the link, until it is closed."""
    # Ctrl-C reaches all processes of a terminal; the first one ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    worker = Worker(shard)
    with suppress(EOFError, OSError):
        while True:
            link.send(worker.restore(link.recv()))
