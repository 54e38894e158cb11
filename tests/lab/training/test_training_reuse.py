"""Batches that several steps in a row are trained on, varied again in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vidrestore.lab.training.data import batches
from vidrestore.lab.training.data.batches import (
    WHOLE_BATCH,
    BatchSource,
    ReusedBatches,
    Share,
    augmented,
)


class Numbered(BatchSource):
    """Pictures of two sizes that hold the number of their batch."""

    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Any, ...]:
        return (
            torch.full((size, 3, 16, 16), float(step)),
            torch.full((size, 3, 64, 64), float(step)),
            "task",
        )


class Noise(BatchSource):
    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Any, ...]:
        picture = torch.rand(
            size, 3, 128, 128, generator=torch.Generator().manual_seed(step)
        )
        return picture, picture.repeat_interleave(4, -1).repeat_interleave(4, -2)


def test_a_batch_is_made_once_for_as_many_steps_as_it_is_reused():
    output = [(inputs.mean().item(), expected.mean().item()) for inputs, expected, _ in
            ReusedBatches(Numbered(), 3, 0).batches(range(7), 2)]  # fmt: skip
    assert output == [(number, number) for number in (0, 0, 0, 1, 1, 1, 2)]


@pytest.mark.parametrize("first", [1, 3, 4])
def test_a_resumed_run_sees_the_batches_that_it_would_have_seen(first):
    whole = list(ReusedBatches(Noise(), 3, 5).batches(range(6), 1))
    resumed = ReusedBatches(Noise(), 3, 5).batches(range(first, 6), 1)
    single = [ReusedBatches(Noise(), 3, 5).batch(step, 1) for step in range(first, 6)]
    for source in (resumed, single):
        for seen, expected in zip(source, whole[first:], strict=True):
            assert all(
                torch.equal(*parts) for parts in zip(seen, expected, strict=True)
            )


def test_a_batch_differs_from_step_to_step():
    one, two, three = (
        inputs for inputs, _ in ReusedBatches(Noise(), 3, 0).batches(range(3), 1)
    )
    assert not torch.equal(one, two) and not torch.equal(two, three)


def test_both_pictures_are_cut_at_one_place_and_mirrored_alike():
    for number in range(8):
        inputs, expected = augmented(
            Noise().batch(number, 2), np.random.default_rng(number)
        )
        assert inputs.shape[-2:] == (112, 112)
        assert torch.equal(
            expected, inputs.repeat_interleave(4, -1).repeat_interleave(4, -2)
        )


def test_crops_of_a_reused_batch_keep_up_and_down():
    rows = torch.arange(128.0)[:, None].expand(1, 3, 128, 128)
    for number in range(8):
        inputs, _ = augmented((rows, rows), np.random.default_rng(number))
        assert torch.equal(inputs.diff(dim=-2), torch.ones(1, 3, 111, 112))


def test_a_process_that_breaks_while_it_is_ended_causes_no_error():
    class Loaded:
        def __iter__(self) -> Loaded:
            return self

        def __next__(self) -> int:
            return 1

        def _shutdown_workers(self) -> None:
            raise RuntimeError(
                "DataLoader worker (pid 1) is killed by signal: Aborted."
            )

    given = batches._closing_workers(Loaded())
    assert next(given) == 1
    given.close()
