"""AVIF and BMP are read, and become PNG; grey that is stored as a palette stays grey."""

import struct
from pathlib import Path

import av
import numpy as np
import pytest
from denoise_command import encoded_again, identity, run  # noqa: F401  (a fixture of all tests here)
from numpy.typing import NDArray

from vidrestore.media.formats.photo_notes import read_notes
from vidrestore.media.reading.pictures import encoded

PROFILE = bytes(16) + b"RGB " + bytes(180)  # as far as anything here reads one


def box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content


def with_properties(avif: bytes, *properties: bytes) -> bytes:
    """An AVIF of one item with more of its properties, whose boxes all grow by as much."""
    shift = sum(map(len, properties)) + len(properties)
    data, places = (
        bytearray(avif),
        {kind: avif.index(kind) - 4 for kind in (b"meta", b"iprp", b"ipco", b"ipma")},
    )
    sizes = {
        kind: struct.unpack_from(">I", avif, place)[0] for kind, place in places.items()
    }
    mdat = avif.index(b"mdat") + 4
    offset = data.index(struct.pack(">I", mdat), places[b"meta"])  # of the item's data
    struct.pack_into(">I", data, offset, mdat + shift)
    count, end = places[b"ipma"] + 18, places[b"ipma"] + sizes[b"ipma"]
    struct.pack_into(">I", data, places[b"meta"], sizes[b"meta"] + shift)
    struct.pack_into(">I", data, places[b"iprp"], sizes[b"iprp"] + shift)
    struct.pack_into(">I", data, places[b"ipma"], sizes[b"ipma"] + len(properties))
    struct.pack_into(
        ">I", data, places[b"ipco"], sizes[b"ipco"] + shift - len(properties)
    )
    first, data[count] = 1 + data[count], data[count] + len(properties)
    associations = bytes(0x80 | first + number for number in range(len(properties)))
    stop = places[b"ipco"] + sizes[b"ipco"]
    return bytes(
        data[:stop] + b"".join(properties) + data[stop:end] + associations + data[end:]
    )


def rgb(path: Path) -> NDArray[np.uint8]:
    with av.open(str(path)) as opened:
        return next(opened.decode(video=0)).to_ndarray(format="rgb24")


# a quarter counter-clockwise; left and right
TURN, MIRROR = box(b"irot", b"\1"), box(b"imir", b"\1")


@pytest.mark.parametrize(
    "properties, upright",
    [
        ((), lambda picture: picture),
        ((TURN,), np.rot90),
        ((MIRROR,), np.fliplr),
        ((TURN, MIRROR), lambda picture: np.fliplr(np.rot90(picture))),
    ],
)
def test_an_avif_becomes_an_upright_png(given, properties, upright):
    photo = given("still.avif")
    plain = photo.with_name("plain.png")
    assert run(photo, "-o", plain) == 0
    photo.write_bytes(with_properties(photo.read_bytes(), *properties))
    assert run(photo) == 0
    before, after = rgb(plain).astype(float), rgb(photo.with_name("still.denoised.png"))
    assert upright(before).shape == after.shape
    # its chroma is halved in other places
    assert np.abs(upright(before) - after).mean() < 6


def test_an_avif_keeps_its_profile_and_names_what_is_not_read(given, capsys):
    photo = given("still.avif")
    profile = box(b"colr", b"prof" + PROFILE)
    alpha = box(b"auxC", bytes(4) + b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0")
    photo.write_bytes(with_properties(photo.read_bytes(), profile, alpha))
    assert run(photo) == 0
    assert (
        "the transparency of VP8, VP9 or AVIF, which encoding it again leaves out"
        in capsys.readouterr().err
    )
    assert read_notes(str(photo.with_name("still.denoised.png"))).profile == PROFILE
    assert run(photo, "-o", photo.with_name("strict.png"), "--strict") == 1


@pytest.mark.parametrize(
    "old, new, words",
    [
        (b"ftypavif", b"ftypavis", "an animation; give its name the suffix .mp4"),
        (b"av01Color", b"gridColor", "a picture in tiles"),
    ],
)
def test_an_avif_that_is_more_than_one_picture_is_refused_by_name(
    given, capsys, old, new, words
):
    photo = given("still.avif")
    photo.write_bytes(photo.read_bytes().replace(old, new))
    assert run(photo) == 1
    assert f"holds {words}" in capsys.readouterr().err


@pytest.mark.parametrize("pix_fmt", ["bgr24", "bgra", "rgb565le", "gray"])
def test_a_bmp_becomes_a_png_of_the_same_samples(tmp_path, pix_fmt):
    steps = np.arange(48 * 64, dtype=np.uint32).reshape(48, 64) * 7 % 32 * 8
    shape = (
        steps if pix_fmt == "gray" else np.stack([steps, steps[::-1], 248 - steps], -1)
    )
    frame = av.VideoFrame.from_ndarray(
        shape.astype(np.uint8), "gray" if pix_fmt == "gray" else "rgb24"
    )
    photo = tmp_path / "a.bmp"
    photo.write_bytes(encoded("bmp", frame.reformat(format=pix_fmt)))
    assert run(photo) == 0
    result = photo.with_name("a.denoised.png")
    with av.open(str(result)) as opened:
        stored = next(opened.decode(video=0)).format.name
    assert stored == {"gray": "gray", "bgra": "rgba"}.get(pix_fmt, "rgb24")
    np.testing.assert_array_equal(rgb(result), rgb(photo))


@pytest.mark.usefixtures("encoded_again")
def test_a_grey_tiff_of_few_levels_stays_grey(given):
    photo = given("gray4.tif")
    before = rgb(photo)
    assert run(photo) == 0
    with av.open(str(photo.with_name("gray4.denoised.tif"))) as opened:
        frame = next(opened.decode(video=0))
    assert frame.format.name == "gray"
    np.testing.assert_array_equal(frame.to_ndarray(), before[..., 0])
