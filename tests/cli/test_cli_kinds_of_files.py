"""Kinds of files that people have, through the command with a model that changes nothing."""

import struct
from fractions import Fraction
from itertools import count, pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from numpy.typing import NDArray
from sample_videos import copy_packets, with_bytes, write_stream, write_video
from written_videos import frames_of

from vidrestore.media.reading.reader import VideoReader


@pytest.mark.parametrize(
    "name, words",
    [
        ("f_cenc.mp4", ["encrypted; decrypt it first"]),
        (
            "concat.ts",
            [
                "its times go back there; ffmpeg -i IN -map 0 -c copy OUT.mkv may mend it"
            ],
        ),
        ("aac_rate_change.ts", ["stream 1 (audio: aac)", "-c:a flac OUT.mkv"]),
        ("tiled.tif", ["holds tiles of width 32 in a TIFF"]),
        ("half_float.tif", ["holds floating-point samples in a TIFF"]),
        ("ycbcr.tif", ["holds YCbCr in a TIFF"]),
        ("premultiplied.tif", ["holds premultiplied (associated) alpha in a TIFF"]),
    ],
)
def test_a_file_that_can_not_be_restored_is_refused_before_work_with_the_reason(
    given, capsys, name, words
):
    source = given(name)
    assert run(source) == 1
    said = capsys.readouterr().err
    assert all(word in said for word in words)
    assert [*source.parent.iterdir()] == [source]


@pytest.mark.parametrize(
    "name, count, words",
    [
        (
            "c12_resize.webm",
            30,
            "20 frames are of another size or format (first 64x96 in yuv420p, at 0.400 s)",
        ),
        (
            "c20_range.ts",
            50,
            "25 frames are of another size or format (first 96x64 in yuvj420p, at 2.480 s)",
        ),
    ],
)
def test_a_size_or_range_that_changes_inside_a_stream_is_said_and_refused_if_strict(
    given, capsys, name, count, words
):
    source, output = given(name), given(name).with_name("out.mkv")
    assert run(source, "-o", output, "--strict") == 1
    assert words in capsys.readouterr().err and not output.exists()
    assert run(source, "-o", output) == 0
    assert (
        f"warning: {words}; made like the first, 96x64 in yuv420p"
        in capsys.readouterr().err
    )
    assert {frame.planes[0].shape for frame in frames_of(output)} == {(64, 96)}
    assert len(frames_of(output)) == count


@pytest.mark.parametrize(
    "name, code, words",
    [
        (
            "nested_trak.mp4",
            4,
            "something other than a packet lies between the packets",
        ),
        (
            "film_cut_short.mp4",
            4,
            "1 frame could not be decoded; the video ends 11.000 s before its own",
        ),
        ("fields_576.avi", 0, "deinterlaced (marked interlaced, top field first)"),
        ("hevc_fields_as_pictures.mkv", 0, "25 frames; libx265"),
        (
            "short_clip_called_interlaced.mkv",
            0,
            "10 frames; ffv1 (the source's codec), .mkv (the source's)\n",
        ),
        ("prores4444_alpha.mov", 0, ".mkv (.mov has no encoder for yuva444p12le)"),
        ("wide_12288x64.mkv", 0, "3 frames; ffv1"),
    ],
)
def test_a_file_that_was_wrong_or_a_traceback_once_is_as_it_should_be(
    given, capsys, name, code, words
):
    source = given(name)
    assert run(source, "-o", source.with_name("out.mkv")) == code
    printed = capsys.readouterr().err
    assert words in printed and "Traceback" not in printed


def test_graphics_are_never_deinterlaced(given, capsys):
    source = given("c18_delays.gif")
    assert run(source) == 0
    assert "interlaced" not in capsys.readouterr().err
    assert len(frames_of(source.with_name("c18_delays.denoised.mkv"))) == 10


def test_thumbnails_of_a_network_drive_are_not_taken_for_videos(tmp_path, capsys):
    write_video(tmp_path / "a.mkv", 2)
    (tmp_path / "@eaDir").mkdir()
    write_video(tmp_path / "@eaDir" / "thumb.mkv", 2)
    assert run(tmp_path, "--recursive", "-q") == 0
    assert run(tmp_path / "**" / "*.mkv", "--recursive", "-q") == 0
    assert [path.name for path in (tmp_path / "@eaDir").iterdir()] == ["thumb.mkv"]


def times_of(path: Path) -> list[Fraction]:
    with VideoReader(str(path)) as reader:
        return [frame.pts * reader.info.video.time_base for frame in reader.frames()]


def with_decoding_times(path: Path) -> Path:
    """MPEG-4 with B-frames whose times of showing are those of decoding, as SVQ3, RV20 and FLV have them."""
    plain = path.with_name("plain.avi")
    write_video(plain, 12, "mpeg4", options={"bf": "2", "g": "12"})
    numbers = count()

    def numbered(packet: av.Packet) -> list[av.Packet]:
        packet.time_base, packet.pts = Fraction(1, 25), next(numbers)
        packet.dts = packet.pts
        return [packet]

    return copy_packets(plain, path, numbered)


@pytest.mark.parametrize("name", ["in.mov", "in.nut", "in.mkv"])
def test_pictures_whose_times_are_those_of_decoding_are_shown_in_their_order(
    tmp_path, name
):
    source = with_decoding_times(tmp_path / name)
    assert run(source, "-o", tmp_path / "out.mkv", "--lossless", "-q") == 0
    found, wanted = times_of(tmp_path / "out.mkv"), times_of(tmp_path / "plain.avi")
    assert [time - found[0] for time in found] == [time - wanted[0] for time in wanted]
    with (
        VideoReader(str(source)) as reader,
        VideoReader(str(tmp_path / "plain.avi")) as plain,
    ):
        for one, other in zip(reader.frames(), plain.frames(), strict=True):
            np.testing.assert_array_equal(one.planes[0], other.planes[0])


def test_what_follows_a_clock_that_is_set_back_is_moved_behind_it(tmp_path, capsys):
    source, output = tmp_path / "in.ts", tmp_path / "out.mkv"
    write_video(source, 12, "libx264", options={"bf": "2"})
    source.write_bytes(source.read_bytes() * 2)
    assert run(source, "-o", output, "--lossless") == 0
    (line,) = (
        line for line in capsys.readouterr().err.splitlines() if "warning" in line
    )
    assert (
        "the clock of the video is set back at" in line
        and "is moved, by 0.480 s" in line
    )
    times = times_of(output)
    assert len(times) == 24 and all(
        abs(b - a - Fraction(1, 25)) < 0.002 for a, b in pairwise(times)
    )
    with VideoReader(str(source)) as reader:
        frames = list(reader.frames())
        for at in (3, 13, 20):
            (again, *_) = reader.frames(frames[at].pts)
            assert again.pts == frames[at].pts
            np.testing.assert_array_equal(again.planes[0], frames[at].planes[0])


def decoded(path: Path) -> list[NDArray[np.uint8]]:
    """The pictures of a video as R, G, B, by FFmpeg's own conversion."""
    with av.open(str(path)) as source:
        return [frame.to_ndarray(format="rgb24") for frame in source.decode(video=0)]


def raw_video(
    path: Path, codec: str, pix_fmt: str, palette: NDArray[np.uint8] | None = None
) -> Path:
    """Two pictures that hold every 16-bit sample, or every colour of a palette (A, R, G, B)."""
    frames = [av.VideoFrame(256, 256, pix_fmt) for _ in range(2)]
    rows = np.arange(256 * 256, dtype=np.uint16).reshape(256, 256)
    for number, frame in enumerate(frames):
        if palette is not None:
            frames[number] = av.VideoFrame.from_ndarray(
                ((rows + number).astype(np.uint8), palette), "pal8"
            )
        else:
            frame.planes[0].update(
                rows.astype(">u2" if pix_fmt.endswith("be") else "<u2").tobytes()
            )
    return write_stream(path, frames, codec)


PALETTE = np.random.default_rng(0).integers(0, 256, (256, 4), np.uint8)


@pytest.mark.parametrize("pix_fmt", ["rgb555le", "rgb565le", "bgr565le", "rgb555be"])
def test_5_bit_colours_are_read_without_loss(tmp_path, pix_fmt):
    source = raw_video(tmp_path / "in.nut", "rawvideo", pix_fmt)
    assert run(source, "--encoder", "ffv1", "-q") == 0
    samples = np.arange(256 * 256).reshape(256, 256)
    low = {"r": 11 if "565" in pix_fmt else 10, "g": 5, "b": 0}
    if pix_fmt.startswith("bgr"):
        low |= {"r": 0, "b": 11}
    for picture in decoded(tmp_path / "in.denoised.mkv"):
        for channel, name in enumerate("rgb"):
            bits = 6 if name == "g" and "565" in pix_fmt else 5
            value = samples >> low[name] & (1 << bits) - 1
            assert (
                np.abs(picture[..., channel] - value * 255 / ((1 << bits) - 1)) < 1
            ).all()


@pytest.mark.parametrize("name", ["in.avi", "in.mov"])
def test_a_palette_is_read_as_its_colours(tmp_path, name):
    opaque = PALETTE.copy()
    opaque[:, 0] = 255
    source = raw_video(tmp_path / name, "rawvideo", "pal8", opaque)
    assert run(source, "--lossless", "-o", tmp_path / "out.mkv", "-q") == 0
    for found, wanted in zip(
        decoded(tmp_path / "out.mkv"), decoded(source), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_a_palette_with_transparent_colours_is_refused(tmp_path, capsys):
    assert run(raw_video(tmp_path / "in.nut", "rawvideo", "pal8", PALETTE)) == 1
    assert (
        "in.nut: a palette with transparent colours is not supported"
        in capsys.readouterr().err
    )


def test_a_mov_whose_format_has_no_encoder_there_becomes_mkv_unless_named(
    tmp_path, capsys
):
    source = tmp_path / "in.mov"
    write_video(source, 2, "qtrle", "argb")
    assert run(source, "-o", tmp_path / "out.mov") == 1
    assert "-o NAME.mkv works" in capsys.readouterr().err
    assert run(source) == 0
    assert ".mkv (.mov has no encoder for gbrap)" in capsys.readouterr().err
    assert len(frames_of(tmp_path / "in.denoised.mkv")) == 2


def test_png_in_mov_becomes_mkv(given):
    source = given("c15_png.mov")
    assert run(source, "-q") == 0
    assert len(frames_of(source.with_name("c15_png.denoised.mkv"))) == 13


def hidden_frames(path: Path) -> Path:
    """VP9 whose key frames are each decoded without being shown (bit 1 of the first byte), and shown 20 ms
    later by a packet of one byte.
    """
    plain = path.with_name("plain.webm")
    write_video(plain, 5, "libvpx-vp9", options={"g": "1"})

    def hidden_and_shown(packet: av.Packet) -> list[av.Packet]:
        data = bytes(packet)
        pair = [av.Packet(bytes([data[0] & ~2, *data[1:]])), av.Packet(b"\x88")]
        for late, part in enumerate(pair):
            part.time_base, part.is_keyframe = packet.time_base, not late
            part.pts = part.dts = packet.pts + 20 * late
        return pair

    return copy_packets(plain, path, hidden_and_shown)


def cut_message(path: Path) -> Path:
    """H.264 with a message (SEI, user data) that says to be longer than it is."""
    plain, unit = path.with_name("plain.mkv"), bytes([6, 5, 200]) + b"short\x80"
    write_video(plain, 5, "libx264", options={"preset": "ultrafast"})
    prefix = len(unit).to_bytes(4) + unit
    return copy_packets(
        plain, path, lambda packet: [with_bytes(packet, prefix + bytes(packet))]
    )


def dropped_frames(path: Path) -> Path:
    """AVI whose last packets are empty: the picture before them is shown on."""
    write_video(path, 12, "huffyuv", "yuv422p")
    data = path.read_bytes()
    start = data.index(b"movi")
    at, out, index = start + 4, bytearray(b"movi"), bytearray()
    for number in range(12):
        at = data.index(b"00dc", at)
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        body = b"" if number in (4, 9, 10, 11) else data[at + 8 : at + 8 + size]
        index += b"00dc" + struct.pack("<III", 16, len(out), len(body))
        out += b"00dc" + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)
        at += 8 + size
    made = bytearray(data[: start - 8] + b"LIST" + struct.pack("<I", len(out)) + out)
    made += b"idx1" + struct.pack("<I", len(index)) + index
    made[4:8] = struct.pack("<I", len(made) - 8)
    path.write_bytes(made)
    return path


@pytest.mark.parametrize(
    "made, name, frames",
    [
        (hidden_frames, "in.nut", 5),
        (cut_message, "in.mkv", 5),
        (dropped_frames, "in.avi", 8),
    ],
)
def test_errors_that_change_no_picture_are_not_damage(
    tmp_path, capsys, made, name, frames
):
    assert run(made(tmp_path / name), "-o", tmp_path / "out.mkv") == 0
    assert "warning" not in capsys.readouterr().err
    assert len(frames_of(tmp_path / "out.mkv")) == frames
