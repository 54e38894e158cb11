"""Batches in the order of the steps, made by this process or, ahead of time, by others: the same either way."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader, Dataset

from vidrestore.errors import VidRestoreError

T = TypeVar("T")
WAITING = 2  # results that each process makes ahead


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
    """Where batches come from: one follows from the seed and its step alone, so a resumed run sees what it would have seen."""

    @abstractmethod
    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Any, ...]:
        """The batch of a step, or one process's share of it."""

    def batches(self, steps: range, size: int, workers: int = 0, share: Share = WHOLE) -> Iterator[tuple[Any, ...]]:
        """Those of all steps, in order, made by `workers` processes; 0: by this one, each when it is asked for."""
        return in_order(partial(self.batch, size=size, share=share), steps, workers)


def in_order(make: Callable[[int], T], numbers: range, workers: int) -> Iterator[T]:
    """`make` of each number; by `workers` processes, which are at most `WAITING` results each ahead. What they raise is raised here."""
    if not workers:
        return map(make, numbers)
    results = iter(
        DataLoader(
            _Made(make),
            batch_size=None,
            sampler=numbers,
            num_workers=workers,
            prefetch_factor=WAITING,
            collate_fn=_as_it_is,
            worker_init_fn=_leave_interrupts,
            multiprocessing_context="spawn",  # a fork would carry over locks of threads that are not there any more
        )
    )
    return map(_given, results)


class _Made(Dataset[T | VidRestoreError], Generic[T]):
    """What `make` makes, by number, or an error for the user: raised in another process it would come with that one's traceback."""

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


def _leave_interrupts(worker: int) -> None:
    """Ctrl-C reaches all processes; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
