"""Streams beside the video that the container of the output can't hold, through the command."""

import struct
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from denoise_command import identity, run  # noqa: F401
from numpy.typing import NDArray
from sample_videos import sample_planes, video_frame, write_video
from written_videos import extras, mpeg_crc, packets, rich_video

from vidrestore.media.reading.probe import probe
from vidrestore.media.writing.sound import EncodedSound

RATE = 22050
VIDEO = {".avi": "mpeg4", ".wmv": "wmv2", ".m2ts": "mpeg2video"}


def with_sound(
    path: Path, codec: str, layout: str = "mono", rate: int = RATE, hole: int = 0
) -> Path:
    """A second of video with a second of tones, after half of which `hole` samples are missing."""
    with av.open(
        str(path), "w", format={".m2ts": "mpegts", ".wmv": "asf"}.get(path.suffix)
    ) as output:
        video: Any = output.add_stream(
            VIDEO.get(path.suffix, "libx264"), rate=25, width=64, height=48
        )
        video.pix_fmt = "yuv420p"
        sound: Any = output.add_stream(codec, rate=rate)
        sound.layout, sound.bit_rate = layout, 128_000
        if rate == 96000:
            sound.format = "s32"
        sound.time_base = Fraction(1, rate)
        for number in range(25):
            output.mux(
                video.encode(
                    video_frame("yuv420p", sample_planes("yuv420p", number), number)
                )
            )
            output.mux(
                sound.encode(tones(layout, rate, number, hole if number >= 12 else 0))
            )
        output.mux(
            [
                *video.encode(None),
                *(packet for packet in sound.encode(None) if packet.size),
            ]
        )
    return path


def tones(layout: str, rate: int, number: int, late: int = 0) -> av.AudioFrame:
    count = av.AudioLayout(layout).nb_channels
    at = np.arange(rate // 25) + number * (rate // 25)
    waves = [np.sin(at * (channel + 2) / 40) * 12000 for channel in range(count)]
    deep = rate == 96000
    scaled = np.stack(waves, axis=1).reshape(1, -1) * (65536 if deep else 1)
    samples = scaled.astype(np.int32) >> 8 << 8 if deep else scaled.astype(np.int16)
    frame = av.AudioFrame.from_ndarray(samples, "s32" if deep else "s16", layout)
    frame.sample_rate, frame.pts, frame.time_base = (
        rate,
        int(at[0]) + late,
        Fraction(1, rate),
    )
    return frame


def decoded(path: Path) -> tuple[float, NDArray[np.int64]]:
    """The time of the first sample in seconds, and all samples on the scale of 24 bits."""
    first, parts = None, []
    with av.open(str(path)) as opened:
        for frame in opened.decode(audio=0):
            values = frame.to_ndarray()
            if values.dtype.kind == "f":
                values = np.clip(np.rint(values * (1 << 23)), -1 << 23, (1 << 23) - 1)
            else:
                whole = values.astype(np.int64)
                values = whole >> 8 if values.itemsize == 4 else whole << 8
            if not frame.format.is_planar:
                values = values.reshape(-1, frame.layout.nb_channels).T
            parts.append(values.astype(np.int64))
            first = (
                first
                if first is not None
                else float((frame.pts or 0) * (frame.time_base or 0))
            )
    return first, np.concatenate(parts, axis=1)


def sounds(path: Path) -> list[str]:
    with av.open(str(path)) as opened:
        return [stream.codec_context.name for stream in opened.streams.audio]


@pytest.mark.parametrize(
    "name, codec, layout, rate",
    [
        ("in.avi", "adpcm_ms", "mono", RATE),
        ("in.avi", "adpcm_ima_wav", "stereo", RATE),
        ("in.avi", "pcm_mulaw", "mono", RATE),
        ("in.wmv", "wmav2", "stereo", 44100),
        ("in.m2ts", "pcm_bluray", "stereo", 48000),
        ("in.m2ts", "pcm_bluray", "mono", 96000),
    ],
)
def test_sound_that_mkv_cannot_hold_is_encoded_as_flac_sample_for_sample_with_a_note(
    name, codec, layout, rate, tmp_path, capsys
):
    source = with_sound(tmp_path / name, codec, layout, rate)
    assert run(source) == 0
    assert (
        f"stream 1, {codec}: encoded again as FLAC, which .mkv can hold"
        in capsys.readouterr().err
    )
    output = tmp_path / "in.denoised.mkv"
    assert sounds(output) == ["flac"]
    (before, wanted), (after, found) = decoded(source), decoded(output)
    assert abs(before - after) <= 0.001
    exact = 256 if codec == "wmav2" else 0  # decoded to floats
    assert found.shape == wanted.shape and np.abs(found - wanted).max() <= exact


@pytest.mark.parametrize(
    "codec, target, expected",
    [
        ("wmav2", "mp4", "aac"),
        # AVI gives its channels no places, which MP4 asks for
        ("pcm_s16le", "mp4", "alac"),
        ("flac", "mov", "alac"),
        ("wmav2", "webm", "opus"),
        ("ac3", "webm", "opus"),
    ],
)
def test_other_containers_get_the_sound_that_players_expect_there(
    codec, target, expected, tmp_path
):
    rate = 48000 if codec == "ac3" else 44100
    name = {"wmav2": "in.wmv", "pcm_s16le": "in.avi"}.get(codec, "in.mkv")
    source, output = (
        with_sound(tmp_path / name, codec, "stereo", rate),
        tmp_path / f"out.{target}",
    )
    assert run(source, "-o", output, "-q") == 0
    assert sounds(output) == [expected]
    (before, wanted), (after, found) = decoded(source), decoded(output)
    with av.open(str(source)) as one, av.open(str(output)) as other:
        rates = [
            opened.streams.audio[0].codec_context.sample_rate for opened in (one, other)
        ]
    lengths = [before + wanted.shape[1] / rates[0], after + found.shape[1] / rates[1]]
    assert abs(lengths[0] - lengths[1]) < 0.05  # an encoder fills its last frame


def test_strict_refuses_to_encode_sound_again(tmp_path, capsys):
    source = with_sound(tmp_path / "in.avi", "adpcm_ms")
    assert run(source, "--strict") == 1
    expected = ".mkv can't hold stream 1 (audio: adpcm_ms); leave out --strict, or use --drop 1"
    assert expected in capsys.readouterr().err
    assert run(source, "--strict", "--drop", "1") == 0


def test_encoded_sound_is_cut_with_the_video(tmp_path):
    source, output = with_sound(tmp_path / "in.avi", "pcm_mulaw"), tmp_path / "out.mkv"
    assert run(source, "-o", output, "--start", "0.4", "--duration", "0.4", "-q") == 0
    (_, whole), (late, found) = decoded(source), decoded(output)
    first = round((0.4 + late) * RATE)
    errors = [
        np.abs(whole[:, at : at + found.shape[1]] - found).max()
        for at in range(first - 30, first + 30)
    ]
    assert min(errors) == 0 and abs(found.shape[1] / RATE - 0.4) < 0.05


def test_where_sound_is_missing_encoded_sound_is_silent_for_as_long(tmp_path):
    source = with_sound(tmp_path / "in.mkv", "pcm_s16le", hole=RATE // 2)
    output = tmp_path / "out.webm"
    assert run(source, "-o", output, "-q") == 0
    _, found = decoded(output)
    assert abs(found.shape[1] / 48000 - 1.5) < 0.05
    assert (
        np.abs(found[:, 28000:42000]).max()
        < 80000
        < np.abs(found[:, 52000:60000]).max()
    )


def test_encoded_sound_whose_times_go_back_is_refused(tmp_path):
    """Muxers refuse to write such a file."""
    source = with_sound(tmp_path / "in.mkv", "pcm_s16le")
    with (
        av.open(str(source)) as opened,
        av.open(str(tmp_path / "out.webm"), "w") as output,
    ):
        sound = EncodedSound(output, opened.streams.audio[0], "libopus")
        early, late = (
            packet
            for packet in islice(opened.demux(audio=0), 21)
            if packet.pts in (0, 800)
        )
        assert len(list(sound.packets(late))) <= 1
        with pytest.raises(ValueError, match="its times go back there"):
            list(sound.packets(early))


def test_streams_are_dropped_by_number_beside_kinds(tmp_path, capsys):
    rich_video(
        tmp_path / "in.mkv", extras(audio=("aac", "flac"), subtitles=("subrip",))
    )
    output = tmp_path / "out.mkv"
    assert run(tmp_path / "in.mkv", "-o", output, "--drop", "1,subtitles") == 0
    assert sounds(output) == ["flac"] and len(packets(output)) == 2
    capsys.readouterr()
    assert run(tmp_path / "in.mkv", "-o", output, "-y", "--drop", "0,7") == 1
    expected = '--drop 0,7: no other stream has that number; it has stream 1 (audio: aac ita "Sound 0"), '
    assert expected in capsys.readouterr().err
    assert run(tmp_path / "in.mkv", "-o", output, "--drop", "sound") == 2


def with_data(path: Path, codec: str, tag: bytes | None = None) -> Path:
    """A video with a track of data; `tag` is its kind in MP4 and MOV."""
    write_video(
        path.with_name("video.mkv"),
        5,
        "mpeg2video" if path.suffix == ".ts" else "libx264",
    )
    with (
        av.open(str(path.with_name("video.mkv"))) as source,
        av.open(str(path), "w") as output,
    ):
        video = output.add_stream_from_template(source.streams.video[0])
        data = output.add_data_stream(codec)
        data.time_base = Fraction(1, 1000)
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = video
                output.mux(packet)
        for number in range(3):
            packet = av.Packet(b"\0\0\0\x0fvalues of a day")
            packet.stream, packet.time_base, packet.duration = (
                data,
                Fraction(1, 1000),
                40,
            )
            packet.pts = packet.dts = 40 * number
            output.mux(packet)
    if tag:
        content = path.read_bytes()
        assert b"gpmd" in content
        path.write_bytes(content.replace(b"gpmd", tag))
    path.with_name("video.mkv").unlink()
    return path


@pytest.mark.parametrize(
    "name, codec, tag, said",
    [
        ("in.ts", "smpte_2038", None, "1 (data: smpte_2038, ancillary data)"),
        (
            "in.mp4",
            "bin_data",
            b"mett",
            "1 (data: unknown (mett), timed metadata, which .mov can hold)",
        ),
        ("in.mp4", "bin_data", b"fdsc", "1 (data: unknown (fdsc), notes of a GoPro)"),
    ],
)
def test_data_for_machines_that_the_container_cannot_hold_is_left_out_with_a_warning(
    name, codec, tag, said, tmp_path, capsys
):
    source = with_data(tmp_path / name, codec, tag)
    assert run(source, "-o", tmp_path / "out.mkv") == 0
    assert (
        f"warning: .mkv can't hold stream {said}: left out" in capsys.readouterr().err
    )
    assert run(source, "-o", tmp_path / "strict.mkv", "--strict") == 1
    assert run(source, "-o", tmp_path / "strict.mkv", "--strict", "--drop", "data") == 0


def with_programme_guide(path: Path) -> Path:
    """An MPEG-TS with a table of events (EIT) behind the first tables."""
    write_video(path, 5, "mpeg2video")
    content = b"\0\x01\xc1\0\0\0\x01\0\x01\0\x4e" + bytes(12)
    section = b"\x4e" + struct.pack(">H", 0xF000 | len(content) + 4) + content
    section += mpeg_crc(section)
    data, packet = path.read_bytes(), b"\x47\x40\x12\x10\0" + section
    path.write_bytes(data[: 4 * 188] + packet.ljust(188, b"\xff") + data[4 * 188 :])
    return path


def test_the_programme_guide_of_a_recorded_station_is_left_out_with_a_warning(
    tmp_path, capsys
):
    source = with_programme_guide(tmp_path / "in.ts")
    assert run(source, "-o", tmp_path / "out.mkv") == 0
    said = "can't hold stream 1 (data: epg, a programme guide): left out"
    assert said in capsys.readouterr().err


def with_sipr(path: Path, packets: int = 40) -> Path:
    """An AVI whose sound is said to be that of RealMedia, SIPR of 20 bytes for 10 ms; any bytes are noise."""
    noise = np.random.default_rng(1)
    with av.open(str(path), "w") as output:
        video = output.add_stream("mpeg4", rate=25, width=64, height=48)
        sound = output.add_stream("pcm_u8", rate=8000, layout="mono")
        output.start_encoding()
        for number in range(packets // 4):
            output.mux(
                video.encode(
                    video_frame("yuv420p", sample_planes("yuv420p", number), number)
                )
            )
        for number in range(packets):
            packet = av.Packet(noise.integers(0, 255, 20, np.uint8).tobytes())
            packet.stream, packet.time_base, packet.pts = (
                sound,
                Fraction(1, 400),
                number,
            )
            output.mux(packet)
        output.mux(video.encode(None))
    data = bytearray(path.read_bytes())
    header = data.index(b"auds")
    struct.pack_into("<II", data, header + 20, 1, 100)  # packets a second
    struct.pack_into(
        "<HHIIHH", data, data.index(b"strf", header) + 8, 0x130, 1, 16000, 2000, 20, 0
    )
    path.write_bytes(data)
    return path


def test_sound_of_realmedia_that_matroska_has_no_writer_for_is_encoded_again(
    tmp_path, capsys
):
    source = with_sipr(tmp_path / "in.avi")
    assert probe(str(source)).streams[1].codec == "sipr"
    assert run(source, "-o", tmp_path / "out.mkv") == 0
    assert "stream 1, sipr: encoded again as FLAC" in capsys.readouterr().err
    with av.open(str(tmp_path / "out.mkv")) as opened:
        assert sum(frame.samples for frame in opened.decode(audio=0)) == 40 * 160


def test_sound_of_an_unknown_codec_is_left_out_beside_other_sound_and_refused_alone(
    tmp_path, capsys
):
    source = tmp_path / "in.mov"
    rich_video(source, extras(audio=("aac", "pcm_s16le")))
    content = source.read_bytes()
    at = content.rindex(b"sowt")
    source.write_bytes(content[:at] + b"xpac" + content[at + 4 :])
    assert run(source, "-o", tmp_path / "out.mkv") == 0
    assert (
        "warning: .mkv can't hold stream 2 (audio: unknown (xpac)"
        in capsys.readouterr().err
    )
    assert sounds(tmp_path / "out.mkv") == ["aac"]
    assert run(source, "-o", tmp_path / "alone.mkv", "--drop", "1") == 1
    assert "can't hold stream 2 (audio: unknown (xpac)" in capsys.readouterr().err


def test_webvtt_as_mkvmerge_names_it_is_copied(tmp_path, capsys):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    rich_video(source, extras(subtitles=("hdmv_text_subtitle",)))
    content = source.read_bytes()
    assert content.count(b"S_HDMV/TEXTST") == 1
    source.write_bytes(content.replace(b"S_HDMV/TEXTST", b"S_TEXT/WEBVTT"))
    assert run(source, "-o", output) == 0
    with av.open(str(output)) as opened:
        text = opened.streams.subtitles[0]
        assert (text.codec_context.name, text.language) == ("webvtt", "fra")
        found = [
            (packet.pts, packet.duration, bytes(packet))
            for packet in opened.demux(text)
            if packet.size
        ]
    assert found == [(50, 100, b"hello"), (300, 100, b"hello")]
    assert run(source, "-o", tmp_path / "out.mp4") == 1
    assert ".mp4 can't hold stream 2 (subtitle: webvtt fra" in capsys.readouterr().err


def test_sound_that_cannot_be_decoded_is_silent_and_reported_as_damage(
    tmp_path, capsys
):
    source, output = with_sound(tmp_path / "in.mkv", "flac"), tmp_path / "out.webm"
    with av.open(str(source)) as opened:
        damaged = [bytes(packet) for packet in opened.demux(audio=0) if packet.size][2]
    content = source.read_bytes()
    assert content.count(damaged) == 1
    source.write_bytes(content.replace(damaged, bytes(len(damaged))))
    assert run(source, "-o", output) == 4
    assert (
        "1 packet of stream 1 can't be decoded, and is silent"
        in capsys.readouterr().err
    )
    assert abs(decoded(output)[1].shape[1] / 48000 - 1) < 0.05
