"""The DUST paper's protocol, each choice of it against a computation of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sample_pictures import write_rgb

from vidrestore.errors import DatasetError
from vidrestore.lab.papers import sensed_patches
from vidrestore.lab.papers.dataset_files import FrameSequence
from vidrestore.lab.papers.sensed_patches import (
    fits,
    gray_video,
    measure,
    restored_video,
    restorer,
)
from vidrestore.lab.papers.tables import Table, TableSet, seed_of
from vidrestore.models.fast_linear import PlainLinear
from vidrestore.pages.results import GIVEN, ClipMetrics, System
from vidrestore.pixels.metrics import psnr, ssim
from vidrestore.weights import Model, build_network
from vidrestore.weights.manifest import Card

PATCH = 4


@pytest.fixture(autouse=True)
def small_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol with patches of 4x4 in place of 16x16."""
    monkeypatch.setattr(sensed_patches, "PATCH_SIDE", PATCH)


def system(card: dict[str, Any] | None = None, **config: Any) -> System:
    """A tiny printed DUST with drawn weights."""
    torch.manual_seed(1)
    settings = {
        "kind": "printed",
        "patch": PATCH,
        "atoms": 16,
        "blocks": 2,
        "temperature": True,
    } | config
    network = build_network("dust", settings)
    for parameter in network.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    entry = Card(
        "tiny", "dust", settings, "recover", "0" * 64, 1, parameters=card or {}
    )
    return System("dust", Model(network.eval(), entry))


def table(column: str, columns: tuple[str, ...], **settings: Any) -> Table:
    part = TableSet(
        "avenue", "Avenue", "avenue", "test", columns, {"dust": ({},) * len(columns)}
    )
    return Table(
        "made-up",
        "",
        "",
        "patches",
        column,
        {"dust": "DUST"},
        (part,),
        {"stride": 2} | settings,
    )


def write_clip(
    folder: Path, frames: int, size: tuple[int, int] = (18, 22)
) -> FrameSequence:
    rng = np.random.default_rng(4)
    rows, columns = np.mgrid[: size[0], : size[1]] / 3
    for number in range(frames):
        picture = [
            120
            + 70 * np.sin(rows + number / 5 + channel) * np.cos(columns)
            + rng.normal(0, 3, size)
            for channel in range(3)
        ]
        write_rgb(
            folder / f"{number:03d}.png",
            np.stack(picture).clip(0, 255).astype(np.uint8),
        )
    return FrameSequence(
        folder.name, folder, tuple(f"{number:03d}.png" for number in range(frames))
    )


def figures(
    made: Table, sequence: FrameSequence, *taking: System, shown_count: int = 0
) -> list[ClipMetrics]:
    return list(measure(made, made.sets[0], [sequence], taking, shown_count))


def test_at_most_200_frames_of_a_video_are_taken(tmp_path):
    write_clip(tmp_path / "long", 1, (12, 12))
    many = FrameSequence("long", tmp_path / "long", ("000.png",) * 203)
    assert len(gray_video(many, 0)) == 200
    assert gray_video(many, 6).shape == (200, 6, 6)


def looped(
    network: Any, video: torch.Tensor, stride: int, noise: Any = None
) -> torch.Tensor:
    """Patches one by one: where they lie, what is measured, and the mean of all that hold a pixel."""
    total, count = torch.zeros_like(video), torch.zeros_like(video)
    height, width = video.shape[1:]
    tops, lefts = (
        sorted({*range(0, size - PATCH, stride), size - PATCH})
        for size in (height, width)
    )
    for top in tops:
        for left in lefts:
            patch = video[:, top : top + PATCH, left : left + PATCH].reshape(
                1, len(video), -1
            )
            measured = (
                network.measure(patch)
                if noise is None
                else network.measure(patch) + noise
            )
            restored = network.at(0.0, torch.float32, PlainLinear)(measured)
            total[:, top : top + PATCH, left : left + PATCH] += restored.view(
                -1, PATCH, PATCH
            )
            count[:, top : top + PATCH, left : left + PATCH] += 1
    return total / count


@torch.no_grad()
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_overlapping_patches_are_averaged_and_the_last_ones_end_with_the_frame(
    tmp_path, stride
):
    network = system(measurements=5).network
    video = gray_video(write_clip(tmp_path / "a", 3), 0).float()
    result = restored_video(
        restorer(network, 0.0, None), video, PATCH, stride, 20, "cpu"
    )
    torch.testing.assert_close(
        result, looped(network, video, stride), atol=1e-3, rtol=0
    )


@torch.no_grad()
def test_frames_are_measured_one_by_one_clamped_and_not_rounded(tmp_path):
    # rate 3/16, "0.2"
    dust, sequence = system(measurements=3), write_clip(tmp_path / "a", 3)
    (result,) = figures(table("CS rate", ("0.2", "0.5")), sequence, dust)
    clean = gray_video(sequence, 0).float()
    restored = looped(dust.network, clean, 2).clamp(0, 255)
    assert result.column == "0.2" and len(result.frames["psnr"]) == 3
    assert result.frames["psnr"] == pytest.approx(
        [psnr(*pair) for pair in zip(restored, clean, strict=True)], abs=1e-4
    )
    assert result.frames["ssim"] == pytest.approx(
        [ssim(*pair) for pair in zip(restored, clean, strict=True)], abs=1e-6
    )
    rounded = [psnr(*pair) for pair in zip(restored.round(), clean, strict=True)]
    assert list(result.frames["psnr"]) != pytest.approx(rounded, abs=1e-4)


def test_noise_is_neither_clipped_nor_rounded_and_the_same_for_every_system(tmp_path):
    sequence = write_clip(tmp_path / "a", 4)
    given, again = figures(
        table("sigma", ("50",)), sequence, System(GIVEN), System(GIVEN)
    )
    assert given == again
    clean = gray_video(sequence, 0).float()
    generator = torch.Generator().manual_seed(seed_of("avenue", "a", "sigma 50"))
    noisy = clean + 50 * torch.randn(clean.shape, generator=generator)
    assert given.frames["psnr"] == pytest.approx(
        [psnr(*pair) for pair in zip(noisy.clamp(0, 255), clean, strict=True)]
    )
    seen: list[torch.Tensor] = []
    denoiser = system()
    denoiser.network.at = lambda sigma, dtype, linear: (
        lambda groups: seen.append(groups) or groups
    )
    figures(table("sigma", ("50",), stride=4), sequence, denoiser)
    samples = torch.cat([groups.flatten() for groups in seen])
    assert samples.min() < 0 and not torch.equal(samples, samples.round())


@torch.no_grad()
def test_noise_of_noisy_sensing_is_on_the_measurements():
    network = system(measurements=4).network
    groups = 255 * torch.rand(3, 20, PATCH**2)
    noisy = restorer(network, 30.0, 9)(groups)
    noise = 30 * torch.randn(3, 20, 4, generator=torch.Generator().manual_seed(9))
    expected = network.at(30.0, torch.float32, PlainLinear)(
        network.measure(groups) + noise
    )
    torch.testing.assert_close(noisy, expected, atol=1e-3, rtol=0)


def test_weights_take_part_in_the_columns_that_they_are_for():
    rates = table("CS rate", ("0.1", "0.2"))
    sigmas, noisy = (
        table("sigma", ("10", "100")),
        table("sigma", ("10", "100"), rate=0.2),
    )
    sensing, denoiser = system(measurements=3), system(card={"sigma": [1.0, 75.0]})
    assert [fits(sensing, rates, column) for column in ("0.1", "0.2")] == [False, True]
    assert [fits(denoiser, rates, column) for column in ("0.1", "0.2")] == [
        False,
        False,
    ]
    assert [fits(denoiser, sigmas, column) for column in ("10", "100")] == [True, False]
    assert [fits(sensing, sigmas, column) for column in ("10", "100")] == [False, False]
    # its card names no noise
    assert [fits(sensing, noisy, column) for column in ("10", "100")] == [True, True]
    assert [
        fits(system(measurements=3, card={"sigma": [10.0]}), noisy, column)
        for column in ("10", "100")
    ] == [True, False]


def test_weights_for_noise_are_not_measured_without_noise():
    rates, lengths = table("CS rate", ("0.2",)), table("clip length", ("20",), rate=0.2)
    for card, expected in (
        ({"sigma": [50.0]}, False),
        ({"sigma": 50.0}, False),
        ({"sigma": [0.0]}, True),
        ({"rate": 0.2}, True),
    ):
        one = system(measurements=3, card=card)
        assert fits(one, rates, "0.2") == fits(one, lengths, "20") == expected


@torch.no_grad()
def test_longer_clips_are_recovered_as_one(tmp_path):
    dust, sequence = system(measurements=3), write_clip(tmp_path / "a", 25)
    result = figures(table("clip length", ("20", "25"), rate=0.2), sequence, dust)
    clean = gray_video(sequence, 0).float()
    whole = looped(dust.network, clean, 2).clamp(0, 255)
    early, late = (
        looped(dust.network, clean[:20], 2),
        looped(dust.network, clean[5:], 2)[15:],
    )
    parts = torch.cat([early, late]).clamp(0, 255)
    for figure, restored in zip(result, (parts, whole), strict=True):
        assert figure.frames["psnr"] == pytest.approx(
            [psnr(*pair) for pair in zip(restored, clean, strict=True)], abs=1e-4
        )


def test_frames_smaller_than_a_patch_are_refused_by_name(tmp_path):
    with pytest.raises(
        DatasetError,
        match=f"{tmp_path}/a: frames of 22x3 are smaller than a patch of 4x4",
    ):
        gray_video(write_clip(tmp_path / "a", 1, (3, 22)), 0)


def test_the_first_clips_have_a_frame_for_the_page(tmp_path):
    sequence = write_clip(tmp_path / "a", 5)
    (seen,) = figures(table("sigma", ("10",)), sequence, System(GIVEN), shown_count=1)
    assert seen.comparison is not None and seen.comparison.frame == 2
    assert (
        seen.comparison.clean.shape == (18, 22, 3)
        and seen.comparison.clean.dtype == np.uint8
    )
    (unseen,) = figures(table("sigma", ("10",)), sequence, System(GIVEN))
    assert unseen.comparison is None
