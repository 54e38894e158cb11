"""Interlaced videos are refused, or deinterlaced frame for frame, wherever their field order is stored."""

import io
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.filter import Graph
from numpy.typing import NDArray
from sample_videos import sample_planes, video_frame, write_video

import vidrestore
from vidrestore.errors import MediaError, PlanError
from vidrestore.events import Event, Warned
from vidrestore.frames import Frame, PixelFormat, VideoInfo
from vidrestore.media.deinterlace import measured_order
from vidrestore.media.probe import probe
from vidrestore.media.reader import VideoReader
from vidrestore.options import EncoderOptions

Plane = NDArray[Any]
LOSSLESS = EncoderOptions(lossless=True)
TICK = Fraction(1, 1000)
SIZE = (64, 48)
STILL = 24  # columns on the left where nothing moves


def moment(pix_fmt: str, time: int, size: tuple[int, int]) -> list[Plane]:
    """Noise that stands still, and on the right a bright bar that moves two columns from moment to moment."""
    planes = [plane // 2 for plane in sample_planes(pix_fmt, 0, *size)]
    height, width = planes[0].shape
    bar = (np.arange(width) - STILL - 4 - 2 * time) % (width - STILL)
    smooth = np.linspace(60, 100, height).astype(planes[0].dtype)[:, None] * (int(planes[0].max()) // 100)
    planes[0][:, STILL:] = smooth
    planes[0][:, (bar < 6) & (np.arange(width) >= STILL)] = 2 * planes[0].max()
    return planes


def woven(pix_fmt: str, number: int, size: tuple[int, int], top_first: bool) -> tuple[Plane, ...]:
    """Frame `number` of an interlaced video: every other row comes half a frame later."""
    first, second = moment(pix_fmt, 2 * number, size), moment(pix_fmt, 2 * number + 1, size)
    for early, late in zip(first, second, strict=True):
        early[top_first::2] = late[top_first::2]
    return tuple(first)


MARKED = ("libx264", {"qp": "0", "x264-params": "tff=1", "preset": "ultrafast"})
CODECS = {
    "marked, top first": (*MARKED, "yuv420p", True),
    "marked, bottom first": ("libx264", MARKED[1] | {"x264-params": "bff=1"}, "yuv420p", False),
    "marked, 10 bits": (*MARKED, "yuv420p10le", True),
    "the stream says it, top first": ("ffv1", {"field_order": "tt"}, "yuv422p", True),
    "the stream says it, bottom first": ("ffv1", {"field_order": "bb"}, "yuv422p10le", False),
}


def interlaced_video(
    path: Path, codec: str, options: dict[str, str], pix_fmt: str, top: bool, size: tuple[int, int] = SIZE
) -> None:
    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = *size, pix_fmt
        for number in range(9):
            frame = video_frame(pix_fmt, woven(pix_fmt, number, size, top), number)
            output.mux(stream.encode(marked(frame, top) if codec == "libx264" else frame))
        output.mux(stream.encode(None))


def marked(frame: av.VideoFrame, top: bool) -> av.VideoFrame:
    """The frame with flags that say interlaced and which field is first; x264 writes those of the frame."""
    graph, frame.time_base = Graph(), Fraction(1, 25)
    shape = {"width": frame.width, "height": frame.height, "format": frame.format}
    source = graph.add_buffer(**shape, time_base=frame.time_base)
    marking = graph.add("setfield", "tff" if top else "bff")
    graph.link_nodes(source, marking, graph.add("buffersink")).configure()
    graph.vpush(frame)
    return graph.vpull()


def read(path: Path, start: int | None = None, deinterlace: bool = True) -> list[Frame]:
    with VideoReader(str(path), deinterlace=deinterlace) as reader:
        return list(reader.frames(start))


def error(planes: list[Frame], pix_fmt: str, size: tuple[int, int] = SIZE) -> float:
    """Mean distance of luma from the moments at which the frames' first fields were seen."""
    wanted = [moment(pix_fmt, 2 * at, size)[0].astype(float) for at in range(len(planes))]
    differences = [np.abs(frame.planes[0] - other) for frame, other in zip(planes, wanted, strict=True)]
    return float(np.mean(differences) / planes[0].planes[0].max())


def warned(source: Path, output: Path, **options: Any) -> list[Warned]:
    """The warnings of a restoration that changes nothing."""
    events: list[Event] = []
    vidrestore.restore(source, output, task="<identity>", encoder=LOSSLESS, on_event=events.append, **options)
    return [event for event in events if isinstance(event, Warned)]


@pytest.mark.parametrize("kind", CODECS)
def test_still_areas_stay_as_they_are_and_moving_ones_lose_their_combs(tmp_path, kind):
    path, pix_fmt = tmp_path / "video.mkv", CODECS[kind][2]
    interlaced_video(path, *CODECS[kind])
    before, after = read(path, deinterlace=False), read(path)
    assert not any(frame.interlaced for frame in after)
    for old, new in zip(before, after, strict=True):
        assert (new.pts, new.duration) == (old.pts, old.duration)
        np.testing.assert_array_equal(new.planes[0][:, : STILL - 4], old.planes[0][:, : STILL - 4])
        for plane in (1, 2):
            np.testing.assert_array_equal(new.planes[plane], old.planes[plane])
    assert error(after, pix_fmt) < error(before, pix_fmt) / 4


@pytest.mark.parametrize("size", [(63, 47), (33, 33)])
def test_odd_sizes_are_deinterlaced(tmp_path, size):
    path = tmp_path / "video.mkv"
    interlaced_video(path, "ffv1", {"field_order": "tt"}, "yuv420p", True, size)
    before, after = read(path, deinterlace=False), read(path)
    assert [plane.shape for plane in after[0].planes] == [plane.shape for plane in before[0].planes]
    assert error(after, "yuv420p", size) < error(before, "yuv420p", size) / 3


@pytest.mark.parametrize("kind", ["marked, top first", "the stream says it, bottom first"])
def test_reading_from_the_middle_gives_the_frames_of_a_full_read(tmp_path, kind):
    path = tmp_path / "video.mkv"
    interlaced_video(path, *CODECS[kind])
    whole = read(path)
    for at in (0, 1, 4, 8):
        part = read(path, whole[at].pts)
        assert [frame.pts for frame in part] == [frame.pts for frame in whole[at:]]
        for found, expected in zip(part, whole[at:], strict=True):
            np.testing.assert_array_equal(found.planes[0], expected.planes[0])
    with VideoReader(str(path), deinterlace=True) as reader:
        (found,) = reader.frames(whole[3].pts, whole[4].pts)
    np.testing.assert_array_equal(found.planes[0], whole[3].planes[0])
    assert found.duration == whole[3].duration


@pytest.mark.parametrize("double_rate, rows", [(False, (0,)), (True, (0, 1))])
@pytest.mark.parametrize("top", [True, False])
def test_frames_tell_which_rows_of_all_their_planes_are_those_of_the_source(tmp_path, double_rate, rows, top):
    path, noise = tmp_path / "video.mkv", np.random.default_rng(0)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("ffv1", rate=25, options={"field_order": "tt" if top else "bb"})
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for number in range(5):
            picture = noise.integers(0, 255, (SIZE[1] * 3 // 2, SIZE[0]), np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, "yuv420p")
            frame.pts = number
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    sources = [frame for frame in read(path, deinterlace=False) for _ in rows]
    with VideoReader(str(path), deinterlace=True, double_rate=double_rate) as reader:
        frames = list(reader.frames())
        (middle,) = reader.frames(frames[3].pts, frames[4].pts)
    assert {frame.real_rows for frame in sources} == {None}
    assert [frame.real_rows for frame in frames] == [row ^ (not top) for row in rows] * 5
    assert middle.real_rows == frames[3].real_rows
    for frame, source in zip(frames, sources, strict=True):
        for plane, original in zip(frame.planes, source.planes, strict=True):
            real, other = plane[frame.real_rows :: 2], plane[1 - frame.real_rows :: 2]
            np.testing.assert_array_equal(real, original[frame.real_rows :: 2])
            assert (other != original[1 - frame.real_rows :: 2]).mean() > 0.5


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_the_output_is_progressive_with_the_same_times_and_sound(tmp_path, suffix):
    source, output = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    write_video(source, 6, *MARKED[:1], options=MARKED[1], times=[0, 40, 80, 200, 240, 280], time_base=TICK)
    assert probe(str(source)).video.interlaced
    assert not warned(source, output, deinterlace=True)
    assert not probe(str(output)).video.interlaced
    with av.open(str(output)) as found:
        assert found.streams.video[0].codec_context.field_order == 1
    assert [frame.pts for frame in read(output)] == [frame.pts for frame in read(source)]


@pytest.mark.parametrize("option", ["deinterlace", "double_rate"])
def test_a_progressive_video_passes_untouched_with_a_warning(tmp_path, option):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(source, 4)
    (warning,) = warned(source, output, **{option: True})
    assert f"`{option}` changed nothing" in warning.message
    for found, expected in zip(read(output), read(source, deinterlace=False), strict=True):
        np.testing.assert_array_equal(found.planes[0], expected.planes[0])


def turning_video(path: Path, size: tuple[int, int] = SIZE) -> None:
    """Six pictures that are marked as progressive, then six as interlaced, in one stream."""
    packets: list[Any] = []
    with av.open(str(path), "w") as output:
        target: Any = None
        for options in ({**MARKED[1], "x264-params": ""}, MARKED[1]):
            with av.open(io.BytesIO(), "w", format="mpegts") as scratch:
                stream = scratch.add_stream("libx264", rate=25, options=options)
                stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
                for number in range(6):
                    packets += stream.encode(video_frame("yuv420p", woven("yuv420p", number, size, True)))
                packets += stream.encode(None)
                target = target or output.add_stream_from_template(stream)
        for number, packet in enumerate(packets):
            packet.stream, packet.duration, packet.time_base = target, 40, TICK
            packet.pts = packet.dts = number * 40
            output.mux(packet)


def test_a_video_that_turns_interlaced_later_is_warned_about_once(tmp_path):
    source = tmp_path / "in.ts"
    turning_video(source)
    assert not probe(str(source)).video.interlaced
    (warning,) = warned(source, tmp_path / "out.mkv")
    assert warning.frame == 6 and "see `deinterlace`" in warning.message
    assert not warned(source, tmp_path / "other.mkv", deinterlace=True)
    assert [frame.real_rows for frame in read(source)] == [None] * 6 + [1] * 6  # x264 says bottom first
    pairs = zip(read(source, deinterlace=False), read(source), strict=True)
    changed = [bool((old.planes[0] != new.planes[0]).any()) for old, new in pairs]
    assert changed == [False] * 6 + [True] * 6


def test_combs_before_the_first_marked_frame_are_warned_about_once(tmp_path):
    turning_video(tmp_path / "in.ts", (160, 96))
    (warning,) = warned(tmp_path / "in.ts", tmp_path / "out.mkv", deinterlace=False)
    assert "not marked as interlaced, but it looks so" in warning.message


@pytest.mark.parametrize(
    "pix_fmt, size, message",
    [
        ("yuv420p", (8, 6), "8x6 is too small to deinterlace yuv420p"),
        ("gray10le", (64, 48), "gray10le can't be deinterlaced without a loss"),
    ],
)
def test_formats_that_the_filter_does_not_support_are_refused_before_work(tmp_path, pix_fmt, size, message):
    path = tmp_path / "video.mkv"
    write_video(path, 2, pix_fmt=pix_fmt, size=size, options={"field_order": "tt"})
    with pytest.raises(MediaError, match=message):
        VideoReader(str(path), deinterlace=True)
    write_video(path, 2, pix_fmt=pix_fmt, size=size)  # progressive, so there is nothing to do
    assert len(read(path)) == 2


@pytest.mark.parametrize(
    "call, raised, message",
    [
        (lambda: VideoReader("-", deinterlace=True), MediaError, "pipe can't be deinterlaced here"),
        (lambda: vidrestore.restore("-", "-", task="denoise", sigma=10), PlanError, "interlaced"),
    ],
)
def test_an_interlaced_pipe_is_refused_with_the_way_out(monkeypatch, call, raised, message):
    data = b"YUV4MPEG2 W64 H48 F25:1 It C420jpeg\nFRAME\n" + bytes(64 * 48 * 3 // 2)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(raised, match=f"{message}.*do it before: ffmpeg"):
        call()


@pytest.mark.parametrize("count, looks", [(4, 1), (5, 1), (9, 2), (60, 6)])
def test_interlacing_is_looked_for_in_frames_that_were_not_seen_yet(count, looks):
    pixels = PixelFormat("yuv420p", "yuv", 8, 1, 1)
    rate = Fraction(25)
    video = VideoInfo(0, "ffv1", 96, 64, pixels, 1 / rate, rate, rate, start=0, duration=count)
    starts: list[int | None] = []

    def frames_from(start: int | None) -> Iterator[Frame]:
        starts.append(start)
        return (frame for frame in ())

    assert measured_order(video, frames_from) is None
    assert len(starts) == looks and starts[0] is None
