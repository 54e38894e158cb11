"""Photos are read as video planes, and what is no photo is refused."""

import struct
from pathlib import Path

import av
import numpy as np
import pytest
from sample_pictures import ENCODERS, write_frame, write_picture
from written_videos import frames_of

from vidrestore.errors import MediaError
from vidrestore.media.reading.pictures import READABLE_SUFFIXES, read_picture, read_rgb
from vidrestore.media.reading.reader import VideoReader


@pytest.mark.parametrize("suffix", ENCODERS)
@pytest.mark.parametrize(
    "colour, expected",
    [
        ((255, 255, 255), (235, 128, 128)),
        ((0, 0, 0), (16, 128, 128)),
        ((128, 128, 128), (126, 128, 128)),
        ((255, 0, 0), (81, 90, 240)),
    ],
)
def test_every_format_gives_three_full_planes_in_the_range_of_video(
    tmp_path, suffix, colour, expected
):
    write_picture(tmp_path / f"a{suffix}", colour)
    planes = read_picture(tmp_path / f"a{suffix}")
    for plane, value in zip(planes, expected, strict=True):
        assert (plane.shape, plane.dtype) == ((32, 48), np.uint8)
        assert np.abs(plane.astype(int) - value).max() <= 2


@pytest.mark.parametrize(
    "content", [b"", b"no picture at all", b"ffconcat version 1.0\nfile secret.png\n"]
)
@pytest.mark.parametrize("suffix", READABLE_SUFFIXES)
def test_files_that_are_not_pictures_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    with pytest.raises(MediaError, match=f"a{suffix}: "):
        read_picture(path)


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_picture_is_read_by_its_content_and_not_by_its_suffix(tmp_path, kind):
    named, other = (
        tmp_path / f"a{kind}",
        tmp_path / ("a.jpg" if kind != ".jpg" else "a.png"),
    )
    write_picture(named, (200, 100, 50))
    write_picture(other, (200, 100, 50), kind)
    assert np.array_equal(read_rgb(named), read_rgb(other))
    with VideoReader(str(named)) as reader, VideoReader(str(other)) as misnamed:
        assert not reader.warnings
        assert any(
            f"though its name ends in {other.suffix}" in words
            for words in misnamed.warnings
        )
    with VideoReader(str(named)) as one, VideoReader(str(other)) as two:
        assert one.info.video.codec == two.info.video.codec
        for plane, same in zip(
            next(one.frames()).planes, next(two.frames()).planes, strict=True
        ):
            np.testing.assert_array_equal(plane, same)


def test_names_of_other_files_and_missing_files_are_refused_as_pictures(tmp_path):
    with pytest.raises(
        MediaError, match="a.gif: not a picture by its name; expected .jpg"
    ):
        read_picture(tmp_path / "a.gif")
    with pytest.raises(MediaError, match="a.png: can't be read as a picture"):
        read_picture(tmp_path / "a.png")


def test_a_truncated_picture_is_refused(tmp_path):
    write_picture(tmp_path / "a.png", (10, 200, 30))
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[:40])
    with pytest.raises(MediaError, match="a.png"):
        read_picture(tmp_path / "a.png")


@pytest.mark.parametrize("suffix", ENCODERS)
def test_every_format_gives_rgb(tmp_path, suffix):
    write_picture(tmp_path / f"a{suffix}", (200, 90, 40))
    picture = read_rgb(tmp_path / f"a{suffix}")
    assert (picture.shape, picture.dtype) == ((3, 32, 48), np.uint8)
    # WebP is lossy
    assert (
        np.abs(picture.astype(int) - np.array([200, 90, 40])[:, None, None]).max() <= 6
    )


def test_gray_pictures_give_three_equal_planes(tmp_path):
    gray = np.random.default_rng(0).integers(0, 256, (16, 20), dtype=np.uint8)
    write_frame(tmp_path / "gray.png", "png", av.VideoFrame.from_ndarray(gray, "gray"))
    assert (read_rgb(tmp_path / "gray.png") == gray).all()


def test_chroma_of_jpeg_lies_in_the_middle_of_four_samples_and_is_interpolated(
    tmp_path,
):
    frame = av.VideoFrame(32, 16, "yuvj420p")
    luma, blue, red = (
        np.full(size, 128, np.uint8) for size in ((16, 32), (8, 16), (8, 16))
    )
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


def jpeg(path: Path) -> bytes:
    write_picture(path, (200, 100, 50))
    return path.read_bytes()


def read_photo(path: Path) -> tuple[str, tuple[str, ...]]:
    with VideoReader(str(path)) as reader:
        assert len(list(reader.frames())) == 1
        return reader.damage.sentence, reader.warnings


def test_a_jpeg_without_its_end_is_damaged(tmp_path):
    data = jpeg(tmp_path / "a.jpg")
    assert read_photo(tmp_path / "a.jpg") == (None, ())
    (tmp_path / "a.jpg").write_bytes(data[:-2])
    assert (
        "a.jpg: the marker of its end is missing" in read_photo(tmp_path / "a.jpg")[0]
    )


@pytest.mark.parametrize(
    "between, word",
    [
        (b"", "a second picture"),
        (bytes(9), "a second picture"),
        (b"\0\0\0\x18ftypmp42", "(a motion photo) is left out"),
        (b"MotionPhoto_Data\0\0\0\x18ftypmp42", "(a motion photo) is left out"),
        (b"a trailer of a camera", None),
    ],
    ids=["", "zeros", "video", "Samsung", "other"],
)
def test_what_follows_a_jpeg_is_warned_about(tmp_path, between, word):
    data = jpeg(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes(data + between + data)
    damage, warnings = read_photo(tmp_path / "a.jpg")
    assert damage is None
    assert [str(word) in warning for warning in warnings] == [True] * (word is not None)


def animated_png(path: Path, count: int) -> None:
    with av.open(str(path), "w", format="apng") as output:
        stream = output.add_stream("apng", rate=25, width=16, height=16)
        stream.pix_fmt = "rgb24"
        for number in range(count):
            output.mux(
                stream.encode(
                    av.VideoFrame.from_ndarray(
                        np.full((16, 16, 3), 40 * number, np.uint8)
                    )
                )
            )
        output.mux(stream.encode(None))


@pytest.mark.parametrize("count", [2, 5])
def test_an_animation_is_refused_as_a_picture_and_read_as_a_video(count, tmp_path):
    animated_png(tmp_path / "a.png", count)
    with pytest.raises(
        MediaError,
        match=f"an animation of {count} pictures; give its name the suffix .apng",
    ):
        VideoReader(str(tmp_path / "a.png"))
    (tmp_path / "a.png").rename(tmp_path / "a.apng")
    assert len(frames_of(tmp_path / "a.apng")) == count


def test_an_animation_of_one_picture_is_a_picture(tmp_path):
    animated_png(tmp_path / "a.png", 1)
    assert len(frames_of(tmp_path / "a.png")) == 1


@pytest.mark.parametrize("kind, pages", [(0, 2), (1, 1), (4, 1)])
def test_further_pages_are_refused_but_not_smaller_copies_and_masks(
    kind, pages, tmp_path
):
    """A second directory that is the first once more, but for its kind (NewSubfileType, tag 254)."""
    path = tmp_path / "a.tiff"
    write_picture(path, (200, 100, 50))
    data = path.read_bytes()
    (place,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, place)
    entries = data[place + 14 : place + 2 + 12 * count]  # after that of the kind
    further = struct.pack("<HHHII", count, 254, 4, 1, kind) + entries
    linked = (
        data[: place + 2 + 12 * count]
        + struct.pack("<I", len(data))
        + data[place + 6 + 12 * count :]
    )
    path.write_bytes(linked + further + bytes(4))
    if pages == 1:
        assert len(frames_of(path)) == 1
    else:
        with pytest.raises(MediaError, match="holds 2 pages; split them"):
            VideoReader(str(path))


def test_an_animated_webp_is_refused_as_an_animation(tmp_path):
    chunk = (
        b"VP8X"
        + struct.pack("<I", 10)
        + b"\x02"
        + bytes(3)
        + bytes.fromhex("0f00000f0000")
    )
    path = tmp_path / "a.webp"
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk)
    with pytest.raises(
        MediaError, match="an animation, which can't be decoded; convert it"
    ):
        VideoReader(str(path))


@pytest.mark.parametrize("marker", [0xE1, 0xEB, 0xEE])
def test_an_empty_segment_of_notes_is_no_damage(tmp_path, marker):
    path = tmp_path / "a.jpg"
    write_picture(path, (200, 100, 50))
    with VideoReader(str(path)) as reader:
        expected = next(reader.frames()).planes
    start, rest = path.read_bytes()[:2], path.read_bytes()[2:]
    # its length is that of the length alone
    path.write_bytes(start + bytes([0xFF, marker, 0, 2]) + rest)
    with VideoReader(str(path)) as reader:
        for plane, before in zip(next(reader.frames()).planes, expected, strict=True):
            np.testing.assert_array_equal(plane, before)
