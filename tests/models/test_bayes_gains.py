"""The gains of non-local Bayes: where they come from."""

from __future__ import annotations

import math

import pytest
import torch

from vidrestore.models.bayes_gains import SIGMA_RANGE, factors, fitted, gains
from vidrestore.restorers.denoise_presets import PRESETS

CPU = torch.device("cpu")


def test_a_factor_is_a_straight_line_in_the_logarithm_of_sigma():
    values = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    expected = values[0] + math.log(20 / 15) / 1.5 * values[1]
    torch.testing.assert_close(factors(values, 20.0), expected)


@pytest.mark.parametrize("quality", PRESETS)
def test_every_quality_has_fitted_factors_for_each_estimate(quality):
    stages = fitted()[quality]
    assert len(stages) == PRESETS[quality].second.estimates
    assert all(stage.shape == (2, 6) for stage in stages)


def test_estimates_after_the_last_that_was_fitted_have_its_factors():
    last = PRESETS["default"].second.estimates - 1
    assert gains("default", last, 20.0, CPU) == gains("default", last + 5, 20.0, CPU)


def test_sigmas_beyond_those_fitted_have_the_factors_of_the_nearest():
    low, high = SIGMA_RANGE
    for inside, beyond in ((low, 1.0), (high, 75.0)):
        assert gains("default", 0, inside, CPU) == gains("default", 0, beyond, CPU)
