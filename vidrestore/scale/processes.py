"""Workers on this machine: a process for each device."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from vidrestore.errors import OptionError, VidRestoreError
from vidrestore.jobs.job import available_cores
from vidrestore.jobs.segments import Segment
from vidrestore.options import RestoreOptions
from vidrestore.restorers.devices import torch_device
from vidrestore.scale.team import News
from vidrestore.scale.worker import Film, Worker

START: Literal["spawn"] = "spawn"  # a forked process can't use a GPU that its parent has used
TELL = 0.2  # seconds between two counts


def devices_of(text: str) -> list[str]:
    """The devices that a text such as "cuda:0,1" or "cpu,cpu" means. Raises OptionError for one that means none."""
    found: list[str] = []
    for part in text.split(","):
        name = part.strip()
        if name.isdecimal() and found and found[-1].startswith("cuda:"):
            name = f"cuda:{name}"
        if not name or name.isdecimal():
            raise OptionError(f"devices must be like cuda:0,1 or cuda:0,cuda:1, got {text!r}")
        found.append(name)
    return found


@dataclass
class _Process:
    process: BaseProcess
    link: Connection


class Processes:
    """A process for each of several `devices`, begun when it is first given work; they share the threads.

    Raises OptionError where a device isn't there.
    """

    def __init__(self, devices: Sequence[str], task: str, options: RestoreOptions) -> None:
        for device in devices:
            torch_device(device)
        self.devices, self.task, self.options = devices, task, options
        self.count = len(devices)
        self._processes: dict[int, _Process] = {}

    def give(self, worker: int, film: Film, run: list[Segment]) -> None:
        if worker not in self._processes:
            self._processes[worker] = self._begun(worker)
        with suppress(OSError):  # it is dead, and news will say so
            self._processes[worker].link.send((film, run))

    def _begun(self, worker: int) -> _Process:
        threads = max(1, (self.options.threads or available_cores()) // self.count)
        options = replace(self.options, device=self.devices[worker], threads=threads)
        context = multiprocessing.get_context(START)
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.task, options), daemon=True)
        process.start()
        theirs.close()
        return _Process(process, ours)

    def news(self, seconds: float) -> Iterator[News]:
        links: list[Any] = [each.link for each in self._processes.values()]
        ready = wait(links, seconds)
        for worker, each in list(self._processes.items()):
            if each.link in ready:
                yield self._heard(worker, each)

    def _heard(self, worker: int, each: _Process) -> News:
        try:
            kind, value = each.link.recv()
        except (EOFError, OSError):
            each.process.join()
            del self._processes[worker]
            return News(worker, "died", reason=f"(process {each.process.pid} on {self.devices[worker]}, {_end(each.process.exitcode)})")
        if kind == "failed":
            return News(worker, "failed", error=value)
        return News(worker, "frames", frames=value) if kind == "frames" else News(worker, "done", retried=value)

    def stop(self) -> None:
        for each in self._processes.values():
            each.process.terminate()
        for each in self._processes.values():
            each.process.join()
            each.link.close()
        self._processes.clear()


def _end(code: int | None) -> str:
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def serve(link: Connection, task: str, options: RestoreOptions) -> None:
    """What a process does: restore what it is told to, until nobody is there to tell it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal's processes; the one that tells ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    worker = Worker(task, options)
    with suppress(EOFError, OSError):
        while True:
            film, run = link.recv()
            link.send(_done(worker, film, run, _Counter(link)))


def _done(worker: Worker, film: Film, run: list[Segment], counter: _Counter) -> tuple[str, Any]:
    try:
        return "done", worker.restore(film, run, counter)
    except VidRestoreError as error:
        return "failed", error


class _Counter:
    """Tells of frames now and then."""

    def __init__(self, link: Connection) -> None:
        self.link, self.frames, self.told = link, 0, time.monotonic()

    def __call__(self) -> None:
        self.frames += 1
        if time.monotonic() - self.told >= TELL:
            self.link.send(("frames", self.frames))
            self.frames, self.told = 0, time.monotonic()
