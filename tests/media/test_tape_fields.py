"""Dropouts of tapes are found in fields and filled; what moves stays as it is."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from av.video.frame import VideoFrame
from numpy.typing import NDArray
from scanned_videos import SIZE, Pictures, interlaced, moments, write_frames
from written_videos import frames_of

import vidrestore
from vidrestore.event_log import result_of
from vidrestore.events import Event, Summary
from vidrestore.media.formats.pixel_formats import layout_of, planes_of, store_plane
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.reading.tape_fields import DropoutFilter
from vidrestore.models.dropouts import Dropouts
from vidrestore.pixels.frames import Frame

DASHES = {0: (31, 40), 2: (50, 20), 3: (61, 90), 6: (22, 70)}  # row and column by frame
LENGTH = 40
FAINT = 40  # levels


def dashed(frames: Pictures, level: int = 235) -> Pictures:
    """The frames with a bright dash on one row each of some of them."""
    results = [frame.copy() for frame in frames]
    for number, (row, column) in DASHES.items():
        results[number][row, column : column + LENGTH] = level
    return results


def filtered(
    frames: Pictures, pix_fmt: str = "gray"
) -> tuple[list[tuple[VideoFrame, VideoFrame]], int]:
    """Each picture with the result for it, and how many dropouts were found; the top field is earlier."""
    pictures = [
        picture_of(frame, pix_fmt, number) for number, frame in enumerate(frames)
    ]
    tape = DropoutFilter(layout_of(pix_fmt).format, 0, lambda picture: True)
    results = list(tape.pictures(pictures))
    return list(zip(pictures, results, strict=True)), sum(tape.counts.values())


def picture_of(luma: NDArray[Any], pix_fmt: str, number: int) -> VideoFrame:
    """A picture of grey luma, in any format."""
    blank = VideoFrame(luma.shape[1], luma.shape[0], pix_fmt)
    for plane in blank.planes:
        plane.update(bytes(plane.buffer_size))
    depth = layout_of(pix_fmt).format.depth
    for index, plane in enumerate(planes_of(blank)):
        store_plane(blank, index, np.full_like(plane, 128 << (depth - 8)))
    store_plane(blank, 0, luma.astype(np.uint16) << (depth - 8))
    blank.pts, blank.time_base = number, Fraction(1, 25)
    return blank


@pytest.mark.parametrize(
    "pix_fmt", ["gray", "yuv420p", "yuv422p10le", "uyvy422", "nv12", "p010le"]
)
@pytest.mark.parametrize("level", [235, 16])
def test_a_dash_on_a_row_of_a_field_becomes_what_was_there_and_nothing_else_changes(
    pix_fmt, level
):
    clean = interlaced(moments(16, 1))
    pairs, count = filtered(dashed(clean, level), pix_fmt)
    assert count == len(DASHES)
    for number, (picture, result) in enumerate(pairs):
        unit = layout_of(pix_fmt).format.unit
        luma, given = planes_of(result)[0] / unit, planes_of(picture)[0] / unit
        row, column = DASHES.get(number, (0, 0))
        dash = np.abs(luma - clean[number])[row, column : column + LENGTH]
        assert dash.mean() < (25 if number == 0 else 8), number  # of about 110
        changed = luma != given
        changed[row, max(0, column - 12) : column + LENGTH + 12] = False
        assert not changed.any(), number
        for plane in planes_of(result)[1:]:
            assert (plane == 128 * unit).all()


def test_two_lines_of_a_field_are_filled_and_count_as_one():
    clean = interlaced(moments(10, 1))
    given = [frame.copy() for frame in clean]
    given[2][50:54:2, 60:110] = 240
    pairs, count = filtered(given)
    assert count == 1
    assert np.abs(planes_of(pairs[2][1])[0].astype(int) - clean[2]).max() < 40


@pytest.mark.parametrize("strong, count", [(0, 0), (2, 2), (7, 8)])
def test_a_faint_dash_is_one_only_among_many_that_are_plain(strong, count):
    clean = interlaced(moments(12, 1))
    given = [frame.copy() for frame in clean]
    given[2][100, 60:110] = (clean[2][100, 60:110].astype(int) + FAINT).clip(0, 255)
    for number in range(strong):
        row, column = 8 + 12 * number, 20 + 30 * (number % 3)
        given[2][row, column : column + LENGTH] = 250
    assert filtered(given)[1] == count


def test_the_picture_that_the_decoder_gave_out_stays_as_it_is():
    given = dashed(interlaced(moments(14, 1)))
    for (picture, result), frame in zip(filtered(given)[0], given, strict=False):
        np.testing.assert_array_equal(planes_of(picture)[0], frame)
        assert (result is picture) == np.array_equal(planes_of(result)[0], frame)
        assert result.pts == picture.pts


def test_frames_beside_a_cut_are_filled_from_their_own_scene():
    before = interlaced(moments(8, 1))
    clean = before + [255 - np.ascontiguousarray(frame[::-1, ::-1]) for frame in before]
    given = [frame.copy() for frame in clean]
    for number in (3, 4):
        given[number][40, 50:90] = 250 if clean[number][40, 50:90].mean() < 128 else 5
    pairs, count = filtered(given)
    assert count == 2
    for number in (3, 4):
        error = np.abs(planes_of(pairs[number][1])[0].astype(int) - clean[number])
        assert error[40, 50:90].mean() < 40, number  # of about 115


def falling(streaks: int, length: int, width: int) -> Pictures:
    """Bright streaks, others in each moment, before a moving pattern."""
    random, pictures = np.random.default_rng(3), moments(12)
    for picture in pictures:
        for row, column in random.integers(
            0, (SIZE[0] - length, SIZE[1] - width), (streaks, 2)
        ):
            picture[row : row + length, column : column + width] = 240
    return pictures


def drawn(kind: str) -> Pictures:
    """Twelve moments with what could pass for dropouts."""
    pictures = moments(12)
    for time, picture in enumerate(pictures):
        match kind:
            case "a thin line that falls":
                picture[30 + time, 20:140] = 250
            case "a thin line that crosses":
                picture[51, 8 * time : 8 * time + 50] = 250
            case "a ticker":
                for row, first in ((80, 0), (84, 9), (88, 3)):
                    picture[
                        row : row + 2, (np.arange(160) + 8 * time + first) % 23 < 12
                    ] = 240
            case "a reflector that passes":
                picture[:] = 80 + picture // 8
                place = 40 * time % 120
                picture[50:52, place : place + 24] = 250
            case "a strobe" if time % 3 == 1:
                picture[:] = np.clip(picture.astype(int) + 90, 0, 255)
            case "a title that appears" if time >= 5:
                picture[60, 20:140] = picture[64, 20:140] = 245
    return pictures


NEGATIVES = [
    "a thin line that falls",
    "a thin line that crosses",
    "a ticker",
    "a reflector that passes",
    "a strobe",
    "a title that appears",
]


@pytest.mark.parametrize("kind", NEGATIVES)
def test_lines_letters_reflectors_and_flashes_are_no_dropouts(kind):
    pairs, _ = filtered(interlaced(drawn(kind)))
    assert all(result is picture for picture, result in pairs)


@pytest.mark.parametrize("size", [(9, 2), (5, 5)], ids=["rain", "sparks"])
def test_rain_and_sparks_are_no_dropouts(size):
    pairs, _ = filtered(interlaced(falling(12, *size)))
    assert all(result is picture for picture, result in pairs)


def test_dashes_of_a_field_that_has_many_are_filled_though_the_next_frame_has_their_like():
    given = interlaced(moments(14, 1))
    for number, frame in enumerate(given):
        for row in range(8 + 8 * (number % 3), 116, 24):
            frame[row, 10:50] = frame[row, 100:140] = 250
    pairs, count = filtered(given)
    # but for the first and last frames, whose neighbours lie on one side
    assert count >= 8 * (len(given) - 4)
    row = 8 + 8 * (3 % 3)
    assert planes_of(pairs[3][1])[0][row, 20:40].max() < 250


# Videos


@pytest.fixture(scope="module")
def tape(tmp_path_factory) -> Path:
    return write_frames(
        tmp_path_factory.mktemp("tape") / "tape.mkv",
        dashed(interlaced(moments(20, 1))),
        order="tt",
    )


def same(frame: Frame, other: Frame) -> bool:
    planes = zip(frame.planes, other.planes, strict=True)
    return frame.dropouts == other.dropouts and all(
        np.array_equal(*pair) for pair in planes
    )


@pytest.mark.parametrize(
    "settings", [{}, {"double_rate": True}], ids=["single", "double"]
)
def test_a_read_from_the_middle_fills_and_counts_the_same(tape, settings):
    with VideoReader(str(tape), scan="auto", **settings) as reader:
        whole = list(reader.frames())
    assert [frame.dropouts for frame in whole if frame.dropouts] == [1] * len(DASHES)
    for first, stop in ((1, 4), (3, 7), (6, None)):
        end = None if stop is None else whole[stop].pts
        with VideoReader(str(tape), scan="auto", **settings) as reader:
            part = list(reader.frames(whole[first].pts, end))
        assert all(same(*pair) for pair in zip(part, whole[first:stop], strict=True))


def test_frames_that_are_taken_whole_keep_their_dropouts(tape):
    for scan in ("progressive", "film"):
        assert not any(frame.dropouts for frame in frames_of(tape, scan=scan))


def test_dropouts_stay_where_they_are_to_be_kept(tape):
    number = 2
    # in the earlier field, which a frame of single rate keeps
    row, column = DASHES[number]
    with VideoReader(str(tape), scan="auto", dropouts="keep") as reader:
        frames = list(reader.frames())
    assert (frames[number].planes[0][row, column : column + LENGTH] == 235).all()
    assert not any(frame.dropouts for frame in frames)


def test_a_restoration_says_how_many_dropouts_it_filled(tape, tmp_path):
    summaries = [
        restored(tape, tmp_path / "a.mkv"),
        restored(clean_tape(tmp_path), tmp_path / "b.mkv"),
    ]
    assert summaries[0].dropouts == (4, 4) and summaries[1].dropouts == (0, 0)
    assert summaries[0].details["dropouts"] == {"count": 4, "frames": 4}
    assert "; 4 dropouts in 4 frames filled" in result_of(summaries[0])
    assert "dropouts" not in summaries[1].details and "dropout" not in result_of(
        summaries[1]
    )


def clean_tape(folder: Path) -> Path:
    return write_frames(folder / "clean.mkv", interlaced(moments(12, 1)), order="tt")


def restored(source: Path, output: Path) -> Summary:
    events: list[Event] = []
    vidrestore.restore(source, output, task="<identity>", on_event=events.append)
    (summary,) = (event for event in events if isinstance(event, Summary))
    return summary


def test_dashes_are_counted_by_their_rows():
    pixels = torch.zeros(1, 1, 8, 20)
    for row, first, stop in (
        (0, 0, 5),
        (0, 12, 20),
        (1, 3, 9),
        (4, 2, 3),
        (4, 5, 6),
        (7, 19, 20),
    ):
        pixels[..., row, first:stop] = 1
    # that in row 1 touches one above, those of row 4 are pieces of one
    assert Dropouts(pixels, torch.zeros(2, 2, 8, 20)).dashes == 4
