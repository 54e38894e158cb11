"""The machinery that lets stages of a job run at the same time."""

import ctypes
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from vidrestore.pipeline.chain import at_once, buffered, find_trim, frames_ahead
from vidrestore.working import HERE, Meter, begin_task, steps


def unit(item: object) -> int:
    return 1


def threads() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
    }


def endless(closed: threading.Event) -> Iterator[int]:
    try:
        yield from iter(int, 1)
    finally:
        closed.set()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threads()
    yield
    assert threads() <= before


@pytest.mark.parametrize("count", [0, 1, 100])
def test_buffered_gives_every_item_in_order(count):
    assert list(buffered(range(count), 3, unit)) == list(range(count))


def test_buffered_runs_ahead_by_no_more_bytes_than_allowed():
    made = [threading.Event() for _ in range(100)]

    def items() -> Iterator[int]:
        for index, event in enumerate(made):
            event.set()
            yield index

    with closing(buffered(items(), limit=50, size=lambda item: 10)) as ahead:
        assert next(ahead) == 0
        # five wait in the queue, and one is in the producer's hand
        assert made[6].wait(60)
        assert not made[7].wait(0.05)


@pytest.mark.parametrize("on_gpu, waiting", [(False, 1), (True, 43)])
def test_two_clips_of_1080p_in_10_bits_wait_beside_a_gpu_and_a_frame_beside_a_cpu(
    on_gpu, waiting
):
    made = [threading.Event() for _ in range(100)]

    def items() -> Iterator[SimpleNamespace]:
        for event in made:
            event.set()
            yield SimpleNamespace(nbytes=2 * 1920 * 1080 * 3 // 2)

    with frames_ahead(items(), on_gpu=on_gpu) as frames:
        next(frames)
        assert made[waiting + 1].wait(60)
        assert not made[waiting + 2].wait(0.05)


def test_an_item_larger_than_the_limit_still_passes():
    assert list(buffered([b"x" * 100, b"y" * 100], limit=10, size=len)) == [
        b"x" * 100,
        b"y" * 100,
    ]


def test_an_error_of_the_producer_comes_after_the_items_before_it():
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("at the third")

    seen = []
    with pytest.raises(ValueError, match="at the third"):
        for item in buffered(items(), 10, unit):
            seen.append(item)
    assert seen == [1, 2]


def test_closing_stops_a_producer_that_waits_for_room_and_closes_what_it_reads():
    closed = threading.Event()
    frames = buffered(endless(closed), 2, unit)
    next(frames)
    frames.close()
    assert closed.is_set()


def test_an_error_in_the_middle_of_a_chain_stops_both_sides():
    closed = threading.Event()

    def failing(items: Iterator[int]) -> Iterator[int]:
        for index, item in enumerate(items):
            if index == 5:
                raise ValueError("the middle")
            yield item

    with (
        closing(buffered(endless(closed), 2, unit)) as first,
        closing(buffered(failing(first), 2, unit)) as second,
        pytest.raises(ValueError, match="the middle"),
    ):
        list(second)
    assert closed.is_set()


@pytest.mark.parametrize("workers", [2, 5])
def test_results_keep_the_order_if_every_second_item_is_done_before_the_one_before_it(
    workers,
):
    done = [threading.Event() for _ in range(10)]

    def square(item: int) -> int:
        assert item % 2 or done[item + 1].wait(5)
        done[item].set()
        return item * item

    assert list(at_once(square, range(10), workers, workers)) == [
        item * item for item in range(10)
    ]


def test_no_more_than_one_item_is_read_beyond_those_worked_on():
    items = iter(range(100))
    with closing(at_once(lambda item: item, items, 2, 2)) as results:
        next(results)
        assert next(items) == 3


def test_the_error_of_a_call_is_raised_in_its_place():
    def failing(item: int) -> int:
        if item == 3:
            raise ValueError("item 3")
        return item

    results = at_once(failing, range(10), 2, 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="item 3"):
        next(results)


def test_a_worker_between_two_tiles_stops_when_nobody_waits_for_its_result():
    ended = threading.Event()

    def restore(item: int) -> None:
        try:
            for _ in steps(range(10_000)):
                time.sleep(0.01)
        finally:
            ended.set()

    begun = buffered(at_once(restore, range(3), 2, 2), 1, unit)
    began = time.monotonic()
    stopped_while_waiting(begun)
    assert time.monotonic() - began < 5 and ended.is_set()


def test_a_call_of_a_network_that_takes_longer_is_left_behind(release):
    began = time.monotonic()
    stopped_while_waiting(
        buffered(at_once(lambda item: release.wait(60), range(3), 2, 2), 1, unit)
    )
    assert time.monotonic() - began < 5


def test_a_second_stage_that_waits_for_the_first_stops_with_it(release):
    began = time.monotonic()
    first = buffered(at_once(lambda item: release.wait(60), range(3), 2, 2), 1, unit)
    stopped_while_waiting(buffered(at_once(str, first, 2, 2), 1, unit))
    assert time.monotonic() - began < 5


def stopped_while_waiting(items: Generator[object]) -> None:
    """Close a chain while its consumer waits for the first item, as Ctrl-C does."""

    def interrupt() -> None:
        if time.monotonic() - began > 0.3:
            raise KeyboardInterrupt

    began = time.monotonic()
    HERE.meter = Meter(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), closing(items):
            next(items)
    finally:
        HERE.meter = None


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What a slow network waits for, at the latest the end of the test."""
    event, before = threading.Event(), threads()
    yield event
    event.set()
    for thread in threads() - before:
        thread.join(10)


def test_the_meter_counts_parts_of_frames_in_nested_steps():
    HERE.meter, seen = Meter(), []
    try:
        begin_task(8)
        for _ in steps("ab"):
            for _ in steps("cd"):
                seen.append(HERE.meter.frames)
        HERE.reach(1.0)
        assert (seen, HERE.meter.frames) == ([0, 2, 4, 6], 8)
    finally:
        HERE.meter = None


@pytest.mark.skipif(find_trim() is None, reason="the C library has no malloc_trim")
def test_trimming_returns_idle_memory_below_a_used_block():
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    # too small for glibc to map apart
    blocks = [library.malloc(64 << 10) for _ in range(1000)]
    for block in blocks:
        ctypes.memset(block, 1, 64 << 10)
    # the last one is on top, and the heap can't shrink below it
    for block in blocks[:-1]:
        library.free(block)
    held = resident()
    find_trim()(0)
    returned = held - resident()
    library.free(blocks[-1])
    assert returned > 0.9 * 1000 * (64 << 10)


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
