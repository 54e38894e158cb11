"""Parts of work dealt to workers."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain

import pytest
import torch
from torch import Tensor

from vidrestore.cores import dealt, result_of_other
from vidrestore.models import fields
from vidrestore.models.mb_taylorformer import ConvolutionPair
from vidrestore.models.vsr_transformer import ResidualBlock
from vidrestore.pipeline.chain import at_once, buffered
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.settings.options import RestoreOptions
from vidrestore.working import HERE, Meter, begin_task, steps


def in_workers(work: Callable[[], object], workers: int) -> object:
    """Return what `work` returns in one of some workers."""
    (result,) = at_once(lambda _: work(), [None], 1, workers)
    return result


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_parts_come_in_order_whichever_is_done_first(workers):
    def slow(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number * number

    assert in_workers(lambda: list(dealt(slow, range(20))), workers) == [
        number**2 for number in range(20)
    ]


def test_parts_run_in_all_workers_at_the_same_time_but_no_more():
    together, running, most = threading.Barrier(3), set[int](), []

    def meet(number: int) -> None:
        running.add(number)
        most.append(len(running))
        together.wait(30)
        running.discard(number)

    in_workers(lambda: list(dealt(meet, range(9))), 3)
    assert max(most) == 3


def test_what_makes_the_items_deals_parts_to_the_workers_too():
    together = threading.Barrier(2)

    def meet(field: int) -> int:
        together.wait(30)
        return field

    def decoded() -> Iterator[list[int]]:
        for clip in range(3):
            yield list(dealt(meet, (2 * clip, 2 * clip + 1)))

    ahead = buffered(decoded(), 1, lambda clip: 1)
    assert list(at_once(sum, ahead, 2, 2)) == [1, 5, 9]


def test_no_more_parts_run_at_once_than_memory_allows():
    running, most, lock = set[int](), [], threading.Lock()

    def counted(number: int) -> None:
        with lock:
            running.add(number)
            most.append(len(running))
        time.sleep(0.01)
        with lock:
            running.discard(number)

    in_workers(lambda: list(dealt(counted, range(12), most=2)), 4)
    assert max(most) == 2


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_parts_that_deal_parts_of_their_own_end(workers):
    def inner(number: int) -> list[int]:
        return list(dealt(lambda part: number + part, range(5)))

    def outer() -> list[int]:
        return list(chain.from_iterable(dealt(inner, range(0, 50, 10))))

    clips = list(at_once(lambda _: outer(), range(4), workers, workers))
    assert (
        clips
        == [[number + part for number in range(0, 50, 10) for part in range(5)]] * 4
    )


def test_a_clip_that_waits_for_another_ones_result_takes_parts_of_it():
    helped, promised = threading.Event(), threading.Barrier(2)
    future: list[object] = []

    def first() -> int:
        from concurrent.futures import Future

        future.append(Future())
        promised.wait(30)
        # one part waits until another thread than this one runs the other
        list(
            dealt(lambda number: helped.set() if number else helped.wait(30), range(2))
        )
        future[0].set_result(7)
        return 1

    def second() -> int:
        promised.wait(30)
        return result_of_other(future[0])

    assert list(at_once(lambda work: work(), [first, second], 2, 2)) == [1, 7]
    assert helped.is_set()


def test_the_error_of_a_part_is_raised_where_its_result_is_used():
    def failing(number: int) -> int:
        if number == 3:
            raise ValueError("part 3")
        return number

    def parts() -> list[int]:
        seen = []
        with pytest.raises(ValueError, match="part 3"):
            for number in dealt(failing, range(8)):
                seen.append(number)
        return seen

    assert in_workers(parts, 2) == [0, 1, 2]


def test_a_thread_that_is_no_worker_runs_all_parts_itself():
    assert set(dealt(lambda _: threading.get_ident(), range(3))) == {
        threading.get_ident()
    }


def test_every_worker_has_one_thread_of_torch_and_the_callers_count_returns():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counts = at_once(
            lambda _: list(dealt(lambda _: torch.get_num_threads(), range(6))),
            [None],
            1,
            3,
        )
        assert list(counts) == [[1] * 6]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_progress_counts_parts_of_a_clip_that_is_not_done():
    HERE.meter, seen, gate = Meter(), [], threading.Event()

    def clip(_: object) -> None:
        begin_task(10)
        for _ in steps("ab", (4, 1)):
            for _ in dealt(lambda _: list(steps(range(3))), range(4)):
                seen.append(round(HERE.counted, 6))

    try:
        list(at_once(clip, [None], 1, 2))
        assert seen == [2, 4, 6, 8, 8.5, 9, 9.5, 10]
        assert HERE.meter.frames == pytest.approx(10)
    finally:
        HERE.meter = None
        gate.set()


@pytest.fixture(scope="module")
def noisy() -> Iterator[Tensor]:
    yield 128 + 20 * torch.randn(3, 72, 80, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("frames", [1, 3])
def test_one_two_and_three_workers_denoise_to_the_same_bits(noisy, frames):
    restorer = DenoiseRestorer(RestoreOptions(device="cpu"))
    restorer.tracks = 4  # several parts of a small picture

    def denoised() -> Tensor:
        with torch.inference_mode():
            return restorer.restore((noisy[:frames],), (20.0,))[0]

    one, two, three = (in_workers(denoised, workers) for workers in (1, 2, 3))
    assert torch.equal(one, two) and torch.equal(one, three)
    assert not torch.equal(one, noisy[:frames])


@pytest.mark.parametrize(
    "pair", [ConvolutionPair(16, 0.1), ResidualBlock(16)], ids=["mbt", "vsr"]
)
@pytest.mark.parametrize("workers", [2, 3])
def test_convolutions_shared_with_idle_workers_have_the_bits_of_one(pair, workers):
    maps = torch.randn(1, 16, 99, 40, generator=torch.Generator().manual_seed(2))
    maps = maps.contiguous(memory_format=torch.channels_last)
    threads = set[int]()

    def computed() -> Tensor:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            return pair(maps)

    hook = (
        pair.first if isinstance(pair, ConvolutionPair) else pair.conv1
    ).register_forward_hook(
        lambda *_: threads.add(threading.get_ident()) or time.sleep(0.005)
    )
    try:
        alone = in_workers(computed, 1)
        threads.clear()
        shared = in_workers(computed, workers)
    finally:
        hook.remove()
    assert torch.equal(alone, shared)
    assert len(threads) == workers


def test_frames_of_fields_are_woven_by_all_workers_to_the_bits_of_one(
    noisy, monkeypatch
):
    threads, search = set[int](), fields.dense_motion

    def noted(*pictures: Tensor) -> Tensor:
        threads.add(threading.get_ident())
        time.sleep(0.01)
        return search(*pictures)

    def together() -> Tensor:
        with torch.inference_mode():
            return fields.woven((noisy,), [0, 1, 0], (10.0,))[0]

    monkeypatch.setattr(fields, "dense_motion", noted)
    alone = in_workers(together, 1)
    threads.clear()
    assert torch.equal(alone, in_workers(together, 2))
    assert len(threads) == 2
