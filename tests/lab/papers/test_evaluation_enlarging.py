"""The protocol of super-resolution: what the small frames are, how windows run, and what is measured."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dataset_folders import VID4
from sample_pictures import write_rgb
from vsr_networks import released

from vidrestore.errors import DatasetError
from vidrestore.lab.degrade import imresize
from vidrestore.lab.evaluation import evaluate
from vidrestore.lab.papers.dataset_files import FrameSequence
from vidrestore.lab.papers.rgb_protocols import (
    bicubic,
    enlarger,
    measure_enlarging,
    small_frames,
)
from vidrestore.lab.papers.tables import Table, TableSet
from vidrestore.models.vsr_recurrent import config_of
from vidrestore.pages.results import BICUBIC, ClipMetrics, System
from vidrestore.pixels.metrics import bgr_to_luma, psnr, ssim
from vidrestore.restorers.vsr_restorer import frame_window
from vidrestore.weights import load_model, save_model


def picture(number: int, height: int, width: int) -> np.ndarray:
    rows, columns = np.mgrid[:height, :width] / 6
    waves = [
        128 + 90 * np.sin(rows + number / 3) * np.cos(columns * (channel + 1))
        for channel in range(3)
    ]
    return np.stack(waves).clip(0, 255).astype(np.uint8)


def write_frames(
    folder: Path, frames: int, size: tuple[int, int], first: int = 0
) -> FrameSequence:
    for number in range(frames):
        write_rgb(folder / f"{number:08d}.png", picture(first + number, *size))
    return FrameSequence(
        folder.name, folder, tuple(f"{number:08d}.png" for number in range(frames))
    )


def table(channels: list[str], made: bool = True) -> Table:
    part = TableSet("vid4", "Vid4", "vid4", "test", ("average",), {})
    return Table(
        "made-up",
        "",
        "",
        "super-resolution",
        "clip",
        {},
        (part,),
        {"channels": channels, "made": made},
    )


def figures(
    sequence: FrameSequence, channels: list[str], **more: Any
) -> list[ClipMetrics]:
    output = table(channels)
    return list(
        measure_enlarging(
            output, output.sets[0], [sequence], [System(BICUBIC)], 0, **more
        )
    )


def stored(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.mul(255).round().clamp(0, 255)


def test_bicubic_is_small_frames_in_eight_bits_enlarged_into_eight_bits(tmp_path):
    clip = write_frames(tmp_path / "calendar", 2, (50, 70))
    (result,) = figures(clip, ["Y"])
    assert len(result.frames["psnr"]) == 2  # border frames count
    for number in range(2):
        # multiples of 4
        clean = torch.from_numpy(picture(number, 50, 70)[:, :48, :68].copy())
        small = stored(imresize(clean.double() / 255, 1 / 4))
        large = stored(imresize(small / 255, 4))
        lumas = [
            bgr_to_luma(
                np.ascontiguousarray(part.numpy()[::-1].transpose(1, 2, 0)).astype(
                    np.uint8
                )
            )
            for part in (large, clean)
        ]
        assert result.frames["psnr"][number] == pytest.approx(psnr(*lumas), abs=1e-9)
        assert result.frames["ssim"][number] == pytest.approx(ssim(*lumas), abs=1e-12)
        exact = stored(imresize(imresize(clean.double() / 255, 1 / 4), 4))
        # small frames that were not rounded would be seen
        assert not torch.equal(exact, large)


def test_rgb_and_luma_are_measured_of_the_same_frames(tmp_path):
    clip = write_frames(tmp_path / "00001", 3, (32, 40))
    rgb, luma = figures(clip, ["RGB", "Y"], measured_frames=(1,))
    assert (rgb.column, luma.column) == ("RGB", "Y")
    assert len(rgb.frames["psnr"]) == len(luma.frames["psnr"]) == 1
    small = small_frames(
        clip, torch.from_numpy(np.stack([picture(1, 32, 40)])), downscale=True
    )
    large = bicubic(small[0]).double()
    error = float(
        (large - torch.from_numpy(picture(1, 32, 40)).double()).square().mean()
    )
    assert rgb.frames["psnr"][0] == pytest.approx(10 * np.log10(255**2 / error))
    assert rgb.frames["psnr"][0] != pytest.approx(luma.frames["psnr"][0], abs=0.01)


def test_small_frames_of_the_release_are_used_if_the_protocol_asks_for_them(tmp_path):
    clip = write_frames(tmp_path / "sharp" / "000", 1, (32, 40))
    write_frames(tmp_path / "x4" / "000", 1, (8, 10), first=9)
    both = FrameSequence(
        "000",
        clip.clean_folder,
        clip.clean_frames,
        tmp_path / "x4" / "000",
        clip.clean_frames,
    )
    clean = torch.from_numpy(np.stack([picture(0, 32, 40)]))
    assert np.array_equal(
        small_frames(both, clean, downscale=False)[0].numpy(), picture(9, 8, 10)
    )
    assert not np.array_equal(
        small_frames(both, clean, downscale=True)[0].numpy(), picture(9, 8, 10)
    )
    with pytest.raises(
        DatasetError, match="frames of 10x8, but a quarter of the clean ones is 15x12"
    ):
        small_frames(
            both, torch.zeros(1, 3, 48, 60, dtype=torch.uint8), downscale=False
        )


def saved(folder: Path, network: Any, name: str) -> Path:
    path = folder / f"{name}.safetensors"
    save_model(
        path,
        network.float(),
        family="vsr-transformer",
        config=config_of(network),
        task="sr",
        parameters={"scale": 4},
    )
    return path


def test_a_released_network_sees_the_windows_of_the_paper(tmp_path):
    path = saved(tmp_path, released(), "released")
    system = System("vsr-transformer", load_model(path), str(path))
    small = torch.from_numpy(np.stack([picture(number, 64, 64) for number in range(6)]))
    (frame,) = enlarger(system)(small, (5,))
    window = small[frame_window(5, 6, 5)].float() / 255
    with torch.no_grad():
        whole = system.network(window[None])[0, 2]
    assert (frame.double() - stored(whole.double())).abs().max() <= 1
    assert frame_window(0, 6, 5) == [4, 3, 0, 1, 2] and frame_window(5, 6, 5) == [
        3,
        4,
        5,
        2,
        1,
    ]


def test_the_suite_measures_bicubic_on_vid4_beside_the_paper(tmp_path):
    lengths = dict(zip(VID4, (1, 2, 3, 4), strict=True))
    for clip, frames in lengths.items():
        write_frames(tmp_path / "GT" / clip, frames, (32, 40), first=3 * frames)
    result = evaluate("vsr-table3", data=tmp_path, systems=["bicubic"])
    rows = {row.on: row for row in result.rows}
    assert [row.system for row in result.rows] == ["Bicubic"] * 5
    average = rows["Vid4, clip average"]
    assert average.reference == {"psnr": 23.78, "ssim": 0.6347} and average.count == 10
    clips = [rows[f"Vid4, clip {clip}"] for clip in VID4]
    assert average.measured["psnr"] == pytest.approx(
        np.mean([row.measured["psnr"] for row in clips]), abs=1e-3
    )
    over_frames = np.mean(
        [value for clip in result.clips for value in clip.frames["psnr"]]
    )
    # clips count alike, however long
    assert average.measured["psnr"] != pytest.approx(over_frames, abs=5e-3)
    assert clips[1].count == 2 and clips[1].reference["psnr"] == 25.16


def test_the_protocol_names_the_frames_that_are_restored(tmp_path):
    for number in range(1, 8):
        write_rgb(
            tmp_path / "sequences" / "00001" / "0266" / f"im{number}.png",
            picture(number, 32, 40),
        )
    (tmp_path / "sep_testlist.txt").write_text("00001/0266\n")
    result = evaluate("vsr-table2", data=tmp_path, systems=["bicubic"])
    assert [len(clip.frames["psnr"]) for clip in result.clips] == [1, 1]
    assert (
        "of each clip only frame 4 is restored and measured, output clamped"
        in result.protocol[1]
    )
    for clip in VID4:
        write_frames(tmp_path / "GT" / clip, 2, (32, 40))
    assert (
        "all frames are restored, output clamped"
        in evaluate("vsr-table3", data=tmp_path, systems=["bicubic"]).protocol[1]
    )
