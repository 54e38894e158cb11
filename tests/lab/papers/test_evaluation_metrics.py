"""Metrics and frames of the protocols, each computed by hand, by loops, or as published."""

from itertools import product

import numpy as np
import pytest
import torch
from sample_pictures import write_rgb
from sample_videos import cut_short, sample_planes, write_video

from vidrestore.errors import DatasetError, MediaError
from vidrestore.lab.papers.dataset_files import FrameSequence, clean_frames, stacked
from vidrestore.lab.papers.rgb_protocols import (
    luma_metrics,
    matlab_luma,
    matlab_luma_metrics,
    rgb_metrics,
    volume_metrics,
    volume_ssim,
)
from vidrestore.lab.papers.sensed_patches import downscaled
from vidrestore.pages.sequence_frames import area_matrix, eight_bits, grey


def pictures(height: int = 14, width: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """A smooth picture and the same in noise, (3, H, W) uint8."""
    rng = np.random.default_rng(3)
    rows, columns = np.mgrid[:height, :width] / 4
    clean = np.stack(
        [120 + 80 * np.sin(rows + channel) * np.cos(columns) for channel in range(3)]
    )
    noisy = clean + rng.normal(0, 12, clean.shape)
    return tuple(
        torch.from_numpy(picture.round().clip(0, 255).astype(np.uint8))
        for picture in (noisy, clean)
    )


def test_matlabs_luma_is_the_documented_one_rounded():
    colours = {
        (255, 255, 255): 235,
        (0, 0, 0): 16,
        (255, 0, 0): 81,
        (0, 255, 0): 145,
        (0, 0, 255): 41,
        (128, 128, 128): 126,
    }
    for colour, luma in colours.items():
        assert matlab_luma(
            torch.tensor(colour, dtype=torch.uint8)[:, None, None]
        ).tolist() == [[luma]]


def test_the_two_lumas_differ_by_their_rounding_alone():
    noisy, clean = pictures()
    weights = np.array([65.481, 128.553, 24.966])
    exact = [
        np.tensordot(weights, picture.numpy() / 255, 1) + 16
        for picture in (noisy, clean)
    ]
    plain = 10 * np.log10(255**2 / np.mean((exact[0] - exact[1]) ** 2))
    rounded = 10 * np.log10(
        255**2 / np.mean((np.floor(exact[0] + 0.5) - np.floor(exact[1] + 0.5)) ** 2)
    )
    assert luma_metrics(noisy, clean)["psnr"] == pytest.approx(plain, abs=1e-4)
    assert matlab_luma_metrics(noisy, clean)["psnr"] == pytest.approx(rounded, abs=1e-9)
    assert abs(plain - rounded) > 1e-3


def test_metrics_of_rgb_are_over_all_samples_and_the_same_in_floats():
    noisy, clean = pictures()
    error = noisy.double() - clean.double()
    expected = 10 * np.log10(255**2 / float(error.square().mean()))
    assert rgb_metrics(noisy, clean)["psnr"] == pytest.approx(expected)
    inside = rgb_metrics(noisy.double() / 255, clean.double() / 255)
    assert inside == pytest.approx(rgb_metrics(noisy, clean))
    assert volume_metrics(noisy, clean)["psnr"] == pytest.approx(expected)


def looped_volume_ssim(a: np.ndarray, b: np.ndarray, top: float) -> float:
    """SSIM with an 11x11x11 window around every sample of a volume continued by its edges, place by place."""
    line = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    window = line[:, None, None] * line[None, :, None] * line[None, None, :]
    window /= window.sum()
    a, b = (np.pad(volume.astype(float), 5, mode="edge") for volume in (a, b))
    values = []
    for place in product(*(range(size - 10) for size in a.shape)):
        one, other = (
            volume[tuple(slice(at, at + 11) for at in place)] for volume in (a, b)
        )
        mean_a, mean_b = (window * one).sum(), (window * other).sum()
        covariance = (window * (one - mean_a) * (other - mean_b)).sum()
        variances = (window * (one - mean_a) ** 2).sum() + (
            window * (other - mean_b) ** 2
        ).sum()
        c1, c2 = (0.01 * top) ** 2, (0.03 * top) ** 2
        values.append(
            (2 * mean_a * mean_b + c1)
            * (2 * covariance + c2)
            / ((mean_a**2 + mean_b**2 + c1) * (variances + c2))
        )
    return float(np.mean(values))


def test_matlabs_ssim_of_colour_takes_the_picture_for_a_volume():
    noisy, clean = pictures(8, 9)
    assert volume_ssim(noisy, clean, 255) == pytest.approx(
        looped_volume_ssim(noisy.numpy(), clean.numpy(), 255), abs=1e-10
    )
    noisy, clean = pictures()
    assert (
        abs(volume_metrics(noisy, clean)["ssim"] - rgb_metrics(noisy, clean)["ssim"])
        > 1e-3
    )


def test_gray_weighs_colours_as_bt601_and_rounds():
    picture = torch.tensor(
        [[255, 0, 0, 10], [0, 255, 0, 20], [0, 0, 255, 30]], dtype=torch.uint8
    )[:, None]
    assert grey(picture).tolist() == [[76, 150, 29, 18]]


def test_each_smaller_sample_is_the_mean_of_the_area_it_covers():
    assert area_matrix(3, 2).tolist() == [
        pytest.approx([2 / 3, 1 / 3, 0]),
        pytest.approx([0, 1 / 3, 2 / 3]),
    ]
    matrix = area_matrix(360, 160)
    assert matrix.sum(1).numpy() == pytest.approx(1) and matrix.sum(
        0
    ).numpy() == pytest.approx(160 / 360)
    frames = torch.arange(2 * 4 * 6, dtype=torch.uint8).view(2, 4, 6)
    blocks = frames.double().view(2, 2, 2, 3, 2).mean((2, 4)).round()
    assert torch.equal(downscaled(frames, 2).double(), blocks)


def test_samples_are_clamped_and_rounded_to_eight_bits():
    result = eight_bits(torch.tensor([-0.1, 0.0, 0.4999 / 255, 0.51 / 255, 1.0, 1.2]))
    assert result.tolist() == [0, 0, 0, 1, 255, 255]


def test_the_frames_of_pictures_and_of_videos_are_read(tmp_path):
    for number in range(3):
        write_rgb(
            tmp_path / "clip" / f"{number}.png",
            np.full((3, 32, 48), 40 * number, np.uint8),
        )
    sequence = FrameSequence("clip", tmp_path / "clip", ("0.png", "1.png", "2.png"))
    assert [int(frame[0, 0, 0]) for frame in clean_frames(sequence)] == [0, 40, 80]
    write_video(tmp_path / "video.mkv", frames=3, pix_fmt="gray")
    video = FrameSequence("video", tmp_path, ("video.mkv",), video=True)
    expected = sample_planes("gray", 1)[0]
    second = list(clean_frames(video))[1]
    assert second.dtype == torch.uint8 and second.shape == (3, 48, 64)
    assert np.abs(grey(second).numpy().astype(int) - expected).max() <= 1


def test_a_clip_without_frames_or_with_frames_of_two_sizes_is_an_error():
    with pytest.raises(DatasetError, match="walk: has no frame that can be decoded"):
        stacked(iter(()), "walk")
    with pytest.raises(DatasetError, match="walk: frame 1 is 6x4 but the first 5x4"):
        stacked(iter([torch.zeros(3, 4, 5), torch.zeros(3, 4, 6)]), "walk")


def test_a_damaged_video_is_an_error(tmp_path):
    path = tmp_path / "video.mkv"
    write_video(path, frames=40, pix_fmt="gray")
    cut_short(path, 2 / 3)
    sequence = FrameSequence("video", tmp_path, ("video.mkv",), video=True)
    with pytest.raises(
        MediaError,
        match=r"video.mkv: the source is damaged: .*; metrics would be of other pictures; fetch the file",
    ):
        list(clean_frames(sequence))
