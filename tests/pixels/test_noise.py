"""The noise of a plane is found without knowing the clean picture, whatever its depth, size or content."""

import pickle
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from held_out_noise import Frames, coded, planes_of
from numpy.typing import NDArray

from vidrestore.noise import white
from vidrestore.noise.white import (
    FRAMES_KEPT,
    NoiseEstimator,
    clipped_moments,
    dct_basis,
)


def noisy(clean: NDArray[Any], sigma: float, seed: int = 0) -> NDArray[np.uint8]:
    added = clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)
    return np.rint(added).clip(0, 255).astype(np.uint8)


def estimate(*planes: NDArray[Any], unit: float = 1.0) -> float:
    estimator = NoiseEstimator(unit)
    for plane in planes:
        estimator.add(plane)
    return estimator.sigma()


def gradient(height: int = 240, width: int = 320) -> NDArray[np.float64]:
    return 60 + 100 * np.add.outer(
        np.linspace(0, 1, height), np.linspace(0, 0.4, width)
    )


@pytest.mark.parametrize("sigma", [2, 5, 10, 20, 40, 60])
def test_the_sigma_of_white_noise_on_a_gradient_is_found(sigma):
    assert estimate(noisy(gradient(), sigma)) == pytest.approx(sigma, rel=0.06)


@pytest.mark.parametrize(
    "dtype, unit",
    [
        (np.uint8, 1.0),
        (np.uint16, 4.0),
        (np.uint16, 16.0),
        (np.uint16, 256.0),
        (np.float32, 1 / 255),
    ],
)
def test_every_sample_type_gives_sigma_on_the_scale_of_8_bits(dtype, unit):
    plane = (noisy(gradient(), 10) * unit).astype(dtype)
    assert estimate(plane, unit=unit) == pytest.approx(10, rel=0.06)


@pytest.mark.parametrize(
    "height, width, tolerance",
    [(64, 64, 0.15), (30, 30, 0.2), (9, 40, 0.25), (8, 8, 0.4), (5, 7, 0.5)],
)
def test_small_planes_give_a_rougher_figure(height, width, tolerance):
    planes = [noisy(gradient(height, width), 20, seed) for seed in range(12)]
    assert estimate(*planes) == pytest.approx(20, rel=tolerance)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (2, 2), (3, 3), (50, 2)])
def test_the_smallest_planes_give_a_number(shape):
    assert 0 <= estimate(noisy(np.full(shape, 100.0), 5)) < 255


def test_a_plane_of_one_colour_has_no_noise():
    assert estimate(np.full((64, 64), 16, np.uint8)) == estimate() == 0
    assert estimate(np.full((64, 64), 0.2, np.float32), unit=1 / 255) == pytest.approx(
        0, abs=1e-6
    )


def test_clipped_parts_and_black_borders_do_not_count():
    clean = gradient()
    clean[:, :100] = 300  # a white sky
    frame = noisy(clean, 20)
    frame[:40], frame[-40:] = 16, 16  # letterbox
    assert estimate(frame) == pytest.approx(20, rel=0.06)


@pytest.mark.parametrize("level", [10, 40, 245])
def test_noise_that_is_clipped_everywhere_is_undone(level):
    assert estimate(noisy(np.full((240, 320), level), 20)) == pytest.approx(20, rel=0.1)


def test_clipped_moments_are_those_of_many_clipped_samples():
    samples = np.random.default_rng(0).normal(30, 40, 1_000_000).clip(0, 60)
    mean, variance = clipped_moments(np.array([30.0]), 40.0, 0.0, 60.0)
    assert mean[0] == pytest.approx(samples.mean(), abs=0.1)
    assert variance[0] == pytest.approx(samples.var(), rel=0.01)


def test_texture_beside_flat_parts_is_not_taken_for_noise():
    clean = gradient()
    clean[:, 160:] += 40 * np.sin(np.arange(160) * 1.9)
    assert estimate(noisy(clean, 5)) == pytest.approx(5, rel=0.08)


def test_texture_all_over_is_not_taken_for_noise_if_it_stands_still():
    texture = np.random.default_rng(9).uniform(40, 210, (240, 320))
    assert estimate(noisy(texture, 5, 1)) > 20
    assert estimate(*(noisy(texture, 5, seed) for seed in range(4))) == pytest.approx(
        5, rel=0.1
    )


def test_repeated_frames_do_not_hide_the_noise():
    frames = [noisy(gradient(), 10, seed) for seed in range(6)]
    assert estimate(*(frame for frame in frames for _ in range(3))) == pytest.approx(
        10, rel=0.06
    )


def test_a_fade_to_black_does_not_hide_the_noise():
    frames = [
        noisy(gradient(), 10, seed) * share
        for seed, share in enumerate([*[1.0] * 12, 0.75, 0.5, 0.25, 0.0])
    ]
    assert estimate(*(frame.astype(np.uint8) for frame in frames)) == pytest.approx(
        10, rel=0.06
    )


def test_a_long_scene_is_measured_ever_more_rarely_and_memory_does_not_grow(
    monkeypatch,
):
    measured, sample_blocks = [0], white.sample_blocks

    def counting(plane: NDArray[Any]) -> Any:
        measured[0] += 1
        return sample_blocks(plane)

    monkeypatch.setattr(white, "sample_blocks", counting)
    estimator, sizes = NoiseEstimator(), []
    for seed in range(10 * FRAMES_KEPT):
        estimator.add(noisy(np.full((16, 16), 100.0), 5, seed))
        sizes.append(len(pickle.dumps(estimator)))
    assert measured[0] < 3.5 * FRAMES_KEPT
    # a larger number may take a few bytes more
    assert max(sizes) <= max(sizes[:FRAMES_KEPT]) + 100


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_dct_is_orthonormal_and_begins_with_the_mean(size):
    basis = dct_basis(size)
    np.testing.assert_allclose(basis @ basis.T, np.eye(size**2), atol=1e-6)
    np.testing.assert_allclose(basis[0], 1 / size, rtol=1e-6)


# The shared clips: pytest -m data.


@pytest.fixture(scope="module", params=["car-shadow", "dog", "kite-surf"])
def clean_frames(request: pytest.FixtureRequest, shared_data: Path) -> Frames:
    frames = []
    for file in sorted(
        (shared_data / "eval" / "davis480p_heldout" / request.param).iterdir()
    )[:18:3]:
        with av.open(str(file)) as container:
            frames.append(
                planes_of(next(container.decode(video=0)).reformat(format="yuv420p"))
            )
    return frames


@pytest.mark.data
@pytest.mark.parametrize("sigma", [2, 5, 20, 60])
def test_sigma_is_within_a_tenth_on_real_clips(clean_frames, sigma):
    for plane in range(3):
        planes = [
            noisy(frame[plane], sigma, seed)
            for seed, frame in enumerate(clean_frames[:3])
        ]
        assert estimate(*planes) == pytest.approx(sigma, rel=0.1)


@pytest.mark.data
def test_clean_clips_have_little_noise(clean_frames):
    for plane in range(3):
        assert estimate(*(frame[plane] for frame in clean_frames)) < 2


@pytest.mark.data
def test_sigma_is_within_a_tenth_of_the_noise_that_a_codec_leaves(clean_frames):
    """What it leaves: the standard deviation of decoded noisy less clean, where neither is clipped."""
    sigma = 20
    added = [
        tuple(noisy(plane, sigma, seed) for plane in frame)
        for seed, frame in enumerate(clean_frames)
    ]
    decoded = coded(added, "libx264", {"crf": "23"})
    for plane in range(3):
        original, result = (
            np.stack([frame[plane] for frame in frames]).astype(float)
            for frames in (clean_frames, decoded)
        )
        inner = (original > 3 * sigma) & (original < 255 - 3 * sigma)
        left = (result - original)[inner].std()
        assert estimate(*(frame[plane] for frame in decoded)) == pytest.approx(
            left, rel=0.1
        )
