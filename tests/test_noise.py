"""The noise of a plane is found without knowing the clean picture, whatever its depth, size or content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vidrestore.noise import NoiseEstimator


def noisy(clean: NDArray[Any], sigma: float, seed: int = 0) -> NDArray[Any]:
    return np.rint(clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)).clip(0, 255).astype(np.uint8)


def gradient(height: int = 240, width: int = 320) -> NDArray[Any]:
    return 60 + 100 * np.add.outer(np.linspace(0, 1, height), np.linspace(0, 0.4, width))


def estimate(*planes: NDArray[Any], unit: float = 1.0) -> float:
    estimator = NoiseEstimator(unit)
    for plane in planes:
        estimator.add(plane)
    return estimator.sigma()


@pytest.mark.parametrize("sigma", [2, 5, 10, 20, 40, 60])
def test_the_sigma_of_white_noise_on_a_gradient_is_found(sigma: float) -> None:
    assert estimate(noisy(gradient(), sigma)) == pytest.approx(sigma, rel=0.06)


@pytest.mark.parametrize("dtype, unit", [(np.uint8, 1.0), (np.uint16, 4.0), (np.uint16, 16.0), (np.uint16, 256.0), (np.float32, 1 / 255)])
def test_every_sample_type_gives_sigma_on_the_scale_of_8_bits(dtype: type[np.generic], unit: float) -> None:
    plane = (noisy(gradient(), 10) * unit).astype(dtype)
    assert estimate(plane, unit=unit) == pytest.approx(10, rel=0.06)
