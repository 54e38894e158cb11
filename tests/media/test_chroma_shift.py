"""The chroma of a tape is moved back over its luma, as asked or as measured; nothing else changes."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from written_videos import frames_of

import vidrestore
from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Event, Planned
from vidrestore.media.reading.reader import VideoReader

HEIGHT, WIDTH, COUNT = 96, 128, 6
SIDE = 7  # columns that the blocks of colour move in a frame


def picture(number: int, right: int = 0, below: int = 0) -> NDArray[np.uint8]:
    """Blocks of one brightness and colour each, in YUV 4:2:0, the colour that far from the brightness."""
    rng = np.random.default_rng(8)
    blocks = rng.integers(40, 215, (3, 9, 12)).repeat(16, 1).repeat(16, 2)
    luma, *colours = np.roll(blocks.astype(np.uint8), number * SIDE // 2 * 2, 2)
    chroma = [np.roll(colour, (below, right), (0, 1))[::2, ::2] for colour in colours]
    planes = luma[:HEIGHT, :WIDTH], *(p[: HEIGHT // 2, : WIDTH // 2] for p in chroma)
    return np.concatenate([plane.ravel() for plane in planes]).reshape(-1, WIDTH)


def written(
    path: Path, right: int = 0, below: int = 0, pix_fmt: str = "yuv420p"
) -> Path:
    with av.open(path, "w") as container:
        stream = container.add_stream("ffv1", rate=Fraction(25))
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pix_fmt
        for number in range(COUNT):
            frame = av.VideoFrame.from_ndarray(
                picture(number, right, below), format="yuv420p"
            ).reformat(format=pix_fmt)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("shift", [(4, 2), (-6, 0), (0, -4)])
def test_a_shift_that_is_measured_is_the_one_that_was_drawn(tmp_path, shift):
    tape = written(tmp_path / "tape.mkv", *shift)
    with VideoReader(str(tape), scan="auto", chroma_shift="auto") as reader:
        assert reader.shift == shift


def test_chroma_that_lies_over_luma_reads_as_unshifted_and_stays(tmp_path):
    tape = written(tmp_path / "tape.mkv")
    with VideoReader(str(tape), scan="auto", chroma_shift="auto") as reader:
        assert reader.shift == (0, 0)
        frames = list(reader.frames())
    for frame, given in zip(frames, frames_of(tape), strict=True):
        for plane, source in zip(frame.planes, given.planes, strict=True):
            np.testing.assert_array_equal(plane, source)


def test_chroma_is_moved_back_and_luma_stays_bit_for_bit(tmp_path):
    clean = frames_of(written(tmp_path / "clean.mkv"))
    tape = written(tmp_path / "tape.mkv", 4, 2)
    with VideoReader(str(tape), scan="auto", chroma_shift=(4, 2)) as reader:
        frames = list(reader.frames())
    for frame, truth in zip(frames, clean, strict=True):
        np.testing.assert_array_equal(frame.planes[0], truth.planes[0])
        for plane, source in zip(frame.planes[1:], truth.planes[1:], strict=True):
            # what lay beyond the picture is lost
            np.testing.assert_array_equal(plane[:-1, :-2], source[:-1, :-2])


def test_half_a_sample_of_chroma_becomes_the_mean_of_two(tmp_path):
    tape = written(tmp_path / "tape.mkv")
    with VideoReader(str(tape), chroma_shift=(1, 0)) as reader:
        moved = next(reader.frames()).planes[1].astype(int)
    chroma = frames_of(tape)[0].planes[1].astype(int)
    means = (chroma[:, :-1] + chroma[:, 1:]) / 2
    assert np.abs(moved[:, :-1] - means).max() <= 0.5
    np.testing.assert_array_equal(moved[:, -1], chroma[:, -1])


def test_the_fields_of_a_tape_are_moved_apart_from_each_other(tmp_path):
    tape = written(tmp_path / "tape.mkv")
    with VideoReader(str(tape), scan="tff", chroma_shift=(0, 4)) as reader:
        moved = list(reader.frames())
    with VideoReader(str(tape), scan="tff") as reader:
        frames = list(reader.frames())
    # four lines of luma are two of chroma, one of a field; the earlier field stays as it is
    for frame, source in zip(moved, frames, strict=True):
        np.testing.assert_array_equal(frame.planes[1][:-2:2], source.planes[1][2::2])
        np.testing.assert_array_equal(frame.planes[0], source.planes[0])


def test_a_restoration_says_how_chroma_was_moved(tmp_path):
    tape = written(tmp_path / "tape.mkv", 4, 2)
    for value, words in (
        ("auto", "chroma moved by -4 columns and -2 lines"),
        ((0, 0), "chroma left in place, it lies over luma"),
    ):
        events: list[Event] = []
        vidrestore.restore(
            tape,
            tmp_path / "out.mkv",
            task="denoise",
            quality="fast",
            sigma=2,
            chroma_shift=value,
            overwrite=True,
            on_event=events.append,
        )
        (plan,) = [event for event in events if isinstance(event, Planned)]
        assert plan.details["decisions"]["chroma"] == words


def test_video_without_chroma_and_a_pipe_that_is_to_be_measured_are_refused(tmp_path):
    tape = written(tmp_path / "gray.mkv", pix_fmt="gray")
    with pytest.raises(MediaError, match="gray has no chroma to move"):
        VideoReader(str(tape), chroma_shift=(2, 0))


@pytest.mark.parametrize("value", [(65, 0), (1,), "left", (float("nan"), 0)])
def test_other_shifts_are_refused(value):
    with pytest.raises(OptionError, match="chroma_shift"):
        vidrestore.RestoreOptions(chroma_shift=value)


@pytest.mark.parametrize("side", [2, 16, 30])
def test_chroma_of_pictures_too_small_to_compare_stays(tmp_path, side):
    with av.open(tmp_path / "small.mkv", "w") as container:
        stream = container.add_stream("ffv1", rate=Fraction(25))
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        planes = np.arange(side * side * 3 // 2, dtype=np.uint8).reshape(-1, side)
        frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with VideoReader(str(tmp_path / "small.mkv"), chroma_shift="auto") as reader:
        assert reader.shift == (0, 0)


def test_a_shift_that_lacks_its_lines_is_named_by_what_is_missing():
    with pytest.raises(OptionError, match=r"^missing: chroma_shift\.1$"):
        vidrestore.Restorer("denoise", chroma_shift=(1,))  # type: ignore[arg-type]
