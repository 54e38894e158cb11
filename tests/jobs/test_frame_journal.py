"""Frames stored for the next run come back bit for bit, as far as the file is whole."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from written_videos import described, made_frames

from vidrestore.errors import MediaError
from vidrestore.jobs.frame_journal import FrameJournal

TIMES = [0, 1001, 3003, 3503, 7503, 8504]


def journal(path: Path, pix_fmt: str, label: str = "a job") -> FrameJournal:
    return FrameJournal(path, label, described(pix_fmt).video.format, 49, 63)


def filled(path: Path, pix_fmt: str = "yuv420p") -> list[list[bytes]]:
    frames = made_frames(described(pix_fmt, 63, 49), [(time, 1) for time in TIMES])
    writing = journal(path, pix_fmt)
    writing.resume([])
    for frame in frames:
        writing.add(frame)
    writing.close()
    return [[plane.tobytes() for plane in frame.planes] for frame in frames]


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "gbrp", "gray", "yuva444p"])
def test_frames_come_back_bit_for_bit(tmp_path: Path, pix_fmt: str) -> None:
    samples = filled(tmp_path / "frames", pix_fmt)
    found = list(journal(tmp_path / "frames", pix_fmt).frames(TIMES))
    assert [frame.pts for frame in found] == TIMES
    assert [[plane.tobytes() for plane in frame.planes] for frame in found] == samples


def test_frames_of_another_job_or_other_times_are_not_there(tmp_path: Path) -> None:
    filled(tmp_path / "frames")
    assert journal(tmp_path / "frames", "yuv420p", "other").count(TIMES) == 0
    assert journal(tmp_path / "frames", "yuv420p").count([*TIMES[:2], 3004]) == 2
    assert journal(tmp_path / "none", "yuv420p").count(TIMES) == 0


@pytest.mark.parametrize("cut", [1, 20, 4000])
def test_what_follows_the_last_whole_frame_is_discarded(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "frames"
    samples = filled(path)
    path.write_bytes(path.read_bytes()[:-cut])
    again = journal(path, "yuv420p")
    whole = again.count(TIMES)
    assert whole == 5
    again.resume(TIMES[:whole])
    again.add(made_frames(described("yuv420p", 63, 49), [(time, 1) for time in TIMES])[5])
    again.close()
    found = [[plane.tobytes() for plane in frame.planes] for frame in journal(path, "yuv420p").frames(TIMES)]
    assert found == samples


def test_a_link_in_place_of_a_journal_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "frames").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="a symbolic link, but a regular file was expected"):
        journal(tmp_path / "frames", "yuv420p").count(TIMES)
    with pytest.raises(OSError, match="a symbolic link"):
        filled(tmp_path / "frames")
    assert (tmp_path / "victim").read_bytes() == b"precious"


@pytest.mark.parametrize("data", [zlib.compress(b"short"), b"not compressed at all"])
def test_a_record_that_holds_no_frame_is_an_error_though_its_checksum_is_right(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "frames"
    path.write_bytes(b"a job" + struct.pack(">qII", TIMES[0], len(data), zlib.crc32(data)) + data)
    with pytest.raises(MediaError, match="frames: holds something that vidrestore did not write"):
        list(journal(path, "yuv420p").frames(TIMES))
