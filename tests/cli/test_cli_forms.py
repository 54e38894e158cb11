"""Odd forms of containers, sound and pictures through the command with a model that changes nothing: those
that others can't read, or that FFmpeg reads wrong.
"""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from denoise_command import identity, run  # noqa: F401  (a fixture of all tests here)
from sample_videos import sample_planes, sound_packets, video_frame, write_video
from written_videos import frames_of

from vidrestore.errors import MediaError
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.muxer import read_times


def with_sound(path: Path, codec: str, rates: tuple[int, ...] = (48000,)) -> Path:
    """Write twelve pictures, and a quarter of a second of silence at each sample rate in one stream."""
    with av.open(str(path), "w") as output:
        video: Any = output.add_stream(
            "libx264", rate=25, options={"preset": "ultrafast"}
        )
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        audio: Any = output.add_stream(codec, rate=rates[0], layout="mono")
        packets: list[Any] = []
        for number in range(12):
            packets += video.encode(
                video_frame("yuv420p", sample_planes("yuv420p", number), number)
            )
        packets += video.encode(None)
        for part, rate in enumerate(rates):
            encoder: Any = audio.codec_context
            if part:
                encoder = av.CodecContext.create(codec, "w")
                encoder.sample_rate, encoder.layout, encoder.format = (
                    rate,
                    "mono",
                    audio.codec_context.format,
                )
            sound = sound_packets(encoder, rate // 4, part * rate // 4, 1152)
            for packet in sound:
                packet.stream = audio
            packets += sound
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            output.mux(packet)
    return path


def header_again(path: Path, changed: bool = False) -> Path:
    """Write FLV that has the header of its AAC once more in the middle, as after a reconnection."""
    data, at, tags = with_sound(path, "aac").read_bytes(), 13, list[bytes]()
    while at < len(data):
        stop = at + 15 + int.from_bytes(data[at + 1 : at + 4], "big")
        tags.append(data[at:stop])
        at = stop
    sounds = [number for number, tag in enumerate(tags) if tag[0] == 8]
    header, place = tags[sounds[0]], sounds[len(sounds) // 2]
    # mono becomes stereo: bits 9 to 12 of the header behind two bytes of FLV's
    if changed:
        header = header[:14] + bytes([header[14] ^ 0b0001_1000]) + header[15:]
    again = header[:4] + tags[place][4:8] + header[8:]  # at the time of the next packet
    path.write_bytes(data[:13] + b"".join([*tags[:place], again, *tags[place:]]))
    return path


def copied(source: Path, output: Path) -> Path:
    """Copy all packets as `ffmpeg -c copy` does."""
    with av.open(str(source)) as opened, av.open(str(output), "w") as made:
        streams = [made.add_stream_from_template(stream) for stream in opened.streams]
        for packet in opened.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                made.mux(packet)
    return output


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4"])
def test_a_header_of_sound_that_comes_twice_is_written_once(tmp_path, name):
    source, output = header_again(tmp_path / "in.flv"), tmp_path / name
    assert run(source, "-o", output, "-q") == 0
    with av.open(str(source)) as opened, av.open(str(output)) as found:
        assert [stream.type for stream in found.streams] == ["video", "audio"]
        assert (
            found.streams.audio[0].codec_context.extradata
            == opened.streams.audio[0].codec_context.extradata
        )
        sizes = [
            [packet.size for packet in each.demux(audio=0) if packet.size]
            for each in (opened, found)
        ]
    assert sizes[0] == sizes[1]


def test_a_header_of_sound_that_changes_is_refused_before_work(tmp_path, capsys):
    source = header_again(tmp_path / "in.flv", changed=True)
    assert run(source) == 1
    said = capsys.readouterr().err
    assert (
        "stream 1 (audio: aac) can't be copied" in said
        and "its header changes there" in said
    )
    assert [*tmp_path.iterdir()] == [source]


def test_a_file_in_which_ffmpeg_finds_an_error_is_no_finished_output(tmp_path):
    broken = copied(header_again(tmp_path / "in.flv"), tmp_path / "copied.mkv")
    with pytest.raises(MediaError, match="its own reader finds an error"):
        read_times(broken, "matroska")


def test_a_stream_too_many_is_no_finished_output(tmp_path, capsys, monkeypatch):
    source = with_sound(tmp_path / "in.mkv", "aac")

    def with_more(path, container):
        times = read_times(path, container)
        return times | {"audio": times["audio"] * 2}

    monkeypatch.setattr("vidrestore.media.writing.muxer.read_times", with_more)
    assert run(source) == 1
    assert "reads as 2 streams of audio, but 1 were written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "codec"), [("in.ts", "mp2"), ("in.mkv", "ac3"), ("in.ts", "ac3")]
)
def test_a_sample_rate_that_changes_is_refused_before_work_with_the_way_out(
    tmp_path, capsys, name, codec
):
    assert run(with_sound(tmp_path / "same.ts", "mp2", (48000, 48000)), "-q") == 0
    source = with_sound(tmp_path / name, codec, (48000, 44100))
    assert run(source) == 1
    said = capsys.readouterr().err
    assert (
        "its sample rate changes there" in said
        and "-c:a flac" in said
        and "--drop audio" in said
    )


def test_the_film_is_the_longest_stream_and_further_ones_are_named(tmp_path, capsys):
    for name in ("in.mp4", "in.mkv"):
        source = tmp_path / name
        with av.open(str(source), "w") as output:
            streams: list[Any] = [
                output.add_stream(codec, rate=25)
                for codec in ("mjpeg", "mpeg4", "mpeg4")
            ]
            for stream in streams:
                stream.width, stream.height = 64, 48
                stream.pix_fmt = "yuvj420p" if stream is streams[0] else "yuv420p"
            for stream, frames in zip(streams, (1, 12, 11), strict=True):
                for number in range(frames):
                    planes = sample_planes(stream.pix_fmt, number)
                    output.mux(
                        stream.encode(video_frame(stream.pix_fmt, planes, number))
                    )
                output.mux(stream.encode(None))
        output_path = source.with_stem("out")
        assert run(source, "-o", output_path) == 0
        said = capsys.readouterr().err
        assert (
            "stream 1 restored, stream 0 (video: mjpeg); stream 2 (video: mpeg4) copied as it is"
            in said
        )
        assert streams_of(output_path) == ["mjpeg", "h264", "mpeg4"]


def streams_of(path: Path) -> list[str]:
    with av.open(str(path)) as opened:
        return [stream.codec_context.name for stream in opened.streams]


def with_clap(path: Path, width: int, height: int) -> Path:
    """Write MP4 whose clean aperture (ISO/IEC 14496-12, 12.1.4.2) of a size lies in the centre of 64x48."""
    write_video(path, 6, "libx264")
    data = bytearray(path.read_bytes())
    numbers = (width, 1, height, 1, 0, 1, 0, 1)
    box = (
        (40).to_bytes(4) + b"clap" + b"".join(number.to_bytes(4) for number in numbers)
    )
    for kind in (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd", b"avc1"):
        place = data.rindex(kind) - 4
        size = int.from_bytes(data[place : place + 4])
        data[place : place + 4] = (size + len(box)).to_bytes(4)
    # behind what the last one, the codec's, holds
    data[place + size : place + size] = box
    assert data.index(b"mdat") < data.index(b"moov"), "else packets would have moved"
    path.write_bytes(data)
    return path


def test_what_a_container_hides_is_cut_off_and_the_plan_says_so(tmp_path, capsys):
    source, output = with_clap(tmp_path / "in.mp4", 56, 36), tmp_path / "out.mkv"
    assert run(source, "-o", output, "--lossless") == 0
    assert "cropped to 56x38 as the file asks" in capsys.readouterr().err
    with av.open(str(source)) as opened, VideoReader(str(output)) as reader:
        for picture, frame in zip(opened.decode(video=0), reader.frames(), strict=True):
            # of 6 rows above, 4 are left out: pairs of a field's rows of chroma
            np.testing.assert_array_equal(
                frame.planes[0], picture.to_ndarray()[:48][4:42, 4:60]
            )


@pytest.mark.parametrize(
    ("name", "size"), [("mkv_pixelcrop.mkv", (136, 104)), ("mp4_clap.mp4", (152, 112))]
)
def test_cropping_of_matroska_and_mp4_is_applied(given, name, size):
    source = given(name)
    assert run(source, "-q") == 0
    with VideoReader(str(source.with_stem(f"{source.stem}.denoised"))) as reader:
        assert (reader.info.video.width, reader.info.video.height) == size


@pytest.mark.parametrize("name", ["mkv_ms_times_crf.mkv", "mkv_begins_at_10h_crf.mkv"])
def test_odd_times_make_no_lower_quality(given, capsys, name):
    assert run(given(name)) == 0
    assert "libx264 crf 16" in capsys.readouterr().err


def test_a_recording_of_a_browser_becomes_vp9_at_the_rate_of_its_times(
    tmp_path, capsys
):
    source, output = tmp_path / "in.webm", tmp_path / "in.denoised.webm"
    times = [40 * number + number % 3 for number in range(12)]
    write_video(source, 12, "libvpx", times=times, time_base=Fraction(1, 1000))
    assert run(source) == 0
    assert "libvpx-vp9" in capsys.readouterr().err and len(frames_of(output)) == 12
    with VideoReader(str(output)) as reader:
        assert 20 < reader.info.video.rate < 30


def test_av1_takes_more_frames_a_second_than_its_encoder_plans_for(tmp_path):
    source, output = tmp_path / "in.mp4", tmp_path / "out.webm"
    write_video(source, 6, "libx264", rate=960)
    assert run(source, "-o", output, "-q") == 0
    assert len(frames_of(output)) == 6


@pytest.mark.parametrize(
    "name",
    [
        *(
            "flv_aac_header_twice.flv",
            "webm_vp8_ms_times.webm",
            "poster_track_first.mp4",
            "c28_nelly.flv",
        ),
        *(
            "c03_pcm_bluray.m2ts",
            "c04_lpcm.vob",
            "c14_animation.mov",
            "c26.wmv",
            "d_adpcm_ima_wav.avi",
        ),
        *(
            "d_adpcm_ms.avi",
            "d_pcm_alaw.avi",
            "d_pcm_mulaw.avi",
            "d_wma.mkv",
            "d_wmav1.avi",
            "f_apac.mov",
        ),
    ],
)
def test_forms_of_others_keep_all_frames(given, name):
    source = given(name)
    assert run(source, "-q") == 0
    (output,) = (path for path in source.parent.iterdir() if path != source)
    with VideoReader(str(source)) as before, VideoReader(str(output)) as after:
        assert sum(1 for _ in after.frames()) == sum(1 for _ in before.frames()) > 0
    assert read_times(
        output, {".mkv": "matroska"}.get(output.suffix, output.suffix[1:])
    )
