"""Photos are read as video planes, and what is no photo is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from vidrestore.errors import MediaError
from vidrestore.media.pictures import SUFFIXES, read_picture

ENCODERS = {".png": ("png", "rgb24"), ".jpg": ("mjpeg", "yuvj444p"), ".tiff": ("tiff", "rgb24"), ".webp": ("libwebp", "yuv420p")}


def write_picture(path: Path, colour: tuple[int, int, int], kind: str | None = None) -> None:
    """A picture of 48x32 in one colour (R, G, B)."""
    name, pix_fmt = ENCODERS[kind or path.suffix]
    frame = av.VideoFrame.from_ndarray(np.full((32, 48, 3), colour, np.uint8), "rgb24")
    context = av.CodecContext.create(name, "w")
    context.width, context.height, context.pix_fmt, context.time_base = 48, 32, pix_fmt, Fraction(1, 25)  # type: ignore[attr-defined]
    packets = context.encode(frame.reformat(format=pix_fmt)) + context.encode(None)  # type: ignore[attr-defined]
    path.write_bytes(b"".join(bytes(packet) for packet in packets))


@pytest.mark.parametrize("suffix", ENCODERS)
@pytest.mark.parametrize(("colour", "luma"), [((255, 255, 255), 235), ((0, 0, 0), 16), ((128, 128, 128), 126)])
def test_every_format_gives_three_full_planes_in_the_range_of_video(
    tmp_path: Path, suffix: str, colour: tuple[int, int, int], luma: int
) -> None:
    write_picture(tmp_path / f"a{suffix}", colour)
    planes = read_picture(tmp_path / f"a{suffix}")
    assert [plane.shape for plane in planes] == [(32, 48)] * 3
    assert [plane.dtype for plane in planes] == [np.uint8] * 3
    for plane, expected in zip(planes, (luma, 128, 128), strict=True):
        assert np.abs(plane.astype(int) - expected).max() <= 2


def test_red_is_in_the_third_plane(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", (255, 0, 0))
    luma, blue, red = (int(plane.mean()) for plane in read_picture(tmp_path / "a.png"))
    assert red > luma > 0
    assert red > 200
    assert blue < 128


@pytest.mark.parametrize("content", [b"", b"no picture at all", b"ffconcat version 1.0\nfile secret.png\n"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_no_picture_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    with pytest.raises(MediaError, match=f"a{suffix}: "):
        read_picture(path)


def test_a_name_that_is_no_pictures_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="a.gif: not a picture by its name; expected .jpg"):
        read_picture(tmp_path / "a.gif")
    with pytest.raises(MediaError, match="a.png: can't be read as a picture"):
        read_picture(tmp_path / "a.png")


def test_a_truncated_picture_is_refused_or_whole(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", (10, 200, 30))
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[:40])
    with pytest.raises(MediaError, match="a.png"):
        read_picture(tmp_path / "a.png")
