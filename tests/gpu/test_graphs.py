"""Parts of a restoration that are meant to be CUDA graphs: no wait inside, and one sequence of operations."""

from functools import partial

import pytest
import torch
from stand_in import check_capturable
from torch import Tensor

from vidrestore.models.alignment import subpixel_motion
from vidrestore.models.matching import Grid, matched_positions


def clip(seed: int, *shape: int) -> Tensor:
    return 255 * torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def test_positions_of_a_clip_can_be_a_graph():
    work = partial(matched_positions, grid=Grid(48, 64, 16, 12))
    check_capturable(work, [clip(1, 4, 48, 64)], [clip(2, 4, 48, 64)])


def test_motion_between_frames_can_be_a_graph():
    still = clip(1, 2, 3, 24, 32) / 255
    check_capturable(subpixel_motion, [still, clip(2, 2, 3, 24, 32) / 255], [still, still])


@pytest.mark.parametrize(
    "work",
    [
        lambda values: values[values > 1],
        lambda values: values * float(values.max()),
        lambda values: values.cpu(),
        lambda values: torch.nonzero(values),
        lambda values: torch.linalg.inv(values[0, :4, :4]),
    ],
    ids=["mask", "item", "to host", "nonzero", "inverse"],
)
def test_what_waits_for_the_device_is_no_graph(work):
    with pytest.raises(RuntimeError, match="not allowed"):
        check_capturable(work, [clip(1, 4, 8, 8)], [clip(2, 4, 8, 8)])


def test_operations_that_depend_on_values_are_no_graph():
    calls = []

    def work(values: Tensor) -> Tensor:
        calls.append(values)
        return values + 1 if len(calls) < 3 else values * 2

    with pytest.raises(AssertionError, match="other operations"):
        check_capturable(work, [clip(1, 2)], [clip(2, 2)])
