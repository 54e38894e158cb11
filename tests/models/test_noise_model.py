"""The spectrum of noise beside a first estimate, its use, and how noise follows the brightness."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from vidrestore.models.dust import Transform
from vidrestore.models.fast_linear import PackedLinear
from vidrestore.models.grouping import origins_of
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.models.noise_model import (
    BANDS,
    LEAST,
    LEAST_COARSE,
    NoiseCurve,
    coarse_level,
    is_white,
    lower_level,
    may_be_white,
    noise_curve,
    powers,
    relative_spectrum,
)

SIDE, FRAMES, HEIGHT, WIDTH = 16, 5, 128, 160
PATCH = 8  # side, where brightness is followed


@pytest.fixture(scope="module")
def transform() -> Transform:
    return Transform(SIDE, torch.float32, PackedLinear, torch.device("cpu"))


def groups(height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    return origins_of(
        fixed_positions(FRAMES, Grid(height, width, SIDE, SIDE)), height, width
    )


def noise(seed: int = 0, height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    return torch.randn(
        FRAMES, height, width, generator=torch.Generator().manual_seed(seed)
    )


def slope() -> Tensor:
    """A picture that stands still and has little detail."""
    return torch.linspace(60, 180, WIDTH).expand(FRAMES, HEIGHT, WIDTH).contiguous()


def coarse(plane: Tensor) -> Tensor:
    """Means of two neighbours down and across: the squared response is cos^2 of half of either frequency."""
    down = (plane + plane.roll(1, 1)) / 2
    return (down + down.roll(1, 2)) / 2


def dct_power(patches: Tensor) -> np.ndarray:
    """(BANDS, BANDS): mean squares of the orthonormal DCT-II, by its definition, and of 2 x 2 neighbours."""
    k, n = np.arange(SIDE)[:, None], np.arange(SIDE)
    basis = (
        np.cos(np.pi * (2 * n + 1) * k / (2 * SIDE))
        * np.where(k, np.sqrt(2), 1)
        / np.sqrt(SIDE)
    )
    squares = np.array(
        [(basis @ patch @ basis.T) ** 2 for patch in patches.double().numpy()]
    ).mean(0)
    return squares.reshape(BANDS, 2, BANDS, 2).mean((1, 3))


def test_powers_of_one_group_are_those_of_its_changes_its_residual_and_the_estimates_changes(
    transform,
):
    noisy, estimate = 9 * noise(1, SIDE, SIDE), 4 * noise(2, SIDE, SIDE)
    result = powers(noisy, estimate, groups(SIDE, SIDE), transform)
    changes, left = (
        FRAMES / (FRAMES - 1) * dct_power(plane - plane.mean(0))
        for plane in (noisy, estimate)
    )
    residual = dct_power(noisy - estimate)
    # of a single group every quantile and the mean of the flat ones are its own
    expected = [
        changes,
        changes,
        residual,
        residual,
        residual,
        changes,
        left,
        left,
        left,
    ]
    wanted = np.log(np.stack([each.flatten() for each in expected], 1) + LEAST)
    np.testing.assert_allclose(result.numpy(), wanted, atol=1e-3)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.6])
def test_the_spectrum_does_not_depend_on_the_measured_sigma(transform, ratio):
    sigma = 12.0
    result = (ratio * sigma) ** 2 * relative_spectrum(
        slope() + sigma * noise(), slope(), ratio * sigma, groups(), transform
    )
    assert result.log().mean().exp().sqrt().item() == pytest.approx(sigma, rel=0.2)


def test_coarse_noise_is_found_strong_at_low_and_weak_at_high_frequencies(transform):
    sigma = 24.0
    result = relative_spectrum(
        slope() + coarse(sigma * noise()), slope(), sigma, groups(), transform
    )
    square = result.view(SIDE, SIDE)
    centres = (torch.arange(SIDE) + 0.5) * math.pi / (2 * SIDE)
    response = centres.cos() ** 2
    expected = response[:, None] * response
    inside = slice(1, 11)  # beyond, little is left and rounding decides
    off = (square / expected).log()[inside, inside]
    assert off.abs().mean() < 0.4
    assert square[1:4, 1:4].mean() > 8 * square[11:, 11:].mean()


def test_texture_with_wrong_motion_does_not_count_as_noise(transform):
    """A picture of detail that changes in every frame, all of it in the estimate."""
    sigma, detail = 4.0, 40 * coarse(noise(3))
    result = relative_spectrum(
        slope() + detail + sigma * noise(), slope() + detail, sigma, groups(), transform
    )
    assert result.max() < 3


def spectrum(high: float, low: float, slope: float = 0.0) -> Tensor:
    """(SIDE^2,): `high`, falling by e^slope across the frequencies, and `low` in the lowest sixteenth."""
    line = torch.linspace(0, 1, SIDE)
    result = high * (-slope * (line[:, None] + line) / 2).exp()
    result[: SIDE // 4, : SIDE // 4] = low
    return result.flatten()


@pytest.mark.parametrize(
    "found, white",
    [
        (spectrum(1.1, 1.1), True),
        (spectrum(1.18, 1.4), True),  # even but for texture
        (spectrum(1.18, 1.4, 1.0), False),  # not even: coarse or coded
        (spectrum(0.7, 1.4), False),  # weaker than was measured
        (spectrum(1.3, 1.4), False),
    ],
)
def test_noise_is_white_if_its_spectrum_is_one_or_even_at_high_frequencies_with_little_beside(
    found, white
):
    assert is_white(found) == white


@pytest.mark.parametrize(
    "found, level",
    [
        (spectrum(0.5, 2.0), 0.5),
        (spectrum(0.5, 2.0, 1.0), None),  # not even
        (spectrum(0.95, 2.0), None),  # as measured
        # far less: what is strong at low frequencies is the noise
        (spectrum(0.1, 2.0), None),
    ],
)
def test_noise_that_is_even_but_weaker_than_measured_at_high_frequencies_may_be_of_that_level(
    found, level
):
    assert lower_level(found) == (level if level is None else pytest.approx(level))


def test_a_spectrum_near_one_may_be_that_of_white_noise():
    assert may_be_white(spectrum(0.85, 1.4)) and not may_be_white(spectrum(0.7, 1.4))


@pytest.mark.parametrize(
    "power, sigma, level",
    [
        # sigma where the noise is, 0.7, and root mean square, 0.35
        (0.49, 20.0, 0.7**0.7 * 0.35**0.3 * 20),
        (0.49, 6.0, LEAST_COARSE),
        (0.49, 4.0, None),
        (1.5, 20.0, None),  # as measured
    ],
)
def test_coarse_noise_that_was_measured_too_high_is_that_of_its_spectrum(
    power, sigma, level
):
    """All of it in a quarter of the coefficients."""
    found = torch.zeros(SIDE, SIDE)
    found[: SIDE // 2, : SIDE // 2] = power
    result = coarse_level(found.flatten(), sigma)
    assert result == (level if level is None else pytest.approx(level))


def test_white_noise_that_was_measured_too_high_is_not_coarse():
    assert coarse_level(torch.full((SIDE**2,), 0.5), 20.0) is None


def tracks(frames: int, height: int, width: int) -> Tensor:
    return origins_of(
        fixed_positions(frames, Grid(height, width, PATCH, PATCH)), height, width
    )


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_noise_that_follows_the_brightness_is_measured_in_the_residual():
    brightness = torch.linspace(20, 220, 128).expand(4, 64, 128).contiguous()
    taken = drawn(4, 64, 128) * torch.where(brightness < 120, 2.0, 6.0)
    strength = noise_curve(
        taken, torch.zeros_like(taken), brightness, tracks(4, 64, 128), PATCH
    )
    dark, light = strength.at(torch.tensor([30.0, 200.0])).tolist()
    assert light / dark == pytest.approx(9, rel=0.3)


def test_black_bars_without_noise_do_not_change_the_curve():
    brightness = torch.linspace(20, 220, 128).expand(4, 128, 128).contiguous()
    taken = 3 * drawn(4, 128, 128)
    brightness[:, :32], taken[:, :32] = 16.0, 0.0
    strength = noise_curve(
        taken, torch.zeros_like(taken), brightness, tracks(4, 128, 128), PATCH
    )
    assert strength.at(torch.tensor([80.0, 140.0, 200.0])).tolist() == pytest.approx(
        [1] * 3, rel=0.25
    )


def test_too_few_groups_give_a_flat_curve_over_brightness():
    strength = noise_curve(
        drawn(2, 16, 16),
        torch.zeros(2, 16, 16),
        torch.full((2, 16, 16), 99.0),
        tracks(2, 16, 16),
        PATCH,
    )
    assert strength.at(torch.tensor([3.0, 250.0])).tolist() == [1, 1]


def test_the_strength_is_linear_between_known_brightnesses():
    strength = NoiseCurve(
        torch.tensor([10.0, 20.0, 40.0]), torch.tensor([1.0, 2.0, 4.0])
    )
    assert strength.at(torch.tensor([0.0, 15.0, 30.0, 90.0])).tolist() == [
        1.0,
        1.5,
        3.0,
        4.0,
    ]


def test_noise_left_in_texture_does_not_change_the_curve():
    brightness = torch.linspace(20, 220, 128).expand(4, 128, 128).contiguous()
    taken, estimate = drawn(4, 128, 128), torch.zeros(4, 128, 128)
    # five eighths of the bright half
    textured = (slice(None), slice(80), slice(64, None))
    estimate[textured] = 20 * taken.flip(1)[textured]
    taken[textured] *= 0.3
    strength = noise_curve(
        estimate + taken, estimate, brightness, tracks(4, 128, 128), PATCH
    )
    dark, light = strength.at(torch.tensor([30.0, 200.0])).tolist()
    assert light / dark == pytest.approx(1, rel=0.25)
