"""Photos are read as video planes, and what is no photo is refused."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from sample_pictures import ENCODERS, write_frame, write_picture, write_rgb

from vidrestore.errors import MediaError
from vidrestore.media.pictures import SUFFIXES, read_picture, read_rgb


@pytest.mark.parametrize("suffix", ENCODERS)
@pytest.mark.parametrize(
    ("colour", "luma"), [((255, 255, 255), 235), ((0, 0, 0), 16), ((128, 128, 128), 126)]
)
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


def test_samples_of_png_come_as_they_are(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (3, 17, 22), dtype=np.uint8)
    write_rgb(tmp_path / "a.png", picture)
    assert (read_rgb(tmp_path / "a.png") == picture).all()


@pytest.mark.parametrize("suffix", ENCODERS)
def test_every_format_gives_rgb(tmp_path: Path, suffix: str) -> None:
    write_picture(tmp_path / f"a{suffix}", (200, 90, 40))
    picture = read_rgb(tmp_path / f"a{suffix}")
    assert (picture.shape, picture.dtype) == ((3, 32, 48), np.uint8)
    assert np.abs(picture.astype(int) - np.array([200, 90, 40])[:, None, None]).max() <= 6  # WebP is lossy


def test_gray_pictures_give_three_equal_planes(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", (77, 77, 77))
    gray = np.random.default_rng(0).integers(0, 256, (16, 20), dtype=np.uint8)
    write_frame(tmp_path / "gray.png", "png", av.VideoFrame.from_ndarray(gray, "gray"))
    assert (read_rgb(tmp_path / "gray.png") == gray).all()


def test_chroma_of_jpeg_lies_in_the_middle_of_four_samples_and_is_interpolated(tmp_path: Path) -> None:
    frame = av.VideoFrame(32, 16, "yuvj420p")
    luma, blue, red = (np.full(size, 128, np.uint8) for size in ((16, 32), (8, 16), (8, 16)))
    red[:, 8:] = 192
    for plane, samples in zip(frame.planes, (luma, blue, red), strict=True):
        rows = np.zeros((samples.shape[0], plane.line_size), np.uint8)
        rows[:, : samples.shape[1]] = samples
        plane.update(rows)
    write_frame(tmp_path / "a.jpg", "mjpeg", frame)
    row = read_rgb(tmp_path / "a.jpg")[0, 8].astype(float)
    step = 64 * 1.402
    # between samples at 14.5 and 16.5
    expected = np.concatenate([[0] * 15, [step / 4, 3 * step / 4], [step] * 15])
    assert np.abs(row - (128 + expected).clip(0, 255)).max() <= 4


def test_what_is_no_picture_has_no_rgb_either(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no picture")
    with pytest.raises(MediaError, match="a.png: "):
        read_rgb(tmp_path / "a.png")
