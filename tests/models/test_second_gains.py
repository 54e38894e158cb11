"""The gains of the second estimate: where they come from, and what they change."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.second_gains import KNOTS, RANKS, Gains, factors, fitted, gains_name
from vidrestore.models.second_pass import Transform, filtered_change
from vidrestore.restorers.denoise_presets import PRESETS

CPU, FRAMES, SIDE = torch.device("cpu"), 12, 16


def values(seed: int = 0) -> Tensor:
    return torch.rand(4, 2, RANKS, len(KNOTS), generator=torch.Generator().manual_seed(seed))


def groups(seed: int) -> Tensor:
    return 20 * torch.randn(2, 1, FRAMES, SIDE**2, generator=torch.Generator().manual_seed(seed))


def change(made: Gains | None) -> Tensor:
    transform = Transform(SIDE, torch.float32, PackedLinear, CPU)
    return filtered_change(groups(0), groups(1), torch.tensor(400.0), transform, made)


def test_a_factor_is_a_straight_line_between_knots_of_frequency_and_in_the_logarithm_of_sigma():
    given, sigma = values(), 20.0
    made = factors(given, sigma, FRAMES, SIDE)
    level = math.log(sigma / 15) / 1.5
    for frame, down, across in ((11, 0, 0), (11, 3, 4), (5, 15, 15), (0, 0, 7)):
        rank = min(FRAMES - 1 - frame, RANKS - 1)  # components come in ascending order
        for factor, of_factor in zip(made, given.numpy(), strict=True):
            at_knots = of_factor[0, rank] + level * of_factor[1, rank]
            wanted = np.interp(math.hypot(down, across), KNOTS, at_knots)
            assert factor[frame, down * SIDE + across].item() == pytest.approx(wanted, abs=1e-5)


def test_patches_of_half_the_side_have_the_factors_of_the_same_frequencies_in_the_picture():
    large, small = (factors(values(), 9.0, FRAMES, side).returned for side in (16, 8))
    torch.testing.assert_close(
        small.view(FRAMES, 8, 8), large.view(FRAMES, 16, 16)[:, ::2, ::2], atol=1e-5, rtol=0
    )


def test_factors_of_one_are_wieners_filter():
    one, none = torch.ones(FRAMES, SIDE**2), torch.zeros(FRAMES, SIDE**2)
    torch.testing.assert_close(change(Gains(one, none, one, none)), change(None), atol=1e-4, rtol=0)


def test_without_both_terms_the_first_estimate_stays():
    none = torch.zeros(FRAMES, SIDE**2)
    assert change(Gains(none, none, none, none)).abs().max() == 0


def test_the_slopes_count_where_the_first_estimate_is_strong():
    one, none = torch.ones(FRAMES, SIDE**2), torch.zeros(FRAMES, SIDE**2)
    transform = Transform(SIDE, torch.float32, PackedLinear, CPU)
    strong, weak = (
        filtered_change(
            size * groups(0), groups(1), torch.tensor(400.0), transform, Gains(none, one, none, none)
        )
        for size in (300, 1e-3)
    )
    # t is 1 for nearly all coefficients, or 0, and the change d t t
    assert (strong.view_as(groups(1)) - groups(1)).square().mean() < 0.02 * groups(1).square().mean()
    assert weak.abs().max() < 1e-3


@pytest.mark.parametrize("quality", PRESETS)
def test_every_quality_has_fitted_factors_for_each_estimate_of_luma_and_of_colour(quality):
    preset = PRESETS[quality]
    for colour, estimates in ((False, 1), (True, preset.second_colour.grids)):
        stages = fitted()[gains_name(quality, colour=colour)]
        assert len(stages) == estimates
        assert all(stage.shape == (4, 2, RANKS, len(KNOTS)) for stage in stages)


def test_sigmas_beyond_those_fitted_have_the_factors_of_the_nearest():
    for inside, beyond in ((5.0, 1.0), (40.0, 75.0)):
        assert torch.equal(factors(values(), inside, 12, SIDE)[0], factors(values(), beyond, 12, SIDE)[0])
