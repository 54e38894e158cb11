"""VMAF: what it is computed from, and errors of FFmpeg."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from vidrestore.errors import MediaError
from vidrestore.lab.evaluation.reference import SMALLEST, gray_levels
from vidrestore.lab.evaluation.vmaf import Vmaf, ffmpeg_with_vmaf


def video(
    frames: int, height: int, width: int, noise: float = 0.0, channels: int = 3
) -> torch.Tensor:
    """Return waves that move, (T, C, H, W) uint8."""
    rows, columns = np.mgrid[:height, :width] / 7
    number, channel = (
        np.arange(frames)[:, None, None, None],
        np.arange(channels)[:, None, None],
    )
    waves = 128 + 90 * np.sin(rows + number / 3 + channel) * np.cos(
        columns * (1 + channel / 2)
    )
    added = np.random.default_rng(8).normal(0, noise, waves.shape)
    return torch.from_numpy((waves + added).round().clip(0, 255).astype(np.uint8))


def measured(restored: torch.Tensor, clean: torch.Tensor) -> tuple[float, ...]:
    with Vmaf(*clean.shape[2:], 1) as metric:
        for pair in zip(restored, clean, strict=True):
            one, other = (
                each[0].double() if len(each) == 1 else gray_levels(each)
                for each in pair
            )
            metric.add(one.numpy(), other.numpy())
        return metric.values()


def y4m(path: Path, frames: torch.Tensor) -> None:
    """Gray levels in the range of video, 4:2:0."""
    height, width = frames.shape[-2:]
    chroma = bytes([128]) * (((height + 1) // 2) * ((width + 1) // 2) * 2)
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{width} H{height} F25:1 C420jpeg\n".encode())
        for frame in frames:
            luma = np.round(16 + frame[0].numpy().astype(float) * 219 / 255).astype(
                np.uint8
            )
            file.write(b"FRAME\n" + luma.tobytes() + chroma)


@pytest.fixture
def ffmpeg() -> str:
    return ffmpeg_with_vmaf() or pytest.skip("needs an ffmpeg with libvmaf")


def test_vmaf_equals_that_of_ffmpegs_command_on_luma(tmp_path, ffmpeg):
    # In one channel no level lies midway between two of luma, so rounding is the same on every processor.
    clean, restored = (
        video(4, 70, 90, channels=1),
        video(4, 70, 90, noise=25, channels=1),
    )
    y4m(tmp_path / "clean.y4m", clean)
    y4m(tmp_path / "restored.y4m", restored)
    graph = "[0:v][1:v]libvmaf=log_fmt=json:log_path=log.json"
    command = f"-v error -i restored.y4m -i clean.y4m -lavfi {graph} -f null -".split()
    subprocess.run([ffmpeg, *command], cwd=tmp_path, check=True)
    log = json.loads((tmp_path / "log.json").read_text())
    expected = [frame["metrics"]["vmaf"] for frame in log["frames"]]
    found = measured(restored, clean)
    assert (
        found == pytest.approx(expected, abs=1e-4) and len(found) == 4 and found[0] < 90
    )


@pytest.mark.usefixtures("ffmpeg")
def test_vmaf_of_small_frames_is_that_of_larger_ones_where_they_are_equal():
    small, large = (video(3, side, side) for side in (SMALLEST, 64))
    assert measured(small, small) == pytest.approx(measured(large, large), abs=1e-3)


@pytest.fixture
def no_ffmpeg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder that is all of PATH; no imageio-ffmpeg."""
    ffmpeg_with_vmaf.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    yield tmp_path
    ffmpeg_with_vmaf.cache_clear()


def write_ffmpeg(folder: Path, script: str) -> Path:
    path = folder / "ffmpeg"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_an_ffmpeg_without_libvmaf_is_not_used(no_ffmpeg):
    write_ffmpeg(no_ffmpeg, "echo ' .. psnr  VV->V  Calculate the PSNR'")
    assert ffmpeg_with_vmaf() is None


def test_an_ffmpeg_that_fails_is_an_error_with_its_last_message(no_ffmpeg):
    listing = 'case "$*" in *-filters*) echo " .. libvmaf VV->V VMAF";; '
    path = write_ffmpeg(no_ffmpeg, listing + "*) echo no model >&2; exit 3;; esac")
    clean = video(1, 40, 40)
    with pytest.raises(
        MediaError,
        match=f"{path}: ended with 3 while it measured VMAF: no model; put another",
    ):
        measured(clean, clean)
    write_ffmpeg(no_ffmpeg, listing + "esac")  # says nothing, measures nothing
    with pytest.raises(
        MediaError, match="ended with 0 while it measured VMAF: no message"
    ):
        measured(clean, clean)
