"""One picture in, one picture out, the right way up."""

import random
import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from command_line import run as command
from denoise_command import encoded_again, identity, run  # noqa: F401
from numpy.typing import NDArray
from sample_pictures import write_frame
from sample_videos import write_video

from vidrestore.cli.progress import listening
from vidrestore.cli.terminal import as_options
from vidrestore.events import Event, Planned, Progressed, Started, Summary, Warned
from vidrestore.jobs.run import result_warnings
from vidrestore.media.formats import source
from vidrestore.media.formats.photo_notes import read_notes
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pipeline.plan import Scene

ENCODERS = {
    ".png": ("png", "rgb24"),
    ".jpg": ("mjpeg", "yuvj444p"),
    ".tiff": ("tiff", "rgb24"),
}
READ_ONLY = {".webp": ("libwebp", "yuv420p")}


def write_photo(
    path: Path, pix_fmt: str | None = None, orientation: int | None = None
) -> Path:
    """A picture of 64x48 in which no two corners are alike."""
    y, x = np.mgrid[:48, :64]
    rgb = np.stack([4 * x, 5 * y, 255 - 2 * x - 2 * y], axis=-1).astype(np.uint8)
    encoder, usual = (ENCODERS | READ_ONLY)[path.suffix]
    write_frame(
        path,
        encoder,
        av.VideoFrame.from_ndarray(rgb, "rgb24").reformat(format=pix_fmt or usual),
    )
    if orientation:
        data = path.read_bytes()
        # TIFF's header, and one entry: tag 274, a short, once
        exif = b"Exif\0\0II*\0" + struct.pack(
            "<IHHHIIi", 8, 1, 274, 3, 1, orientation, 0
        )
        path.write_bytes(
            data[:2] + struct.pack(">HH", 0xFFE1, len(exif) + 2) + exif + data[2:]
        )
    return path


def pixels(path: Path) -> NDArray[np.uint8]:
    """(height, width, 3) R, G, B of a picture, as it is stored."""
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
        assert frame.rotation == 0
        return frame.to_ndarray(format="rgb24")


@pytest.mark.parametrize("name", ["photo.png", "photo.apng"])
@pytest.mark.parametrize("count, bytes_each", [(1, 1 << 27), (40, 1 << 22), (5000, 1)])
def test_notes_that_inflate_without_end_are_refused(
    tmp_path, capsys, name, count, bytes_each
):
    photo = write_photo(tmp_path / "a.png").rename(tmp_path / name)
    data, text = photo.read_bytes(), b"key\0\0" + zlib.compress(bytes(bytes_each))
    note = (
        struct.pack(">I", len(text))
        + b"zTXt"
        + text
        + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    )
    photo.write_bytes(data[:33] + count * note + data[33:])
    assert run(photo, "-o", tmp_path / "out.png") == 1
    problem = (
        "5000 notes; no"
        if count == 5000
        else "notes that inflate to more than 64 MB; no"
    )
    assert f"{name}: {problem} camera or editor writes that" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ENCODERS)
def test_a_photo_becomes_one_beside_it_and_none_is_replaced(tmp_path, capsys, suffix):
    photo = write_photo(tmp_path / f"photo{suffix}")
    assert run(photo) == 0
    made = tmp_path / f"photo.denoised{suffix}"
    near = 4 if suffix == ".jpg" else 0
    assert np.abs(pixels(made).astype(int) - pixels(photo)).max() <= near
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"photo.denoised{suffix}",
        f"photo{suffix}",
    ]
    assert run(photo) == 1 and "already exists" in capsys.readouterr().err


def test_a_photo_is_written_where_output_names(tmp_path):
    photo = write_photo(tmp_path / "photo.png")
    for output, made in (
        ("clean.tiff", "clean.tiff"),
        ("out/", "out/photo.denoised.png"),
    ):
        assert run(photo, "-o", f"{tmp_path}/{output}", "-q") == 0
        np.testing.assert_array_equal(pixels(tmp_path / made), pixels(photo))


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Photos of two kinds and sizes, one of them in a folder below, and one that was restored before."""
    (tmp_path / "album" / "below").mkdir(parents=True)
    write_photo(tmp_path / "album" / "beach.jpg")
    write_photo(tmp_path / "album" / "beach.denoised.jpg")
    write_photo(tmp_path / "album" / "below" / "cat.png")
    write_frame(tmp_path / "album" / "dog.png", "png", av.VideoFrame(32, 16, "gray"))
    return tmp_path / "album"


def made_in(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("[!.]*")
        if path.is_file()
    )


def test_photos_that_are_named_are_restored_one_by_one(album, tmp_path, capsys):
    photos = [
        album / "beach.jpg",
        album / "beach.denoised.jpg",
        album / "gone.jpg",
        album / "dog.png",
    ]
    assert run(*photos, "-o", tmp_path / "out") == 3
    assert made_in(tmp_path / "out") == ["beach.denoised.jpg", "dog.denoised.png"]
    written = capsys.readouterr()
    printed = written.err
    assert "[1/3]" in written.out and "1 of 3 inputs failed" in printed
    assert "frames" not in printed  # names without numbers raise no doubt
    np.testing.assert_array_equal(
        pixels(tmp_path / "out" / "dog.denoised.png"), pixels(album / "dog.png")
    )


@pytest.mark.parametrize(
    "given, made",
    [
        (("", "--photos"), ["beach.denoised.jpg", "dog.denoised.png"]),
        (
            ("", "--photos", "--recursive"),
            ["beach.denoised.jpg", "below/cat.denoised.png", "dog.denoised.png"],
        ),
        (("*.png", "--photos"), ["dog.denoised.png"]),
        (("below",), ["0001.png"]),  # a video of one frame
    ],
)
def test_a_folder_or_pattern_means_photos_only_if_asked_to(
    album, tmp_path, given, made
):
    assert run(album / given[0], *given[1:], "-o", tmp_path / "out", "-q") == 0
    assert made_in(tmp_path / "out") == made


def test_pictures_below_a_folder_of_frames_are_left_out_with_a_warning(
    album, tmp_path, capsys
):
    (album / "dog.png").unlink()
    (album / "beach.denoised.jpg").unlink()
    assert run(album, "--recursive", "-o", tmp_path / "out") == 0
    assert (
        "pictures in folders below are left out; with --photos"
        in capsys.readouterr().err
    )
    assert made_in(tmp_path / "out") == ["0001.jpg"]


def test_a_pattern_of_numbers_means_photos_if_asked_to(tmp_path):
    for number in (7, 9):
        write_photo(tmp_path / f"IMG_{number}.jpg")
    assert run(tmp_path / "IMG_%d.jpg", "--photos", "-q") == 0
    assert made_in(tmp_path)[::2] == ["IMG_7.denoised.jpg", "IMG_9.denoised.jpg"]


def test_photos_that_make_no_video_say_how_they_can_be_restored_one_by_one(
    album, capsys
):
    def refused(*given: object) -> str:
        assert run(*given) == 1
        return capsys.readouterr().err

    assert (
        "pictures of several kinds" in (printed := refused(album))
        and "or add --photos" in printed
    )
    (album / "beach.jpg").unlink()
    (album / "beach.denoised.jpg").unlink()
    (album / "dog.png").unlink()
    assert "pictures are in folders below: add --photos" in refused(
        album, "--recursive"
    )
    write_frame(album / "below" / "dog.png", "png", av.VideoFrame(32, 16, "rgb24"))
    printed = refused(album / "below")
    assert (
        "2 pictures are taken for frames of one video; --photos restores each by itself"
        in printed
    )
    assert "all frames must be alike; --photos restores each by itself" in printed


def test_a_video_does_not_become_one_photo(tmp_path, capsys):
    write_video(tmp_path / "a.mkv", 2)
    assert run(tmp_path / "a.mkv", "-o", tmp_path / "a.png") == 1
    assert (
        "a.png: one picture, but a video has many; name them all, as in %04d.png"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "a.png").exists()


def test_the_preview_of_a_photo_shows_it_twice(tmp_path):
    assert run(write_photo(tmp_path / "photo.png"), "--preview", "2s", "-q") == 0
    assert pixels(tmp_path / "photo.preview.png").shape == (48, 128, 3)


# What EXIF says of the first row and column, done by numpy.
UPRIGHT: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    1: lambda stored: stored,
    2: np.fliplr,
    3: lambda stored: np.rot90(stored, 2),
    4: np.flipud,
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored.swapaxes(0, 1), 2),
    8: lambda stored: np.rot90(stored, 1),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_a_turned_photo_comes_out_upright(tmp_path, orientation):
    plain, turned = (
        write_photo(tmp_path / "a.jpg"),
        write_photo(tmp_path / "b.jpg", orientation=orientation),
    )
    for photo in (plain, turned):
        assert run(photo, "-o", photo.with_suffix(".png"), "-q") == 0
    expected = UPRIGHT[orientation](pixels(tmp_path / "a.png"))
    np.testing.assert_array_equal(pixels(tmp_path / "b.png"), expected)


def test_turned_pictures_become_an_upright_video(tmp_path):
    (tmp_path / "frames").mkdir()
    for number in (1, 2):
        write_photo(tmp_path / "frames" / f"{number}.jpg", "yuvj422p", orientation=6)
    assert run(tmp_path / "frames", "-o", tmp_path / "out.mkv", "-q") == 0
    with av.open(str(tmp_path / "out.mkv")) as container:
        frame = next(container.decode(video=0))
    assert (frame.width, frame.height, frame.rotation) == (48, 64, 0)
    left, right = frame.to_ndarray(format="rgb24")[:, [4, -4], 1].mean(axis=0)
    assert left > right + 100  # the green of the lower rows, turned clockwise


@pytest.mark.parametrize(("orientation", "planes"), [(None, 3), (3, 0), (6, 0)])
def test_the_blocks_of_turned_pictures_are_not_taken_for_those_of_the_file(
    tmp_path, orientation, planes
):
    photo = write_photo(tmp_path / "a.jpg", orientation=orientation)
    with VideoReader(str(photo), losses=True) as reader:
        (frame,) = reader.frames()
    assert len(frame.steps) == planes and frame.loss[0] >= 1


def tiff(order: str, *entries: tuple[int, int, int], then: int = 0) -> bytes:
    """A directory of (tag, kind, value), as EXIF has it, from its byte order on; `then` is the next one."""
    packed = b"".join(
        struct.pack(f"{order}HHI", tag, kind, 1)
        + struct.pack(f"{order}HH" if kind == 3 else f"{order}I", *value)
        for tag, kind, number in entries
        for value in [(number, 0) if kind == 3 else (number,)]
    )
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(
        f"{order}IH", 8, len(entries)
    )
    return head + packed + struct.pack(f"{order}I", then)


def of_camera(order: str) -> bytes:
    """EXIF of a turned photo of 64x48, with a thumbnail."""
    place, sizes = 8 + 2 + 4 * 12 + 4, 2 + 2 * 12 + 4
    main = tiff(
        order,
        (0x112, 3, 6),
        (0x10F, 4, 7),
        (0x8769, 4, place),
        (0x4746, 4, 9),
        then=place + sizes,
    )
    inner = tiff(order, (0xA002, 4, 64), (0xA003, 4, 48))[8:]
    behind = place + sizes + 2 + 2 * 12 + 4
    return (
        main + inner + tiff(order, (0x201, 4, behind), (0x202, 4, 9))[8:] + b"thumbnail"
    )


def blocks_of(path: Path) -> dict[bytes, bytes]:
    """EXIF and profiles in a JPEG or PNG, by their first letters; found without reading any lengths."""
    data, found = path.read_bytes(), {}
    for name, before in ((b"Exif\0\0", 4), (b"ICC_PROFILE\0", 4)):
        for at in [each.start() for each in re.finditer(re.escape(name), data)]:
            (length,) = struct.unpack_from(">H", data, at - before + 2)
            begin = at + len(name) + 2 * (name[0] == 73)
            found[name[:3]] = found.get(name[:3], b"") + data[begin : at - 2 + length]
    for name in (b"eXIf", b"iCCP"):
        for at in [each.start() for each in re.finditer(name, data)]:
            (length,) = struct.unpack_from(">I", data, at - 4)
            found[name] = data[at + 4 : at + 4 + length]
            (checked,) = struct.unpack_from(">I", data, at + 4 + length)
            assert checked == zlib.crc32(data[at : at + 4 + length])
    return found


def with_blocks(photo: Path, *blocks: bytes) -> Path:
    """A photo with segments of a JPEG, or chunks of a PNG, put in."""
    data, place = photo.read_bytes(), 2 if photo.suffix == ".jpg" else 33
    photo.write_bytes(data[:place] + b"".join(blocks) + data[place:])
    return photo


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">HH", marker, len(data) + 2) + data


def chunk(kind: bytes, data: bytes) -> bytes:
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )


# two segments of a JPEG
PROFILE = bytes(16) + b"RGB " + random.Random(0).randbytes(70_000)
IN_PARTS = [
    segment(0xFFE2, b"ICC_PROFILE\0" + bytes([number, 2]) + part)
    for number, part in ((2, PROFILE[60_000:]), (1, PROFILE[:60_000]))
]


@pytest.mark.usefixtures("encoded_again")
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_exif_and_colour_profile_are_copied(tmp_path, capsys, order, suffix):
    exif = of_camera(order)
    photo = with_blocks(
        write_photo(tmp_path / "photo.jpg"),
        *IN_PARTS,
        segment(0xFFE1, b"Exif\0\0" + exif),
    )
    made = tmp_path / f"made{suffix}"
    assert run(photo, "-o", made) == 0
    assert "leaves out" not in capsys.readouterr().err
    found = blocks_of(made)
    upright = exif.replace(
        tiff(order, (0x112, 3, 6))[10:22], tiff(order, (0x112, 3, 1))[10:22]
    )
    # turned, it is as wide as it was high
    for tag, before, after in ((0xA002, 64, 48), (0xA003, 48, 64)):
        upright = upright.replace(
            tiff(order, (tag, 4, before))[10:22], tiff(order, (tag, 4, after))[10:22]
        )
    then = len(tiff(order, *[(0, 4, 0)] * 4)) - 4
    upright = upright[:then] + bytes(4) + upright[then + 4 : -9] + bytes(9)
    if suffix == ".jpg":
        assert found == {b"Exi": upright, b"ICC": PROFILE}
    else:
        assert found[b"eXIf"] == upright
        assert (
            zlib.decompress(found[b"iCCP"].removeprefix(b"ICC profile\0\0")) == PROFILE
        )
    again = made.with_stem("again")
    assert run(made, "-o", again, "-q") == 0
    assert blocks_of(again) == found
    assert run(made, "-o", tmp_path / f"private{suffix}", "--drop", "exif") == 0
    assert "leaves out" not in capsys.readouterr().err
    profile = {name for name in found if name[:2] in (b"IC", b"iC")}
    assert set(blocks_of(tmp_path / f"private{suffix}")) == profile


def with_tags(photo: Path, *tags: tuple[int, int, bytes]) -> Path:
    """A TIFF of little-endian order with more (tag, kind, value), each behind the picture."""
    data = bytearray(photo.read_bytes())
    (place,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, place)
    entries = [bytes(data[place + 2 + 12 * each :][:12]) for each in range(count)]
    for tag, kind, value in tags:
        at = struct.pack("<I", len(data)) if len(value) > 4 else value.ljust(4, b"\0")
        entries.append(
            struct.pack("<HHI", tag, kind, len(value) // (2 if kind == 3 else 1)) + at
        )
        data += value if len(value) > 4 else b""
    struct.pack_into("<I", data, 4, len(data))
    data += (
        struct.pack("<H", len(entries))
        + b"".join(sorted(entries, key=lambda one: one[1::-1]))
        + bytes(4)
    )
    photo.write_bytes(data)
    return photo


def with_chunks(photo: Path, *chunks: tuple[bytes, bytes]) -> Path:
    """A WebP in its extended form, with chunks put behind the picture, each filled to an even size."""
    data = photo.read_bytes()[12:]
    flags = {b"ICCP": 32, b"EXIF": 8, b"XMP ": 4}
    extended = struct.pack(
        "<4sIB", b"VP8X", 10, sum(flags[name] for name, _ in chunks)
    ) + bytes(3)
    body = extended + struct.pack("<I", 63)[:3] + struct.pack("<I", 47)[:3] + data
    for name, value in chunks:
        body += struct.pack("<4sI", name, len(value)) + value + bytes(len(value) % 2)
    photo.write_bytes(struct.pack("<4sI4s", b"RIFF", len(body) + 4, b"WEBP") + body)
    return photo


ACROSS, DOWN = 11811, 5906  # pixels per metre, 300 and 150 per inch
DENSITY = {
    ".jpg": b"JFIF\0\1\1\1" + struct.pack(">HH", 300, 150),
    ".png": b"pHYs" + struct.pack(">IIB", ACROSS, DOWN, 1),
}


@pytest.mark.parametrize("kind", [".jpg", ".png", ".tiff"])
def test_the_pixels_per_inch_of_a_scan_are_copied(tmp_path, capsys, kind):
    photo = write_photo(tmp_path / f"scan{kind}")
    if kind == ".tiff":  # of an inch, in TIFF's order: unit, across and down
        rationals = [struct.pack("<II", 600, 2), struct.pack("<II", 150, 1)]
        data = photo.read_bytes()
        for tag, value in zip((0x11A, 0x11B), rationals, strict=True):
            at = data.index(struct.pack("<HHI", tag, 5, 1)) + 8
            (place,) = struct.unpack_from("<I", data, at)
            data = data[:place] + value + data[place + 8 :]
        photo.write_bytes(data)
    elif kind == ".jpg":
        with_blocks(photo, segment(0xFFE0, DENSITY[".jpg"] + bytes(2)))
    else:
        data = photo.read_bytes()
        at = data.index(b"pHYs") - 4
        photo.write_bytes(
            data[:at] + chunk(b"pHYs", DENSITY[".png"][4:]) + data[at + 21 :]
        )
    for suffix, expected in DENSITY.items():
        assert run(photo, "-o", tmp_path / f"made{suffix}") == 0
        assert "left out" not in capsys.readouterr().err
        made = (tmp_path / f"made{suffix}").read_bytes()
        assert [made.count(each) for each in (expected, expected[:4])] == [1, 1]
    assert run(photo, "-o", tmp_path / "made.tiff", "-q") == 0
    assert read_notes(str(tmp_path / "made.tiff")).per_inch == pytest.approx(
        (300, 150), rel=1e-3
    )


XMP = b"<x:xmpmeta/>"


@pytest.mark.parametrize(
    "suffix, notes",
    [
        (".jpg", segment(0xFFE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP)),
        (".jpg", segment(0xFFED, b"Photoshop 3.0\0008BIM\x04\x04\0\0" + bytes(4))),
        (".png", chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)),
        (".webp", (b"XMP ", XMP)),
        (".tiff", (0x2BC, 1, XMP)),
    ],
    ids=["JPEG", "IPTC", "PNG", "WebP", "TIFF"],
)
def test_notes_of_editors_are_left_out_with_a_warning(tmp_path, capsys, suffix, notes):
    add = {".webp": with_chunks, ".tiff": with_tags}.get(suffix, with_blocks)
    photo = add(write_photo(tmp_path / f"a{suffix}"), notes)
    assert run(photo, "-o", tmp_path / "made.png") == 0
    assert (
        "carries notes of editors (XMP or IPTC), which encoding"
        in capsys.readouterr().err
    )
    assert run(photo, "-o", tmp_path / "private.png", "--drop", "exif") == 0
    assert "leaves out" not in capsys.readouterr().err
    assert run(photo, "-o", tmp_path / "strict.png", "--strict") == 1


CAMERA, COLOURS = "notes of the camera (EXIF)", "an ICC profile"


@pytest.mark.parametrize(
    "name, notes, output, said",
    [
        ("a.tiff", [(0x10F, 2, b"a maker\0")], "made.tiff", CAMERA),
        ("a.tiff", [(0x8773, 7, PROFILE)], "made.png", None),
        ("a.tiff", [(0x8773, 7, PROFILE)], "made.tiff", None),
        ("a.webp", [(b"EXIF", tiff("<", (0x10F, 4, 7)))], "made.jpg", None),
        (
            "a.webp",
            [(b"ICCP", PROFILE), (b"EXIF", b"Exif\0\0" + tiff("<", (0x10F, 4, 7)))],
            "b.png",
            None,
        ),
        ("a.webp", [(b"ICCP", PROFILE)], "made.jpg", None),
        ("a.jpg", [segment(0xFFE1, b"Exif\0\0" + of_camera("<"))], "made.tiff", CAMERA),
        ("a.jpg", IN_PARTS, "made.tiff", None),
        ("a.tiff", [], "made.tiff", None),
    ],
)
def test_notes_that_tiff_lacks_are_left_out_with_a_warning_and_others_copied(
    tmp_path, capsys, name, notes, output, said
):
    add = {".webp": with_chunks, ".tiff": with_tags}.get(Path(name).suffix, with_blocks)
    photo = add(write_photo(tmp_path / name), *notes)
    assert run(photo, "-o", tmp_path / output) == 0
    printed = capsys.readouterr().err
    assert [
        line
        for line in printed.splitlines()
        if "leaves out" in line and str(said) not in line
    ] == []
    assert ("leaves out" in printed) == (said is not None)
    found = read_notes(str(tmp_path / output))
    assert found.profile == (PROFILE if PROFILE[100:200] in photo.read_bytes() else b"")
    assert bool(found.exif) == (
        name == "a.webp" and any(note[0] == b"EXIF" for note in notes)
    )
    assert pixels(tmp_path / output).shape in ((48, 64, 3), (64, 48, 3))


@pytest.mark.parametrize(
    "tag, word",
    [
        ((0x103, 3, b"\6\0"), "JPEG"),
        ((0x103, 3, b"\7\0"), "JPEG"),
        ((0x106, 3, b"\5\0"), "the colours of print, CMYK"),
        ((0x142, 3, b"\x20\0"), "tiles of width 32"),
        ((0x153, 3, b"\3\0\3\0\3\0"), "floating-point samples"),
        ((0x153, 3, b"\2\0"), "signed samples"),
        ((0x152, 3, b"\1\0"), "premultiplied (associated) alpha"),
    ],
)
def test_forms_of_tiff_that_ffmpeg_reads_wrong_are_refused_by_name(
    tmp_path, capsys, tag, word
):
    photo = with_tags(write_photo(tmp_path / "a.tiff"), tag)
    assert run(photo) == 1
    assert (
        f"holds {word} in a TIFF, which FFmpeg reads wrong; save it as PNG"
        in capsys.readouterr().err
    )
    assert run(tmp_path, "--photos") == 1
    assert [*tmp_path.iterdir()] == [photo]


def test_usual_tags_of_tiff_are_no_odd_forms(tmp_path):
    tags = [(0x153, 3, b"\1\0\1\0\1\0"), (0x142 + 1000, 3, b"\x20\0")]
    assert run(with_tags(write_photo(tmp_path / "a.tiff"), *tags), "-q") == 0
    (tmp_path / "b.tiff").write_bytes(b"II+\0" + bytes(60))
    assert run(tmp_path / "b.tiff") == 1


@pytest.mark.usefixtures("encoded_again")
def test_a_profile_of_other_colours_than_the_picture_is_left_out_with_a_warning(
    tmp_path, capsys
):
    profile = chunk(b"iCCP", b"x\0\0" + zlib.compress(PROFILE))
    grey = with_blocks(write_photo(tmp_path / "b.png", "gray"), profile)
    assert run(grey, "-o", tmp_path / "c.png") == 0
    assert "an ICC profile, which encoding" in capsys.readouterr().err
    assert blocks_of(tmp_path / "c.png") == {}


LONG = 0xFFFFFFFF
HOSTILE = {
    "no TIFF": [segment(0xFFE1, b"Exif\0\0" + b"hello")],
    "cut": [segment(0xFFE1, b"Exif\0\0" + of_camera("<")[:20])],
    "directory beyond the end": [
        segment(0xFFE1, b"Exif\0\0II*\0" + struct.pack("<I", LONG))
    ],
    "directory in the header": [segment(0xFFE1, b"Exif\0\0II*\0" + bytes(40))],
    "65535 entries": [
        segment(0xFFE1, b"Exif\0\0II*\0" + struct.pack("<IH", 8, 0xFFFF))
    ],
    "inner directory beyond the end": [
        segment(0xFFE1, b"Exif\0\0" + tiff("<", (0x8769, 4, LONG)))
    ],
    "directory that is its own thumbnail": [
        segment(0xFFE1, b"Exif\0\0" + tiff("<", (0x112, 3, 6), then=8))
    ],
    "thumbnail beyond the end": [
        segment(
            0xFFE1,
            b"Exif\0\0"
            + tiff("<", then=14)
            + tiff("<", (0x201, 4, LONG), (0x202, 4, LONG))[8:],
        )
    ],
    "profile without a part": IN_PARTS[:1],
    "profile of no parts": [segment(0xFFE2, b"ICC_PROFILE\0\0\0" + PROFILE[:50])],
    "chunk beyond the end": [struct.pack(">I4s", LONG, b"eXIf")],
    "profile that is no stream": [chunk(b"iCCP", b"name\0\0nonsense")],
    "profile without a name's end": [chunk(b"iCCP", b"name")],
    "profile that unpacks to 100 MB": [
        chunk(b"iCCP", b"name\0\0" + zlib.compress(bytes(10**8)))
    ],
    "EXIF that a JPEG can't hold": [chunk(b"eXIf", of_camera(">") + bytes(70_000))],
}


@pytest.mark.usefixtures("encoded_again")
@pytest.mark.parametrize("blocks", HOSTILE.values(), ids=HOSTILE)
def test_hostile_notes_do_no_harm(tmp_path, blocks):
    suffix = ".jpg" if blocks[0].startswith(b"\xff") else ".png"
    photo = with_blocks(write_photo(tmp_path / f"a{suffix}"), *blocks)
    tracemalloc.start()
    notes = read_notes(str(photo))
    read_and_fitted = notes.fitting("png", "rgb24")
    assert tracemalloc.get_traced_memory()[1] < 25 * 10**6
    tracemalloc.stop()
    assert read_and_fitted.kinds <= {"EXIF"} and not read_and_fitted.profile
    if run(photo, "-o", tmp_path / "made.jpg", "-q") == 0:
        assert sorted(pixels(tmp_path / "made.jpg").shape) == [3, 48, 64]
    else:
        assert suffix == ".png"  # which FFmpeg's decoder refuses


@pytest.fixture
def without_heic(monkeypatch):
    """As if pillow-heif weren't installed."""
    monkeypatch.setattr(source, "_READS_HEIF", False)
    for suffix in (".heic", ".heif"):
        monkeypatch.delitem(source.KINDS, suffix, raising=False)
        monkeypatch.setitem(
            source._OTHER_KINDS, suffix, "pip install 'vidrestore[heic]' reads them"
        )


@pytest.mark.usefixtures("without_heic")
@pytest.mark.parametrize(
    "name, way",
    [
        ("a.heic", "pip install 'vidrestore[heic]'"),
        ("a.exr", "convert to PNG (16 bits) or TIFF"),
        ("%04d.exr", "convert to PNG (16 bits) or TIFF"),
        ("a.CR2", "raw data of a camera: develop to 16-bit TIFF first"),
        ("a.jp2", "convert to PNG"),
    ],
)
def test_a_photo_of_a_kind_that_is_not_read_names_the_way_out(
    tmp_path, capsys, name, way
):
    (tmp_path / name.replace("%04d", "0001")).write_bytes(b"ftypheic")
    assert run(tmp_path / name) == 1
    assert (
        f"{Path(name).suffix.lower()} pictures are not read ({way}"
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("without_heic")
def test_heic_beside_other_photos_is_a_warning_in_folders_and_fails_alone_if_named(
    tmp_path, capsys
):
    photo, phone = write_photo(tmp_path / "a.jpg"), tmp_path / "b.HEIC"
    phone.write_bytes(b"ftypheic")
    (tmp_path / "c.heic").write_bytes(b"ftypheic")
    way = "(pip install 'vidrestore[heic]' reads them)"
    assert run(tmp_path, "--photos", "-o", tmp_path / "out") == 0
    assert (
        f"{tmp_path}: warning: left out, as not read: 2 .heic {way}"
        in capsys.readouterr().err
    )
    assert run(photo, phone, "-o", tmp_path / "named") == 3
    assert f"{phone}: .heic pictures are not read {way}" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "named").iterdir()] == ["a.denoised.jpg"]
    photo.unlink()
    assert run(tmp_path, "--photos") == 1
    assert "left out, as not read: 2 .heic" in capsys.readouterr().err


def test_all_that_a_folder_holds_beside_what_is_read_is_named(tmp_path, capsys):
    write_photo(tmp_path / "a.jpg")
    for name in (
        "b.NEF",
        "c.nef",
        "d.psd",
        "song.mp3",
        "notes",
        ".hidden",
        "vidrestore-batch.json",
    ):
        (tmp_path / name).write_bytes(b"x")
    assert run(tmp_path, "--photos", "-o", f"{tmp_path / 'out'}/") == 0
    said = capsys.readouterr().err
    assert (
        "left out, as not read: 2 .nef (raw data of a camera: develop to 16-bit TIFF first"
        in said
    )
    assert (
        "; 1 .psd (convert to PNG (16 bits) or TIFF first); 1 without a suffix, 1 .mp3\n"
        in said
    )


def write_heic(path: Path, samples: NDArray[Any], **notes: Any) -> Path:
    """Write (height, width, 3) uint8, or uint16 of 10 bits, without loss; `turn` is EXIF's orientation."""
    heif = pytest.importorskip("pillow_heif")
    mode, data = (
        ("RGB", samples) if samples.dtype == np.uint8 else ("RGB;16", samples << 6)
    )
    file = heif.from_bytes(
        mode=mode, size=samples.shape[1::-1], data=np.ascontiguousarray(data).tobytes()
    )
    file.info.update(notes)
    file.save(path, quality=-1, chroma=444, matrix_coefficients=0)
    return path


def test_heic_keeps_10_bits_its_notes_and_is_upright(tmp_path, capsys):
    ramp = np.linspace(0, 1023, 48 * 64 * 3).astype(np.uint16).reshape(48, 64, 3)
    photo = write_heic(
        tmp_path / "a.HEIC",
        ramp,
        exif=b"Exif\0\0" + of_camera(">"),
        icc_profile=PROFILE,
    )
    assert run(photo) == 0
    assert "leaves out" not in capsys.readouterr().err
    made = tmp_path / "a.denoised.png"
    with av.open(str(made)) as opened:
        found = next(opened.decode(video=0)).to_ndarray(format="rgb48le")
    deep = ramp << 6 | ramp >> 4
    wanted = deep if found.shape == deep.shape else np.rot90(deep, -1)
    np.testing.assert_array_equal(found, wanted)
    notes = read_notes(str(made))
    assert notes.profile == PROFILE and notes.exif[:4] == b"MM\0*"
    assert b"\x01\x12\0\3\0\0\0\1\0\1" in notes.exif, "no orientation but upright"


def test_heic_of_8_bits_under_another_name_is_read_by_its_content(tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    photo = write_heic(tmp_path / "a.heic", picture).rename(tmp_path / "a.jpg")
    assert run(photo, "-o", tmp_path / "b.png", "-q") == 0
    np.testing.assert_array_equal(pixels(tmp_path / "b.png"), picture)
    (tmp_path / "c.heic").write_bytes(photo.read_bytes()[:-900])
    assert run(tmp_path / "c.heic") == 1


def test_photos_take_a_line_each_and_a_warning_comes_once(capsys):
    def events(number: int) -> Iterator[Event]:
        name, place = f"{number}.JPG", {"index": number, "count": 2}
        yield Started(
            name, f"{number}.denoised.JPG", "denoise", "dust-denoise", "cpu", **place
        )
        yield Planned(name, 1, **place)
        yield Progressed(name, 1, 1, **place)
        yield Warned(name, "fine texture looks the same", **place)
        yield Summary(name, f"{number}.denoised.JPG", 1, 1.0, **place)

    with listening() as listener:
        for number in (1, 2):
            for event in events(number):
                listener(event)
    printed = capsys.readouterr()
    assert printed.err == "1.JPG: warning: fine texture looks the same\n"
    assert [line[:6] for line in printed.out.splitlines()] == ["[1/2] ", "[2/2] "]


@pytest.mark.parametrize(
    "frames, sigma, warned", [(1, 6.0, True), (2, 6.0, False), (1, 0.0, False)]
)
def test_noise_that_was_measured_on_one_frame_is_doubted(frames, sigma, warned):
    messages = list(
        result_warnings(
            frames, [Scene(0, frames, (sigma, 9.0, 9.0), (sigma,) * 3)], 0, ()
        )
    )
    assert (
        sum(
            "--sigma 6.0: if texture is gone" in as_options(message)
            for message in messages
        )
        == warned
    )


def test_a_photo_that_only_lost_to_its_coder_is_in_no_doubt():
    scene = Scene(0, 1, (1.7, 1.2, 1.2), (0.0,) * 3, (2.4,) * 3)
    assert scene.noise.endswith("chroma none; coding 2.4")
    assert [*result_warnings(1, [scene], 0, ())] == []


def test_inspect_counts_no_frames_and_no_seconds_of_a_photo(tmp_path, capsys):
    photo = write_photo(tmp_path / "photo.jpg")
    command("inspect", photo)
    printed = capsys.readouterr().out
    assert (
        f"{photo}: picture\n" in printed and "64x48" in printed and "noise" in printed
    )
    assert "frames" not in printed.replace(str(photo), "") and "fps" not in printed


def test_a_report_of_a_photo_has_no_bitrate(tmp_path):
    assert (
        run(
            write_photo(tmp_path / "photo.png"),
            "--report",
            tmp_path / "page.html",
            "-q",
        )
        == 0
    )
    text = (tmp_path / "page.html").read_text()
    assert "1 frame of 64x48" in text and "<th>bitrate" not in text


def test_a_palette_becomes_the_colours_it_stands_for(tmp_path):
    indices = np.arange(48 * 64, dtype=np.uint8).reshape(48, 64)
    levels = np.arange(256, dtype=np.uint8)
    # alpha first
    colours = np.stack([np.full(256, 255, np.uint8), levels, levels, levels], axis=-1)
    write_frame(
        tmp_path / "a.png",
        "png",
        av.VideoFrame.from_ndarray((indices, colours), "pal8"),
    )
    assert run(tmp_path / "a.png", "-q") == 0
    np.testing.assert_array_equal(
        pixels(tmp_path / "a.denoised.png"), np.stack([indices] * 3, axis=-1)
    )


def test_a_palette_has_alpha_only_if_a_colour_is_transparent(tmp_path):
    for alpha, planes in ((255, 3), (9, 4)):
        colours = np.full((256, 4), [alpha, 1, 2, 3], np.uint8)
        picture = av.VideoFrame.from_ndarray(
            (np.zeros((48, 64), np.uint8), colours), "pal8"
        )
        write_frame(tmp_path / "a.png", "png", picture)
        with VideoReader(str(tmp_path / "a.png")) as reader:
            assert len(next(reader.frames()).planes) == planes
        assert run(tmp_path / "a.png", "-o", tmp_path / f"{alpha}.jpg", "-q") == (
            planes == 4
        )


def test_the_order_of_pixels_in_a_png_is_no_interlaced_video(given, capsys):
    assert run(given("adam7.png")) == 0
    assert "interlaced" not in capsys.readouterr().err


@pytest.mark.parametrize("output", ["out.jpg", "out.png"])
def test_colours_of_print_are_named_whatever_is_written(given, capsys, output):
    photo = given("ycck.jpg")
    assert run(photo, "-o", photo.with_name(output)) == 1
    assert (
        "its colours are those of print, CMYK; convert it to RGB first"
        in capsys.readouterr().err
    )


def test_a_narrow_jpeg_has_no_restart_markers_which_ffmpeg_numbers_wrong(tmp_path):
    picture = np.random.default_rng(1).integers(0, 256, (48, 16, 3), np.uint8)
    write_frame(tmp_path / "a.png", "png", av.VideoFrame.from_ndarray(picture, "rgb24"))
    assert run(tmp_path / "a.png", "-o", tmp_path / "a.jpg", "-q") == 0
    # RST0 to RST7, and DRI, which announces them
    assert not re.findall(rb"\xff[\xd0-\xd7\xdd]", (tmp_path / "a.jpg").read_bytes())


def test_a_palette_without_alpha_becomes_a_jpeg(given):
    photo = given("palette_no_alpha.png")
    assert run(photo, "-o", photo.with_name("out.jpg"), "-q") == 0


def test_the_video_of_a_motion_photo_is_left_out_with_a_warning(given, capsys):
    assert run(given("motion_photo.jpg")) == 0
    assert "(a motion photo) is left out" in capsys.readouterr().err


def test_a_photo_is_called_so_and_has_no_rate(tmp_path, capsys):
    photo = write_photo(tmp_path / "a.png")
    assert run(photo) == 0
    line = capsys.readouterr().out
    assert "a.denoised.png: 1 photo in " in line and "fps" not in line


BROKEN_EXIF = (
    b"II*\0"
    + struct.pack("<IHHHII", 8, 1, 0x10F, 2, 0x40000014, 26)
    + bytes(4)
    + b"abcd\0"
)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tiff"])
def test_exif_with_a_broken_entry_is_left_out_where_the_picture_could_not_be_read(
    tmp_path, capsys, suffix
):
    photo = with_chunks(write_photo(tmp_path / "a.webp"), (b"EXIF", BROKEN_EXIF))
    assert run(photo, "-o", tmp_path / f"made{suffix}") == 0
    warned = (
        "its notes of the camera (EXIF) are broken, and left out"
        in capsys.readouterr().err
    )
    assert warned == (suffix == ".png")
    assert pixels(tmp_path / f"made{suffix}").shape in ((48, 64, 3), (64, 48, 3))


def test_the_broken_exif_of_a_webp_makes_no_unreadable_png(given, tmp_path, capsys):
    photo = given("exif_broken.webp")
    assert run(photo, "-o", tmp_path / "made.png") == 0
    assert (
        "its notes of the camera (EXIF) are broken, and left out"
        in capsys.readouterr().err
    )
    assert pixels(tmp_path / "made.png").shape == pixels(photo).shape


@pytest.mark.usefixtures("encoded_again")
def test_a_picture_that_its_encoder_wrote_wrong_never_gets_its_name(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(
        "vidrestore.media.writing.picture_writer.with_notes",
        lambda picture, notes: picture[: len(picture) // 2],
    )
    photo = write_photo(tmp_path / "a.png")
    assert run(photo, "-o", tmp_path / "made.png") == 1
    assert "the picture that png wrote can't be read" in capsys.readouterr().err
    assert not (tmp_path / "made.png").exists()


@pytest.mark.usefixtures("encoded_again")
def test_comments_of_a_jpeg_are_copied_to_a_jpeg(tmp_path):
    comment = segment(0xFFFE, "Großmutter, 1964".encode())
    photo = with_blocks(write_photo(tmp_path / "a.jpg"), comment)
    for name, drop, count in (("b.jpg", (), 1), ("c.jpg", ("--drop", "exif"), 0)):
        assert run(photo, "-o", tmp_path / name, *drop, "-q") == 0
        assert (tmp_path / name).read_bytes().count(comment) == count
    assert run(photo, "-o", tmp_path / "d.png", "--strict", "-q") == 0


TITLES = [
    chunk(b"tEXt", b"Title\0Holidays"),
    chunk(b"iTXt", b"prompt\0\0\0\0\0" + "zwei Bäume".encode()),
    chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"a comment")),
]


@pytest.mark.usefixtures("encoded_again")
@pytest.mark.parametrize(
    "suffix, warned", [(".png", False), (".jpg", True), (".tiff", True)]
)
def test_texts_of_a_png_are_copied_to_a_png_and_named_for_others(
    tmp_path, capsys, suffix, warned
):
    odd = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"exif"))
    photo = with_blocks(write_photo(tmp_path / "a.png"), *TITLES, odd)
    assert run(photo, "-o", tmp_path / f"made{suffix}") == 0
    assert ("texts of the PNG, such as its title" in capsys.readouterr().err) == warned
    content = (tmp_path / f"made{suffix}").read_bytes()
    assert [text in content for text in TITLES] == [
        not warned
    ] * 3 and odd not in content
    assert run(photo, "-o", tmp_path / f"private{suffix}", "--drop", "exif") == 0
    assert "leaves out" not in capsys.readouterr().err
    assert not any(
        text in (tmp_path / f"private{suffix}").read_bytes() for text in TITLES
    )
