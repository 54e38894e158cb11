"""Stages of a job that run at the same time: iterators produced ahead in threads, between queues that are
bounded in bytes.

A job is a chain of plain generators. `buffered` moves everything before it into a thread of its own;
`at_once` works on several items at once and gives the results in order. Both raise errors where
their results are consumed, and both stop their threads and close their inputs when their own iterator is
closed: at the end, after an error further down, or at Ctrl-C. A worker of `at_once` stops at its next
`check_stop`; one that is in a call of a network for longer than `cores.PATIENCE` is left behind, and its
result is dropped.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Generic, TypeVar

from vidrestore.cores import MEMBER, Crew, Deal, one_thread, use_one_thread
from vidrestore.pixels.frames import Frame
from vidrestore.working import HERE, LOOK, Meter, check_stop

QUEUE_BYTES = 4 << 20  # frames that a stage runs ahead of the next
# The same beside a GPU, which takes and gives whole clips: two of 1080p in 10 bits. Decoder and encoder work
# while it does, and it works while they lag behind.
GPU_QUEUE_BYTES = 256 << 20
T = TypeVar("T")
R = TypeVar("R")


class ByteQueue(Generic[T]):
    """Hands items from one thread to another; holds at most `limit` bytes, or one item."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0  # bytes of the items in the queue
        self._items: deque[tuple[T, int]] = deque()
        self._changed = threading.Condition()
        self.closed = threading.Event()  # the consumer wants no more items
        self._ended = False  # the producer has put its last item
        # the producer's, raised after that item
        self._error: BaseException | None = None

    def put(self, item: T, size: int) -> bool:
        """Wait for room and add `item` of `size` bytes; return False if the consumer has closed the queue."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.closed.is_set()
                    or not self._items
                    or self.held + size <= self.limit
                )
            )
            if self.closed.is_set():
                return False
            self._items.append((item, size))
            self.held += size
            self._changed.notify_all()
            return True

    def end(self, error: BaseException | None = None) -> None:
        """End the queue after its last item: the consumer's loop ends there, or raises `error`."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """Discard all items and stop the producer; the consumer calls it."""
        with self._changed:
            self.closed.set()
            self._items.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        """Yield items as they come, then raise the producer's error, if it had one."""
        while True:
            with self._changed:
                while not self._changed.wait_for(
                    lambda: self._items or self._ended, LOOK
                ):
                    report_progress()
                if not self._items:
                    break
                item, size = self._items.popleft()
                self.held -= size
                self._changed.notify_all()
            yield item
            del item  # free its memory while waiting for the next
        if self._error is not None:
            raise self._error


def report_progress() -> None:
    """Send progress from a thread that waits. Raises Stopped if it is to end."""
    check_stop()
    if HERE.meter is not None:
        HERE.meter.look()


def frames_ahead(
    frames: Iterable[Frame], *, on_gpu: bool = False
) -> closing[Generator[Frame]]:
    """Return a context of the same frames, produced a few ahead, or two clips beside a GPU."""
    limit = GPU_QUEUE_BYTES if on_gpu else QUEUE_BYTES
    return closing(buffered(frames, limit, lambda frame: frame.nbytes))


def buffered(items: Iterable[T], limit: int, size: Callable[[T], int]) -> Generator[T]:
    """Yield the same items, produced in a thread of their own, at most `limit` bytes (as measured by `size`)
    ahead. It can deal parts to the workers that the thread of the first `next` can deal them to.

    Nothing runs before the first `next`. An error while producing is raised here, after the items
    that came before it.
    """
    queue: ByteQueue[T] = ByteQueue(limit)
    arguments = items, queue, size, HERE.meter, MEMBER.crew
    thread = threading.Thread(target=_produce, args=arguments, daemon=True)
    thread.start()
    try:
        yield from queue
    finally:
        queue.close()
        thread.join()


def _produce(
    items: Iterable[T],
    queue: ByteQueue[T],
    size: Callable[[T], int],
    meter: Meter | None,
    crew: Crew | None,
) -> None:
    """Put the items into a queue until it is closed, in a thread; then close them and pass an error on."""
    error: BaseException | None = None
    HERE.flag, HERE.meter, MEMBER.crew = queue.closed, meter, crew
    use_one_thread()
    try:
        for item in items:
            if not queue.put(item, size(item)):
                break
            del item
    except BaseException as caught:
        error = caught
    try:
        close(items)
    except BaseException as caught:
        error = error or caught
    queue.end(error)


def at_once(
    work: Callable[[T], R], items: Iterable[T], most: int, workers: int
) -> Generator[R]:
    """`map` of `work` by `workers`, `most` items at once: results in the order of `items`, which are read at
    most `most` + 1 ahead of the results. `work` runs in a worker, which can deal parts of it to the others
    (`cores.dealt`), as can what makes the items. The workers are its own, or those that files share.
    """
    pending, stop, trim, trimmed = (
        deque[Future[R]](),
        threading.Event(),
        find_trim(),
        time.monotonic(),
    )
    deal = Deal(work, most, stop, HERE.meter, is_of_clips=True)
    with one_thread(), _crew_of(workers) as crew:
        crew.begin(deal)
        try:
            for item in _items_with(crew, items):
                pending.append(crew.add(deal, item))
                del item
                if len(pending) > most:
                    yield _result(pending.popleft())
                if trim is not None and time.monotonic() - trimmed >= TRIM_PERIOD:
                    trim(0)
                    trimmed = time.monotonic()
            while pending:
                yield _result(pending.popleft())
        finally:
            stop.set()
            crew.end(deal)
            close(items)


def _crew_of(workers: int) -> AbstractContextManager[Crew]:
    """Return the crew that this thread shares with others, if it has as many workers; else one of its own."""
    crew = MEMBER.crew
    if crew is not None and crew.is_shared and crew.count == workers:
        return nullcontext(crew)
    return Crew(workers)


def _items_with(crew: Crew, items: Iterable[T]) -> Generator[T]:
    """Yield items whose making can deal parts to a crew, as nothing else in this thread can."""
    source = iter(items)
    while True:
        before, MEMBER.crew = MEMBER.crew, crew
        try:
            item = next(source)
        except StopIteration:
            return
        finally:
            MEMBER.crew = before
        yield item
        del item


def _result(future: Future[R]) -> R:
    while not wait((future,), LOOK).done:
        report_progress()
    return future.result()


def close(items: Iterable[object]) -> None:
    """Close a generator, so that its `finally` blocks run now and here; ignore other iterables."""
    closing = getattr(items, "close", None)
    if closing is not None:
        closing()


# Clips are freed in another order than they were allocated in, by several threads, and glibc keeps what lies
# idle between the blocks that are still used: measured, the peak of a 1,000-frame video was 14 % above that
# of 100 frames, although both need the same. So that memory is given back to the system now and then; giving
# back at every clip costs time, since the next clip needs the same pages again.
TRIM_PERIOD = 2.0  # seconds


def find_trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`; None if the C library has none (musl, macOS, Windows)."""
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
