"""Coloured noise: its strength and correlations."""

import numpy as np
import pytest
import torch
from coloured_noise import _at, blurred, coloured_noise, processed
from torch import Tensor


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def correlation(one: Tensor, two: Tensor) -> float:
    return float(torch.corrcoef(torch.stack((one.flatten(), two.flatten())))[0, 1])


@pytest.mark.parametrize(
    "down, across", [(0.0, 0.0), (1.0, 1.0), (0.3, 3.0), (2.2, 0.1)]
)
def test_blurred_noise_keeps_its_strength(down, across):
    noise = torch.randn(4, 120, 120, generator=torch.Generator().manual_seed(1))
    assert float(blurred(noise, down, across).std()) == pytest.approx(1, rel=0.05)
    near = [
        correlation(result[:, :-1], result[:, 1:])
        for result in (blurred(noise, down, across), blurred(noise, down, across).mT)
    ]
    for size, result in zip((down, across), near, strict=True):
        # of two blurs of one pixel's distance: exp(-1 / (4 size^2)), in the limit of wide ones
        assert result == pytest.approx(
            np.exp(-1 / (4 * size**2)) if size >= 1 else 0.0, abs=0.06
        )


def test_strength_follows_the_brightness_by_straight_lines():
    curve = (0.2, 1.0, 1.5, 0.7, 0.4)
    brightness = torch.linspace(0, 255, 77)
    expected = np.interp(brightness.numpy(), np.linspace(0, 255, 5), curve)
    np.testing.assert_allclose(_at(curve, brightness), expected, atol=2e-3)


def test_colour_differences_share_one_kind_and_planes_have_their_sizes():
    brightness = (
        torch.full((2, 96, 128), 120.0),
        *[torch.full((2, 48, 64), 120.0)] * 2,
    )
    ratios = []
    for seed in range(12):
        noise = coloured_noise(brightness, rng(seed))
        assert [plane.shape for plane in noise] == [plane.shape for plane in brightness]
        ratios.append(float(noise[1].std() / noise[2].std()))
    # a quarter of the planes has a second grain
    assert np.median(np.abs(np.log(ratios))) < 0.15


def test_noise_that_lingers_is_like_that_of_the_frame_before():
    white = (torch.randn(6, 40, 40, generator=torch.Generator().manual_seed(2)),)
    kinds = [processed(white, rng(seed))[0] for seed in range(40)]
    like = [correlation(noise[1:], noise[:-1]) for noise in kinds]
    assert 0.02 < np.mean(np.array(like) > 0.15) < 0.4 and np.min(like) > -0.1
    assert any(torch.equal(noise, white[0]) for noise in kinds)
