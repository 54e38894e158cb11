"""The loss of a coder by its quantisers, tables and bits."""

import math
import struct
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from written_videos import described

from vidrestore.media.coding_loss import NO_LOSS, bits_per_pixel, loss_by_bits, loss_by_parameters
from vidrestore.media.probe import StreamInfo
from vidrestore.media.reader import VideoReader

H264, MPEG2, VP9 = 1, 2, 0


def parameters(kind: int, quantiser: int, blocks: tuple[int, ...] = (), chroma: int = 0) -> bytes:
    """Return an AVVideoEncParams of blocks that differ from the frame's quantiser."""
    deltas = (0, 0, chroma, chroma, chroma, chroma, 0, 0)
    head = struct.pack("=I4xQQ2i8i", len(blocks), 64, 20, kind, quantiser, *deltas)
    return head + b"".join(struct.pack("=5i", 0, 0, 16, 16, each) for each in blocks)


def coded(path: Path, codec: str, **options: str) -> str:
    """Write 8 frames of moving texture by an encoder."""
    rng = np.random.default_rng(1)
    texture = np.kron(rng.uniform(40, 220, (20, 24)), np.ones((8, 8))) + rng.normal(0, 9, (160, 192))
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height = 128, 96
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for index in range(8):
            planes = np.full((144, 128), 128, np.uint8)
            planes[:96] = texture[index * 4 :][:96, index * 2 :][:, :128].clip(0, 255)
            frame = av.VideoFrame.from_ndarray(planes, "yuv420p").reformat(format=stream.pix_fmt)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return str(path)


def losses(path: str) -> list[float]:
    with VideoReader(path, losses=True) as reader:
        return [frame.loss[0] for frame in reader.frames()]


def test_the_step_of_h264_doubles_every_six_quantisers_and_blocks_count_by_their_mean():
    low, high = (loss_by_parameters(parameters(H264, each), 8) for each in (28, 34))
    assert low and high and high.luma == pytest.approx(2**0.75 * low.luma)
    assert loss_by_parameters(parameters(H264, 28, (0, 12)), 8) == high
    assert low.luma == pytest.approx(0.75 * (16 / math.sqrt(12)) ** 0.75)  # the step at 28 is 16


def test_a_coarse_quantiser_of_mpeg_takes_a_smaller_share_of_its_error():
    fine, coarse = (loss_by_parameters(parameters(MPEG2, quantiser), 8) for quantiser in (4, 64))
    assert fine and coarse and coarse.luma == pytest.approx(8 * fine.luma)
    assert fine.luma == pytest.approx(1.15 * (4 / math.sqrt(12)) ** 0.75)


def test_deeper_samples_have_as_many_finer_quantisers():
    assert loss_by_parameters(parameters(H264, 32 + 12, chroma=-2), 10) == pytest.approx(
        loss_by_parameters(parameters(H264, 32, chroma=-2), 8)
    )


def test_colour_has_a_quantiser_of_its_own_which_rises_slower_in_h264():
    usual, finer = (loss_by_parameters(parameters(H264, 40, chroma=each), 8) for each in (0, -6))
    assert usual and finer and finer.luma == usual.luma and finer.chroma < usual.chroma < 0.6 * usual.luma


@pytest.mark.parametrize(("kind", "quantiser"), [(H264, 12), (VP9, 12), (MPEG2, 2)])
def test_a_fine_quantiser_has_no_loss(kind, quantiser):
    assert loss_by_parameters(parameters(kind, quantiser), 8) == NO_LOSS


@pytest.mark.parametrize(
    ("name", "codec", "fine", "coarse"),
    [
        ("a.mp4", "libx264", {"crf": "10"}, {"crf": "34"}),
        ("a.mpg", "mpeg2video", {"qmin": "1", "qmax": "1"}, {"qmin": "12", "qmax": "12"}),
        ("a.avi", "mpeg4", {"qmin": "1", "qmax": "1"}, {"qmin": "12", "qmax": "12"}),
        ("a.webm", "libvpx-vp9", {"crf": "4", "b": "0"}, {"crf": "55", "b": "0"}),
        ("a.avi", "mjpeg", {"qmin": "1", "qmax": "1"}, {"qmin": "16", "qmax": "16"}),
    ],
)
def test_frames_have_the_loss_of_their_coder(tmp_path, name, codec, fine, coarse):
    assert max(losses(coded(tmp_path / name, codec, **fine))) < 1.5
    path = coded(tmp_path / name, codec, **coarse)
    assert min(losses(path)) > 2 and losses(path) == losses(path)


def test_a_lossless_codec_has_no_loss(tmp_path):
    assert losses(coded(tmp_path / "a.mkv", "ffv1")) == [0] * 8


def test_the_loss_of_other_codecs_follows_from_their_bits_up_to_a_bound():
    rates = (300_000, 20_000, 5_000, 100)
    found = [loss_by_bits(described(bit_rate=each, codec="hevc", rate=Fraction(24))).luma for each in rates]
    assert found[0] == 0 and 0 < found[1] < found[2] <= found[3] == 2.5


def test_without_a_bit_rate_the_size_of_the_file_less_its_sound_counts() -> None:
    source = replace(described(rate=Fraction(24)), size=(7373 + 128_000) * 10 // 8, duration=Fraction(10))
    source = replace(source, streams=(StreamInfo(1, "audio", "aac"),))
    assert bits_per_pixel(source) == pytest.approx(0.1, rel=0.01)
