"""Interlaced videos that aren't marked as such, through the command line."""

from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from sample_videos import video_frame, write_stream, write_video

from vidrestore.media.reading.reader import VideoReader
from vidrestore.pixels.frames import Frame

FRAMES, SIZE = 10, (80, 96)


def moment(time: int) -> np.ndarray:
    """Smooth shapes that move two columns from each field to the next."""
    rows, columns = np.mgrid[0 : SIZE[0], 0 : SIZE[1]]
    place = columns - 2 * time
    return np.asarray(
        128 + 60 * np.sin(place / 7 + rows / 9) + 30 * np.sin(place / 3), np.uint8
    )


def write(path: Path, step: int, first: int) -> Path:
    """A video whose rows from `first` on, every other one, come `step` moments late: 0 is progressive."""
    chroma, frames = np.full((SIZE[0] // 2, SIZE[1] // 2), 128, np.uint8), []
    for number in range(FRAMES):
        luma = moment(2 * number)
        luma[first::2] = moment(2 * number + step)[first::2]
        frames.append(video_frame("yuv420p", (luma, chroma, chroma)))
    return write_stream(path, frames)


def frames(path: Path) -> tuple[VideoReader, list[Frame]]:
    with VideoReader(str(path)) as reader:
        return reader, list(reader.frames())


def error(frame: Frame, time: int) -> float:
    """Mean distance from a moment, without the borders, where the filter guesses."""
    return float(np.abs(frame.planes[0].astype(float) - moment(time))[4:-4].mean())


@pytest.mark.parametrize(
    "step, first, order",
    [(1, 1, "top field first"), (1, 0, "bottom field first"), (0, 0, None)],
)
def test_combs_are_measured_and_removed_unless_they_are_to_stay(
    tmp_path, capsys, step, first, order
):
    source = write(tmp_path / "in.mkv", step, first)
    assert run(source, "--lossless") == 0
    printed = capsys.readouterr().err
    assert "warning" not in printed
    assert (f"deinterlaced (looks interlaced, {order})" in printed) == (
        order is not None
    )
    assert ("deinterlaced" in printed) == (order is not None)
    (_, before), (_, after) = frames(source), frames(tmp_path / "in.denoised.mkv")
    if order:
        assert [frame.pts for frame in after] == [frame.pts for frame in before]
        forced = "tff" if first else "bff"
        assert (
            run(source, "--scan", forced, "-o", tmp_path / "asked.mkv", "--lossless")
            == 0
        )
        assert f"deinterlaced ({order}, as asked)" in capsys.readouterr().err
        for number, old, *both in zip(
            count(), before, after, frames(tmp_path / "asked.mkv")[1]
        ):
            assert all(
                error(new, 2 * number) < error(old, 2 * number) / 3 for new in both
            )
    assert (
        run(
            source, "--scan", "progressive", "-o", tmp_path / "combed.mkv", "--lossless"
        )
        == 0
    )
    assert "frames left whole (as asked)" in capsys.readouterr().err
    np.testing.assert_array_equal(
        frames(tmp_path / "combed.mkv")[1][3].planes[0], before[3].planes[0]
    )


def test_marked_video_is_deinterlaced_by_itself_and_the_reason_said(tmp_path, capsys):
    write_video(tmp_path / "in.avi", 4, "libx264", options={"x264-params": "tff=1"})
    assert run(tmp_path / "in.avi") == 0
    # x264's default
    assert (
        "deinterlaced (marked interlaced, bottom field first)"
        in capsys.readouterr().err
    )
    assert not frames(tmp_path / "in.denoised.mkv")[0].info.video.interlaced
    for scan in ("progressive", "film"):
        assert run(tmp_path / "in.avi", "--scan", scan, "--double-rate") == 2
        assert f"leave out that, or --scan {scan}" in capsys.readouterr().err


def test_double_rate_gives_a_frame_for_each_field_at_its_time(tmp_path):
    source, output = write(tmp_path / "in.mkv", 1, 1), tmp_path / "out.mp4"
    assert run(source, "--double-rate", "-o", output, "--lossless", "-q") == 0
    reader, found = frames(output)
    assert reader.info.video.rate == 50
    seconds = [frame.pts * reader.info.video.time_base for frame in found]
    assert seconds == [Fraction(number, 50) for number in range(2 * FRAMES)]
    for number, frame in enumerate(found):
        assert error(frame, number) < 3
        assert error(frame, number) < error(frame, number + 1) / 3


def test_a_part_at_double_rate_has_the_frames_of_the_full_video(tmp_path):
    source = write(tmp_path / "in.mkv", 1, 1)
    common = ("--double-rate", "--lossless", "-q")
    assert run(source, *common, "-o", tmp_path / "whole.mkv") == 0
    part = ("--start", "0.1", "--duration", "0.14")  # from the second field of frame 2
    assert run(source, *common, *part, "-o", tmp_path / "part.mkv") == 0
    (_, whole), (_, found) = (
        frames(tmp_path / "whole.mkv"),
        frames(tmp_path / "part.mkv"),
    )
    assert len(found) == 7
    for one, other in zip(found, whole[5:12], strict=True):
        np.testing.assert_array_equal(one.planes[0], other.planes[0])
