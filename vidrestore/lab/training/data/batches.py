"""Batches in the order of the steps, made in this process or ahead of time by workers, with equal content."""

from __future__ import annotations

import multiprocessing
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vidrestore.errors import VidRestoreError
from vidrestore.files.stopping import STOPS, end_with_parent

T = TypeVar("T")
PREFETCH = 2  # results that each worker makes ahead
# seconds that workers survive SIGTERM, so that the main process can save and stop them
GRACE = 60


@dataclass(frozen=True)
class Share:
    """The part of every batch that process `rank` of `count` training processes computes."""

    rank: int = 0
    count: int = 1

    def of(self, size: int) -> slice:
        """Return the slice of a batch of `size`, which `count` must divide."""
        part = size // self.count
        return slice(self.rank * part, (self.rank + 1) * part)


WHOLE_BATCH = Share()


class BatchSource(ABC):
    """Batches that depend on the seed and their step alone, so a resumed run gets the same."""

    @abstractmethod
    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Any, ...]:
        """Return the batch of a step, or one process's share of it."""

    def batches(
        self, steps: range, size: int, workers: int = 0, share: Share = WHOLE_BATCH
    ) -> Generator[tuple[Any, ...]]:
        """Yield the batches of all steps in order, made by `workers` processes; 0: by this one."""
        return in_order(partial(self.batch, size=size, share=share), steps, workers)


class ReusedBatches(BatchSource):
    """Batches of pictures of another source, each used for `times` steps in a row and augmented differently
    in each.

    If a network learns faster than batches are made, reused batches are nearly as good as new ones (D. Choi
    et al., "Faster Neural Network Training with Data Echoing", 2019).
    """

    def __init__(self, source: BatchSource, times: int, seed: int) -> None:
        self.source = source
        self.times = times
        self.seed = seed

    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Any, ...]:
        """Return the batch of a step; see `BatchSource.batch`."""
        return self._augmented(self.source.batch(step // self.times, size, share), step)

    def batches(
        self, steps: range, size: int, workers: int = 0, share: Share = WHOLE_BATCH
    ) -> Generator[tuple[Any, ...]]:
        """Yield the batches of all steps; see `BatchSource.batches`."""
        numbers = range(steps.start // self.times, -(-steps.stop // self.times))
        with closing(self.source.batches(numbers, size, workers, share)) as batches:
            for number, batch in zip(numbers, batches, strict=True):
                for step in range(number * self.times, (number + 1) * self.times):
                    if step in steps:
                        yield self._augmented(batch, step)

    def _augmented(self, batch: tuple[Any, ...], step: int) -> tuple[Any, ...]:
        return augmented(batch, np.random.default_rng((self.seed, 2, step)))


def augmented(batch: tuple[Any, ...], rng: np.random.Generator) -> tuple[Any, ...]:
    """Crop pictures (..., S, S) and their targets (..., n S, n S) by at most an eighth at a random place, and
    mirror them at random.

    They are only mirrored left to right, because rain falls downwards. Further entries of the batch are
    unchanged.
    """
    # the crop of the degraded picture, and the same place of a larger clean one
    degraded, clean, *extras = batch
    side = degraded.shape[-1]
    scale = clean.shape[-1] // degraded.shape[-1]
    spare = side // 128 * 16  # networks take multiples of 16
    row, column = (2 * int(rng.integers(spare // 2 + 1)) for _ in range(2))
    flipped_axes = [-1] if rng.random() < 0.5 else []
    rest = side - spare
    crops = []
    for pictures, n in ((degraded, 1), (clean, scale)):
        rows = slice(n * row, n * (row + rest))
        columns = slice(n * column, n * (column + rest))
        crops.append(pictures[..., rows, columns].flip(flipped_axes).contiguous())
    return (*crops, *extras)


def in_order(make: Callable[[int], T], numbers: range, workers: int) -> Generator[T]:
    """Yield `make(number)` for each number in order, computed by `workers` processes that are at most
    `PREFETCH` results ahead.

    Errors of a worker are raised here. Closing the generator ends the workers.
    """
    # in this process nothing has to be started
    if not workers:
        return (make(number) for number in numbers)
    try:  # without shared memory DataLoader would fail halfway and leave workers behind
        multiprocessing.get_context("spawn").Lock()
    except OSError as error:
        raise WorkerError(
            f"no processes can be started to make batches ({error.strerror}); they need shared memory, "
            "/dev/shm on Linux: mount it, or set `workers=0`"
        ) from error
    loader = DataLoader(
        _MapDataset(make),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        prefetch_factor=PREFETCH,
        collate_fn=_MapDataset.identity,
        worker_init_fn=_begin_worker,
        # a fork would copy locks held by threads that it doesn't copy
        multiprocessing_context="spawn",
    )
    return _closing_workers(iter(loader))


def _closing_workers(results: Any) -> Generator[Any]:
    try:
        for result in results:
            if isinstance(result, VidRestoreError):
                raise result
            yield result
    finally:
        with suppress(RuntimeError):  # a worker that dies meanwhile has ended as well
            results._shutdown_workers()


class _MapDataset(Dataset[T | VidRestoreError], Generic[T]):
    """The results of `make` by number; VidRestoreErrors are returned: raised in a worker, they would get a
    traceback.
    """

    def __init__(self, make: Callable[[int], T]) -> None:
        self.make = make

    def __getitem__(self, number: int) -> T | VidRestoreError:
        try:
            return self.make(number)
        except VidRestoreError as error:
            return error

    @staticmethod
    def identity(result: Any) -> Any:
        return result


def _begin_worker(worker: int) -> None:
    """Ignore what reaches the whole process group: the main process saves, then ends workers. If it is killed
    they end, too: torch would wait for the process that adopts them.
    """
    # signals of the terminal reach all processes; only the main one acts on them
    end_with_parent()
    for number in (*STOPS, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else [])):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(GRACE))


class WorkerError(VidRestoreError):
    """A worker that makes batches has ended unexpectedly."""


@contextmanager
def worker_errors() -> Iterator[None]:
    """Raise WorkerError in place of torch's error if a worker ends while the block runs."""
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith(
            "DataLoader worker"
        ):
            raise
        raise WorkerError(
            f"a process that makes batches has ended ({error}); go on with `resume`, and fewer `workers` "
            "if memory ran out"
        ) from error


def on_device(batch: tuple[Any, ...], device: torch.device) -> tuple[Any, ...]:
    """Move the tensors of a batch to a device; to a GPU by pinned memory, without waiting for the copy."""
    # pinned memory lets the copy run beside the computation
    is_gpu = device.type == "cuda"

    def moved(tensor: Tensor) -> Tensor:
        return (tensor.pin_memory() if is_gpu else tensor).to(
            device, non_blocking=is_gpu
        )

    return tuple(moved(part) if isinstance(part, Tensor) else part for part in batch)
