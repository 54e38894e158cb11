"""Workers on this machine: a process for each device."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from vidrestore.errors import OptionError
from vidrestore.jobs.request import Request
from vidrestore.jobs.steps import available_cores
from vidrestore.restorers.devices import torch_device
from vidrestore.scale.shards import Shard
from vidrestore.scale.workers import Ended, Worker

START: Literal["spawn"] = "spawn"  # a forked process can't use a GPU that its parent has used


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


@dataclass
class _Process:
    process: BaseProcess
    link: Connection


class Processes:
    """A process for each of several `devices`, started when it is first given work; they share the threads.

    Raises OptionError if a device isn't there.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        for device in devices:
            torch_device(device)
        self.devices = devices
        self.count = len(devices)
        self._processes: dict[int, _Process] = {}

    def give(self, worker: int, request: Request) -> None:
        if worker not in self._processes:
            self._processes[worker] = self._started(worker)
        threads = max(1, (request.options.threads or available_cores()) // self.count)
        change = partial(replace, device=self.devices[worker], threads=threads)
        with suppress(OSError):  # it is dead, which `ended` finds
            self._processes[worker].link.send(request.with_options(change))

    def _started(self, worker: int) -> _Process:
        context = multiprocessing.get_context(START)
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, Shard(worker + 1, self.count)), daemon=True)
        process.start()
        theirs.close()
        return _Process(process, ours)

    def ended(self, seconds: float) -> Iterator[Ended]:
        links: list[Any] = [each.link for each in self._processes.values()]
        ready = wait(links, seconds)
        for worker, each in list(self._processes.items()):
            if each.link in ready:
                yield Ended(worker, self._outcome(worker, each))

    def _outcome(self, worker: int, each: _Process) -> Any:
        try:
            return each.link.recv()
        except (EOFError, OSError):
            each.process.join()
            del self._processes[worker]
            return f"(process {each.process.pid} on {self.devices[worker]}, {_end(each.process.exitcode)})"

    def drop(self, worker: int) -> None:
        if each := self._processes.pop(worker, None):
            each.process.terminate()
            each.process.join()
            each.link.close()

    def stop(self) -> None:
        for each in self._processes.values():
            each.process.terminate()
        for each in self._processes.values():
            each.process.join()
            each.link.close()
        self._processes.clear()


def _end(code: int | None) -> str:
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def serve(link: Connection, shard: Shard) -> None:
    """Restore the videos and segments that come over the link, until it is closed."""
    # Ctrl-C reaches all processes of a terminal; the first one ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    worker = Worker(shard)
    with suppress(EOFError, OSError):
        while True:
            link.send(worker.restore(link.recv()))
