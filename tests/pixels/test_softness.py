"""The fall of a picture's spectrum near the finest detail."""

import math

import pytest
import torch

from vidrestore.pixels.softness import spectral_fall


def waves(fine: float, *, side: int = 200) -> torch.Tensor:
    """A picture (side, side + 40) of two waves across, of 20 levels at 0.225 cycles per pixel, and of `fine`
    levels at 0.475.
    """
    across = torch.arange(side + 40)
    line = 20 * torch.cos(math.tau * 0.225 * across)
    line = line + fine * torch.cos(math.tau * 0.475 * across)
    return 128 + line.expand(side, -1)


@pytest.mark.parametrize("fine, decibels", [(20, 0), (2, 20), (0.6325, 30)])
def test_the_fall_is_the_ratio_of_two_waves_in_decibels(fine, decibels):
    assert spectral_fall(waves(fine)) == pytest.approx(decibels, abs=0.6)
    assert spectral_fall(waves(fine).mT) == pytest.approx(decibels, abs=0.6)


def test_rounding_is_no_detail_and_even_or_tiny_pictures_tell_nothing():
    power = (
        20**2 * 200**2 / 8
    )  # of the coarse wave, spread over the few samples of its band
    assert 20 < spectral_fall(waves(0)) < 10 * math.log10(12 * power)
    assert spectral_fall(torch.full((80, 90), 7.0)) == 0
    assert spectral_fall(waves(0, side=40)) == 0
    assert spectral_fall(torch.zeros(2, 2)) == 0
