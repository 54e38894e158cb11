"""Helpers on a Ray cluster (`scale.multi_device`): an actor for each GPU, or for every few CPUs without GPUs.

All machines need the same version of vidrestore and see sources, outputs and work folders under the same
paths. Ray is not needed for anything else and loaded only here: pip install "vidrestore[ray]".
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from vidrestore.errors import OptionError
from vidrestore.jobs.request import Request
from vidrestore.scale.multi_device import Helper, HelperError, Outcome
from vidrestore.scale.shards import Shard

CPUS = 4  # for each actor of a cluster without GPUs


class RayActors:
    """Actors on the cluster at `address` (by default RAY_ADDRESS, else a cluster of this machine alone, which
    other machines can't reach), each with a GPU, or `cpus` CPUs (`CPUS` unless given).

    Raises OptionError if ray isn't installed or no cluster is at the address.
    """

    restores_here = False

    def __init__(self, address: str | None = None, *, cpus: int | None = None) -> None:
        self.ray = _connected(address)
        resources = self.ray.cluster_resources()
        gpus, all_cpus = int(resources.get("GPU", 0)), max(1, int(resources.get("CPU", 1)))
        self.cpus = max(1, min(CPUS if cpus is None else cpus, all_cpus))
        self.count = gpus or all_cpus // self.cpus
        self._resources = {"num_gpus": 1, "num_cpus": 1} if gpus else {"num_cpus": self.cpus}
        self._actors: list[Any] = []
        self._runs: dict[Any, Any] = {}  # pending results and their actors

    def start(self, request: Request, segments: int) -> None:
        for number in range(len(self._actors), min(self.count, segments)):
            actor = self.ray.remote(Helper).options(max_restarts=0, **self._resources)
            self._actors.append(actor.remote(Shard(number + 1, self.count)))
        self._runs = {actor.restore.remote(self._there(request)): actor for actor in self._actors[:segments]}

    def _there(self, request: Request) -> Request:
        """Return the request as an actor needs it, which works in another folder, with the resources of its
        own.
        """
        options, on_gpu = request.options, "num_gpus" in self._resources
        threads = options.threads if on_gpu else options.threads or self.cpus
        here = request.with_options(
            device="cuda" if on_gpu else "cpu", threads=threads, work_dir=_absolute(options.work_dir)
        )
        steps = tuple(step.with_options(model=_absolute(step.options.model)) for step in here.steps)
        return Request(request.source.absolute(), request.output.absolute(), steps)

    def ended(self, seconds: float = 0.0) -> Iterator[Outcome]:
        ready, _ = self.ray.wait(list(self._runs), timeout=seconds) if self._runs else ([], [])
        for reference in ready:
            actor = self._runs.pop(reference)
            try:
                outcome: Outcome = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                raise HelperError(f"a process of the cluster failed: {error}") from error
            except self.ray.exceptions.RayError as error:
                self._actors.remove(actor)
                outcome = f"(on the cluster: {type(error).__name__})"
            yield outcome

    def are_at_work(self) -> bool:
        return bool(self._runs)

    def stop(self) -> None:
        for actor in self._actors:
            self.ray.kill(actor)
        self._actors.clear()
        self._runs.clear()


def _absolute(path: str | None) -> str | None:
    """Return an existing path as an absolute one; anything else unchanged."""
    return os.path.abspath(path) if path is not None and os.path.exists(path) else path


def listen_on_loopback() -> None:
    """Let a cluster that Ray starts here listen on the loopback interface only, as its ports run any code.
    Ray has no other setting for it (2.60), and reads this one when it is imported.
    """
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _connected(address: str | None) -> Any:
    if not (address or os.environ.get("RAY_ADDRESS")):
        listen_on_loopback()
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise OptionError(
            '`engine=ray` needs ray, which is not installed; pip install "vidrestore[ray]"'
        ) from None
    if not ray.is_initialized():
        try:
            place = address or os.environ.get("RAY_ADDRESS") or ""
            host, colon, port = place.removeprefix("ray://").rpartition(":")
            if colon and port.isdecimal():  # fails at once if nothing listens; Ray would try for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
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
