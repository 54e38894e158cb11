"""Noise whose strength follows the brightness is measured at its mean, not where it is weakest."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vidrestore.noise.features import (
    FLOOR,
    NOISE_CURVE,
    POWER_QUANTILES,
    WITHIN_ROW,
    BrightnessCurve,
    brightness_curve,
    plane_features,
)

Picture = NDArray[np.float32]


def powers_of(sigmas: NDArray[np.float64]) -> Picture:
    """(B, 64): white noise of a sigma of its own in every block has independent Gaussian coefficients."""
    coefficients = sigmas[:, None] * np.random.default_rng(0).normal(
        size=(len(sigmas), 64)
    )
    return np.square(coefficients).astype(np.float32)


def test_the_curve_has_the_variance_at_every_brightness():
    levels = np.array([2.0, 3.0, 5.0, 8.0, 6.0])
    curve = brightness_curve(powers_of(levels.repeat(400)), np.linspace(20, 220, 2000))
    np.testing.assert_allclose(curve.brightness, [40, 80, 120, 160, 200], atol=0.2)
    np.testing.assert_allclose(curve.variance, levels**2, rtol=0.1)
    assert curve.mean == pytest.approx((levels**2).mean(), rel=0.1)


def test_texture_in_some_of_the_blocks_does_not_count():
    brightness = np.linspace(20, 220, 1000)
    powers = powers_of(np.full(1000, 4.0))
    powers[1::2] *= 100  # strong at low frequencies and at high ones
    curve = brightness_curve(powers, brightness)
    np.testing.assert_allclose(
        curve.variance, 16 + NOISE_CURVE.least_variance, rtol=0.15
    )


def test_evened_blocks_have_noise_of_the_mean_variance():
    curve = BrightnessCurve(np.array([50.0, 150.0]), np.array([4.0, 16.0]), 8.0)
    powers = np.array([4.0, 10.0, 16.0])
    np.testing.assert_allclose(
        powers * curve.equalising(np.array([20.0, 100.0, 255.0])), 8.0
    )


def test_a_noise_curve_needs_many_blocks():
    count = NOISE_CURVE.levels * NOISE_CURVE.level_blocks
    for least, known in ((count - 1, False), (count, True)):
        result = brightness_curve(
            powers_of(np.full(least, 5.0)), np.linspace(0, 255, least)
        )
        assert (result is not None) == known


def noise_in_the_light(count: int = 4) -> tuple[list[Picture], float]:
    """Two thirds of the picture dark with hardly any noise, the others bright with much, and the root mean
    square of the noise.
    """
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:160, :240]
    picture = np.where(columns < 160, 40.0, 170.0) + 8 * np.sin(rows / 19) * np.cos(
        columns / 23
    )
    sigma = np.where(columns < 160, 2.0, 6.0)
    frames = [
        np.rint(picture + sigma * rng.normal(size=picture.shape)) for _ in range(count)
    ]
    return [frame.astype(np.float32) for frame in frames], float(
        np.sqrt((sigma**2).mean())
    )


EVENED_ROW = 2  # of the features


def test_evened_features_show_the_mean_power_in_the_weakest_blocks():
    frames, strength = noise_in_the_light()
    (result,) = plane_features([(frame,) for frame in frames])
    # of weak blocks, the band of highest frequencies
    finest = 9 * POWER_QUANTILES.index(0.1) + 8
    seen, evened = (
        np.exp(each[finest]) - FLOOR
        for each in (result[WITHIN_ROW], result[EVENED_ROW])
    )
    assert evened / seen == pytest.approx(strength**2 / 2.0**2, rel=0.25)
