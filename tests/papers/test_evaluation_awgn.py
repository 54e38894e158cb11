"""The protocol of RGB video denoising: noise as drawn, opponent planes, the order of the means."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sample_pictures import write_rgb

from vidrestore.colour import OPPONENT
from vidrestore.evaluation.results import GIVEN, System
from vidrestore.metrics import psnr
from vidrestore.models import nonlocal_bayes
from vidrestore.papers.dataset_files import FrameSequence
from vidrestore.papers.rgb_protocols import (
    FRAMES,
    denoise_by_planes,
    denoiser,
    measure_denoising,
    noisy_video,
)
from vidrestore.papers.suites import mean_of
from vidrestore.papers.tables import Table, TableSet, all_qualities, seed_of, weights_notes
from vidrestore.restorers import denoise
from vidrestore.restorers.base import Facts
from vidrestore.weights import load_model


class Plain:
    """A restorer that keeps what it is given."""

    facts = Facts("plain", clip=20, overlap=2)

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[torch.Tensor, ...], tuple[float, ...]]] = []

    def restore(self, clip: tuple[torch.Tensor, ...], sigma: tuple[float, ...]) -> tuple[torch.Tensor, ...]:
        self.seen.append((clip, sigma))
        return clip


def table(*columns: str) -> Table:
    part = TableSet("set8", "Set8", "set8", "test", columns, {})
    return Table("made-up", "", "", "rgb-denoising", "sigma", {}, (part,), {})


def write_clip(folder: Path, frames: int, level: int) -> FrameSequence:
    for number in range(frames):
        write_rgb(folder / f"{number:05d}.png", np.full((3, 24, 32), level, np.uint8))
    return FrameSequence(folder.name, folder, tuple(f"{number:05d}.png" for number in range(frames)))


def test_planes_are_orthogonal_span_the_range_and_come_back():
    opponent = torch.tensor(OPPONENT).float()
    products = opponent @ opponent.mT
    torch.testing.assert_close(products, torch.diag(products.diagonal()))
    assert opponent.abs().sum(1).tolist() == pytest.approx([1, 1, 1])
    video = torch.rand(27, 3, 16, 20)
    restored = torch.stack(list(denoise_by_planes(Plain(), video, 20.0)))
    torch.testing.assert_close(restored, video, atol=1e-5, rtol=0)


def test_the_sigma_of_each_plane_is_that_of_its_noise():
    plain = Plain()
    noisy = noisy_video(torch.full((20, 3, 96, 128), 128, dtype=torch.uint8), 25.0, 7)
    list(denoise_by_planes(plain, noisy, 25.0))
    planes, sigmas = plain.seen[0]
    assert sigmas == pytest.approx([float(plane.std()) for plane in planes], rel=5e-3)
    assert sigmas[0] == pytest.approx(25 / 3**0.5)
    assert all(
        float(plane.mean()) == pytest.approx(centre, abs=0.2)
        for plane, centre in zip(planes, (128, 127.5, 127.5), strict=True)
    )


def test_noise_leaves_the_range_and_is_measured_after_clamping(tmp_path):
    clip = write_clip(tmp_path / "tractor", 3, 250)
    output = table("30")
    (result,) = measure_denoising(output, output.sets[0], [clip], [System(GIVEN)], 1)
    clean = np.full((24, 32, 3), 250 / 255)
    generator = torch.Generator().manual_seed(seed_of("set8", "tractor", "30"))
    noise = torch.randn((3, 3, 24, 32), generator=generator).numpy() * 30 / 255
    noisy = [clean + frame.transpose(1, 2, 0) for frame in noise]
    assert result.frames["psnr"] == pytest.approx(
        [psnr(frame.clip(0, 1), clean, 1.0) for frame in noisy], abs=1e-4
    )
    assert result.frames["psnr"][0] != pytest.approx(psnr(noisy[0], clean, 1.0), abs=0.1)
    assert len(set(result.frames["psnr"])) == 3  # new in every frame
    assert result.comparison is not None and result.comparison.source.max() == 255


def test_at_most_85_frames_count(tmp_path):
    write_clip(tmp_path / "rafting", 1, 100)
    many = FrameSequence("rafting", tmp_path / "rafting", ("00000.png",) * 87)
    output = table("10")
    (result,) = measure_denoising(output, output.sets[0], [many], [System(GIVEN)], 0)
    assert len(result.frames["psnr"]) == FRAMES == 85


def test_the_mean_is_over_frames_and_then_over_sequences(tmp_path):
    clips = [write_clip(tmp_path / "a", 1, 128), write_clip(tmp_path / "b", 3, 255)]
    output = table("40")
    result = list(measure_denoising(output, output.sets[0], clips, [System(GIVEN)], 0))
    first, second = (np.mean(clip.frames["psnr"]) for clip in result)
    assert mean_of(result, pooled=False)["psnr"] == pytest.approx((first + second) / 2)
    assert mean_of(result, pooled=True)["psnr"] == pytest.approx((first + 3 * second) / 4)
    assert first != pytest.approx(second, abs=0.5)


def test_noise_is_given_to_dust_and_nothing_is_measured(monkeypatch):
    (system, *_) = all_qualities(System("dust", load_model("dust-denoise"), "dust-denoise"))
    measured: list[Any] = []
    for module, name in ((denoise, "relative_spectrum"), (nonlocal_bayes, "noise_curve")):
        monkeypatch.setattr(module, name, lambda *of: measured.append(of))
    noisy = noisy_video(torch.full((6, 3, 32, 40), 128, dtype=torch.uint8), 20.0, 1)
    restored = torch.stack(list(denoiser(system)(noisy, 20.0)))
    assert not measured and float((restored - 128 / 255).std()) < 0.02


def test_dust_is_measured_at_every_quality_by_name(tmp_path):
    clip = write_clip(tmp_path / "aspen", 2, 128)
    taking = all_qualities(System("dust", load_model("dust-denoise"), "dust-denoise"))
    assert [each.name for each in taking] == ["dust", "dust-fast", "dust-best"]
    assert weights_notes(taking) == weights_notes(taking[:1])
    output = table("40")
    result = list(measure_denoising(output, output.sets[0], [clip], taking, 0))
    assert [clip.system for clip in result] == ["dust", "dust-fast", "dust-best"]
    assert len({clip.frames["psnr"] for clip in result}) == 3
    assert all_qualities(System(GIVEN)) == (System(GIVEN),)
