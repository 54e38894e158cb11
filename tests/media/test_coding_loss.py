"""The loss of a coder by its quantisers, tables and bits."""

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from sample_videos import sound_packets, write_stream
from written_videos import described

from vidrestore.jobs.request import Step
from vidrestore.jobs.steps import measured_input
from vidrestore.media.reading.coding_loss import (
    NO_LOSS,
    JpegPlane,
    block_steps,
    jpeg_planes,
    loss_by_bits,
    loss_by_parameters,
    loss_by_tables,
)
from vidrestore.media.reading.probe import probe
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pixels.frames import PixelFormat, VideoInfo

H264, MPEG2, VP9 = 1, 2, 0


def parameters(
    kind: int, quantiser: int, blocks: tuple[int, ...] = (), chroma: int = 0
) -> bytes:
    """Return an AVVideoEncParams of blocks that differ from the frame's quantiser."""
    deltas = (0, 0, chroma, chroma, chroma, chroma, 0, 0)
    head = struct.pack("=I4xQQ2i8i", len(blocks), 64, 20, kind, quantiser, *deltas)
    return head + b"".join(struct.pack("=5i", 0, 0, 16, 16, each) for each in blocks)


def coded(path: Path, codec: str, **options: str) -> str:
    """Write 8 frames of moving texture by an encoder."""
    rng = np.random.default_rng(1)
    texture = np.kron(rng.uniform(40, 220, (20, 24)), np.ones((8, 8))) + rng.normal(
        0, 9, (160, 192)
    )
    pix_fmt = {"mjpeg": "yuvj420p", "cinepak": "rgb24", "msvideo1": "rgb555le"}.get(
        codec, "yuv420p"
    )
    frames = []
    for index in range(8):
        planes = np.full((144, 128), 128, np.uint8)
        planes[:96] = texture[index * 4 :][:96, index * 2 :][:, :128].clip(0, 255)
        frames.append(
            av.VideoFrame.from_ndarray(planes, "yuv420p").reformat(format=pix_fmt)
        )
    return str(write_stream(path, frames, codec, options))


def losses(path: str) -> list[float]:
    with VideoReader(path, losses=True) as reader:
        return [frame.loss[0] for frame in reader.frames()]


def test_the_step_of_h264_doubles_every_six_quantisers_and_blocks_count_by_their_mean():
    low, high = (loss_by_parameters(parameters(H264, each), 8) for each in (28, 34))
    assert low and high and high.luma == pytest.approx(2**0.75 * low.luma)
    assert loss_by_parameters(parameters(H264, 28, (0, 12)), 8) == high
    # the step at 28 is 16
    assert low.luma == pytest.approx(0.8 * (16 / math.sqrt(12)) ** 0.75)


def test_a_coarse_quantiser_of_mpeg_takes_a_smaller_share_of_its_error():
    fine, coarse = (
        loss_by_parameters(parameters(MPEG2, quantiser), 8) for quantiser in (4, 64)
    )
    assert fine and coarse and coarse.luma == pytest.approx(16**0.87 * fine.luma)
    assert fine.luma == pytest.approx(1.05 * (4 / math.sqrt(12)) ** 0.87)


def test_deeper_samples_have_as_many_finer_quantisers():
    assert loss_by_parameters(
        parameters(H264, 32 + 12, chroma=-2), 10
    ) == pytest.approx(loss_by_parameters(parameters(H264, 32, chroma=-2), 8))


def test_colour_has_a_quantiser_of_its_own_which_rises_slower_in_h264():
    usual, finer = (
        loss_by_parameters(parameters(H264, 40, chroma=each), 8) for each in (0, -6)
    )
    assert (
        usual
        and finer
        and finer.luma == usual.luma
        and finer.chroma < usual.chroma < 0.6 * usual.luma
    )


@pytest.mark.parametrize(("kind", "quantiser"), [(H264, 12), (VP9, 12), (MPEG2, 2)])
def test_a_fine_quantiser_has_no_loss(kind, quantiser):
    assert loss_by_parameters(parameters(kind, quantiser), 8) == NO_LOSS


@pytest.mark.parametrize(
    ("name", "codec", "fine", "coarse"),
    [
        ("a.mp4", "libx264", {"crf": "10"}, {"crf": "34"}),
        (
            "a.mpg",
            "mpeg2video",
            {"qmin": "1", "qmax": "1"},
            {"qmin": "12", "qmax": "12"},
        ),
        ("a.avi", "mpeg4", {"qmin": "1", "qmax": "1"}, {"qmin": "12", "qmax": "12"}),
        ("a.webm", "libvpx-vp9", {"crf": "4", "b": "0"}, {"crf": "55", "b": "0"}),
        ("a.avi", "mjpeg", {"qmin": "1", "qmax": "1"}, {"qmin": "16", "qmax": "16"}),
    ],
)
def test_frames_have_the_loss_of_their_coder(tmp_path, name, codec, fine, coarse):
    assert max(losses(coded(tmp_path / name, codec, **fine))) < 1.5
    path = coded(tmp_path / name, codec, **coarse)
    assert min(losses(path)) > 2 and losses(path) == losses(path)


def test_the_blocks_of_motion_jpeg_have_multiples_of_their_steps(tmp_path):
    path = coded(tmp_path / "a.avi", "mjpeg", qmin="12", qmax="12")
    with VideoReader(path, losses=True) as reader:
        frame = next(reader.frames())
    cosines = np.cos(np.pi / 8 * np.outer(np.arange(8), np.arange(8) + 0.5)) / 2
    cosines[0] /= math.sqrt(2)
    (luma, *_), (steps, *_) = frame.planes, frame.steps
    blocks = luma.reshape(12, 8, 16, 8).swapaxes(1, 2) - 128.0
    multiples = cosines @ blocks @ cosines.T / steps
    assert np.abs(multiples - multiples.round()).mean() < 0.02  # samples are rounded
    assert len(frame.steps) == 3 and np.abs(multiples).mean() > 0.1


@pytest.mark.parametrize(
    ("crop", "known"), [((0, 0, 0, 0), True), ((4, 0, 4, 0), False)]
)
def test_blocks_of_motion_jpeg_are_unknown_if_its_container_hides_some(
    tmp_path, monkeypatch, crop, known
):
    monkeypatch.setattr("vidrestore.media.reading.probe._crop", lambda *_: crop)
    with VideoReader(coded(tmp_path / "a.avi", "mjpeg"), losses=True) as reader:
        assert all(bool(frame.steps) == known for frame in reader.frames())


def test_entries_of_a_jpegs_tables_go_along_diagonals_from_the_first_row():
    table = bytes(range(1, 65))
    size = bytes([8, 0, 8, 0, 8, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1])
    segments = [
        (0xDB, bytes([0]) + table + bytes([1]) + bytes([9] * 64)),
        (0xC0, size),
        (0xDA, b""),
    ]
    data = b"\xff\xd8" + b"".join(
        bytes([0xFF, marker]) + struct.pack(">H", len(segment) + 2) + segment
        for marker, segment in segments
    )
    planes = jpeg_planes(data)
    assert [(plane.across, plane.down) for plane in planes] == [(2, 2), (1, 1), (1, 1)]
    assert planes[0].steps[:3, :3].tolist() == [[1, 2, 6], [3, 5, 8], [4, 9, 13]]
    assert planes[0].steps[7, 6:].tolist() == [63, 64] and set(
        planes[2].steps.flat
    ) == {9}
    assert jpeg_planes(data[:80]) == () and jpeg_planes(b"\xff\xd8") == ()


@pytest.mark.parametrize(
    ("step", "sigma"), [(1, 0.0), (2, 1.0), (20, 0.9 * 20 / math.sqrt(12))]
)
def test_a_jpeg_has_a_loss_of_at_least_the_least_sigma_from_half_a_level_of_error_up(
    step, sigma
):
    plane = JpegPlane(1, 1, np.full((8, 8), step, np.float32))
    assert loss_by_tables((plane,)).luma == pytest.approx(sigma)


def test_blocks_are_only_known_if_the_decoder_kept_the_planes():
    whole, half = (
        JpegPlane(side, side, np.ones((8, 8), np.float32)) for side in (2, 1)
    )
    quarter, gray = (
        PixelFormat("yuv420p", "yuv", 8, 1, 1),
        PixelFormat("gray", "gray", 8),
    )
    assert (
        len(block_steps((whole, half, half), quarter)) == 3
        and len(block_steps((half,), gray)) == 1
    )
    for planes, pixels in [
        ((half, half, half), quarter),
        ((whole, half, half), PixelFormat("yuv444p", "yuv", 8)),
        ((half, half, half), PixelFormat("gbrp", "rgb", 8)),
        ((whole, half, half), gray),
    ]:
        assert block_steps(planes, pixels) == ()


def test_a_lossless_codec_has_no_loss(tmp_path):
    assert losses(coded(tmp_path / "a.mkv", "ffv1")) == [0] * 8


def test_the_loss_of_other_codecs_follows_from_their_bits_up_to_a_bound():
    sizes = (12_500, 830, 208, 4)
    result = [
        loss_by_bits(described(frame_bits=each, codec="hevc")).luma for each in sizes
    ]
    assert result[0] == 0 and 0 < result[1] < result[2] <= result[3] == pytest.approx(
        4 / 1.5
    )


@pytest.mark.parametrize(
    ("codec", "bits", "sigma"),
    [
        ("cinepak", 1.0, 1.05 * 0.1**-0.6),
        ("svq1", 0.001, 10),  # as much as of any
        ("vp6f", 0.2, 1.05 * 0.1**-0.6),  # without an encoder to measure
        ("prores", 3.5, 0),
        ("ffv1", 0.1, 0),
    ],
)
def test_the_bits_of_a_codec_count_as_those_of_h264_of_the_same_quality(
    codec, bits, sigma
):
    source = described(codec=codec)
    pixels = source.video.width * source.video.height
    source = replace(source, video=replace(source.video, frame_bits=bits * pixels))
    assert loss_by_bits(source) == pytest.approx((sigma, sigma), rel=0.02)


@pytest.mark.parametrize("codec", ["cinepak", "msvideo1"])
def test_clips_of_old_codecs_have_a_loss_and_are_enlarged_as_compressed(
    tmp_path, codec
):
    path = coded(tmp_path / "a.avi", codec)
    (loss,) = set(losses(path))
    assert loss > 1.3
    with VideoReader(path, losses=True) as reader:
        assert measured_input(Step("sr"), reader) == (
            "compressed",
            f"coding loss {loss:.1f}",
        )


def test_realvideo_gives_its_quantisers_as_mpeg_does(tmp_path):
    expected = loss_by_parameters(parameters(MPEG2, 24), 8)
    assert (
        expected
        and losses(coded(tmp_path / "a.rm", "rv20", qmin="12", qmax="12"))
        == [expected.luma] * 8
    )


def rewritten(
    source: str, path: Path, times: Callable[[int], int], sound: Fraction | None = None
) -> VideoInfo:
    """Copy packets with other times in milliseconds, beside silence of some seconds, and return what is
    read of the video.
    """
    with av.open(source) as opened, av.open(str(path), "w") as output:
        stream = output.add_stream_from_template(opened.streams.video[0])
        silence: Any = (
            output.add_stream("flac", rate=8000, layout="mono") if sound else None
        )
        for packet in [packet for packet in opened.demux(video=0) if packet.size]:
            number = round(packet.pts * packet.time_base * 25)
            packet.stream, packet.time_base = stream, Fraction(1, 1000)
            packet.pts = packet.dts = times(number)
            output.mux(packet)
        if sound:
            output.mux(sound_packets(silence, int(sound * 8000)))
    return probe(str(path)).video


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        *(
            ("a.mp4", "libx264"),
            ("a.mov", "mpeg4"),
            ("a.avi", "mpeg4"),
            ("a.mkv", "libx264"),
            ("a.flv", "flv1"),
        ),
        *(
            ("a.wmv", "wmv2"),
            ("a.ts", "mpeg2video"),
            ("a.mpg", "mpeg2video"),
            ("a.webm", "libvpx-vp9"),
        ),
        ("a.mxf", "mpeg2video"),
    ],
)
def test_the_bits_of_a_frame_are_those_of_its_packets_in_any_container(
    tmp_path, name, codec
):
    path = coded(tmp_path / name, codec)
    with av.open(path) as opened:
        sizes = [packet.size for packet in opened.demux(video=0) if packet.size]
    assert probe(path).video.frame_bits == pytest.approx(8 * sum(sizes) / len(sizes))


@pytest.mark.parametrize(
    ("times", "sound"),
    [
        # a dump of a stream that ran for hours
        (lambda number: 36_000_000 + 40 * number, None),
        (lambda number: 40 * number + 30_000 * (number > 4), None),  # a pause
        # a browser's clock, whose rate is stated as 1000
        (lambda number: 40 * number + number % 3, None),
        (lambda number: 40 * number, Fraction(60)),  # sound that outlasts the picture
    ],
)
def test_the_bits_of_a_pixel_are_those_of_the_packets_whatever_the_header_states(
    tmp_path, times, sound
):
    plain = coded(tmp_path / "plain.mkv", "libx264", preset="ultrafast", bf="0")
    video = rewritten(plain, tmp_path / "other.mkv", times, sound)
    with av.open(plain) as opened:
        sizes = [packet.size for packet in opened.demux(video=0) if packet.size]
    assert video.frame_bits == pytest.approx(8 * sum(sizes) / 8)
    assert video.rate is not None and 20 < video.rate < 30
