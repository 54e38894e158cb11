"""HEVC whose pictures are single fields is woven into frames, then treated as any interlaced video."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import numpy as np
import pytest
from sample_videos import video_frame
from scanned_videos import SIZE, interlaced, moments

from vidrestore.media.reading.reader import VideoReader

FIELDS = 16


@cache
def coded(order: str, suffix: str) -> bytes:
    """A video of `FIELDS` moments, of which the even ones give the earlier field, each coded as a picture."""
    settings = f"interlace={order}:bframes=2:keyint=8:min-keyint=8:log-level=error"
    with TemporaryDirectory() as folder, av.open(f"{folder}/a{suffix}", "w") as output:
        stream = output.add_stream(
            "libx265", rate=50, options={"crf": "6", "x265-params": settings}
        )
        stream.width, stream.height, stream.pix_fmt = SIZE[1], SIZE[0] // 2, "yuv420p"
        chroma = np.full((stream.height // 2, stream.width // 2), 128, np.uint8)
        for number, picture in enumerate(moments(FIELDS)):
            first = (number % 2 == 1) == (order == "tff")
            field = video_frame("yuv420p", (picture[first::2], chroma, chroma), number)
            output.mux(stream.encode(field))
        output.mux(stream.encode(None))
        output.close()
        return Path(folder, f"a{suffix}").read_bytes()


def written(path: Path, order: str = "tff") -> str:
    path.write_bytes(coded(order, path.suffix))
    return str(path)


@pytest.mark.parametrize("suffix", [".mkv", ".ts", ".hevc"])
@pytest.mark.parametrize("order", ["tff", "bff"])
def test_fields_are_woven_in_pairs_and_any_part_is_that_of_the_whole(
    tmp_path, order, suffix
):
    with VideoReader(
        written(tmp_path / f"a{suffix}", order), scan="progressive"
    ) as reader:
        frames = list(reader.frames())
        times = [frame.pts for frame in frames]
        assert (reader.info.video.height, reader.info.video.rate) == (SIZE[0], 25)
        part = list(reader.frames(times[3], times[5]))
    assert not reader.damage.found
    for frame, expected in zip(
        frames, interlaced(moments(FIELDS), order == "tff"), strict=True
    ):
        assert np.abs(frame.planes[0] - expected.astype(float)).mean() < 1
    assert [frame.pts for frame in part] == times[3:5]
    assert all(
        (one.planes[0] == other.planes[0]).all()
        for one, other in zip(part, frames[3:5], strict=True)
    )


@pytest.mark.parametrize("double_rate, count", [(False, FIELDS // 2), (True, FIELDS)])
def test_woven_frames_are_deinterlaced_as_others(tmp_path, double_rate, count):
    with VideoReader(
        written(tmp_path / "a.mkv"), scan="auto", double_rate=double_rate
    ) as reader:
        frames = list(reader.frames())
        assert "deinterlaced" in reader.scan.in_words
    assert (len(frames), frames[0].planes[0].shape) == (count, SIZE)


def test_a_field_without_its_pair_stands_for_both_and_is_damage(tmp_path):
    with (
        av.open(written(tmp_path / "a.mkv")) as source,
        av.open(tmp_path / "b.mkv", "w") as output,
    ):
        stream = output.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            # a later field, to which no other refers
            if packet.size and packet.pts != 180:
                packet.stream = stream
                output.mux(packet)
    with VideoReader(str(tmp_path / "b.mkv"), scan="progressive") as reader:
        frames = list(reader.frames())
    alone = next(frame for frame in frames if frame.pts == 160)
    assert len(frames) == FIELDS // 2
    assert (alone.planes[0][::2] == alone.planes[0][1::2]).all()
    assert "the frame with pts 160 lacks a field" in reader.damage.sentence


def test_a_video_of_such_fields_keeps_its_height_and_rate(given):
    with VideoReader(str(given("hevc_fields_as_pictures.mkv")), scan="auto") as reader:
        frames = list(reader.frames())
    assert (len(frames), frames[0].planes[0].shape) == (25, (128, 96))
