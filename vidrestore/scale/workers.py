"""Restore one video by workers: this process plans it, hands out parts, and joins them.

Workers are a process for each device of this machine, each with an equal part as a shard has
(`scale.shards`), or tasks on a Ray cluster (`scale.ray_tasks`).
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, Protocol, TypeAlias

from vidrestore.errors import OptionError, PlanError, VidRestoreError
from vidrestore.events import Listener, Summary, ignore_event
from vidrestore.files.locks import POLL
from vidrestore.files.stopping import STOPS, end_with_parent
from vidrestore.jobs.batch import Batch, Runner
from vidrestore.jobs.frame_progress import FrameProgress
from vidrestore.jobs.request import LoadedSteps, Request
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.run import open_job, restore_request
from vidrestore.jobs.segmented import Segment, SegmentedWork, frame_count
from vidrestore.restorers.devices import torch_device
from vidrestore.scale.shards import check_shared, divided
from vidrestore.working import threads_for

# a forked process can't use a GPU that its parent has used
START: Literal["spawn"] = "spawn"

# clips that half precision could not hold, or the error of a part
Outcome: TypeAlias = int | VidRestoreError

_LOADED = LoadedSteps()  # by this process, for one part after the other


class PartError(VidRestoreError):
    """A process that should restore a part of a video ended before it had."""


def restore_part(request: Request, segments: Sequence[Segment]) -> Outcome:
    """Restore some segments of a planned video in a worker; an error goes to the process that joins them."""
    folder = WorkFolder.of(request)
    try:
        with open_job(request, _LOADED) as job:
            if folder.read("plan") is None:
                raise PlanError(
                    f"{folder.path}: there is no plan; all processes must see the same folders"
                )
            work = SegmentedWork.begin(job, folder, ignore_event, shared=True)
            work.restore([*segments])
            return work.retried
    except VidRestoreError as error:
        return error


class Workers(Protocol):
    """Workers that restore one video after the other, with models that stay loaded."""

    def start(self, request: Request, segments: Sequence[Segment]) -> None:
        """Divide missing segments among the workers, and begin."""

    def outcomes(self, seconds: float) -> Iterator[Outcome]:
        """Wait for at most so many seconds, and yield the outcomes of parts. Raises PartError if a worker
        died.
        """

    def are_at_work(self) -> bool:
        """Return True if a part is not finished."""

    def stop(self) -> None:
        """End all workers, at once."""


class WorkerRunner(Runner):
    """Restores the videos of a batch by workers."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def check(self, batch: Batch) -> None:
        check_shared(batch)

    def restore(self, batch: Batch, request: Request, on_event: Listener) -> Summary:
        run = partial(restore_with, self.workers)
        return restore_request(request, batch.loader(request, on_event), on_event, run)

    def close(self) -> bool:
        self.workers.stop()
        return True


def restore_with(workers: Workers, work: SegmentedWork) -> None:
    """Restore what is missing of a video. Raises VidRestoreError; what was finished until then stays."""
    work.check_output()
    work.plan()
    missing = work.missing()
    source = work.job.info.path
    count = frame_count(missing)
    # progress by the frames on the disk, as parts are done elsewhere
    work.announce(count)
    progress = FrameProgress(source, count, "restore", work.on_event)
    try:
        workers.start(work.job.request, missing)
        while workers.are_at_work():
            for outcome in workers.outcomes(POLL):
                if isinstance(outcome, VidRestoreError):
                    raise outcome
                work.retried_elsewhere += outcome
            progress.show(count - frame_count(work.unfinished()))
    except BaseException:
        workers.stop()
        raise
    progress.finish(count)


# A process for each device of this machine


def devices_of(text: str) -> list[str]:
    """Return the devices that a text such as "cuda:0,1" or "cpu,cpu" means. Raises OptionError if it means
    none.
    """
    # numbers after the first take its kind
    devices: list[str] = []
    for part in text.split(","):
        name = part.strip()
        if name.isdecimal() and devices and devices[-1].startswith("cuda:"):
            name = f"cuda:{name}"
        if not name or name.isdecimal():
            raise OptionError(
                f"devices must be like cuda:0,1 or cuda:0,cuda:1, got {text!r}"
            )
        devices.append(name)
    return devices


class DeviceWorkers:
    """A process for each device, started when it is first needed; they share the threads.

    Raises OptionError if a device isn't there.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        for device in devices:
            torch_device(device)
        self.devices = devices
        # by "1/2", the part of each
        self.running: dict[str, tuple[BaseProcess, Connection]] = {}
        self._busy = set[str]()

    def start(self, request: Request, segments: Sequence[Segment]) -> None:
        count = len(self.devices)
        # threads are shared, segments dealt out in equal runs
        threads = max(1, threads_for(request.options.threads) // count)
        for number, (device, part) in enumerate(
            zip(self.devices, divided(segments, count), strict=True), 1
        ):
            if part:
                name = f"{number}/{count}"
                part_request = request.with_options(device=device, threads=threads)
                self._busy.add(name)
                link = self._link(name)
                with suppress(OSError):  # it is dead, which `outcomes` reports
                    link.send((part_request, part))

    def _link(self, name: str) -> Connection:
        if name not in self.running:
            context = multiprocessing.get_context(START)
            link, child_link = context.Pipe()
            process = context.Process(target=work_over, args=(child_link,), daemon=True)
            process.start()
            child_link.close()
            self.running[name] = process, link
        return self.running[name][1]

    def outcomes(self, seconds: float) -> Iterator[Outcome]:
        # whoever is ready, or has died
        links = {name: self.running[name][1] for name in self._busy}
        ready = wait(list(links.values()), seconds)
        for name in [name for name, link in links.items() if link in ready]:
            self._busy.discard(name)
            process, link = self.running[name]
            try:
                outcome: Outcome = link.recv()
            except (EOFError, OSError):
                process.join()
                raise PartError(
                    f"part {name}: its process {process.pid} died (exit code {process.exitcode}); is there "
                    "enough memory? The same command restores what is missing"
                ) from None
            yield outcome

    def are_at_work(self) -> bool:
        return bool(self._busy)

    def stop(self) -> None:
        # all at once, then wait for each
        for process, _ in self.running.values():
            process.terminate()
        for process, link in self.running.values():
            process.join()
            link.close()
        self.running.clear()
        self._busy.clear()


def work_over(link: Any) -> None:
    """Restore the parts that come over the link, until it is closed."""
    # Ctrl-C reaches all processes of a terminal: this one ends at once and frees the cores for the first one
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` does
            signal.signal(number, signal.SIG_DFL)
    end_with_parent()
    with suppress(EOFError, OSError):
        while True:
            link.send(restore_part(*link.recv()))
