"""Light and the values that cameras store for it."""

import math

import pytest
import torch

from vidrestore.pixels.linear_light import Response, from_light, to_light

RESPONSES = [Response(), Response(power=1.0), Response(contrast=1.6)]


@pytest.mark.parametrize("response", RESPONSES)
def test_stored_values_and_light_are_inverse_and_rise_from_black_to_white(response):
    stored = torch.linspace(0, 1, 256)
    light = response.to_light(stored)
    torch.testing.assert_close(response.from_light(light), stored, atol=1e-5, rtol=0)
    assert (light.diff() > 0).all() and light[0] == 0 and light[-1] == 1


def test_a_response_without_contrast_is_the_power_of_video():
    values = torch.rand(50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(Response().to_light(values), to_light(values))
    assert torch.equal(Response().from_light(values), from_light(values))


def test_contrast_is_the_slope_at_a_half():
    response, step = Response(power=1.0, contrast=1.6), 1e-3
    low, high = response.from_light(torch.tensor([0.5 - step, 0.5 + step])).tolist()
    assert (low + high) / 2 == pytest.approx(0.5) and (high - low) / (
        2 * step
    ) == pytest.approx(1.6, rel=1e-3)
    assert math.isclose(response.from_light(torch.tensor([0.5])).item(), 0.5)
