"""Use the cores: deal the parts of one piece of work to workers, threads with one thread of torch each.

Torch can divide an operation among threads, but they wait for each other at its end, spinning: at thousands
of small operations, and on a busy machine for one that isn't scheduled [measured: 154 s of CPU instead of
15]. So no operation is divided. Work that has parts (clips, frames, tiles, groups of patches) deals them:

    def restored(clip):                              # runs in a worker (`pipeline.chain.at_once`)
        for change in dealt(filtered, tracks.split(32)):
            total += change                          # in the order of the tracks

`dealt` is `map` for functions that may run in other threads. Results come in the order of the items, so sums
of them have the same bits for any number of workers. The thread that deals takes parts itself, and other
workers take them when they have nothing newer to do. Parts can deal parts. So never more than the workers
run, and none waits for a part that isn't running. What makes the clips can deal parts, too; in other threads
`dealt` is `map`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, TypeVar

import torch

from vidrestore.working import HERE, LOOK, WORKER, Meter, check_stop, steps

# parts of a deal per worker that are taken or done before the oldest of them is used
AHEAD = 2
PATIENCE = 0.5  # seconds that workers get to stop
T = TypeVar("T")
R = TypeVar("R")


class Deal(Generic[T, R]):
    """Items that workers take in order, at most `most` at a time. The lock of its crew guards all fields.

    flag, meter: of the threads that run `function`, see `working`.
    is_of_clips: its items are whole clips, not parts of one.
    """

    def __init__(
        self,
        function: Callable[[T], R],
        most: int,
        flag: threading.Event | None,
        meter: Meter | None,
        *,
        is_of_clips: bool = False,
    ) -> None:
        self.function, self.most, self.flag, self.meter = function, most, flag, meter
        self.is_of_clips = is_of_clips
        self.is_inference, self.is_mixed = (
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
        )
        self.half_type = torch.get_autocast_dtype("cpu")
        self.waiting = deque[tuple[Future[R], T]]()
        self.running = 0


class Crew:
    """Workers: `count` threads that run until the end of the `with` block; what they run then is asked to
    stop, and left behind if it takes longer than PATIENCE.

    is_shared: files that are restored side by side deal their clips to it, instead of to crews of their own.
    """

    def __init__(self, count: int, *, is_shared: bool = False) -> None:
        self.count, self.is_shared = count, is_shared
        self._changed = threading.Condition()
        # those of clips first, of them the newest first; then those of parts, the newest last
        self._deals: list[Deal[Any, Any]] = []
        self._has_ended = False
        self._threads = [
            threading.Thread(target=self._work, name=WORKER, daemon=True)
            for _ in range(count)
        ]

    def __enter__(self) -> Crew:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._has_ended = True
            for deal in self._deals:
                deal.waiting.clear()
            self._changed.notify_all()
        last = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, last - time.monotonic()))

    def begin(self, deal: Deal[T, R]) -> None:
        with self._changed:
            self._deals.insert(0 if deal.is_of_clips else len(self._deals), deal)

    def end(self, deal: Deal[T, R]) -> None:
        """Forget the items of a deal that nobody has taken."""
        with self._changed:
            self._deals.remove(deal)
            deal.waiting.clear()

    def add(self, deal: Deal[T, R], item: T) -> Future[R]:
        """Let workers take an item; return its future result."""
        future = Future[R]()
        with self._changed:
            deal.waiting.append((future, item))
            self._changed.notify()
        return future

    def idle(self) -> int:
        """Return how many workers have nothing to run."""
        with self._changed:
            tasks = sum(deal.running + len(deal.waiting) for deal in self._deals)
        return max(0, self.count - tasks)

    def take_part(self, deal: Deal[Any, Any] | None = None) -> bool:
        """Run the next item of a deal in this thread, by default of any that has no whole clips; return False
        if there is none to be taken.
        """
        with self._changed:
            parts = [other for other in self._deals if not other.is_of_clips]
            task = self._next(parts if deal is None else [deal])
        if task is not None:
            self._run(*task)
        return task is not None

    def _work(self) -> None:
        """Run items until the end, those of the newest deal of parts first, then clips of the oldest file: so
        clips in progress end before others begin.
        """
        use_one_thread()
        MEMBER.crew = self
        while True:
            with self._changed:
                while (task := self._next(self._deals)) is None and not self._has_ended:
                    self._changed.wait()
            if task is None:
                return
            self._run(*task)
            del task  # free its memory while waiting for the next

    def _next(
        self, deals: Sequence[Deal[Any, Any]]
    ) -> tuple[Deal[Any, Any], Future[Any], Any] | None:
        """Take the next item of the last deal that has one."""
        for deal in reversed(deals):
            if deal.waiting and deal.running < deal.most:
                deal.running += 1
                return deal, *deal.waiting.popleft()
        return None

    def _run(self, deal: Deal[T, R], future: Future[R], item: T) -> None:
        state = dict(HERE.__dict__)
        HERE.flag, HERE.meter = deal.flag, deal.meter
        try:
            mixed = torch.autocast("cpu", deal.half_type, enabled=deal.is_mixed)
            with torch.inference_mode(deal.is_inference), mixed:
                future.set_result(deal.function(item))
        except BaseException as error:
            future.set_exception(error)
        HERE.__dict__.update(state)
        with self._changed:
            deal.running -= 1
            if deal.waiting:
                self._changed.notify()


class Member(threading.local):
    """The crew that this thread can deal to; None if it neither works nor makes items for it."""

    crew: Crew | None = None


MEMBER = Member()


def dealt(
    function: Callable[[T], R], items: Iterable[T], most: int | None = None
) -> Generator[R]:
    """Yield `function(item)` for each item, in order; the calls may run in other threads, at most `most` at
    once, by default as many as there are workers.

    The items of a sequence are equal parts of the present step (`working.steps`); an iterator, which this
    thread runs AHEAD items per worker ahead of the results, counts its own. An error of a call is raised in
    its place.
    """
    crew, sequence = MEMBER.crew, items if isinstance(items, Sequence) else ()
    count = (
        1
        if crew is None
        else min(crew.count, len(sequence) or crew.count, most or crew.count)
    )
    if crew is None or count < 2:
        yield from map(function, steps(sequence) if sequence else items)
        return
    # results come in the order of the items; while one is missing, this thread takes parts itself
    begin, share, position, parts = (
        HERE.begin,
        HERE.part / (len(sequence) or 1),
        0,
        iter(items),
    )
    deal, futures = Deal(function, count, HERE.flag, None), deque[Future[R]]()
    crew.begin(deal)
    try:
        while True:
            for item in islice(parts, AHEAD * count - len(futures)):
                futures.append(crew.add(deal, item))
            if not futures:
                break
            future = futures.popleft()
            while not future.done():
                check_stop()
                if not crew.take_part(deal):
                    wait((future,), LOOK)
            if sequence:
                position += 1
                HERE.reach(begin + position * share)
            yield future.result()
    finally:
        crew.end(deal)


def idle_workers() -> int:
    """Return how many workers beside this one have nothing to run; 0 in a thread that is no worker."""
    return 0 if MEMBER.crew is None else MEMBER.crew.idle()


def result_of_other(future: Future[R]) -> R:
    """Return the result of another worker's work; take parts of others until it is there. This thread must
    not have promised results that those parts could wait for.
    """
    while not future.done():
        check_stop()
        if MEMBER.crew is None or not MEMBER.crew.take_part():
            wait((future,), LOOK)
    return future.result()


def use_one_thread() -> None:
    """Let torch divide no operation of this thread. Every thread that computes calls it first: a new one
    takes all cores for some operations, whatever another thread has set.
    """
    torch.set_num_threads(1)


@contextmanager
def one_thread() -> Generator[None]:
    """Let torch divide no operation of this thread in the block; afterwards those of a caller as before."""
    before = torch.get_num_threads()
    use_one_thread()
    try:
        yield
    finally:
        torch.set_num_threads(before)
