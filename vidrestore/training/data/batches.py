"""Batches in the order of the steps, made by this process or ahead of time by others, with equal content."""

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
from torch.utils.data import DataLoader, Dataset

from vidrestore.errors import VidRestoreError

T = TypeVar("T")
WAITING = 2  # results that each process makes ahead
GRACE = 60  # seconds from SIGTERM to a worker's end, for the first process to save and end it


@dataclass(frozen=True)
class Share:
    """The part of every batch that one of `count` training processes computes."""

    rank: int = 0
    count: int = 1

    def of(self, size: int) -> slice:
        """Its numbers of a batch, which `count` divides."""
        part = size // self.count
        return slice(self.rank * part, (self.rank + 1) * part)


WHOLE = Share()


class Source(ABC):
    """A source of batches: each follows from the seed and its step alone, so a resumed run sees what it
    would have seen.
    """

    @abstractmethod
    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Any, ...]:
        """The batch of a step, or one process's share of it."""

    def batches(
        self, steps: range, size: int, workers: int = 0, share: Share = WHOLE
    ) -> Generator[tuple[Any, ...]]:
        """Those of all steps, in order, made by `workers` processes; 0: by this one, each when it is asked
        for.
        """
        return in_order(partial(self.batch, size=size, share=share), steps, workers)


class Reused(Source):
    """Batches of pictures of another source, each taken in `times` steps in a row, varied anew in each.

    Where networks learn faster than batches are made, that is nearly as good as as many new ones (D. Choi et
    al., "Faster Neural Network Training with Data Echoing", 2019). `place` brings a batch to where it is
    varied.
    """

    def __init__(
        self,
        source: Source,
        times: int,
        seed: int,
        place: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda batch: batch,
    ) -> None:
        self.source, self.times, self.seed, self.place = source, times, seed, place

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Any, ...]:
        """See `Source.batch`."""
        return self._varied(self.place(self.source.batch(step // self.times, size, share)), step)

    def batches(
        self, steps: range, size: int, workers: int = 0, share: Share = WHOLE
    ) -> Generator[tuple[Any, ...]]:
        """See `Source.batches`."""
        numbers = range(steps.start // self.times, -(-steps.stop // self.times))
        with closing(self.source.batches(numbers, size, workers, share)) as made:
            for number, batch in zip(numbers, made, strict=True):
                placed = self.place(batch)
                for step in range(number * self.times, (number + 1) * self.times):
                    if step in steps:
                        yield self._varied(placed, step)

    def _varied(self, batch: tuple[Any, ...], step: int) -> tuple[Any, ...]:
        return varied(batch, np.random.default_rng((self.seed, 2, step)))


def varied(batch: tuple[Any, ...], draw: np.random.Generator) -> tuple[Any, ...]:
    """Pictures (..., S, S) and what they should become (..., n S, n S), cut by an eighth at most, at a drawn
    place, and mirrored by chance, left to right alone: rain falls. What else there is stays.
    """
    given, wanted, *others = batch
    side, scale = given.shape[-1], wanted.shape[-1] // given.shape[-1]
    spare = side // 128 * 16  # networks take multiples of 16
    row, column = (2 * int(draw.integers(spare // 2 + 1)) for _ in range(2))
    mirrored = [-1] if draw.random() < 0.5 else []
    cut = (
        part[..., n * row : n * (row + side - spare), n * column : n * (column + side - spare)]
        for part, n in ((given, 1), (wanted, scale))
    )
    return (*(part.flip(mirrored).contiguous() for part in cut), *others)


def in_order(make: Callable[[int], T], numbers: range, workers: int) -> Generator[T]:
    """`make` of each number; by `workers` processes, which are at most `WAITING` results each ahead. What
    they raise is raised here.

    Closing the generator ends the processes.
    """
    if not workers:
        return (make(number) for number in numbers)
    _check_shared_memory()
    loader = DataLoader(
        _Made(make),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        prefetch_factor=WAITING,
        collate_fn=_as_it_is,
        worker_init_fn=_leave_signals,
        # a fork would carry over locks of threads that are not there any more
        multiprocessing_context="spawn",
    )
    return _ending(iter(loader))


def _check_shared_memory() -> None:
    """Processes need semaphores, which lie there; DataLoader without them leaves half an object behind."""
    try:
        multiprocessing.get_context("spawn").Lock()
    except OSError as error:
        raise WorkerError(
            f"no processes can be started to make batches ({error.strerror}); they need shared memory, "
            "/dev/shm on Linux: have it mounted, or give `workers=0`"
        ) from error


def _ending(results: Iterator[T | VidRestoreError]) -> Generator[T]:
    try:
        for result in results:
            yield _given(result)
    finally:
        # private; without, they end once no traceback holds `results`
        end = getattr(results, "_shutdown_workers", None)
        if end:
            with suppress(RuntimeError):  # one that breaks while it is ended has ended, too
                end()


class _Made(Dataset[T | VidRestoreError], Generic[T]):
    """The results of `make`, by number, or an error for the user: raised in another process it would come
    with that one's traceback.
    """

    def __init__(self, make: Callable[[int], T]) -> None:
        self.make = make

    def __getitem__(self, number: int) -> T | VidRestoreError:
        try:
            return self.make(number)
        except VidRestoreError as error:
            return error


def _given(result: T | VidRestoreError) -> T:
    if isinstance(result, VidRestoreError):
        raise result
    return result


def _as_it_is(result: T) -> T:
    return result


def _leave_signals(worker: int) -> None:
    """Ctrl-C, and what stops a whole group of processes, reaches all; the first one ends the others, at their
    leisure.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(GRACE))


class WorkerError(VidRestoreError):
    """A process that makes batches has ended before its time."""


@contextmanager
def workers_watched() -> Iterator[None]:
    """WorkerError in place of what torch raises, anywhere in the block, where such a process has ended."""
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith("DataLoader worker"):
            raise
        raise WorkerError(
            f"a process that makes batches has ended ({error}); go on with `resume`, and fewer `workers` "
            "where memory ran out"
        ) from error
