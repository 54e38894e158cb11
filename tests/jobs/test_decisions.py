"""What a job decides from its source's description."""

import io
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_restorer import request_of
from sample_videos import chequered_planes, write_video
from written_videos import described

from vidrestore.errors import CheckpointError
from vidrestore.jobs.request import Step
from vidrestore.jobs.run import open_job
from vidrestore.jobs.steps import measured_input
from vidrestore.media.reading.coding_loss import kind_by_coding
from vidrestore.media.reading.reader import VideoReader
from vidrestore.settings.options import RestoreOptions


@pytest.mark.parametrize(
    "codec, frame_bits, loss, kind, why",
    [
        ("ffv1", None, 0.0, "clean", "ffv1 has no losses"),
        ("png", None, 0.0, "clean", "png has no losses"),
        ("gif", 9_200, 0.0, "compressed", "gif has few colours"),
        ("mjpeg", None, 0.0, "clean", "coding loss 0.0"),
        ("h264", None, 1.6, "compressed", "coding loss 1.6"),
        ("h264", None, 1.2, "clean", "coding loss 1.2"),
        ("hevc", 3_600, 0.0, "clean", "coding loss 0.0"),
        ("a codec of tomorrow", None, 0.0, "compressed", "a codec of tomorrow"),
        ("vp6f", 90_000, 0.0, "compressed", "vp6f"),
        ("cinepak", 900_000, 3.0, "compressed", "coding loss 3.0"),
    ],
)
def test_video_is_enlarged_as_clean_if_its_codec_took_little(
    codec, frame_bits, loss, kind, why
):
    source = described()
    video = replace(source.video, codec=codec, frame_bits=frame_bits)
    assert kind_by_coding(replace(source, path="a.mkv", video=video), loss) == (
        kind,
        why,
    )


def test_a_pipe_is_enlarged_as_compressed_without_reading_it_twice(monkeypatch):
    stream = io.BytesIO()
    write_video(
        Path("in.y4m"), 3, "wrapped_avframe", file=stream, format="yuv4mpegpipe"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stream.getvalue())))
    with VideoReader("-") as reader:
        assert measured_input(Step("sr"), reader) == (
            "compressed",
            "a pipe has no record of its coder",
        )
        assert len(list(reader.frames())) == 3


@pytest.mark.parametrize(
    "codec, chosen, asked",
    [
        ("ffv1", {}, "clean"),
        ("libx264", {}, "compressed"),
        ("ffv1", {"input": "compressed"}, "compressed"),
        ("ffv1", {"model": "mine"}, "auto"),  # which plays no role then
    ],
)
def test_the_restorer_of_sr_is_loaded_for_the_input_that_was_measured(
    tmp_path, codec, chosen, asked, monkeypatch
):
    # without noise
    monkeypatch.setattr("sample_videos.sample_planes", chequered_planes)
    options = {"crf": "51"} if codec == "libx264" else {}
    write_video(tmp_path / "a.mkv", 12, codec, size=(128, 96), options=options)
    loaded = []

    def load(step: Step) -> None:
        loaded.append(step.options.input)
        raise CheckpointError("enough")

    request = request_of(tmp_path / "a.mkv", tmp_path / "b.mkv", "sr", **chosen)
    with pytest.raises(CheckpointError, match="enough"), open_job(request, load):
        pass
    assert loaded == [asked]


def test_video_without_losses_but_with_noise_is_enlarged_as_compressed(
    tmp_path, monkeypatch
):
    noise = np.random.default_rng(0)

    def noisy(
        pix_fmt: str, number: int, width: int, height: int
    ) -> tuple[np.ndarray, ...]:
        return (
            np.rint(noise.normal(100 + number, 9, (height, width))).astype(np.uint8),
        )

    monkeypatch.setattr("sample_videos.sample_planes", noisy)
    write_video(tmp_path / "a.mkv", 4, pix_fmt="gray", size=(128, 96))
    with VideoReader(str(tmp_path / "a.mkv")) as reader:
        assert measured_input(Step("sr"), reader) == ("compressed", "it has noise")
        assert measured_input(Step("sr", RestoreOptions(input="clean")), reader) is None
        assert measured_input(Step("denoise"), reader) is None


@pytest.mark.parametrize("codec, pix_fmt", [("ffv1", "gray"), ("utvideo", "gbrp")])
@pytest.mark.parametrize("falls, kind", [((16, 16.9, 40), "clean"), ((3, 18, 18), "")])
def test_soft_pictures_are_enlarged_as_those_of_a_camera(
    falls, kind, codec, pix_fmt, tmp_path, monkeypatch
):
    """The median of their frames decides."""
    seen, remaining = [], list(falls)

    def planes(
        pix_fmt: str, number: int, width: int, height: int
    ) -> tuple[np.ndarray, ...]:
        luma = chequered_planes(pix_fmt, number, width, height)[0]
        return (luma, luma // 2, luma // 3)[: 3 if pix_fmt == "gbrp" else 1]

    def fall(luma: torch.Tensor) -> float:
        seen.append(luma)
        return remaining.pop(0)

    monkeypatch.setattr("sample_videos.sample_planes", planes)
    monkeypatch.setattr("vidrestore.jobs.steps.spectral_fall", fall)
    path = tmp_path / "a.nut"
    write_video(path, len(falls), codec, pix_fmt=pix_fmt, size=(128, 96))
    with VideoReader(str(path)) as reader:
        result = measured_input(Step("sr"), reader)
        frame = next(reader.frames())
    soft = ("compressed", "soft: its finest detail is 18 dB weaker")
    assert result == ((kind, f"{codec} has no losses") if kind else soft)
    colours = np.stack(frame.planes).astype(np.float32)
    np.testing.assert_allclose(seen[0].numpy(), colours.mean(0), rtol=1e-5)


@pytest.mark.parametrize("bars", [(0, 0), (12, 0), (0, 20)])
def test_bars_around_soft_pictures_are_left_out(bars, tmp_path, monkeypatch):
    """Their edges are as sharp as pixels are: of a soft picture they left a fall of some decibels."""
    rows, columns = bars

    def soft(
        pix_fmt: str, number: int, width: int, height: int
    ) -> tuple[np.ndarray, ...]:
        across, down = np.mgrid[:height, :width] / 17 + 1
        plane = (128 + 50 * np.sin(across) * np.cos(down)).astype(np.uint8)
        framed = np.full_like(plane, 16)
        inside = slice(rows, height - rows), slice(columns, width - columns)
        framed[inside] = plane[inside]
        return (framed,)

    def fall(luma: torch.Tensor) -> float:
        assert luma.shape == (96 - 2 * rows, 128 - 2 * columns)
        return 18.0

    monkeypatch.setattr("sample_videos.sample_planes", soft)
    monkeypatch.setattr("vidrestore.jobs.steps.spectral_fall", fall)
    write_video(tmp_path / "a.mkv", 2, "ffv1", pix_fmt="gray", size=(128, 96))
    with VideoReader(str(tmp_path / "a.mkv")) as reader:
        kind, why = measured_input(Step("sr"), reader) or ("", "")
    assert (kind, why[:4]) == ("compressed", "soft")


@pytest.mark.parametrize("black", [0, 20, 60])
def test_video_that_begins_in_black_is_judged_by_what_comes_after(
    black, tmp_path, monkeypatch
):
    def planes(
        pix_fmt: str, number: int, width: int, height: int
    ) -> tuple[np.ndarray, ...]:
        shade = 16 if number < black else chequered_planes(pix_fmt, 0, width, height)[0]
        return (np.full((height, width), shade, np.uint8),)

    def fall(luma: torch.Tensor) -> float:
        return 18.0 if luma.std() > 1 else 0.0

    monkeypatch.setattr("sample_videos.sample_planes", planes)
    monkeypatch.setattr("vidrestore.jobs.steps.spectral_fall", fall)
    write_video(tmp_path / "a.mkv", 60, "ffv1", pix_fmt="gray", size=(96, 64))
    with VideoReader(str(tmp_path / "a.mkv")) as reader:
        kind, _ = measured_input(Step("sr"), reader) or ("", "")
    assert kind == ("clean" if black == 60 else "compressed")
