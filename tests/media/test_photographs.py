"""Pictures of a camera in a folder are photographs by their times, sizes or what they show, else frames."""

import struct
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
import pytest
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from sample_pictures import write_frame

from vidrestore.media.reading.photographs import why_photographs

EVERY_MINUTE = [60 * number for number in range(6)]
AN_EVENING = [0, 40, 45, 2000, 2003, 9000]


def taken_at(second: int) -> bytes:
    """A segment of EXIF: the make, and the directory with the time."""
    first = struct.pack("<HHHII", 2, 0x10F, 2, 4, 0x6D6341) + struct.pack(
        "<HHIII", 0x8769, 4, 1, 38, 0
    )
    time = f"2026:05:01 {12 + second // 3600}:{second // 60 % 60:02}:{second % 60:02}\0".encode()
    inner = struct.pack("<HHHIII", 1, 0x9003, 2, 20, 56, 0)
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + first + inner + time
    return struct.pack(">HH", 0xFFE1, len(exif) + 2) + exif


def of_camera(
    folder: Path, same: bool, times: Sequence[int] = (), count: int = 6
) -> list[Path]:
    """JPEGs by the names of a camera: of one scene that moves a little, or of a scene each."""
    folder.mkdir()
    files, rows_columns = [], np.mgrid[:96, :128]
    for number in range(count):
        random = np.random.default_rng(0 if same else number)
        waves = random.uniform(-0.2, 0.2, (9, 3))
        place = rows_columns[1] - number if same else rows_columns[1]
        luma = 128 + sum(
            14 * np.sin(down * rows_columns[0] + across * place + 9 * turn)
            for down, across, turn in waves
        )
        frame = av.VideoFrame.from_ndarray(
            np.clip(luma, 0, 255).astype(np.uint8), "gray"
        ).reformat(format="yuvj420p")
        files.append(folder / f"IMG_{number + 1:04}.JPG")
        write_frame(files[-1], "mjpeg", frame)
        if times:
            data = files[-1].read_bytes()
            files[-1].write_bytes(data[:2] + taken_at(times[number]) + data[2:])
    return files


@pytest.mark.parametrize(
    "same, times, words",
    [
        (True, (), None),
        (False, (), "neighbours show different things"),
        (True, EVERY_MINUTE, None),
        (False, EVERY_MINUTE, None),  # a day in a minute
        (True, AN_EVENING, "a camera took them at uneven times"),
    ],
)
def test_times_decide_and_without_them_what_neighbours_show(
    tmp_path, same, times, words
):
    assert (
        why_photographs(tuple(map(str, of_camera(tmp_path / "a", same, times))))
        == words
    )


def test_the_guess_is_said_first_with_the_way_out_and_a_rate_decides(tmp_path, capsys):
    of_camera(tmp_path / "album", same=False)
    assert run(tmp_path / "album", "-o", tmp_path / "out") == 0
    assert (
        "6 pictures are taken for photographs, as neighbours show different things; --fps 25 takes them for"
        in (capsys.readouterr().err.splitlines()[0])
    )
    assert len([*(tmp_path / "out").glob("*.denoised.JPG")]) == 6
    assert run(tmp_path / "album", "-o", f"{tmp_path}/film/", "--fps", "25") == 0
    assert len([*(tmp_path / "film").glob("IMG_*.JPG")]) == 6


def test_pictures_of_one_camera_at_even_times_are_frames_which_is_said(
    tmp_path, capsys
):
    of_camera(tmp_path / "meadow", True, EVERY_MINUTE)
    assert run(tmp_path / "meadow", "-o", f"{tmp_path}/film.mkv") == 0
    assert (
        "6 pictures are taken for frames of one video; --photos restores each"
        in capsys.readouterr().err
    )
    with av.open(str(tmp_path / "film.mkv")) as film:
        assert len([*film.decode(video=0)]) == 6
