import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from vidrestore.pixels.metrics import bgr_to_luma, planes_psnr, psnr, ssim

# pictures with the figures that the code of VSR-Transformer gives for them
GOLDEN = Path(__file__).parents[1] / "golden"
RECORD = json.loads((GOLDEN / "metrics.json").read_text())


@pytest.fixture(scope="module")
def pictures():
    return load_file(GOLDEN / "metrics.safetensors")


@pytest.mark.parametrize("case", RECORD["metrics"])
def test_figures_are_those_of_the_papers_code(pictures, case):
    name, space, crop = case.split("/")
    pair = [pictures[f"{name}_{which}"] for which in "ab"]
    if space == "y":
        pair = [bgr_to_luma(picture) for picture in pair]
    margin = int(crop.removeprefix("crop"))
    expected = RECORD["metrics"][case]
    assert psnr(*pair, crop=margin) == pytest.approx(expected["psnr"], abs=1e-4)
    assert ssim(*pair, crop=margin) == pytest.approx(expected["ssim"], abs=1e-6)


@pytest.mark.parametrize("name", ["structured_a", "random_a"])
def test_luma_is_that_of_the_papers_code(pictures, name):
    luma = bgr_to_luma(pictures[name])
    assert luma.dtype == np.float32
    assert luma.shape == (*pictures[name].shape[:2], 1)
    scale = 255 if pictures[f"{name}/y"].max() <= 1 else 1
    np.testing.assert_allclose(luma, pictures[f"{name}/y"] * scale, atol=1e-4)


def test_psnr_of_a_constant_error_is_known():
    reference = np.full((4, 6), 100, dtype=np.uint8)
    assert psnr(reference + 10, reference) == pytest.approx(20 * np.log10(25.5))
    assert psnr(
        torch.full((4, 6), 0.6), torch.full((4, 6), 0.5), data_range=1
    ) == pytest.approx(20, abs=1e-4)


def test_unsigned_samples_do_not_wrap_around():
    dark, bright = np.zeros((12, 12), np.uint16), np.full((12, 12), 1023, np.uint16)
    assert (
        psnr(dark, bright, data_range=1023) == psnr(bright, dark, data_range=1023) == 0
    )


def test_equal_pictures_are_infinitely_good():
    picture = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert psnr(picture, picture) == float("inf")
    assert ssim(picture, picture) == pytest.approx(1)


def test_psnr_of_planes_counts_every_sample_once():
    clean = [np.zeros((4, 4)), np.zeros((2, 2)), np.zeros((2, 2))]
    noisy = [np.full((4, 4), 3.0), np.full((2, 2), 6.0), np.zeros((2, 2))]
    assert planes_psnr(noisy, clean) == pytest.approx(
        10 * np.log10(255**2 * 24 / (16 * 9 + 4 * 36))
    )


def test_ssim_is_wangs_formula_window_by_window():
    rng = np.random.default_rng(2)
    a, b = rng.random((2, 13, 12))
    offset = np.arange(-5, 6)
    weights = np.exp(-(offset[:, None] ** 2 + offset**2) / (2 * 1.5**2))
    weights /= weights.sum()
    values = []
    for y in range(3):
        for x in range(2):
            p, q = a[y : y + 11, x : x + 11], b[y : y + 11, x : x + 11]
            mean_p, mean_q = (weights * p).sum(), (weights * q).sum()
            var_p, var_q = (
                (weights * (p - mean_p) ** 2).sum(),
                (weights * (q - mean_q) ** 2).sum(),
            )
            covariance = (weights * (p - mean_p) * (q - mean_q)).sum()
            c1, c2 = 0.01**2, 0.03**2
            luminance = (2 * mean_p * mean_q + c1) / (mean_p**2 + mean_q**2 + c1)
            values.append(luminance * (2 * covariance + c2) / (var_p + var_q + c2))
    assert ssim(a, b, data_range=1) == pytest.approx(np.mean(values))


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_pictures_of_two_sizes_are_refused(metric):
    with pytest.raises(
        ValueError, match=r"restored picture is \(16, 16\), its reference \(16, 1\)"
    ):
        metric(np.zeros((16, 16)), np.zeros((16, 1)))


def test_pictures_too_small_for_the_metric_are_refused():
    with pytest.raises(ValueError, match="at least 11x11 pixels, got 12x10"):
        ssim(np.zeros((10, 12)), np.zeros((10, 12)))
    with pytest.raises(ValueError, match="crop of 4 leaves no pixels"):
        psnr(np.zeros((8, 8)), np.zeros((8, 8)), crop=4)
