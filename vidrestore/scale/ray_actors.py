"""Workers on a Ray cluster: an actor for each GPU, or for every few CPUs where there is none.

All machines need the same version of vidrestore and see sources, outputs and work folders under the same paths. Ray is not needed for
anything else and loaded only here: pip install "vidrestore[ray]".
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from vidrestore.errors import OptionError, VidRestoreError
from vidrestore.jobs.segments import Segment
from vidrestore.options import RestoreOptions
from vidrestore.scale.team import News
from vidrestore.scale.worker import Film, Worker, WorkerError

CPUS = 4  # of each worker, in a cluster without GPUs


class Actor:
    """What runs in an actor's process; calls of `frames` come in between."""

    def __init__(self, task: str, options: RestoreOptions) -> None:
        self.worker = Worker(task, options)
        self._frames = 0

    def restore(self, film: Film, run: list[Segment]) -> int | VidRestoreError:
        """As `Worker.restore`; what it raises for a good reason is returned, so that it comes back as it is."""
        self._frames = 0
        try:
            return self.worker.restore(film, run, self._count)
        except VidRestoreError as error:
            return error

    def _count(self) -> None:
        self._frames += 1

    def frames(self) -> int:
        """Frames of the run so far."""
        return self._frames

    def process(self) -> int:
        """The process that the actor is."""
        return os.getpid()


class RayActors:
    """Actors on the cluster at `address` (by default RAY_ADDRESS, else a cluster of this machine alone), each with a GPU, or `cpus` CPUs
    (`CPUS` unless given).

    Raises OptionError where ray isn't installed or no cluster is at the address.
    """

    def __init__(self, task: str, options: RestoreOptions, address: str | None = None, *, cpus: int | None = None) -> None:
        self.ray = _connected(address)
        resources = self.ray.cluster_resources()
        gpus, all_cpus = int(resources.get("GPU", 0)), max(1, int(resources.get("CPU", 1)))
        cpus = max(1, min(CPUS if cpus is None else cpus, all_cpus))
        self.count = gpus or all_cpus // cpus
        device, threads = ("cuda", options.threads) if gpus else ("cpu", options.threads or cpus)
        self._resources = {"num_gpus": 1, "num_cpus": 1} if gpus else {"num_cpus": cpus}
        paths = {name: _absolute(getattr(options, name)) for name in ("model", "work_dir")}
        self._arguments = task, replace(options, device=device, threads=threads, model=paths["model"], work_dir=paths["work_dir"])
        self._actors: dict[int, Any] = {}
        self._runs: dict[Any, int] = {}  # what is awaited, and of whom
        self._asked: dict[int, Any] = {}  # for their count of frames
        self._told: dict[int, int] = {}

    def give(self, worker: int, film: Film, run: list[Segment]) -> None:
        if worker not in self._actors:
            actor = self.ray.remote(Actor).options(max_concurrency=2, max_restarts=0, **self._resources)
            self._actors[worker] = actor.remote(*self._arguments)
        self._runs[self._actors[worker].restore.remote(film, run)] = worker
        self._told[worker] = 0

    def news(self, seconds: float) -> Iterator[News]:
        ready, waiting = self.ray.wait(list(self._runs), timeout=seconds) if self._runs else ([], [])
        for reference in ready:
            yield self._heard(self._runs.pop(reference), reference)
        for worker in [self._runs[reference] for reference in waiting if reference in self._runs]:
            if frames := self._counted(worker):
                yield News(worker, "frames", frames=frames)

    def _heard(self, worker: int, reference: Any) -> News:
        self._asked.pop(worker, None)
        try:
            found = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise WorkerError(f"a worker of the cluster failed: {error}") from error
        except self.ray.exceptions.RayError as error:
            del self._actors[worker]
            return News(worker, "died", reason=f"(on the cluster: {type(error).__name__})")
        if isinstance(found, VidRestoreError):
            return News(worker, "failed", error=found)
        return News(worker, "done", retried=found)

    def _counted(self, worker: int) -> int:
        """How many frames more a worker has restored; asked for without waiting for the answer."""
        if worker not in self._asked:
            self._asked[worker] = self._actors[worker].frames.remote()
        if not self.ray.wait([self._asked[worker]], timeout=0)[0]:
            return 0
        try:
            frames = int(self.ray.get(self._asked.pop(worker)))
        except self.ray.exceptions.RayError:  # news of its run will say so
            return 0
        more, self._told[worker] = max(0, frames - self._told[worker]), frames
        return more

    def stop(self) -> None:
        for actor in self._actors.values():
            self.ray.kill(actor)
        for held in (self._actors, self._runs, self._asked):
            held.clear()


def _absolute(path: str | None) -> str | None:
    """A path as actors, which work elsewhere, need it; anything else as it is."""
    return os.path.abspath(path) if path is not None and os.path.exists(path) else path


def _connected(address: str | None) -> Any:
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise OptionError('--engine ray needs ray, which is not installed; pip install "vidrestore[ray]"') from None
    if not ray.is_initialized():
        try:
            _knock(address or os.environ.get("RAY_ADDRESS") or "")
            ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=False if address is None else None)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise OptionError(f"no Ray cluster could be reached at {address or 'RAY_ADDRESS'}: {error}") from error
    return ray


def _knock(address: str) -> None:
    """Raise OSError at once where nobody listens; Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()
