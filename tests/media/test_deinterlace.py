"""Interlaced videos are deinterlaced frame for frame, wherever their field order is stored."""

import io
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.filter import Graph
from numpy.typing import NDArray
from sample_videos import sample_planes, video_frame, write_stream, write_video
from written_videos import frames_of

import vidrestore
from vidrestore.errors import MediaError
from vidrestore.events import Event, Warned
from vidrestore.media.reading.probe import probe
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.reading.scan import Scan
from vidrestore.pixels.frames import Frame
from vidrestore.settings.options import EncoderOptions

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
    smooth = np.linspace(60, 100, height).astype(planes[0].dtype)[:, None] * (
        int(planes[0].max()) // 100
    )
    planes[0][:, STILL:] = smooth
    planes[0][:, (bar < 6) & (np.arange(width) >= STILL)] = 2 * planes[0].max()
    return planes


def woven(
    pix_fmt: str, number: int, size: tuple[int, int], top: bool, step: int = 1
) -> tuple[Plane, ...]:
    """Frame `number` of an interlaced video: every other row comes half a frame, or `step` moments, later."""
    first, second = (
        moment(pix_fmt, step * time, size) for time in (2 * number, 2 * number + 1)
    )
    for early, late in zip(first, second, strict=True):
        early[top::2] = late[top::2]
    return tuple(first)


MARKED = ("libx264", {"qp": "0", "x264-params": "tff=1", "preset": "ultrafast"})
CODECS = {
    "marked, top first": (*MARKED, "yuv420p", True),
    "marked, bottom first": (
        "libx264",
        MARKED[1] | {"x264-params": "bff=1"},
        "yuv420p",
        False,
    ),
    "marked, 10 bits": (*MARKED, "yuv420p10le", True),
    "the stream says it, top first": ("ffv1", {"field_order": "tt"}, "yuv422p", True),
    "the stream says it, bottom first": (
        "ffv1",
        {"field_order": "bb"},
        "yuv422p10le",
        False,
    ),
}


def interlaced_video(
    path: Path,
    codec: str,
    options: dict[str, str],
    pix_fmt: str,
    top: bool,
    size: tuple[int, int] = SIZE,
) -> None:
    frames = [
        video_frame(pix_fmt, woven(pix_fmt, number, size, top), number)
        for number in range(9)
    ]
    write_stream(
        path,
        [marked(frame, top) if codec == "libx264" else frame for frame in frames],
        codec,
        options,
    )


def marked(frame: av.VideoFrame, top: bool) -> av.VideoFrame:
    """The frame with flags that say interlaced and which field is first; x264 writes those of the frame."""
    graph, frame.time_base = Graph(), Fraction(1, 25)
    shape = {"width": frame.width, "height": frame.height, "format": frame.format}
    source = graph.add_buffer(**shape, time_base=frame.time_base)
    marking = graph.add("setfield", "tff" if top else "bff")
    graph.link_nodes(source, marking, graph.add("buffersink")).configure()
    graph.vpush(frame)
    return graph.vpull()


read = partial(frames_of, scan="auto")


def error(planes: list[Frame], pix_fmt: str, size: tuple[int, int] = SIZE) -> float:
    """Mean distance of luma from the moments at which the frames' first fields were seen."""
    expected = [
        moment(pix_fmt, 2 * at, size)[0].astype(float) for at in range(len(planes))
    ]
    differences = [
        np.abs(frame.planes[0] - other)
        for frame, other in zip(planes, expected, strict=True)
    ]
    return float(np.mean(differences) / planes[0].planes[0].max())


def warned(source: Path, output: Path, **options: Any) -> list[Warned]:
    """The warnings of a restoration that changes nothing."""
    events: list[Event] = []
    vidrestore.restore(
        source,
        output,
        task="<identity>",
        encoder=LOSSLESS,
        on_event=events.append,
        **options,
    )
    return [event for event in events if isinstance(event, Warned)]


@pytest.mark.parametrize("kind", CODECS)
def test_still_areas_stay_as_they_are_and_moving_ones_lose_their_combs(tmp_path, kind):
    path, pix_fmt = tmp_path / "video.mkv", CODECS[kind][2]
    interlaced_video(path, *CODECS[kind])
    before, after = read(path, scan=None), read(path)
    assert not any(frame.interlaced for frame in after)
    for old, new in zip(before, after, strict=True):
        assert (new.pts, new.duration) == (old.pts, old.duration)
        np.testing.assert_array_equal(
            new.planes[0][:, : STILL - 4], old.planes[0][:, : STILL - 4]
        )
        for plane in (1, 2):
            np.testing.assert_array_equal(new.planes[plane], old.planes[plane])
    assert error(after, pix_fmt) < error(before, pix_fmt) / 4


@pytest.mark.parametrize("size", [(63, 47), (33, 33)])
def test_odd_sizes_are_deinterlaced(tmp_path, size):
    path = tmp_path / "video.mkv"
    interlaced_video(path, "ffv1", {"field_order": "tt"}, "yuv420p", True, size)
    before, after = read(path, scan=None), read(path)
    assert [plane.shape for plane in after[0].planes] == [
        plane.shape for plane in before[0].planes
    ]
    assert error(after, "yuv420p", size) < error(before, "yuv420p", size) / 3


@pytest.mark.parametrize(
    "kind", ["marked, top first", "the stream says it, bottom first"]
)
def test_reading_from_the_middle_gives_the_frames_of_a_full_read(tmp_path, kind):
    path = tmp_path / "video.mkv"
    interlaced_video(path, *CODECS[kind])
    whole = read(path)
    for at in (0, 1, 4, 8):
        part = read(path, whole[at].pts)
        assert [frame.pts for frame in part] == [frame.pts for frame in whole[at:]]
        for result, expected in zip(part, whole[at:], strict=True):
            np.testing.assert_array_equal(result.planes[0], expected.planes[0])
    with VideoReader(str(path), scan="auto") as reader:
        (result,) = reader.frames(whole[3].pts, whole[4].pts)
    np.testing.assert_array_equal(result.planes[0], whole[3].planes[0])
    assert result.duration == whole[3].duration


@pytest.mark.parametrize("double_rate, rows", [(False, (0,)), (True, (0, 1))])
@pytest.mark.parametrize("top", [True, False])
def test_frames_tell_which_rows_of_all_their_planes_are_those_of_the_source(
    tmp_path, double_rate, rows, top
):
    path, noise = tmp_path / "video.mkv", np.random.default_rng(0)
    pictures = [
        noise.integers(0, 255, (SIZE[1] * 3 // 2, SIZE[0]), np.uint8) for _ in range(5)
    ]
    frames = [av.VideoFrame.from_ndarray(picture, "yuv420p") for picture in pictures]
    write_stream(path, frames, "ffv1", {"field_order": "tt" if top else "bb"})
    sources = [frame for frame in read(path, scan=None) for _ in rows]
    with VideoReader(str(path), scan="auto", double_rate=double_rate) as reader:
        frames = list(reader.frames())
        (middle,) = reader.frames(frames[3].pts, frames[4].pts)
    assert {frame.real_rows for frame in sources} == {None}
    assert [frame.real_rows for frame in frames] == [
        row ^ (not top) for row in rows
    ] * 5
    assert middle.real_rows == frames[3].real_rows
    for frame, source in zip(frames, sources, strict=True):
        for plane, original in zip(frame.planes, source.planes, strict=True):
            real, other = plane[frame.real_rows :: 2], plane[1 - frame.real_rows :: 2]
            np.testing.assert_array_equal(real, original[frame.real_rows :: 2])
            assert (other != original[1 - frame.real_rows :: 2]).mean() > 0.5


def test_frames_of_first_fields_hold_the_second_ones_beside_them(tmp_path):
    path = tmp_path / "video.mkv"
    interlaced_video(path, "ffv1", {"field_order": "tt"}, "yuv420p", True)
    with VideoReader(str(path), scan="tff", double_rate=True) as reader:
        fields = list(reader.frames())
    with VideoReader(str(path), scan="tff") as reader:
        frames = list(reader.frames())
        (middle,) = reader.frames(frames[5].pts, frames[6].pts)
    assert len(fields) == 2 * len(frames) and not any(field.second for field in fields)
    for frame, first, second in zip(
        [*frames, middle],
        [*fields[::2], fields[10]],
        [*fields[1::2], fields[11]],
        strict=True,
    ):
        for place, plane in enumerate(frame.planes):
            np.testing.assert_array_equal(plane, first.planes[place])
            np.testing.assert_array_equal(frame.second[place], second.planes[place])


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_the_fields_of_a_lone_frame_are_half_a_frame_apart(tmp_path, suffix):
    """Both had one time, which .mkv refused, and .mp4 ended in a traceback."""
    write_video(tmp_path / f"one{suffix}", 1, *MARKED[:1], options=MARKED[1])
    with VideoReader(str(tmp_path / f"one{suffix}")) as reader:
        rate = reader.info.video.rate
    summary = vidrestore.restore(
        tmp_path / f"one{suffix}", tmp_path / f"two{suffix}", sigma=5, double_rate=True
    )
    assert summary.frames == 2
    with VideoReader(str(tmp_path / f"two{suffix}")) as reader:
        first, second = reader.frames()
        apart = (second.pts - first.pts) * reader.info.video.time_base
    assert float(apart) == pytest.approx(float(1 / rate / 2), abs=1e-3)


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_the_output_is_progressive_with_the_same_times_and_sound(tmp_path, suffix):
    source, output = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    write_video(
        source,
        6,
        *MARKED[:1],
        options=MARKED[1],
        times=[0, 40, 80, 200, 240, 280],
        time_base=TICK,
    )
    assert probe(str(source)).video.interlaced
    assert not warned(source, output)
    assert not probe(str(output)).video.interlaced
    with av.open(str(output)) as result:
        assert result.streams.video[0].codec_context.field_order == 1
    assert [frame.pts for frame in read(output)] == [
        frame.pts for frame in read(source)
    ]


@pytest.mark.parametrize(
    "options, count",
    [
        ({"scan": "bff"}, 9),
        ({"scan": "film"}, 8),
        ({"double_rate": True}, 18),
        ({"scan": "progressive"}, 9),
    ],
)
def test_a_scan_that_is_asked_for_has_its_effect_on_any_video(tmp_path, options, count):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(source, 9)
    assert not warned(source, output, **options)
    results, sources = read(output, scan=None), read(source, scan=None)
    assert len(results) == count
    same = (
        len(results) == len(sources)
        and (results[4].planes[0] == sources[4].planes[0]).all()
    )
    assert same == (options.get("scan") == "progressive")


def turning_video(path: Path, size: tuple[int, int]) -> None:
    """Six pictures that are marked as progressive, and are, then six as interlaced, in one stream."""
    packets: list[Any] = []
    with av.open(str(path), "w") as output:
        target: Any = None
        for options in ({**MARKED[1], "x264-params": ""}, MARKED[1]):
            with av.open(io.BytesIO(), "w", format="mpegts") as scratch:
                stream = scratch.add_stream("libx264", rate=25, options=options)
                stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
                for number in range(6):
                    planes = woven("yuv420p", number, size, True, 3)
                    if options != MARKED[1]:
                        planes = tuple(moment("yuv420p", 6 * number, size))
                    packets += stream.encode(video_frame("yuv420p", planes))
                packets += stream.encode(None)
                target = target or output.add_stream_from_template(stream)
        for number, packet in enumerate(packets):
            packet.stream, packet.duration, packet.time_base = target, 40, TICK
            packet.pts = packet.dts = number * 40
            output.mux(packet)


def test_a_video_that_turns_interlaced_later_is_deinterlaced_from_there_on(tmp_path):
    source = tmp_path / "in.ts"
    turning_video(source, (160, 96))
    assert not probe(str(source)).video.interlaced
    with VideoReader(str(source), scan="auto") as reader:
        assert reader.scan == Scan("mixed")
        frames = list(reader.frames())
        part = list(reader.frames(frames[8].pts, frames[11].pts))
    (warning,) = warned(source, tmp_path / "out.mkv")
    assert (
        warning.frame == 6 and "turns interlaced here; marked frames" in warning.message
    )
    # x264 says bottom first
    assert [frame.real_rows for frame in frames] == [None] * 6 + [1] * 6
    pairs = zip(read(source, scan=None), frames, strict=True)
    changed = [bool((old.planes[0] != new.planes[0]).any()) for old, new in pairs]
    assert changed == [False] * 6 + [True] * 6
    for result, expected in zip(part, frames[8:11], strict=True):
        np.testing.assert_array_equal(result.planes[0], expected.planes[0])
    assert not warned(source, tmp_path / "combed.mkv", scan="progressive")


@pytest.mark.parametrize(
    "pix_fmt, size, message",
    [
        ("yuv420p", (8, 6), "8x6 is too small to deinterlace yuv420p"),
        ("gray10le", (64, 48), "gray10le can't be deinterlaced without a loss"),
    ],
)
def test_formats_that_the_filter_does_not_support_are_refused_before_work(
    tmp_path, pix_fmt, size, message
):
    path = tmp_path / "video.mkv"
    write_video(path, 2, pix_fmt=pix_fmt, size=size, options={"field_order": "tt"})
    with pytest.raises(MediaError, match=message):
        VideoReader(str(path), scan="tff")
    with pytest.raises(MediaError, match=message):
        warned(path, tmp_path / "out.mkv")
    # progressive, so there is nothing to do
    write_video(path, 2, pix_fmt=pix_fmt, size=size)
    assert len(read(path)) == 2


@pytest.mark.parametrize("mark, scan", [("t", "auto"), ("p", "tff")])
def test_an_interlaced_pipe_is_deinterlaced_by_its_marks_or_as_asked(
    tmp_path, monkeypatch, mark, scan
):
    interlaced_video(
        tmp_path / "in.mkv",
        *CODECS["the stream says it, top first"][:2],
        "yuv420p",
        True,
    )
    frames = b"".join(
        b"FRAME\n" + b"".join(plane.tobytes() for plane in frame.planes)
        for frame in read(tmp_path / "in.mkv", scan=None)
    )
    data = f"YUV4MPEG2 W64 H48 F25:1 I{mark} C420jpeg\n".encode() + frames
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    with VideoReader("-", scan=scan) as reader:
        piped = list(reader.frames())
    for result, expected in zip(piped, read(tmp_path / "in.mkv"), strict=True):
        assert result.real_rows == expected.real_rows == 0
        np.testing.assert_array_equal(result.planes[0], expected.planes[0])
