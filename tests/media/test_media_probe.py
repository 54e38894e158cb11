"""`probe` describes a video file, and reads nothing but that file."""

import errno
import os
import struct
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from sample_videos import (
    copy_packets,
    sample_planes,
    video_frame,
    with_bytes,
    write_video,
)
from written_videos import mpeg_crc

from vidrestore.errors import MediaError, PlanError
from vidrestore.media.formats import damage
from vidrestore.media.formats.pixel_formats import layout_of, planes_of
from vidrestore.media.formats.source import Target
from vidrestore.media.reading.probe import open_input, probe
from vidrestore.media.writing.streams import check_streams, other_kinds
from vidrestore.pixels.frames import ColourTags


def test_a_plain_file_is_described_completely(tmp_path):
    path = tmp_path / "plain.mkv"
    write_video(path, 12, "libx264", sound=Fraction(1, 2))
    info = probe(str(path))
    assert (info.path, info.container, info.size) == (
        str(path),
        "matroska,webm",
        path.stat().st_size,
    )
    assert [(stream.kind, stream.codec) for stream in info.streams] == [
        ("video", "h264"),
        ("audio", "aac"),
    ]
    video = info.video
    assert (video.codec, video.width, video.height) == ("h264", 64, 48)
    assert (video.pix_fmt, video.format.name, video.time_base) == (
        "yuv420p",
        "yuv420p",
        Fraction(1, 1000),
    )
    assert (video.rate, video.rotation, video.interlaced) == (25, 0, False)
    assert (video.start, video.duration, video.end) == (0, 480, 480)
    assert video.sample_aspect_ratio is None


DXA = b"DEXA\0\0\5\0\0\0\x64\0\x40\0\x30"  # 5 frames of 64x48, 10 a second
PVA = (b"AV\1\0\x55\0\0\x64" + bytes(100)) * 20


@pytest.mark.parametrize("kind", ["dxa", "pva", "film_cpk"])
def test_a_format_that_is_not_listed_is_refused_with_the_way_out(tmp_path, kind):
    path = tmp_path / f"old.{kind}"
    if kind == "film_cpk":
        write_video(path, 3, "cinepak", pix_fmt="rgb24", format=kind)
    else:
        path.write_bytes(DXA + bytes(100) if kind == "dxa" else PVA)
    with av.open(str(path)) as opened:
        assert opened.format.name == kind, "FFmpeg knows it"
    with pytest.raises(
        MediaError,
        match=r"others may become one: ffmpeg -i IN -c:v ffv1 -c:a copy OUT\.mkv",
    ):
        probe(str(path))


@pytest.mark.parametrize(
    "content, words",
    [
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
            "a pointer of Git LFS.*git lfs pull",
        ),
        (
            "\ufeff\n<!DOCTYPE HTML>\n<html><title>404</title></html>",
            "a page of the web",
        ),
        ("<html><body>Sign in</body></html>", "a page of the web"),
        ("PK\x03\x04" + "a" * 60, "a ZIP archive; unpack it"),
    ],
)
def test_a_file_that_only_has_the_name_of_a_video_is_named_by_its_first_bytes(
    tmp_path, content, words
):
    (tmp_path / "film.mp4").write_text(content, encoding="utf-8")
    with pytest.raises(
        MediaError, match=f"film.mp4: not a video file that can be read, but {words}"
    ):
        probe(str(tmp_path / "film.mp4"))


@pytest.mark.parametrize("word", ["W-4", "W2147483647"])
def test_a_header_of_y4m_that_ffmpeg_misunderstands_is_named_of_files_too(
    tmp_path, word
):
    (tmp_path / "a.y4m").write_bytes(
        f"YUV4MPEG2 {word} H48 F25:1 C420\nFRAME\n".encode() + bytes(9000)
    )
    with pytest.raises(
        MediaError, match=f"a.y4m: the y4m header has {word}, which can't be read"
    ):
        probe(str(tmp_path / "a.y4m"))


HLS = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n"


@pytest.mark.parametrize("playlist", ["ffconcat version 1.0\nfile '{}'\n", HLS])
@pytest.mark.parametrize("name", ["list.mp4", "list.txt", "list.m3u8"])
def test_a_playlist_can_not_reach_another_file(tmp_path, playlist, name):
    secret = tmp_path / "secret.ts"
    write_video(secret, 2, "mpeg2video")
    path = tmp_path / name
    path.write_text(playlist.format(secret.name))
    with pytest.raises(MediaError, match="not a video file"):
        probe(str(path))


@pytest.mark.parametrize(
    "url",
    [
        "concat:{0}|{0}",
        "subfile,,start,0,end,100,,:{0}",
        "http://127.0.0.1:9/x.mp4",
        "data:video/mp4;,A",
    ],
)
def test_other_protocols_are_file_names_that_do_not_exist(tmp_path, url):
    path = tmp_path / "plain.mkv"
    write_video(path, 2)
    with pytest.raises(MediaError, match="no such file"):
        probe(url.format(path))


@pytest.mark.parametrize(
    "name",
    ["monow", "bayer_rggb8", "cuda", "xyz12le", "rgb8", "x2rgb10le", "rgbaf16le"],
)
def test_an_unsupported_pixel_format_is_refused_with_advice(name):
    with pytest.raises(MediaError, match=f"{name} is not supported; convert first"):
        layout_of(name)


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv"])
@pytest.mark.parametrize(
    "degrees, hflip", [(90, False), (180, False), (-90, False), (90, True)]
)
def test_rotation_and_mirroring_are_read(tmp_path, suffix, degrees, hflip):
    path = tmp_path / f"turned.{suffix}"
    write_video(
        path, 2, "libx264", settings={"display": {"degrees": degrees, "hflip": hflip}}
    )
    video = probe(str(path)).video
    a, b, _, c, d, *_ = video.display_matrix
    assert (a * d - b * c < 0) == hflip  # a mirror turns the sign of the determinant
    if not hflip:
        assert (video.rotation - degrees) % 360 == 0


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_colour_and_shape_are_read(tmp_path, suffix):
    path = tmp_path / f"tagged.{suffix}"
    settings = {
        "sample_aspect_ratio": Fraction(16, 11),
        "colorspace": 5,
        "color_primaries": 5,
    }
    settings |= {"color_trc": 1, "color_range": 1}
    options, tags = {"x264-params": "chromaloc=2"}, {"colorspace": 5, "color_range": 1}
    write_video(
        path, 2, "libx264", settings=settings, options=options, frame_settings=tags
    )
    video = probe(str(path)).video
    assert video.sample_aspect_ratio == Fraction(16, 11)
    # x264 counts locations from 0
    assert video.colour == ColourTags(
        matrix=5, primaries=5, transfer=1, range=1, chroma_location=3
    )


def test_full_range_of_an_old_style_format_becomes_a_tag(tmp_path):
    path = tmp_path / "full.avi"
    write_video(path, 2, "mjpeg", "yuvj420p")
    video = probe(str(path)).video
    assert (video.pix_fmt, video.format.name, video.colour.range) == (
        "yuvj420p",
        "yuv420p",
        2,
    )


def test_side_data_that_pyav_cannot_name_does_not_hide_other_data(tmp_path):
    path = tmp_path / "camera.mov"
    # a TIFF that says: turned by 90 degrees
    order = b"II*\0" + struct.pack("<IHHHIII", 8, 1, 0x0112, 3, 1, 6, 0)
    exif = b"\xff\xe1" + struct.pack(">H", len(order) + 8) + b"Exif\0\0" + order
    write_video(tmp_path / "plain.mov", 1, "mjpeg", "yuvj420p")

    def tagged(packet: av.Packet) -> list[av.Packet]:
        """Where cameras put it: behind the first marker."""
        return [with_bytes(packet, bytes(packet)[:2] + exif + bytes(packet)[2:])]

    copy_packets(tmp_path / "plain.mov", path, tagged)
    with av.open(str(path)) as source, pytest.raises(ValueError):
        _ = next(source.decode(video=0)).side_data  # else this tests nothing
    video = probe(str(path)).video
    assert "DISPLAYMATRIX" in video.side_data and video.display_matrix is not None
    assert video.rotation % 180 == 90


def test_a_stream_of_a_type_that_ffmpeg_does_not_know_is_data(tmp_path):
    path = tmp_path / "video.ts"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mpeg2video", rate=25, width=64, height=48)
        sound = output.add_stream("mp2", rate=48000)
        for number in range(5):
            output.mux(
                stream.encode(
                    video_frame("yuv420p", sample_planes("yuv420p", number), number)
                )
            )
        output.mux(stream.encode(None))
        assert sound.index == 1
    path.write_bytes(with_stream_type(path.read_bytes(), 0x03, 0xC8))
    info = probe(str(path))
    assert [stream.kind for stream in info.streams] == ["video", "data"]
    assert other_kinds(info) == ["data"]
    assert check_streams(info, Target(str(tmp_path / "out.mkv"))) == ()
    with pytest.raises(PlanError, match="`drop=1`"):
        check_streams(info, Target(str(tmp_path / "out.mkv")), strict=True)


def with_stream_type(data: bytes, old: int, new: int) -> bytes:
    """An MPEG-TS whose program maps (PID 0x1000) list another type for the streams of type `old`."""
    packets = [bytearray(data[at : at + 188]) for at in range(0, len(data), 188)]
    for packet in packets:
        if packet[1] & 0x1F == 0x10 and packet[2] == 0x00:
            section = 5 + packet[4]
            length = (packet[section + 1] & 0x0F) << 8 | packet[section + 2]
            end = section + 3 + length - 4
            at = (
                section
                + 12
                + ((packet[section + 10] & 0x0F) << 8 | packet[section + 11])
            )
            while at < end:
                packet[at] = new if packet[at] == old else packet[at]
                at += 5 + ((packet[at + 3] & 0x0F) << 8 | packet[at + 4])
            packet[end : end + 4] = mpeg_crc(bytes(packet[section:end]))
    return b"".join(packets)


def test_hdr_metadata_is_read(tmp_path):
    path = tmp_path / "hdr.mkv"
    display = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)"
    params = f"log-level=none:master-display={display}:max-cll=1000,400:colormatrix=bt2020nc:chromaloc=2"
    params += ":colorprim=bt2020:transfer=smpte2084"
    write_video(
        path,
        3,
        "libx265",
        "yuv420p10le",
        options={"x265-params": params, "preset": "ultrafast"},
    )
    video = probe(str(path)).video
    assert (video.colour.matrix, video.colour.primaries, video.colour.transfer) == (
        9,
        9,
        16,
    )
    assert video.content_light == (1000, 400)
    expected = [0.68, 0.32, 0.265, 0.69, 0.15, 0.06, 0.3127, 0.329, 0.0001, 1000]
    assert [float(value) for value in video.mastering_display] == expected


PLANAR = {
    "yuv420p": ["nv12", "nv21"], "yuv422p": ["nv16", "yuyv422", "uyvy422", "yvyu422"],
    "yuv444p": ["nv24", "nv42", "vuyx"], "yuv420p10le": ["p010le", "p010be", "yuv420p10be"],
    "yuv422p10le": ["p210le", "y210le"], "yuv444p12le": ["yuv444p12be"],
    "yuva444p": ["vuya"], "yuv420p16le": ["p016le"],
    "gbrp": ["rgb24", "bgr24", "rgb0", "0bgr"], "gbrap": ["rgba", "bgra", "argb", "abgr"],
    "gbrp16le": ["rgb48le", "bgr48be", "gbrp16be"], "gbrap16le": ["rgba64le", "bgra64be"],
    "gray16le": ["gray16be"], "gray10le": ["gray10be"], "gbrpf32le": ["gbrpf32be"],
}  # fmt: skip


@pytest.mark.parametrize(
    "planar, stored", [(name, each) for name in PLANAR for each in PLANAR[name]]
)
@pytest.mark.parametrize("size", [(64, 48), (38, 26), (30, 6)])
def test_packed_and_swapped_samples_come_out_planar(planar, stored, size):
    planes = sample_planes(planar, 1, *size)
    # FFmpeg's scaler only moves the samples here. Of several threads one may overwrite samples of the next.
    packed = video_frame(planar, planes).reformat(format=stored, threads=1)
    assert layout_of(stored).format.name == planar
    result = planes_of(packed)
    # FFmpeg keeps them as G, B, R
    wanted = (
        (planes[2], planes[0], planes[1], *planes[3:])
        if planar.startswith("gbr")
        else planes
    )
    for plane, expected in zip(result, wanted, strict=True):
        assert plane.dtype == expected.dtype and plane.flags.owndata
        np.testing.assert_array_equal(plane, expected)


@pytest.mark.parametrize("count, fine", [(500, True), (5000, False)])
def test_a_flood_of_tags_is_refused(tmp_path, count, fine):
    """FFmpeg compares each with all others, at every opening and writing: 20,000 took 20 s."""
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "ffv1", rate=25, width=16, height=16, pix_fmt="yuv420p"
        )
        container.metadata.update({f"TAG{number}": "x" for number in range(count)})
        container.mux(
            [*stream.encode(av.VideoFrame(16, 16, "yuv420p")), *stream.encode(None)]
        )
    refused = pytest.raises(MediaError, match="other tags, more than the 4096 that are")
    with nullcontext() if fine else refused:
        assert len(probe(str(path)).metadata) > count


def test_a_heif_picture_named_like_a_video_is_refused(tmp_path):
    path = tmp_path / "tiles.mp4"
    write_video(path, 1, "libx264")
    path.write_bytes(path.read_bytes().replace(b"ftypisom", b"ftypheic"))
    with pytest.raises(
        MediaError, match="tiles.mp4: a still picture .HEIF.*; convert it to PNG first"
    ):
        probe(str(path))


def test_transparency_beside_the_frames_is_named(tmp_path):
    path, copied = tmp_path / "transparent.webm", tmp_path / "copied.mkv"
    write_video(path, 3, "libvpx-vp9", "yuva420p", options={"cpu-used": "8"})
    assert "ALPHA_LAYER" in probe(str(path)).video.side_data
    with av.open(str(path)) as source, av.open(str(copied), "w") as output:
        stream = output.add_stream_from_template(source.streams[0])
        # as `ffmpeg -c copy` does
        stream.metadata.update({"ALPHA_MODE": stream.metadata.pop("alpha_mode", "1")})
        for packet in source.demux():
            if packet.size:
                packet.stream = stream
                output.mux(packet)
    assert "ALPHA_LAYER" in probe(str(copied)).video.side_data


def test_pan_and_scan_without_effect_is_left_out(tmp_path):
    write_video(tmp_path / "plain.mpg", 3, "mpeg2video")
    assert "PANSCAN" not in probe(str(tmp_path / "plain.mpg")).video.side_data


def with_reference(data: bytes, path: Path) -> bytes:
    """A QuickTime file whose samples are said to lie in another file, as an alias record has it."""
    place = os.fsencode(path)
    place += b"\0" * (len(place) % 2)
    alias = (
        bytes(10)
        + b"\x01v".ljust(28, b"\0")
        + bytes(12)
        + b"\x01f".ljust(64, b"\0")
        + bytes(16)
    )
    alias += (
        struct.pack(">HH", 1, 1) + bytes(16) + struct.pack(">HH", 2, len(place)) + place
    )
    alias += struct.pack(">HH", 0xFFFF, 0)
    entry = struct.pack(">I4sI", 12 + len(alias), b"alis", 0) + alias
    own = struct.pack(">I4sI", 12, b"url ", 1)
    at = data.index(b"dref")
    assert (
        data.index(own, at) - at < 16
        and data.count(own) == 1
        and data.index(b"mdat") < at
    )
    changed = bytearray(data.replace(own, entry))
    for name in (b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"):
        start = data.index(name, data.index(b"moov")) - 4
        (size,) = struct.unpack_from(">I", data, start)
        struct.pack_into(">I", changed, start, size + len(entry) - len(own))
    return bytes(changed)


def pictures(container: av.container.InputContainer) -> list[bytes]:
    return [frame.to_ndarray().tobytes() for frame in container.decode(video=0)]


def test_a_quicktime_file_can_not_reach_another_file(tmp_path):
    own, other = tmp_path / "own.mov", tmp_path / "other.mov"
    write_video(own, 2, "mjpeg", pix_fmt="yuvj420p")
    data = bytearray(own.read_bytes())
    data[data.index(b"mdat") + 1500] ^= 0x10  # within the first picture
    other.write_bytes(data)
    with open_input(str(own)) as container:
        expected = pictures(container)
    path = tmp_path / "leads.mov"
    path.write_bytes(with_reference(own.read_bytes(), other))
    reaching = {"enable_drefs": "1", "use_absolute_path": "1"}
    with av.open(str(path), container_options=reaching) as container:
        reached = container.decode(video=0)
        # the reference works where it is followed
        assert next(reached).to_ndarray().tobytes() != expected[0]
    with pytest.raises(MediaError, match="0 frames that can be decoded"):
        probe(str(path))


@pytest.mark.parametrize(
    ("short", "raised"),
    [
        (False, pytest.raises(MediaError, match="missing or damaged")),
        (True, pytest.raises(MemoryError)),
    ],
)
def test_damage_that_asks_for_any_memory_is_damage_unless_memory_is_short(
    tmp_path, monkeypatch, short, raised
):
    def refuse(*arguments: object, **options: object) -> None:
        raise av.error.MemoryError(errno.ENOMEM, "Cannot allocate memory")

    path = tmp_path / "a.mp4"
    path.write_bytes(b"anything")
    monkeypatch.setattr(av, "open", refuse)
    if short:
        monkeypatch.setattr(damage, "ROOM", 1 << 60)
    with raised:
        probe(str(path))


def test_a_recording_that_was_not_finished_and_sound_alone_are_called_so(tmp_path):
    write_video(tmp_path / "whole.mp4", 30, "libx264")
    (tmp_path / "cut.mp4").write_bytes((tmp_path / "whole.mp4").read_bytes()[:-2000])
    with pytest.raises(
        MediaError,
        match="its index .moov. is missing, so the recording was not finished",
    ):
        probe(str(tmp_path / "cut.mp4"))
    (tmp_path / "song.mp3").write_bytes(b"ID3" + bytes(500))
    with pytest.raises(
        MediaError, match="not a video file that can be read, but of sound only"
    ):
        probe(str(tmp_path / "song.mp3"))


def test_an_index_with_flipped_bits_gives_no_negative_size_of_frames(tmp_path):
    path = tmp_path / "video.mp4"
    write_video(path, frames=40)
    data = bytearray(path.read_bytes())
    # behind the name: version and flags, one size for all (none), the count, then the sizes
    sizes = data.index(b"stsz") + 4 + 12
    data[sizes + 4 * 30] ^= 0x20
    path.write_bytes(data)
    bits = probe(str(path)).video.frame_bits
    assert bits is None or bits > 0
