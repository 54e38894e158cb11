"""The noise that `denoise` is measured by is what its descriptions say."""

import numpy as np
import pytest
from held_out_noise import (
    MODELS,
    Frames,
    blurred,
    noisy_pair,
    plane_psnr,
    to_planes,
    to_rgb,
)


def gradient(count: int = 2, height: int = 48, width: int = 64) -> Frames:
    ramp = np.add.outer(
        np.linspace(60, 120, height), np.linspace(0, 80, width)
    ) + 20 * (np.indices((height, width)).sum(0) % 7 > 3)
    flat = np.full((height // 2, width // 2), 118.0)
    return [
        (ramp.astype(np.uint8), flat.astype(np.uint8), (flat + 20).astype(np.uint8))
    ] * count


@pytest.mark.parametrize("model", MODELS)
def test_every_model_keeps_count_and_size_and_is_noisy(model):
    clean, noisy = noisy_pair(model, gradient())
    assert [plane.shape for planes in noisy for plane in planes] == [
        plane.shape for planes in clean for plane in planes
    ]
    assert 20 < plane_psnr(clean, noisy, 0) < 50
    assert min(plane_psnr(clean, noisy, plane) for plane in (1, 2)) > 20


def test_the_same_seed_gives_the_same_noise():
    first, second = (noisy_pair("tape", gradient())[1] for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_blurred_noise_has_unit_variance_and_is_smooth_along_the_blurred_axis():
    noise = blurred(np.random.default_rng(0).normal(size=(128, 128)), 0.01, 2.0)
    assert noise.std() == pytest.approx(1)
    along, down = np.diff(noise, axis=1).std(), np.diff(noise, axis=0).std()
    assert along < 0.5 < 1.3 < down


def test_planes_become_rgb_and_planes_again():
    planes = gradient(1)[0]
    for before, after in zip(planes, to_planes(to_rgb(planes)), strict=True):
        assert np.abs(before.astype(int) - after).max() <= 1
