"""Groups to train on: the pool renews itself, and the content of a batch depends on its step alone."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from vidrestore.lab.run_config import DataConfig
from vidrestore.lab.training.data.footage import Window
from vidrestore.lab.training.data.patch_groups import (
    SIGMA_RATIO,
    GroupPool,
    held_out_groups,
    turned,
    window_groups,
)

FRAMES, PATCH = 3, 4


class Flat:
    """Stands for footage: windows of one random grey level each, by which their groups are known again."""

    frames = FRAMES

    def window(self, rng: np.random.Generator, side: int = 1) -> Window:
        return (
            torch.full((FRAMES, 24, 24), int(rng.integers(256)), dtype=torch.uint8),
        )


def data(**changes: object) -> DataConfig:
    settings = {
        "strides": (4,),
        "groups_per_window": 10,
        "pool": 80,
        "reuse": 2,
        "match_share": 0.0,
    }
    return DataConfig("clips", **(settings | changes))


def pool(
    sigma: tuple[float, ...] = (1.0, 75.0), seed: int = 0, **changes: object
) -> GroupPool:
    return GroupPool(Flat(), data(**changes), sigma, PATCH, seed)


def texture(height: int, width: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(
        np.random.default_rng(seed).integers(0, 256, (height, width)).astype(np.uint8)
    )


# The pool


def test_a_pool_begins_a_quarter_full_and_then_takes_a_window_when_its_groups_were_used_often_enough():
    kept = pool()
    held = []
    for step in range(20):
        kept.batch(step, 5)  # a window of 10 groups, each used twice, is 4 batches of 5
        held.append([window.number for window in kept.windows])
    assert held[:4] == [[0, 1]] * 4
    assert held[4:8] == [[0, 1, 2]] * 4
    assert held[19] == list(range(6))


def test_a_full_pool_drops_the_oldest_window_for_each_new_one():
    kept = pool(pool=40)
    for step in range(40):
        kept.batch(step, 5)
    # one to begin with, then one after every 4 batches
    assert [window.number for window in kept.windows] == [6, 7, 8, 9]


def test_a_window_is_read_once(monkeypatch):
    read: list[Window] = []
    window = Flat.window
    monkeypatch.setattr(
        Flat, "window", lambda *given: read.append(window(*given)) or read[-1]
    )
    kept = pool()
    for step in range(30):
        kept.batch(step, 5)
    assert len(read) == kept.windows[-1].number + 1


def test_a_batch_depends_on_the_seed_and_the_step_not_on_earlier_batches():
    all_along, late = pool(), pool()
    for step in range(37):
        all_along.batch(step, 5)
    (expected, sigma), (batch, level) = all_along.batch(37, 5), late.batch(37, 5)
    assert torch.equal(batch, expected)
    assert level == sigma
    assert not torch.equal(pool(seed=1).batch(37, 5)[0], expected)
    assert len({late.batch(step, 5)[1] for step in range(37, 60)}) > 4


def test_a_batch_holds_groups_of_nearly_its_noise_level():
    kept = pool(pool=400)
    for step in range(200):
        batch, sigma = kept.batch(step, 6)
        levels = {int(window.groups[0, 0, 0]): window.sigma for window in kept.windows}
        grey = {int(value) for value in batch[:, 0, 0]}
        assert batch.shape == (6, FRAMES, PATCH**2)
        assert batch.dtype == torch.float32
        # two windows of one grey level can't be distinguished
        if len(levels) == len(kept.windows):
            assert all(
                sigma / SIGMA_RATIO <= levels[value] <= sigma * SIGMA_RATIO
                for value in grey
            )


def test_noise_levels_are_drawn_evenly_in_their_logarithm():
    kept = pool(pool=4000)
    kept.batch(2000, 4)
    logs = np.log([window.sigma for window in kept.windows]) / np.log(75)
    assert len(logs) > 300
    assert np.allclose(np.histogram(logs, 4, (0, 1))[0] / len(logs), 0.25, atol=0.08)


@pytest.mark.parametrize("sigma", [0.0, 20.0])
def test_with_one_noise_level_a_batch_is_drawn_from_all_of_the_pool(sigma):
    kept = pool((sigma,))
    batch, level = kept.batch(30, 200)
    assert level == sigma
    assert len(set(batch[:, 0, 0].tolist())) == len(kept.windows) == 8


# Groups of one window


def test_groups_in_place_are_one_patch_through_time():
    window = (torch.stack([texture(24, 32, seed) for seed in range(FRAMES)]),)
    groups = window_groups(
        window, 20.0, data(groups_per_window=12), PATCH, np.random.default_rng(0)
    )
    places = list(product(range(0, 21, 4), range(0, 29, 4)))
    there = [window[0][:, y : y + PATCH, x : x + PATCH].flatten(1) for y, x in places]
    assert groups.shape == (12, FRAMES, PATCH**2)
    assert groups.dtype == torch.uint8
    assert all(any(torch.equal(group, patch) for patch in there) for group in groups)


def test_matched_groups_follow_a_picture_that_moves():
    # squares of 4x4 that can be distinguished at a quarter
    picture = texture(36, 44).repeat_interleave(4, 0).repeat_interleave(4, 1)
    moving = (
        torch.stack(
            [picture[2 * t : 2 * t + 128, 3 * t : 3 * t + 160] for t in range(FRAMES)]
        ),
    )

    def still(match_share: float) -> float:
        """Share of groups whose tokens all show the very same."""
        settings = data(groups_per_window=70, match_share=match_share, strides=(16,))
        groups = window_groups(
            moving, 2.0, settings, 16, np.random.default_rng(0)
        ).float()
        return float((groups.std(1).amax(1) == 0).float().mean())

    assert still(1.0) > 0.6
    assert still(0.0) == 0


def test_a_share_of_the_groups_is_chroma():
    window = tuple(
        torch.full((FRAMES, side, side), value, dtype=torch.uint8)
        for side, value in ((32, 10), (16, 100), (16, 200))
    )
    rng = np.random.default_rng(0)
    counts = Counter[int]()
    for _ in range(40):
        groups = window_groups(window, 20.0, data(chroma_share=0.3), PATCH, rng)
        values = [int(value) for value in groups[:, 0, 0]]
        assert sorted(values, key=lambda value: value != 10) == values
        assert values.count(10) == 7
        counts.update(values)
    assert min(counts[100], counts[200]) > 30


def test_chroma_smaller_than_a_patch_leaves_all_groups_to_luma():
    window = tuple(
        torch.full((FRAMES, side, side), value, dtype=torch.uint8)
        for side, value in ((32, 10), (2, 100), (2, 200))
    )
    groups = window_groups(
        window, 20.0, data(chroma_share=0.5), PATCH, np.random.default_rng(0)
    )
    assert (len(groups), groups.unique().tolist()) == (10, [10])


def test_a_small_window_gives_the_groups_it_has():
    window = (torch.zeros(FRAMES, 8, 8, dtype=torch.uint8),)
    assert (
        len(window_groups(window, 20.0, data(), PATCH, np.random.default_rng(0))) == 4
    )


def test_held_out_groups_are_the_same_each_time():
    first, again = (held_out_groups(Flat(), data(), PATCH, 25) for _ in range(2))
    assert first.shape == (25, FRAMES, PATCH**2)
    assert torch.equal(first, again)


# Symmetries


def symmetries(groups: Tensor) -> list[Tensor]:
    """All eight of the square, forwards and backwards in time, by rotating and mirroring."""
    squares = groups.unflatten(-1, (PATCH, PATCH))
    turns = [
        torch.rot90(square, turn, (2, 3))
        for square in (squares, squares.flip(3))
        for turn in range(4)
    ]
    return [
        turned.flatten(2) for square in turns for turned in (square, square.flip(1))
    ]


def test_all_groups_of_a_batch_are_turned_by_one_symmetry_of_the_square_and_each_occurs():
    groups = torch.rand(5, FRAMES, PATCH**2)
    rng = np.random.default_rng(0)
    found = Counter[int]()
    for _ in range(320):
        result = turned(groups, PATCH, rng)
        (which,) = [
            number
            for number, expected in enumerate(symmetries(groups))
            if torch.equal(result, expected)
        ]
        found[which] += 1
    assert len(found) == 16
    assert min(found.values()) > 5


def test_upright_groups_are_mirrored_and_never_transposed():
    groups = torch.rand(5, FRAMES, PATCH**2)
    squares = groups.unflatten(-1, (PATCH, PATCH))
    mirrored = [squares.flip(axes) for axes in ((), (2,), (3,), (2, 3))]
    upright = {
        square.flip(axes).flatten(2).numpy().tobytes()
        for square in mirrored
        for axes in ((), (1,))
    }
    rng = np.random.default_rng(0)
    results = {
        turned(groups, PATCH, rng, upright=True).numpy().tobytes() for _ in range(160)
    }
    assert results == upright
