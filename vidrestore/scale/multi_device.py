"""Restore one video on several devices: this process plans and joins, and helpers restore segments of the job
as shards do (`scale.shards`).

Helpers are a process for each device of this machine but the first, on which this process restores, or the
actors of a cluster (`scale.ray_actors`). The segments of a helper that died are restored by the others.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, Protocol, TypeAlias

from vidrestore.errors import OptionError, PlanError, VidRestoreError
from vidrestore.events import Listener, Warned, ignore_event
from vidrestore.files import locks
from vidrestore.files.locks import Claims
from vidrestore.files.stopping import STOPS
from vidrestore.jobs.batch import Batch, Runner
from vidrestore.jobs.check import open_job
from vidrestore.jobs.request import LoadedSteps, Request
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.run import restore_request
from vidrestore.jobs.segmented import SegmentedWork
from vidrestore.jobs.summary import Summary
from vidrestore.restorers.devices import torch_device
from vidrestore.scale.shards import ClaimedWork, Shard, check_shared
from vidrestore.working import threads_for

LAST_WAIT = 10.0  # seconds for helpers to end once nothing is left; one whose machine is gone may never begin
START: Literal["spawn"] = "spawn"  # a forked process can't use a GPU that its parent has used

# clips that half precision could not hold, an error for the user, or how the helper died
Outcome: TypeAlias = int | VidRestoreError | str


class HelperError(VidRestoreError):
    """Processes that should restore parts of a video ended before they had."""


class Helper:
    """Restores segments of one planned video after the other, with one loaded model. `watch` is called after
    each frame.
    """

    def __init__(self, shard: Shard, watch: Callable[[], None] = lambda: None) -> None:
        self.shard, self.watch = shard, watch
        self._load = LoadedSteps()

    def restore(self, request: Request) -> int | VidRestoreError:
        """Restore segments that no other process has claimed, until none is missing.

        Return how many clips half precision could not hold, or the error that stopped it, which goes to
        another process.
        """
        folder = WorkFolder.of(request)
        try:
            with open_job(request, self._load) as job, Claims(folder.place) as claims:
                if folder.read("plan") is None:
                    raise PlanError(
                        f"{folder.path}: there is no plan; all processes must see the same folders"
                    )
                work = SegmentedWork.begin(job, folder, ignore_event, beside=True)
                claimed = ClaimedWork(work, claims, self.shard, watch=self.watch)
                while work.left():
                    if not claimed.step():
                        time.sleep(locks.POLL)
                return work.retried
        except VidRestoreError as error:
            return error


class Helpers(Protocol):
    """Processes that help with one video after the other."""

    count: int  # all shards, with this process if it `restores_here`
    restores_here: bool

    def start(self, request: Request, segments: int) -> None:
        """Let helpers restore the missing segments of a video (`Helper.restore`)."""

    def ended(self, seconds: float = 0.0) -> Iterator[Outcome]:
        """Wait for at most so many seconds, and yield the results of helpers that have ended."""

    def are_at_work(self) -> bool:
        """Return True if a helper is still at work."""

    def stop(self) -> None:
        """End all helpers, at once."""


class HelperRunner(Runner):
    """Restores the videos of a batch with helpers, which keep their models loaded."""

    def __init__(self, helpers: Helpers) -> None:
        self.helpers = helpers

    def check(self, batch: Batch) -> None:
        check_shared(batch)

    def restore(self, batch: Batch, request: Request, on_event: Listener) -> Summary:
        run = partial(restore_with, self.helpers)
        return restore_request(request, batch.loader(request, on_event), on_event, run)

    def close(self) -> bool:
        self.helpers.stop()
        return True


def restore_with(helpers: Helpers, work: SegmentedWork) -> None:
    """Restore what is missing of a video. Raises VidRestoreError; what was finished until then stays."""
    work.check_output()
    work.plan()
    watch = partial(_watch, helpers, work)
    claimed = ClaimedWork(work, work.folder.claims, Shard(1, helpers.count), watch=watch)
    try:
        while missing := work.missing():  # again if a segment can't be read in the end
            claimed.begin()
            helpers.start(work.job.request, len(missing))
            while work.left():
                if not (helpers.restores_here and claimed.step()):
                    watch(locks.POLL)
                    claimed.show()
            deadline = time.monotonic() + LAST_WAIT
            while helpers.are_at_work() and time.monotonic() < deadline:
                watch(locks.POLL)
            if helpers.are_at_work():
                helpers.stop()
    except BaseException:
        helpers.stop()
        with suppress(OSError):
            work.folder.discard_unfinished()
        raise
    claimed.begin()


def _watch(helpers: Helpers, work: SegmentedWork, seconds: float = 0.0) -> None:
    """Count the work of helpers that have ended. Raises VidRestoreError if one failed or all have died."""
    source = work.job.info.path
    for outcome in helpers.ended(seconds):
        if isinstance(outcome, VidRestoreError):
            raise outcome
        if isinstance(outcome, int):
            work.retried_elsewhere += outcome
        elif helpers.restores_here or helpers.are_at_work():
            work.on_event(Warned(source, f"a process died {outcome}; the others restore what is left"))
        elif work.left():
            raise HelperError(
                f"{source}: all processes died, the last one {outcome}; is there enough memory?"
            )


# A process for each further device of this machine


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


class DeviceProcesses:
    """A process for each of `devices` but the first, started when it is first needed; they share the threads.

    Raises OptionError if a device isn't there.
    """

    restores_here = True

    def __init__(self, devices: Sequence[str]) -> None:
        for device in devices:
            torch_device(device)
        self.devices = devices
        self.count = len(devices)
        self.running: dict[int, tuple[BaseProcess, Connection]] = {}
        self._busy = set[int]()

    def start(self, request: Request, segments: int) -> None:
        threads = max(1, threads_for(request.options.threads) // self.count)
        context = multiprocessing.get_context(START)
        for number in range(1, min(self.count, segments)):
            if number not in self.running:
                ours, theirs = context.Pipe()
                shard = Shard(number + 1, self.count)
                process = context.Process(target=help_over, args=(theirs, shard), daemon=True)
                process.start()
                theirs.close()
                self.running[number] = process, ours
            own = request.with_options(device=self.devices[number], threads=threads)
            self._busy.add(number)
            with suppress(OSError):  # it is dead, which `ended` reports
                self.running[number][1].send(own)

    def ended(self, seconds: float = 0.0) -> Iterator[Outcome]:
        ready = wait([self.running[number][1] for number in self._busy], seconds) if self._busy else []
        if not self._busy:
            time.sleep(seconds)
        for number in list(self._busy):
            process, link = self.running[number]
            if link in ready:
                self._busy.discard(number)
                try:
                    outcome: Outcome = link.recv()
                except (EOFError, OSError):
                    process.join()
                    del self.running[number]
                    end = process.exitcode or 0
                    how = f"killed by signal {-end}" if end < 0 else f"exit code {end}"
                    outcome = f"(process {process.pid} on {self.devices[number]}, {how})"
                yield outcome

    def are_at_work(self) -> bool:
        return bool(self._busy)

    def stop(self) -> None:
        for process, _ in self.running.values():
            process.terminate()
        for process, link in self.running.values():
            process.join()
            link.close()
        self.running.clear()
        self._busy.clear()


def help_over(link: Any, shard: Shard) -> None:
    """Restore parts of the videos that come over the link, until it is closed."""
    # Ctrl-C reaches all processes of a terminal: this one ends at once and leaves the cores to the first one
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` does
            signal.signal(number, signal.SIG_DFL)
    helper = Helper(shard, watch=_end_with_parent)
    with suppress(EOFError, OSError):
        while True:
            link.send(helper.restore(link.recv()))


def _end_with_parent() -> None:
    """End this process if the one that plans and joins was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)
