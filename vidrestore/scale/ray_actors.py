"""Workers on a Ray cluster: an actor for each GPU, or for every few CPUs of a cluster without GPUs.

All machines need the same version of vidrestore and see sources, outputs and work folders under the same
paths. Ray is not needed for anything else and loaded only here: pip install "vidrestore[ray]".
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from vidrestore.errors import OptionError
from vidrestore.jobs.job import Request
from vidrestore.options import RestoreOptions
from vidrestore.scale.shards import Shard
from vidrestore.scale.workers import Outcome, Worker, WorkerError

CPUS = 4  # for each worker of a cluster without GPUs


class RayActors:
    """Actors on the cluster at `address` (by default RAY_ADDRESS, else a cluster of this machine alone, which
    other machines can't reach), each with a GPU, or `cpus` CPUs (`CPUS` unless given).

    Raises OptionError if ray isn't installed or no cluster is at the address.
    """

    def __init__(self, address: str | None = None, *, cpus: int | None = None) -> None:
        self.ray = _connected(address)
        resources = self.ray.cluster_resources()
        gpus, all_cpus = int(resources.get("GPU", 0)), max(1, int(resources.get("CPU", 1)))
        self.cpus = max(1, min(CPUS if cpus is None else cpus, all_cpus))
        self.count = gpus or all_cpus // self.cpus
        self._resources = {"num_gpus": 1, "num_cpus": 1} if gpus else {"num_cpus": self.cpus}
        self._actors: dict[int, Any] = {}
        self._runs: dict[Any, int] = {}  # what is awaited, and from which worker

    def give(self, worker: int, request: Request) -> None:
        if worker not in self._actors:
            actor = self.ray.remote(Worker).options(max_restarts=0, **self._resources)
            self._actors[worker] = actor.remote(Shard(worker + 1, self.count))
        self._runs[self._actors[worker].restore.remote(self._there(request))] = worker

    def _there(self, request: Request) -> Request:
        """Return the request as an actor needs it, which works in another folder, with the resources of its
        own.
        """
        on_gpu = "num_gpus" in self._resources

        def change(options: RestoreOptions) -> RestoreOptions:
            device, threads = ("cuda", options.threads) if on_gpu else ("cpu", options.threads or self.cpus)
            model, work_dir = _absolute(options.model), _absolute(options.work_dir)
            return replace(options, device=device, threads=threads, model=model, work_dir=work_dir)

        request = request.with_options(change)
        return replace(request, source=request.source.absolute(), output=request.output.absolute())

    def ended(self, seconds: float) -> Iterator[tuple[int, Outcome]]:
        ready, _ = self.ray.wait(list(self._runs), timeout=seconds) if self._runs else ([], [])
        for reference in ready:
            worker = self._runs.pop(reference)
            try:
                outcome: Outcome = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                raise WorkerError(f"a worker of the cluster failed: {error}") from error
            except self.ray.exceptions.RayError as error:
                del self._actors[worker]
                outcome = f"(on the cluster: {type(error).__name__})"
            yield worker, outcome

    def stop(self) -> None:
        for actor in self._actors.values():
            self.ray.kill(actor)
        self._actors.clear()
        self._runs.clear()


def _absolute(path: str | None) -> str | None:
    """Return an existing path as actors need it; anything else as it is."""
    return os.path.abspath(path) if path is not None and os.path.exists(path) else path


def stay_on_this_machine() -> None:
    """Have a cluster that Ray starts here listen on the loopback interface only: who reaches its ports can
    run code.

    Ray has no other setting for it (2.60), and reads this one when it is imported.
    """
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _connected(address: str | None) -> Any:
    if not (address or os.environ.get("RAY_ADDRESS")):
        stay_on_this_machine()
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise OptionError(
            '`engine=ray` needs ray, which is not installed; pip install "vidrestore[ray]"'
        ) from None
    if not ray.is_initialized():
        try:
            _knock(address or os.environ.get("RAY_ADDRESS") or "")
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level="error",
                include_dashboard=False if address is None else None,
            )
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise OptionError(
                f"no Ray cluster could be reached at {address or 'RAY_ADDRESS'}: {error}"
            ) from error
    return ray


def _knock(address: str) -> None:
    """Raise OSError at once if nobody listens; Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()
