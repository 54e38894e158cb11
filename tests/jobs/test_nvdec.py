"""`--decoder cuda` with a stand-in for the GPU, whose pictures are FFmpeg's own in the formats of NVDEC's:
the same files, or an error that says what to do.
"""

import io
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from denoise_command import identity, run  # noqa: F401
from sample_videos import sample_planes, video_frame, write_video

from vidrestore.errors import MediaError, OptionError
from vidrestore.jobs.job import reader_of
from vidrestore.media import decoding, reader
from vidrestore.media.decoding import Decoding
from vidrestore.media.formats import layout_of, planes_of
from vidrestore.media.nvdec import DOWNLOADED
from vidrestore.media.probe import open_input
from vidrestore.media.reader import VideoReader
from vidrestore.options import RestoreOptions

GROUPS = {"g": "6", "bf": "2", "x264-params": "scenecut=0"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU that opens but decodes nothing, so that FFmpeg falls back to software; the decoders asked for."""
    found: list[str] = []

    def open_on_gpu(source: str, decoder: str) -> object:
        found.append(decoder)
        return open_input(source)

    monkeypatch.setattr(decoding, "open_on_gpu", open_on_gpu)
    monkeypatch.setattr(reader, "open_on_gpu", open_on_gpu)
    return found


@pytest.fixture
def gpu(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU that decodes all; the numbers of threads of its decoders."""
    decode: Callable[..., list] = Decoding._decode_packet
    threads: list[str] = []

    def downloaded(self: Decoding, packet: object, stream: object) -> list:
        pictures = decode(self, packet, stream)
        if self.decoder == "software":
            return pictures
        threads.append(stream.codec_context.thread_count)
        return [picture.reformat(format=DOWNLOADED[picture.format.name]) for picture in pictures]

    monkeypatch.setattr(Decoding, "_decode_packet", downloaded)
    return threads


def damaged(path: Path, number: int) -> Path:
    """Overwrite the head of a packet, which FFmpeg's parsers read for a GPU, too."""
    with av.open(str(path)) as container:
        packet = bytes(next(islice(container.demux(video=0), number, None)))
    data = path.read_bytes()
    assert data.count(packet) == 1
    path.write_bytes(data.replace(packet, bytes([255]) * 40 + packet[40:]))
    return path


@pytest.mark.parametrize("size", [(64, 48), (65, 49)])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
def test_a_picture_gives_the_same_planes_as_it_is_downloaded(pix_fmt, size):
    planes = sample_planes(pix_fmt, 3, *size)
    luma, *chroma = (plane << 6 if plane.dtype == np.uint16 else plane for plane in planes)
    pairs = np.stack(chroma, -1).reshape(len(chroma[0]), -1)
    picture = video_frame(DOWNLOADED[pix_fmt], (luma, pairs))
    layout = layout_of(picture.format.name)
    assert layout.format == layout_of(pix_fmt).format
    for found, expected in zip(planes_of(picture, layout), planes, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
def test_a_restoration_writes_the_same_bytes_and_warns_once(tmp_path, capsys, gpu, pix_fmt):
    write_video(tmp_path / "in.mp4", 20, "libx264", pix_fmt, options=GROUPS)
    line = (tmp_path / "in.mp4", "--lossless", "--segment-frames", "8", "-o")
    assert run(*line, tmp_path / "software.mkv") == 0
    assert not gpu and "decoder" not in "".join(capsys.readouterr())
    assert run(*line, tmp_path / "cuda.mkv", "--decoder", "cuda") == 0
    assert set(gpu) == {1}
    assert "".join(capsys.readouterr()).count("hides damage inside pictures") == 1
    assert (tmp_path / "cuda.mkv").read_bytes() == (tmp_path / "software.mkv").read_bytes()


def test_any_part_of_a_video_is_decoded_alike_by_the_gpu_that_restores(tmp_path, gpu, opened):
    write_video(tmp_path / "in.mkv", 20, "libx264", options=GROUPS)
    with (
        VideoReader(str(tmp_path / "in.mkv")) as software,
        reader_of(str(tmp_path / "in.mkv"), RestoreOptions(device="cuda:1", decoder="cuda")) as cuda,
    ):
        start = software.info.video.start + 500  # ms
        expected, found = list(software.frames(start)), list(cuda.frames(start))
    assert gpu and set(opened) == {"cuda:1"}
    assert [frame.pts for frame in found] == [frame.pts for frame in expected]
    for one, other in zip(found, expected, strict=True):
        assert all(np.array_equal(*planes) for planes in zip(one.planes, other.planes, strict=True))


def test_damage_ends_the_run_and_the_same_command_without_the_option_finishes_it(tmp_path, capsys, gpu):
    video, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(video, 160, "libx264", options=GROUPS)
    line = (damaged(video, 140), "--lossless", "--segment-frames", "8", "--threads", "1", "-o", output)
    assert run(*line, "--decoder", "cuda") == 1
    printed = capsys.readouterr().err
    assert "the source is damaged: " in printed and "without --decoder cuda" in printed
    assert "kept in" in printed and "Traceback" not in printed
    assert not output.exists()
    assert run(*line) == 4
    assert "of them by other runs" in capsys.readouterr().out
    assert run(*line[:-1], tmp_path / "software.mkv", "-q") == 4
    assert output.read_bytes() == (tmp_path / "software.mkv").read_bytes()


def test_a_video_that_the_gpu_cannot_decode_is_refused(tmp_path, capsys, opened):
    write_video(tmp_path / "in.mkv", 5, "libx264")
    assert run(tmp_path / "in.mkv", "-o", tmp_path / "out.mkv", "--decoder", "cuda") == 1
    printed = capsys.readouterr().err
    assert "frame 0: this GPU can't decode h264 (High) in yuv420p of 64x48; remove --decoder cuda" in printed
    assert not (tmp_path / "out.mkv").exists()


def test_other_formats_are_no_pictures_of_a_gpu(tmp_path, opened, monkeypatch):
    write_video(tmp_path / "in.mkv", 3, "libx264")
    decode = Decoding._decode_packet
    monkeypatch.setattr(
        Decoding,
        "_decode_packet",
        lambda *given: [picture.reformat(format="nv16") for picture in decode(*given)],
    )
    with (
        VideoReader(str(tmp_path / "in.mkv"), decoder="cuda") as video,
        pytest.raises(MediaError, match="nv16"),
    ):
        list(video.frames())


def test_without_a_gpu_one_line_says_so(tmp_path, capsys):
    write_video(tmp_path / "in.mkv", 2, "libx264")
    try:
        VideoReader(str(tmp_path / "in.mkv"), decoder="cuda")
        pytest.skip("a GPU opens here")
    except OptionError:
        pass
    assert run(tmp_path / "in.mkv", "-o", tmp_path / "out.mkv", "--decoder", "cuda") == 2
    (printed,) = [each for each in capsys.readouterr().err.splitlines() if "--decoder" in each]
    assert "--decoder cuda: no NVIDIA GPU opens here (" in printed and "; remove the option" in printed
    assert not (tmp_path / "out.mkv").exists()


@pytest.mark.parametrize(
    "codec, settings, message",
    [
        ("mpeg2video", {}, "mpeg2video in yuv420p, but `decoder=cuda` is for h264, hevc, vp8, vp9 in"),
        ("ffv1", {}, "ffv1 in yuv420p"),
        ("libx264", {"pix_fmt": "yuv444p"}, "h264 in yuv444p"),
        ("libx264", {"options": {"x264-params": "tff=1"}}, "would be deinterlaced"),
    ],
)
def test_what_a_gpu_does_not_decode_exactly_is_refused(tmp_path, opened, codec, settings, message):
    write_video(tmp_path / "in.mkv", 4, codec, **settings)
    with pytest.raises(OptionError, match=message):
        VideoReader(str(tmp_path / "in.mkv"), decoder="cuda", deinterlace=None)


def test_pipes_and_pictures_have_no_decoder_to_choose(tmp_path, monkeypatch):
    for name in ("one.png", "two.png"):
        write_video(tmp_path / name, 1, "png", "rgb24", container={"update": "1"})
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"YUV4MPEG2 W2 H2 F25:1\nFRAME\n" + bytes(6)))
    )
    for source in (str(tmp_path), "-"):
        with pytest.raises(OptionError, match="`decoder=cuda` is for video files; remove the option"):
            VideoReader(source, decoder="cuda")


QUIET = {"x265-params": "log-level=none:keyint=6", "preset": "ultrafast"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "codec, pix_fmt, options",
    [
        ("libx264", "yuv420p", GROUPS),
        ("libx265", "yuv420p", QUIET),
        ("libx265", "yuv420p10le", QUIET),
        ("libvpx", "yuv420p", {"g": "6"}),
        ("libvpx-vp9", "yuv420p", {"g": "6", "cpu-used": "8"}),
    ],
)
def test_a_gpu_decodes_the_frames_of_the_software_and_finds_broken_packets(tmp_path, codec, pix_fmt, options):
    video = tmp_path / "in.mkv"
    write_video(video, 20, codec, pix_fmt, (330, 182), options=options)
    with VideoReader(str(video)) as software, VideoReader(str(video), decoder="cuda") as cuda:
        for start in (None, 500):
            expected, found = list(software.frames(start)), list(cuda.frames(start))
            assert [frame.pts for frame in found] == [frame.pts for frame in expected]
            for one, other in zip(found, expected, strict=True):
                assert all(np.array_equal(*planes) for planes in zip(one.planes, other.planes, strict=True))
    with (
        VideoReader(str(damaged(video, 14)), decoder="cuda") as cuda,
        pytest.raises(MediaError, match="the source is damaged"),
    ):
        list(cuda.frames())
