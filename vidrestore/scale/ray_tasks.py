"""Workers on a Ray cluster (`scale.workers`): tasks that Ray gives to its machines, and again to another one
if a machine dies.

All machines need the same version of vidrestore and see sources, outputs and work folders under the same
paths. Ray is not needed for anything else and loaded only here: pip install "vidrestore[ray]".
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from vidrestore.errors import OptionError
from vidrestore.jobs.request import Request
from vidrestore.jobs.segmented import Segment
from vidrestore.scale.shards import divided
from vidrestore.scale.workers import Outcome, PartError, restore_part

CPUS = 4  # for each task on a cluster without GPUs
# parts for each place: all wait for the last one, and a clip is restored twice where two meet
PARTS_PER_PLACE = 4
MOST_PART_SEGMENTS = 16  # segments of a part


class RayTasks:
    """Tasks on the cluster at RAY_ADDRESS, or of this machine alone, which other machines can't reach; each
    with a GPU, or `cpus` CPUs (`CPUS` unless given).

    Raises OptionError if ray isn't installed or no cluster is at the address.
    """

    def __init__(self, *, cpus: int | None = None) -> None:
        self.ray = _connect()
        # a GPU each, or a few cores
        resources = self.ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        all_cpus = max(1, int(resources.get("CPU", 1)))
        self.cpus = max(1, min(CPUS if cpus is None else cpus, all_cpus))
        self.count = gpus or all_cpus // self.cpus
        self._resources = (
            {"num_gpus": 1, "num_cpus": 1} if gpus else {"num_cpus": self.cpus}
        )
        self._running: list[Any] = []  # pending results

    def start(self, request: Request, segments: Sequence[Segment]) -> None:
        # without a limit of calls a process, and its loaded model, serves several tasks, on a GPU, too
        task = self.ray.remote(max_calls=0, **self._resources)(restore_part)
        task_request = self._task_request(request)
        count = max(
            PARTS_PER_PLACE * self.count, -(-len(segments) // MOST_PART_SEGMENTS)
        )
        self._running = [
            task.remote(task_request, part) for part in divided(segments, count) if part
        ]

    def _task_request(self, request: Request) -> Request:
        """Return the request as a task needs it, which works in another folder, with the resources of its
        own.
        """
        # the task works in another folder, on another machine
        options = request.options
        on_gpu = "num_gpus" in self._resources
        threads = options.threads if on_gpu else options.threads or self.cpus
        device_request = request.with_options(
            device="cuda" if on_gpu else "cpu",
            threads=threads,
            work_dir=_absolute(options.work_dir),
        )
        steps = tuple(
            step.with_options(model=_absolute(step.options.model))
            for step in device_request.steps
        )
        return Request(request.source.absolute(), request.output.absolute(), steps)

    def outcomes(self, seconds: float) -> Iterator[Outcome]:
        ready, self._running = self.ray.wait(self._running, timeout=seconds)
        for reference in ready:
            try:
                yield self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                raise PartError(f"a task on the cluster failed: {error}") from error

    def are_at_work(self) -> bool:
        return bool(self._running)

    def stop(self) -> None:
        for reference in self._running:
            self.ray.cancel(reference, force=True)
        self._running = []


def _absolute(path: str | None) -> str | None:
    """Return an existing path as an absolute one; anything else unchanged."""
    return os.path.abspath(path) if path is not None and os.path.exists(path) else path


def listen_on_loopback() -> None:
    """Let a cluster that Ray starts here listen on the loopback interface only, as its ports run any code.
    Ray has no other setting for it (2.60), and reads this one when it is imported.
    """
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _connect() -> Any:
    """Return the module ray, connected to the cluster of RAY_ADDRESS or a local one. Raises OptionError."""
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:
        listen_on_loopback()
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise OptionError(
            '`engine=ray` needs ray, which is not installed; pip install "vidrestore[ray]"'
        ) from None
    if not ray.is_initialized():
        try:
            host, colon, port = address.removeprefix("ray://").rpartition(":")
            # fails at once if nothing listens; Ray would try for minutes
            if colon and port.isdecimal():
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(
                log_to_driver=False, logging_level="error", include_dashboard=False
            )
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            place = address or "RAY_ADDRESS, which is not set"
            raise OptionError(
                f"no Ray cluster could be reached at {place}: {error}"
            ) from error
    return ray
