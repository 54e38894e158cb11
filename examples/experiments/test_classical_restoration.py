"""The methods that networks are compared with do what their papers say."""

from __future__ import annotations

import classical_restoration as classical
import pytest
import torch
from classical_restoration import FRAMES, METHODS, Method
from torch import Tensor

from vidrestore.pixels.linear_light import from_light, to_light


def scene(frames: int = 1, height: int = 48, width: int = 64) -> Tensor:
    """Smooth shapes in all colours, the same in every frame."""
    rows, columns = torch.meshgrid(
        torch.arange(height) / 7, torch.arange(width) / 7, indexing="ij"
    )
    channels = [
        0.5 + 0.3 * torch.sin(rows * a) * torch.cos(columns * b)
        for a, b in ((1, 1.3), (0.6, 0.9), (1.7, 0.4))
    ]
    return torch.stack(channels).expand(frames, 3, height, width).clone()


def uniform(*size: int) -> Tensor:
    return torch.rand(*size, generator=torch.Generator().manual_seed(1))


def root_mean_square(difference: Tensor) -> float:
    return float(difference.square().mean().sqrt())


@pytest.mark.parametrize(
    ("task", "method"), [(task, each) for task in METHODS for each in METHODS[task]]
)
def test_a_method_gives_the_middle_frame_in_8_bits(task: str, method: Method) -> None:
    clip = scene(FRAMES) + 0.05 * uniform(FRAMES, 3, 48, 64)
    picture = method.middle(clip)
    torch.testing.assert_close(picture, (picture * 255).round() / 255)
    assert picture.shape == clip.shape[1:]
    if task != "dehaze":
        assert root_mean_square(picture - clip[FRAMES // 2]) < 0.1


def test_the_dark_channel_prior_takes_off_haze_of_one_depth() -> None:
    clear = uniform(1, 3, 60, 90)
    clear[:, 1, ::3, ::3] = 0  # something dark in every patch
    airlight = torch.tensor([0.9, 0.85, 0.8]).view(3, 1, 1)
    hazy = 0.4 * clear + 0.6 * airlight
    hazy[..., 60:] = airlight  # where nothing is seen any more
    restored = classical.dark_channel_prior(
        from_light(hazy), patch=9, omega=1.0, least=0.05, radius=8
    )
    inner = (..., slice(None), slice(0, 35))  # of patches and squares that end before
    assert root_mean_square((to_light(restored) - clear)[inner]) < 0.02


def test_the_mean_of_a_square_is_of_what_lies_within_the_picture() -> None:
    clip = uniform(2, 3, 9, 11)
    means = classical.box_mean(clip, 2)
    for row, column in ((0, 0), (4, 5), (8, 3)):
        square = clip[1, 2, max(0, row - 2) : row + 3, max(0, column - 2) : column + 3]
        assert float(means[1, 2, row, column]) == pytest.approx(
            float(square.mean()), abs=1e-6
        )


def test_a_median_is_that_of_its_window() -> None:
    clip = uniform(6, 3, 40, 30)
    window = clip[0, 1, 19:22, 6:11].flatten().sort().values
    assert float(classical.spatial_median(clip, 3, 5)[0, 1, 20, 8]) == float(window[7])
    medians = classical.temporal_median(clip)
    torch.testing.assert_close(medians[3], clip[2:5].median(0).values)
    assert torch.equal(medians[0], medians[1]) and torch.equal(medians[5], medians[4])


def test_a_limited_median_takes_bright_lines_away_and_leaves_what_is_dark() -> None:
    clean = scene()
    spoilt = clean.clone()
    spoilt[..., 10, 12] = spoilt[..., 5:40, 25] = 1.0
    spoilt[..., 44, 44] = 0.0
    restored = classical.limited_spatial_median(spoilt, rows=1, columns=5)
    assert torch.equal(restored[..., 44, 44], spoilt[..., 44, 44])
    assert float((restored - clean)[..., :42, :].abs().max()) < 0.15


def test_both_medians_leave_what_stays_or_is_large() -> None:
    clip = scene(3)
    clip[:, :, 20, 30] = 1.0  # stays
    clip[1, :, 5:15, 40:60] = 1.0  # is large
    before = clip.clone()
    clip[1, :, 30, 10] = 1.0  # neither
    restored = classical.limited_by_both_medians(clip, columns=5)
    assert float((restored[1] - before[1]).abs().max()) < 0.1
    assert torch.equal(restored[1, :, 20, 30], torch.ones(3))
    assert torch.equal(restored[1, :, 8, 48], torch.ones(3))


def test_wiener_undoes_a_blur_that_it_knows() -> None:
    # along the borders, where the rules of continuing differ
    sharp = torch.full((1, 3, 48, 64), 0.5)
    sharp[..., 8:40, 8:56] = 0.1 + 0.8 * uniform(1, 3, 8, 12).repeat_interleave(
        4, 2
    ).repeat_interleave(4, 3)
    kernel = classical.disc(1.5)[None, None]
    light = torch.nn.functional.pad(to_light(sharp), [2] * 4, mode="reflect").transpose(
        0, 1
    )
    blurred = from_light(torch.nn.functional.conv2d(light, kernel).transpose(0, 1))
    assert float(kernel.sum()) == pytest.approx(1)
    assert kernel[0, 0, 2].count_nonzero() == 3  # nothing two pixels from the middle
    restored = classical.wiener(blurred, radius=1.5, noise=1e-4)
    assert root_mean_square(restored - sharp) < 0.3 * root_mean_square(blurred - sharp)


def test_unsharp_masking_adds_the_share_of_what_blur_takes() -> None:
    clip = torch.full((1, 3, 21, 21), 0.2)
    torch.testing.assert_close(
        classical.unsharp_masking(clip, sigma=1.0, amount=2.0), clip
    )
    clip[..., 10, 10] = 1.0
    # under the blur
    kept = torch.exp(-(torch.arange(-3, 4).float() ** 2) / 2).sum() ** -2
    sharpened = classical.unsharp_masking(clip, sigma=1.0, amount=0.5)
    assert float(sharpened[0, 0, 10, 10]) == pytest.approx(
        float(1 + 0.4 * (1 - kept)), rel=1e-3
    )


def test_a_denoiser_takes_most_noise_off_and_little_from_a_clean_clip() -> None:
    clean = scene(1, 80, 96)
    noise = 0.06 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(2))
    noisy = (clean + noise).clamp(0, 1)
    (method,) = METHODS["denoise"]
    assert root_mean_square(method.middle(noisy) - clean[0]) < 0.6 * root_mean_square(
        noisy - clean
    )
    assert root_mean_square(method.middle(clean) - clean[0]) < 0.01


def test_a_filter_gives_as_many_frames_as_it_is_given_in_their_order() -> None:
    video = (torch.arange(5)[:, None, None] * 40).expand(5, 16, 24).byte().numpy()
    assert (classical.filtered(video, "null", "", "gray") == video).all()
