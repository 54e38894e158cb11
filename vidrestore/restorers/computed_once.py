"""Results that neighbouring frames share, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
FACTORS = (-7046029254386353131, -4417276706812531889)  # odd, of 64 bits


class ComputedOnce(Generic[T]):
    """The last `room` results by the keys of their inputs; any method may run in several threads at once."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.lock = Lock()
        self.results: dict[Hashable, Future[T]] = {}

    def get(self, keys: Sequence[Hashable], compute: Callable[[list[int]], Sequence[T]]) -> list[T]:
        """Return the result of each key. `compute` is called once, with the positions of those keys that no
        thread has computed or is computing; for the others' results this thread waits.
        """
        with self.lock:
            own = [at for at, key in enumerate(keys) if self._is_new(key)]
            results = [self.results[key] for key in keys]
            for oldest in list(self.results)[: -self.room]:
                del self.results[oldest]
        if own:
            try:
                for at, result in zip(own, compute(own), strict=True):
                    results[at].set_result(result)
            except BaseException as error:
                with self.lock:
                    for at in own:
                        self.results.pop(keys[at], None)
                for at in own:
                    results[at].set_exception(error)
        return [result.result() for result in results]

    def _is_new(self, key: Hashable) -> bool:
        """Return True for a key without a result, and announce one."""
        if key in self.results:
            return False
        self.results[key] = Future()
        return True


def keys_of(pictures: Tensor) -> list[tuple[int, ...]]:
    """Return a key for each of (N, ...) float32 pictures: equal ones have the same key, others hardly ever.

    A key is two sums of all samples' bits, modulo 2^64, each sample times a number of its own. Keys are
    computed on the pictures' device and read all together.
    """
    numbers = torch.arange(1, pictures[0].numel() + 1, device=pictures.device)
    weights = [_scrambled(numbers, factor) for factor in FACTORS]
    sums = []
    for picture in pictures:
        samples = picture.flatten().view(torch.int32)
        sums += [(samples * each).sum() for each in weights]
    return [tuple(key) for key in torch.stack(sums).view(len(pictures), -1).tolist()]


def _scrambled(numbers: Tensor, factor: int) -> Tensor:
    """Return odd numbers of 64 bits that look random, as the generator SplitMix64 makes them."""
    for shift in (30, 27):
        numbers = (numbers ^ (numbers >> shift)) * factor
    return (numbers ^ (numbers >> 31)) | 1
