"""The methods that networks are held against do what their papers say."""

from __future__ import annotations

import classical_restoration as classical
import pytest
import torch
from classical_denoisers import filtered as through_filter
from classical_restoration import FRAMES, METHODS, TUNED, Method
from torch import Tensor

EACH = [
    pytest.param(task, method, id=f"{task}-{method.name}")
    for task, methods in METHODS.items()
    for method in methods
]


def scene(frames: int = 1, height: int = 48, width: int = 64) -> Tensor:
    """Smooth shapes in all colours, the same in every frame."""
    rows, columns = torch.meshgrid(torch.arange(height) / 7, torch.arange(width) / 7, indexing="ij")
    channels = [
        0.5 + 0.3 * torch.sin(rows * a) * torch.cos(columns * b)
        for a, b in ((1, 1.3), (0.6, 0.9), (1.7, 0.4))
    ]
    return torch.stack(channels).expand(frames, 3, height, width).clone()


def uniform(*size: int, seed: int = 1) -> Tensor:
    return torch.rand(*size, generator=torch.Generator().manual_seed(seed))


def root_mean_square(difference: Tensor) -> float:
    return float(difference.square().mean().sqrt())


@pytest.mark.parametrize(("task", "method"), EACH)
def test_a_method_as_it_was_tuned_gives_the_middle_frame_in_8_bits(task: str, method: Method) -> None:
    clip = scene(FRAMES) + 0.05 * uniform(FRAMES, 3, 48, 64)
    picture = method.middle(clip, TUNED[task][method.name])
    torch.testing.assert_close(picture, (picture * 255).round() / 255)
    assert picture.shape == clip.shape[1:]
    assert float(picture.min()) >= 0 and float(picture.max()) <= 1
    if task != "dehaze":
        assert root_mean_square(picture - clip[FRAMES // 2]) < 0.1


@pytest.mark.parametrize(("task", "method"), EACH)
def test_tuned_settings_are_among_the_choices(task: str, method: Method) -> None:
    settings = TUNED[task][method.name]
    assert settings.keys() == method.choices.keys()
    assert all(value in method.choices[name] for name, value in settings.items())


# Haze


def test_the_dark_channel_prior_takes_off_haze_of_one_depth() -> None:
    clear = uniform(1, 3, 60, 90)
    clear[:, 1, ::3, ::3] = 0  # something dark in every patch
    airlight = torch.tensor([0.9, 0.85, 0.8]).view(3, 1, 1)
    hazy = 0.4 * clear + 0.6 * airlight
    hazy[..., 60:] = airlight  # where nothing is seen any more
    restored = classical.dark_channel_prior(hazy, patch=9, omega=1.0, least=0.05, radius=8, eps=1e-4)
    inner = (..., slice(None), slice(0, 35))  # of patches and squares that end before
    assert root_mean_square((restored - clear)[inner]) < 0.01


def test_the_colour_attenuation_prior_follows_from_value_and_saturation() -> None:
    hazy = torch.tensor([0.5, 0.4, 0.4]).view(1, 3, 1, 1).repeat(1, 1, 30, 60)
    hazy[..., 40:] = 0.9
    restored = classical.colour_attenuation_prior(hazy, patch=5, beta=1.0, radius=3)
    through = torch.tensor(-(0.121779 + 0.95971 * 0.5 - 0.780245 * 0.2)).exp()
    torch.testing.assert_close(
        restored[0, :, 15, 10], (torch.tensor([0.5, 0.4, 0.4]) - 0.9) / through + 0.9, atol=1e-4, rtol=0
    )


# Rain and snow


def test_the_mean_of_a_square_is_of_what_lies_within_the_picture() -> None:
    clip = uniform(2, 3, 9, 11)
    means = classical.box_mean(clip, 2)
    for row, column in ((0, 0), (4, 5), (8, 3)):
        square = clip[1, 2, max(0, row - 2) : row + 3, max(0, column - 2) : column + 3]
        assert float(means[1, 2, row, column]) == pytest.approx(float(square.mean()), abs=1e-6)
    torch.testing.assert_close(classical.box_mean(clip, 50), clip.mean((2, 3), keepdim=True).expand_as(clip))


def test_the_guided_filter_keeps_what_is_linear_in_its_guide_and_averages_where_the_guide_is_flat() -> None:
    guide = uniform(1, 1, 20, 30)
    torch.testing.assert_close(
        classical.guided_filter(guide, 0.3 * guide + 0.2, 3, 1e-9), 0.3 * guide + 0.2, atol=1e-4, rtol=0
    )
    plain = classical.guided_filter(torch.full_like(guide, 0.5), guide, 3, 1e-2)
    torch.testing.assert_close(plain, classical.box_mean(classical.box_mean(guide, 3), 3))


def test_the_bilateral_filter_is_a_gaussian_that_stops_at_edges() -> None:
    clip = scene()
    kernel = classical.point_spread("gaussian", 1.0)[1:-1, 1:-1]  # as far as the filter reaches
    torch.testing.assert_close(
        classical.bilateral(clip, reach=1.0, contrast=1e3), classical.filtered(clip, kernel / kernel.sum())
    )
    edge = torch.zeros(1, 3, 12, 20)
    edge[..., 10:] = 0.8
    torch.testing.assert_close(classical.bilateral(edge, reach=1.5, contrast=0.05), edge)


def test_a_median_is_that_of_its_window() -> None:
    clip = uniform(1, 3, 40, 30)
    window = clip[0, 1, 19:22, 6:11].flatten().sort().values
    assert float(classical.spatial_median(clip, rows=3, columns=5)[0, 1, 20, 8]) == float(window[7])


@pytest.mark.parametrize("name", ["spatial_median", "limited_spatial_median"])
def test_medians_take_bright_specks_and_upright_lines_away(name: str) -> None:
    clean = scene()
    spoilt = clean.clone()
    spoilt[..., 10, 12] = spoilt[..., 30, 40] = spoilt[..., 5:40, 25] = 1.0
    restored = getattr(classical, name)(spoilt, rows=1, columns=5)
    assert float((restored - clean).abs().max()) < 0.15
    assert root_mean_square(restored - clean) < 0.1 * root_mean_square(spoilt - clean)


def test_limited_medians_leave_what_is_dark_or_hardly_brighter() -> None:
    clip = torch.full((1, 3, 9, 9), 0.5)
    clip[..., 4, 4], clip[..., 2, 2], clip[:, 0, 6, 6] = 0.1, 0.54, 0.9  # the last in one channel alone
    assert torch.equal(classical.limited_spatial_median(clip, threshold=0.05), clip)


def test_temporal_medians_take_away_what_is_there_for_one_frame() -> None:
    clean = scene(5)
    spoilt = clean.clone()
    spoilt[2, :, 10:20, 10:20] = 1.0
    for name in ("temporal_median", "limited_temporal_median"):
        assert torch.equal(getattr(classical, name)(spoilt, frames=3), clean)


def test_temporal_medians_know_only_so_many_frames_on_either_side() -> None:
    clip = uniform(6, 3, 8, 8)
    medians = classical.temporal_median(clip, frames=3)
    torch.testing.assert_close(medians[3], clip[2:5].median(0).values)
    assert torch.equal(medians[0], medians[1])
    assert torch.equal(medians[5], medians[4])


def test_both_medians_leave_what_stays_or_is_large() -> None:
    clip = scene(3)
    clip[:, :, 20, 30] = 1.0  # stays
    clip[1, :, 5:15, 40:60] = 1.0  # is large
    before = clip.clone()
    clip[1, :, 30, 10] = 1.0  # neither
    restored = classical.limited_by_both_medians(clip, columns=5, frames=3, threshold=0.02)
    assert float((restored[1] - before[1]).abs().max()) < 0.1
    assert torch.equal(restored[1, :, 20, 30], torch.ones(3))
    assert torch.equal(restored[1, :, 8, 48], torch.ones(3))


# Blur


@pytest.mark.parametrize("shape", ["gaussian", "disc", "level", "upright"])
def test_a_point_spread_has_the_sum_one_and_its_centre_in_the_middle(shape: str) -> None:
    kernel = classical.point_spread(shape, 2.0)
    assert float(kernel.sum()) == pytest.approx(1)
    torch.testing.assert_close(kernel, kernel.flip(0, 1))
    middle = len(kernel) // 2
    assert kernel[middle, middle] == kernel.max()
    within = [kernel[middle + 2, middle] > 0, kernel[middle, middle + 2] > 0]
    assert within == [shape != "level", shape != "upright"]


@pytest.mark.parametrize("linear", [False, True])
def test_wiener_and_richardson_lucy_undo_a_blur_that_they_know(linear: bool) -> None:
    sharp = torch.full((1, 3, 48, 64), 0.5)  # along the borders, where the rules of continuing differ
    sharp[..., 8:40, 8:56] = 0.1 + 0.8 * uniform(1, 3, 8, 12).repeat_interleave(4, 2).repeat_interleave(4, 3)
    kernel = classical.point_spread("disc", 1.5)
    blurred = (
        classical.filtered(sharp.pow(2.2), kernel).pow(1 / 2.2)
        if linear
        else classical.filtered(sharp, kernel)
    )
    given = root_mean_square(blurred - sharp)
    inverse = classical.wiener(blurred, shape="disc", size=1.5, noise=1e-4, linear=linear)
    assert root_mean_square(inverse - sharp) < 0.3 * given
    likeliest = classical.richardson_lucy(blurred, shape="disc", size=1.5, steps=60, linear=linear)
    assert root_mean_square(likeliest - sharp) < 0.7 * given
    power = 2.2 if linear else 1.0
    # light is moved, not made
    assert float(likeliest.pow(power).mean()) == pytest.approx(float(blurred.pow(power).mean()), rel=0.002)


def test_unsharp_masking_adds_the_share_of_what_blur_takes() -> None:
    clip = torch.full((1, 3, 21, 21), 0.2)
    torch.testing.assert_close(classical.unsharp_masking(clip, sigma=1.0, amount=2.0), clip)
    clip[..., 10, 10] = 1.0
    peak = float(classical.point_spread("gaussian", 1.0).max())
    assert float(classical.unsharp_masking(clip, sigma=1.0, amount=0.5)[0, 0, 10, 10]) == pytest.approx(
        1 + 0.5 * 0.8 * (1 - peak), rel=1e-3
    )


# Noise


@pytest.mark.parametrize("method", METHODS["denoise"], ids=lambda method: method.name)
def test_a_denoiser_takes_most_noise_off_and_little_from_a_clean_clip(method: Method) -> None:
    clean = scene(FRAMES, 80, 96)
    noisy = (clean + 0.06 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(2))).clamp(0, 1)
    settings = TUNED["denoise"][method.name]
    given, left = (root_mean_square(clip - clean[0]) for clip in (noisy[2], method.middle(noisy, settings)))
    assert left < 0.6 * given
    assert root_mean_square(method.middle(clean, settings) - clean[0]) < 0.01


def test_a_filter_gives_as_many_frames_as_it_is_given_in_their_order() -> None:
    video = (torch.arange(5)[:, None, None] * 40).expand(5, 16, 24).byte().numpy()
    assert (through_filter(video, "null", "", "gray") == video).all()
