"""Frames in memory come out as the frames of a video with the same pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fresh_interpreter import HEAVY, loaded_by
from numpy.typing import NDArray
from sample_videos import write_video

import vidrestore
from vidrestore.cli import main
from vidrestore.errors import OptionError
from vidrestore.media.reader import VideoReader
from vidrestore.options import RestoreOptions
from vidrestore.restorers.denoise import DenoiseRestorer


def pictures(path: Path) -> NDArray[Any]:
    """The frames of an RGB video, (T, H, W, 3)."""
    with VideoReader(str(path)) as reader:
        return np.stack([np.stack(frame.planes, axis=-1) for frame in reader.frames()])


def restored_by_command(path: Path, *arguments: str) -> NDArray[Any]:
    with pytest.raises(SystemExit) as end:
        main([*arguments, str(path), "-o", str(path.with_name("out.mkv")), "--lossless", "-q", "-y"])
    assert not end.value.code
    return pictures(path.with_name("out.mkv"))


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "in.mkv", 4, "ffv1", "bgr0", (64, 48))
    return tmp_path / "in.mkv"


def test_an_array_of_bytes_gives_the_frames_of_the_command(video: Path) -> None:
    frames = pictures(video)
    assert frames.shape == (4, 48, 64, 3) and frames.dtype == np.uint8
    np.testing.assert_array_equal(vidrestore.restore_frames(frames), restored_by_command(video, "denoise"))
    expected = restored_by_command(
        video, "denoise", "--sigma", "20", "--quality", "fast", "--strength", "0.5"
    )
    np.testing.assert_array_equal(
        vidrestore.restore_frames(frames, sigma=20, quality="fast", strength=0.5), expected
    )


@pytest.mark.parametrize(
    "frames, found",
    [
        (np.full((2, 16, 16, 3), 255, np.float32), "255 to 255"),
        (np.linspace(-1, 1, 1536).reshape(2, 16, 16, 3), "-1 to "),
        (torch.full((2, 16, 16, 3), float("nan")), "nan"),
    ],
    ids=["grey levels", "around 0", "NaN"],
)
def test_floats_far_from_0_to_1_are_refused_with_a_way_out(frames: Any, found: str) -> None:
    with pytest.raises(OptionError, match=f"hold 0 to 1, these {found}.*divide 0 to 255 by 255"):
        vidrestore.restore_frames(frames, sigma=20)


def test_floats_are_not_rounded(video: Path) -> None:
    frames = torch.from_numpy(pictures(video)[:, :16, :16])
    rounded = vidrestore.restore_frames(frames, sigma=20, precision="fp32")
    floats = vidrestore.restore_frames(frames.double() / 255, sigma=20, precision="fp32")
    assert (rounded.dtype, floats.dtype) == (torch.uint8, torch.float64)
    assert 0 < (255 * floats.clamp(0, 1) - rounded).abs().max() <= 0.5 + 0.02


def test_colours_are_denoised_together() -> None:
    """Noise of red, green and blue goes further than from each alone: most of a picture is in its luma."""
    rows, columns = np.mgrid[:48, :64] / 3
    squares = np.sign(np.sin(rows) * np.cos(columns))
    clean = np.stack([120 + (50 - 8 * band) * squares for band in range(3)], -1)
    noisy = clean + np.random.default_rng(3).normal(0, 25, (8, *clean.shape))
    given = np.rint(noisy).clip(0, 255).astype(np.uint8)

    together = vidrestore.restore_frames(given, task="denoise", sigma=25.0, device="cpu")
    restorer = DenoiseRestorer(RestoreOptions(device="cpu"))
    planes = [torch.from_numpy(given[..., band]).float() for band in range(3)]
    apart = np.stack([restorer.restore((plane,), (25.0,))[0].numpy() for plane in planes], -1)
    assert np.square(together - clean).mean() < 0.8 * np.square(apart - clean).mean()


def test_frames_come_out_four_times_larger() -> None:
    frames = np.full((1, 8, 12, 3), 100, np.uint8)
    assert vidrestore.restore_frames(frames, task="sr").shape == (1, 32, 48, 3)


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        (np.zeros((3, 8, 8), np.uint8), {}, r"shape \(T, H, W, 3\), got \(3, 8, 8\)"),
        (np.zeros((3, 3, 8, 8), np.uint8), {}, r"shape \(T, H, W, 3\)"),
        (np.zeros((3, 8, 8, 3), np.int64), {}, "uint8 .* or floats .*, got int64"),
        (
            np.zeros((3, 8, 8, 3), np.uint8),
            {"start": 1, "overwrite": True},
            "start, overwrite: only for files",
        ),
        (np.zeros((3, 8, 8, 3), np.uint8), {"task": "potato"}, "no task named 'potato'"),
    ],
)
def test_what_are_no_frames_is_refused(frames: NDArray[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        vidrestore.restore_frames(frames, **options)


def test_the_package_offers_its_parts_lazily() -> None:
    assert {"restore", "restore_frames", "weights"} <= set(dir(vidrestore))
    assert not loaded_by("import vidrestore; dir(vidrestore)") & HEAVY
