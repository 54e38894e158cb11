"""VMAF: what it is computed from, and what is said if it can't be measured."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_pictures import write_rgb

from vidrestore.cli import main
from vidrestore.degrade import add_gaussian_noise
from vidrestore.errors import DatasetError, MediaError, OptionError
from vidrestore.evaluation import evaluate
from vidrestore.evaluation.reference import SMALLEST, FurtherMetrics, check_metrics
from vidrestore.evaluation.results import BICUBIC, GIVEN, System
from vidrestore.evaluation.sequence_frames import eight_bits
from vidrestore.media.vmaf import ffmpeg_with_vmaf
from vidrestore.papers import rgb_protocols, sensed_patches
from vidrestore.papers.set_files import FrameSequence
from vidrestore.papers.tables import Table, TableSet, seed_of

ROOT = Path(__file__).parents[2]


def video(frames: int, height: int, width: int, noise: float = 0.0, channels: int = 3) -> torch.Tensor:
    """(T, C, H, W) uint8: waves that move."""
    rng = np.random.default_rng(8)
    rows, columns = np.mgrid[:height, :width] / 7
    made = [
        [
            128 + 90 * np.sin(rows + number / 3 + channel) * np.cos(columns * (1 + channel / 2))
            for channel in range(channels)
        ]
        for number in range(frames)
    ]
    return torch.from_numpy(
        (np.array(made) + rng.normal(0, noise, (frames, channels, height, width)))
        .round()
        .clip(0, 255)
        .astype(np.uint8)
    )


def measured(name: str, restored: torch.Tensor, clean: torch.Tensor) -> tuple[float, ...]:
    with FurtherMetrics([name], clean.shape) as metrics:
        for pair in zip(restored, clean, strict=True):
            metrics.add(*pair)
        return metrics.frames()[name]


def y4m(path: Path, frames: torch.Tensor) -> None:
    """Gray levels in the range of video, 4:2:0."""
    height, width = frames.shape[-2:]
    chroma = bytes([128]) * (((height + 1) // 2) * ((width + 1) // 2) * 2)
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{width} H{height} F25:1 C420jpeg\n".encode())
        for frame in frames:
            luma = np.round(16 + frame[0].numpy().astype(float) * 219 / 255).astype(np.uint8)
            file.write(b"FRAME\n" + luma.tobytes() + chroma)


@pytest.fixture
def ffmpeg() -> str:
    try:
        return ffmpeg_with_vmaf()
    except OptionError as error:
        pytest.skip(str(error))


def test_vmaf_is_what_ffmpeg_says_of_the_luma(tmp_path: Path, ffmpeg: str) -> None:
    # In one channel no level lies midway between two of luma, so rounding is the same on every processor.
    clean, restored = video(4, 70, 90, channels=1), video(4, 70, 90, noise=25, channels=1)
    y4m(tmp_path / "clean.y4m", clean)
    y4m(tmp_path / "restored.y4m", restored)
    graph = "[0:v][1:v]libvmaf=log_fmt=json:log_path=log.json"
    subprocess.run(
        [ffmpeg, "-v", "error", "-i", "restored.y4m", "-i", "clean.y4m", "-lavfi", graph, "-f", "null", "-"],
        cwd=tmp_path,
        check=True,
    )
    expected = [
        frame["metrics"]["vmaf"] for frame in json.loads((tmp_path / "log.json").read_text())["frames"]
    ]
    found = measured("vmaf", restored, clean)
    assert found == pytest.approx(expected, abs=1e-4) and len(found) == 4 and found[0] < 90


@pytest.mark.usefixtures("ffmpeg")
def test_vmaf_of_small_frames_is_that_of_larger_ones_where_they_are_equal():
    small, large = (video(3, side, side) for side in (SMALLEST, 64))
    assert measured("vmaf", small, small) == pytest.approx(measured("vmaf", large, large), abs=1e-3)


def test_frames_that_are_too_small_are_refused():
    with pytest.raises(DatasetError, match="frames of 200x32 are too small for vmaf, which needs 33 lines"):
        FurtherMetrics(["vmaf"], (3, 32, 200))


def write_clip(folder: Path, frames: torch.Tensor) -> FrameSequence:
    for number, frame in enumerate(frames):
        write_rgb(folder / f"{number:03d}.png", frame.numpy())
    return FrameSequence(folder.name, folder, tuple(f"{number:03d}.png" for number in range(len(frames))))


def table(column: str, *columns: str, **settings: object) -> Table:
    part = TableSet("set", "Set", "set8", "test", columns, {})
    return Table("made-up", "", "", "", column, {}, (part,), settings)


@pytest.mark.usefixtures("ffmpeg")
def test_every_protocol_of_clips_measures_what_it_restored_in_eight_bits(tmp_path):
    clean = video(2, 44, 48)
    clip = write_clip(tmp_path / "clip", clean)
    given = [System(GIVEN)]

    made = table("sigma", "30")
    (found,) = rgb_protocols.measure_denoising(made, made.sets[0], [clip], given, 0, ["vmaf"])
    noisy = rgb_protocols.noisy_video(clean, 30.0, seed_of("set", "clip", "30"))
    assert found.frames["vmaf"] == measured("vmaf", eight_bits(noisy), clean)

    made = table("sigma", "30", stride=16)
    (found,) = sensed_patches.measure(made, made.sets[0], [clip], given, 0, ["vmaf"])
    grays = sensed_patches.gray_video(clip, 0)
    noisy = add_gaussian_noise(grays.float(), 30.0, seed_of("set", "clip", "sigma 30"), clip_and_round=False)
    assert found.frames["vmaf"] == measured(
        "vmaf", noisy.round().clamp(0, 255).to(torch.uint8)[:, None], grays[:, None]
    )

    made = table("clip", "average", channels=["RGB", "Y"], made=True)
    rgb, luma = rgb_protocols.measure_enlarging(made, made.sets[0], [clip], [System(BICUBIC)], 0, ["vmaf"])
    large = [rgb_protocols.bicubic(frame) for frame in rgb_protocols.small_frames(clip, clean, made=True)]
    assert rgb.frames["vmaf"] == luma.frames["vmaf"] == measured("vmaf", torch.stack(large), clean)


def write_vid4(folder: Path) -> None:
    for clip in ("calendar", "city", "foliage", "walk"):
        write_clip(folder / "GT" / clip, video(2, 44, 48))


@pytest.mark.usefixtures("ffmpeg")
def test_they_stand_in_the_table_beside_psnr_and_ssim(tmp_path, capsys):
    write_vid4(tmp_path)
    files = tmp_path / "found.json", tmp_path / "found.html"
    options = ["--suite", "vsr-table3", "--data", tmp_path, "--systems", "bicubic", "--metrics", "vmaf"]
    with pytest.raises(SystemExit) as end:
        main(["eval", *map(str, options), "--json", str(files[0]), "--html", str(files[1])])
    printed = capsys.readouterr().out
    assert not end.value.code and printed.splitlines()[1].split()[-1] == "vmaf"
    assert "- vmaf: libvmaf's default model" in printed
    (row,) = (row for row in json.loads(files[0].read_text())["rows"] if row["on"].endswith("average"))
    assert 0 < row["measured"]["vmaf"] < 100
    assert "<th>VMAF</th>" in files[1].read_text()


def refused(**options: object) -> str:
    with pytest.raises(OptionError) as error:
        evaluate(**{"suite": "vsr-table3", "data": "nowhere"} | options)  # type: ignore[arg-type]
    return str(error.value)


def test_unknown_metrics_are_refused_before_anything_is_measured():
    assert refused(metrics=["lpips"]) == "no metric lpips in addition to PSNR and SSIM; there are: vmaf"
    assert refused(suite="bundled", metrics=["vmaf"]).startswith(
        "further metrics (vmaf) are for the papers' tables"
    )


@pytest.mark.usefixtures("ffmpeg")
def test_vmaf_of_single_pictures_is_refused(tmp_path):
    expected = "vmaf is for videos, but {} measures single pictures; remove it from `metrics`"
    assert refused(suite="mbt-table2", metrics=["vmaf"]) == expected.format("mbt-table2")
    folder = tmp_path / "sequences" / "00001" / "0001"
    for number in range(1, 8):
        write_rgb(folder / f"im{number}.png", video(1, 40, 48)[0].numpy())
    (tmp_path / "sep_testlist.txt").write_text("00001/0001\n")
    assert refused(suite="vsr-table2", data=tmp_path, metrics=["vmaf"]) == expected.format("vsr-table2")


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


def test_without_an_ffmpeg_that_has_libvmaf_vmaf_says_what_to_install(no_ffmpeg):
    with pytest.raises(
        OptionError,
        match="needs an ffmpeg with libvmaf, and there is none on the PATH; put one on the PATH, or: pip",
    ):
        check_metrics(["vmaf"])
    path = write_ffmpeg(no_ffmpeg, "echo ' .. psnr  VV->V  Calculate the PSNR'")
    with pytest.raises(OptionError, match=f"and {path} has none"):
        check_metrics(["vmaf"])


def test_an_ffmpeg_that_fails_is_an_error_with_its_last_word(no_ffmpeg):
    listing = 'case "$*" in *-filters*) echo " .. libvmaf VV->V VMAF";; '
    path = write_ffmpeg(no_ffmpeg, listing + "*) echo no model >&2; exit 3;; esac")
    clean = video(1, 40, 40)
    with pytest.raises(
        MediaError,
        match=f"{path}: ended with 3 while it measured VMAF: no model; leave vmaf out of `metrics`",
    ):
        measured("vmaf", clean, clean)
    write_ffmpeg(no_ffmpeg, listing + "esac")  # says nothing, measures nothing
    with pytest.raises(MediaError, match="ended with 0 while it measured VMAF: it said nothing"):
        measured("vmaf", clean, clean)


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit on the size of files")
def test_videos_that_have_no_room_are_an_error_and_leave_nothing(tmp_path):
    script = (
        "import resource, numpy\n"
        "from vidrestore.media.vmaf import Vmaf\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
        "with Vmaf(64, 64) as metric:\n"
        "    for _ in range(200):\n"
        "        metric.add(*255 * numpy.random.rand(2, 64, 64))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1].startswith(f"vidrestore.errors.MediaError: {tmp_path}/vidrestore-")
    assert "can't hold the videos that VMAF is measured of" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())
