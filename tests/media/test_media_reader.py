"""Frames come out of a file with the samples and times that went in, from the start and from anywhere."""

import gc
import io
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from odd_videos import Content, write_content
from sample_videos import (
    copy_packets,
    encoded,
    sample_planes,
    video_frame,
    write_stream,
    write_video,
)

from vidrestore.errors import MediaError, OptionError
from vidrestore.media.reading.probe import probe
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pixels.frames import ColourTags

MS = Fraction(1, 1000)
IRREGULAR = [0, 40, 41, 200, 233, 500, 512, 600, 610, 900, 1000, 1040]  # ms


def read(path: Path, start_pts: int | None = None, threads: int = 0):
    with VideoReader(str(path), threads=threads) as reader:
        frames = list(reader.frames(start_pts))
        assert not reader.damage.found, reader.damage.sentence
        return frames


def delivered(pix_fmt, planes):
    """FFmpeg keeps planar RGB as G, B, R."""
    return (
        (planes[2], planes[0], planes[1], *planes[3:])
        if pix_fmt.startswith("gbr")
        else planes
    )


def assert_same_planes(found, expected):
    assert len(found) == len(expected)
    for plane, wanted in zip(found, expected, strict=True):
        assert plane.dtype == wanted.dtype
        np.testing.assert_array_equal(plane, wanted)


CHROMA = ["420", "422", "444", "411", "440", "410"]
LOSSLESS = [
    *((f"yuv{chroma}p", "ffv1", "mkv") for chroma in CHROMA),
    *(
        (f"yuv{chroma}p{depth}le", "ffv1", "mkv")
        for chroma in CHROMA[:3]
        for depth in (9, 10, 12, 14, 16)
    ),
    *((f"yuv440p{depth}le", "ffv1", "mkv") for depth in (10, 12)),
    *(
        (f"yuva{chroma}p{depth}", "ffv1", "mkv")
        for chroma in CHROMA[:3]
        for depth in ("", "10le", "16le")
    ),
    *(
        (name, "ffv1", "mkv")
        for name in ("gray", "gray9le", "gray10le", "gray12le", "gray14le", "gray16le")
    ),
    *(
        (name, "ffv1", "mkv")
        for name in ("gbrp9le", "gbrp10le", "gbrp12le", "gbrp14le", "gbrp16le")
    ),
    *(
        (name, "ffv1", "mkv")
        for name in ("gbrap10le", "gbrap12le", "gbrap14le", "gbrap16le", "gbrpf32le")
    ),
    *(
        (name, "utvideo", "avi")
        for name in ("gbrp", "gbrap", "yuv420p", "yuv422p", "yuv444p")
    ),
    *(
        (f"yuv{chroma}p{depth}", "libx264", "mp4")
        for chroma in CHROMA[:3]
        for depth in ("", "10le")
    ),
    *(
        (name, "libx265", "mp4")
        for name in ("yuv420p12le", "yuv422p12le", "yuv444p12le", "gbrp", "gray12le")
    ),
    *((name, "rawvideo", "avi") for name in ("yuv420p", "yuv422p")),
]
LOSSLESS_OPTIONS = {
    "libx264": {"qp": "0", "preset": "ultrafast"},
    "libx265": {"x265-params": "lossless=1:log-level=none", "preset": "ultrafast"},
    "ffv1": {"strict": "experimental"},
}


@pytest.mark.parametrize("pix_fmt, codec, suffix", LOSSLESS)
def test_every_sample_comes_out_as_it_went_in(tmp_path, pix_fmt, codec, suffix):
    path = tmp_path / f"lossless.{suffix}"
    pictures = write_video(path, 3, codec, pix_fmt, options=LOSSLESS_OPTIONS.get(codec))
    assert probe(str(path)).video.format.name == pix_fmt
    frames = read(path)  # all of them held while the decoder went on
    for frame, planes in zip(frames, pictures, strict=True):
        assert all(
            plane.flags.owndata and plane.flags.writeable for plane in frame.planes
        )
        assert_same_planes(frame.planes, delivered(pix_fmt, planes))


@pytest.mark.parametrize("flip", ["0", "1"])
@pytest.mark.parametrize("pix_fmt", ["bgr24", "bgra"])
def test_rows_stored_bottom_up_are_turned(tmp_path, pix_fmt, flip):
    path = tmp_path / "upside.avi"
    planes = sample_planes("gbrp", 0, 30, 20)
    frame = video_frame("gbrp", planes).reformat(format=pix_fmt)
    # 1: bottom-up
    write_stream(path, [frame], "rawvideo", container_options={"flip_raw_rgb": flip})
    (frame,) = read(path)
    assert_same_planes(frame.planes[:3], delivered("gbrp", planes))


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv", "nut"])
@pytest.mark.parametrize(
    "codec, options", [("libx264", {"bf": "3", "qp": "0"}), ("mpeg4", {})]
)
def test_irregular_times_and_durations_are_exact(tmp_path, suffix, codec, options):
    if (suffix, codec) == ("nut", "libx264"):
        pytest.skip("FFmpeg's NUT writer can't hold irregular times with B-frames")
    path = tmp_path / f"irregular.{suffix}"
    write_video(
        path,
        12,
        codec,
        times=IRREGULAR,
        time_base=MS,
        last_duration=77,
        options=options,
    )
    with VideoReader(str(path)) as reader:
        base = reader.info.video.time_base
        frames = list(reader.frames())
        assert not reader.damage.found, reader.damage.sentence
    assert [frame.pts * base * 1000 for frame in frames] == IRREGULAR
    lengths = [
        after - before
        for before, after in zip(IRREGULAR, [*IRREGULAR[1:], 1117], strict=True)
    ]
    assert [frame.duration * base * 1000 for frame in frames[:-1]] == lengths[:-1]
    if suffix in ("mp4", "mov", "mkv"):
        assert frames[-1].duration * base * 1000 == 77


@pytest.mark.parametrize("suffix", ["mp4", "mov"])
def test_the_last_frame_lasts_up_to_the_end_that_a_file_of_reordered_steps_gives(
    tmp_path, suffix
):
    """Packets have durations in the order of decoding: that of 9 has 1, that of 7 has 512, all have 523."""
    path, base = tmp_path / f"steps.{suffix}", Fraction(1, 12800)
    write_content(
        path, Content(times=(0, 1, 5, 6, 7, 9), size=(16, 16), time_base=base)
    )
    with av.open(str(path)) as container:
        assert container.streams.video[0].duration == 523
        assert [packet.duration for packet in container.demux(video=0) if packet.size][
            -2:
        ] == [1, 512]
    for start, times in ((None, [0, 1, 5, 6, 7, 9]), (7, [7, 9])):
        frames = read(path, start)
        assert [frame.pts for frame in frames] == times
        assert frames[-1].pts + frames[-1].duration == 523


@pytest.mark.parametrize("suffix, start", [("mkv", 1000), ("mp4", 37), ("ts", 100)])
def test_the_start_time_of_a_late_video_is_exact(tmp_path, suffix, start):
    path = tmp_path / f"late.{suffix}"
    write_video(path, 5, "libx264", times=range(start, start + 5))
    with VideoReader(str(path)) as reader:
        base = reader.info.video.time_base
        frames = list(reader.frames())
        assert reader.info.video.start == frames[0].pts
    if suffix != "ts":  # a transport stream adds its own initial delay
        assert [round(frame.pts * base * 25) for frame in frames] == list(
            range(start, start + 5)
        )
    assert {frame.duration * base * 25 for frame in frames} == {1}


@pytest.mark.parametrize(
    "codec, options",
    [("libx264", {"bf": "0"}), ("mpeg4", {"bf": "2"}), ("mpeg4", {}), ("ffv1", {})],
)
def test_avi_frames_are_timed_by_their_number(tmp_path, codec, options):
    path = tmp_path / "numbered.avi"
    pictures = write_video(path, 12, codec, options=options)
    frames = read(path)
    assert [(frame.pts, frame.duration) for frame in frames] == [
        (number, 1) for number in range(12)
    ]
    for frame, planes in zip(frames, pictures, strict=True):
        # the right picture, as lossy as it is
        assert np.abs(frame.planes[0].astype(int) - planes[0]).mean() < 40


B_FRAMES = {"g": "12", "bf": "3", "preset": "fast"}
GROUPS = {
    "b-frames": ("libx264", B_FRAMES),
    "open groups": ("libx264", {"g": "8", "bf": "3", "x264-params": "open-gop=1:scenecut=0"}),
    "intra refresh": ("libx264", {"g": "10", "x264-params": "intra-refresh=1"}),
    "one key frame": ("libx264", {"g": "1000", "bf": "2"}),
    "open groups of H.265": (
        "libx265", {"x265-params": "keyint=8:open-gop=1:log-level=none", "preset": "fast"}),
    "open groups of MPEG-2": ("mpeg2video", {"g": "8", "bf": "2"}),
}  # fmt: skip


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "avi"])
@pytest.mark.parametrize("group", GROUPS)
def test_reading_from_a_time_gives_what_a_full_read_gives(tmp_path, suffix, group):
    path, (codec, options) = tmp_path / f"seek.{suffix}", GROUPS[group]
    if (suffix, codec) in {
        ("avi", "libx265"),
        ("avi", "mpeg2video"),
        ("mp4", "mpeg2video"),
    }:
        pytest.skip("seldom in such a file")
    write_video(
        path, 40, codec, options={**options, "bf": "0"} if suffix == "avi" else options
    )
    full = read(path)
    with VideoReader(str(path)) as reader:
        for index in (0, 1, 7, 8, 9, 11, 12, 13, 23, 25, 39):
            # the exact time of a frame, and one tick before
            for early in {0, int(full[1].pts - full[0].pts > 1)}:
                result = list(reader.frames(full[index].pts - early))
                assert not reader.damage.found, reader.damage.sentence
                assert [frame.pts for frame in result] == [
                    frame.pts for frame in full[index:]
                ]
                assert [frame.duration for frame in result] == [
                    frame.duration for frame in full[index:]
                ]
                for frame, expected in zip(result, full[index:], strict=True):
                    assert_same_planes(frame.planes, expected.planes)
        assert list(reader.frames(full[-1].pts + 1)) == []


def test_any_number_of_threads_gives_the_same_frames(tmp_path):
    path = tmp_path / "threads.mp4"
    write_video(path, 20, "libx264", options=B_FRAMES)
    one = read(path, threads=1)
    for threads in (0, 2, 5):
        for frame, expected in zip(read(path, threads=threads), one, strict=True):
            assert (frame.pts, frame.duration) == (expected.pts, expected.duration)
            assert_same_planes(frame.planes, expected.planes)


def mux_jpegs(path: Path, sizes, times, pix_fmts=None) -> None:
    """One mjpeg stream whose pictures have any size, pixel format and time."""
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mjpeg", rate=25)
        (stream.width, stream.height), stream.pix_fmt, stream.time_base = (
            sizes[0],
            "yuvj420p",
            MS,
        )
        for number, (size, time) in enumerate(zip(sizes, times, strict=True)):
            pix_fmt = pix_fmts[number] if pix_fmts else "yuvj420p"
            frame = video_frame(pix_fmt, sample_planes(pix_fmt, number, *size), 0)
            for packet in encoded("mjpeg", [frame]):
                packet.stream, packet.time_base, packet.pts, packet.dts = (
                    stream,
                    MS,
                    time,
                    number,
                )
                output.mux(packet)


STEADY, TIMES = [(64, 48)] * 8, range(0, 320, 40)


@pytest.mark.parametrize(
    "sizes, formats, place, form",
    [
        ([(64, 48)] * 5 + [(48, 40)] * 3, None, 5, "48x40 in yuvj420p, at 0.200 s"),
        ([(64, 48)] * 7 + [(128, 96)], None, 7, "128x96 in yuvj420p, at 0.280 s"),
        (
            STEADY,
            ["yuvj420p"] * 6 + ["yuvj444p"] * 2,
            6,
            "64x48 in yuvj444p, at 0.240 s",
        ),
    ],
)
def test_pictures_of_another_size_or_format_become_like_the_first_and_are_named(
    tmp_path, sizes, formats, place, form
):
    mux_jpegs(tmp_path / "a.mkv", sizes, TIMES, formats)
    with VideoReader(str(tmp_path / "a.mkv")) as reader:
        frames = list(reader.frames())
        part = list(reader.frames(TIMES[place], TIMES[place] + 1))
        assert form in reader.change_of_form and reader.change_of_form.endswith(
            "the first, 64x48 in yuvj420p"
        )
    assert not reader.damage.found
    assert [frame.pts for frame in frames] == [*TIMES]
    assert {plane.shape for frame in frames for plane in frame.planes} == {
        (48, 64),
        (24, 32),
    }
    assert_same_planes(part[0].planes, frames[place].planes)
    # what was scaled is the same gradient, at any size
    size = sizes[place]
    large = av.VideoFrame.from_ndarray(
        sample_planes("gray", place, *size)[0], "gray"
    ).reformat(64, 48)
    assert (
        np.abs(frames[place].planes[0] - large.to_ndarray().astype(float)).mean() < 40
    )


def test_a_picture_that_was_turned_has_bars_and_keeps_its_shape(tmp_path):
    mux_jpegs(tmp_path / "a.mkv", [(64, 48)] * 7 + [(48, 64)], TIMES)
    with VideoReader(str(tmp_path / "a.mkv")) as reader:
        luma = list(reader.frames())[-1].planes[0]
    assert luma.shape == (48, 64)
    # 36 columns are left of 48 for 48 rows of 64
    assert luma[:, :12].max() == luma[:, -12:].max() == 0
    assert (luma[:, 16:-16].std(0) > 5).all()


def test_a_picture_of_full_range_among_those_of_limited_range_keeps_its_brightness(
    given,
):
    with VideoReader(str(given("c20_range.ts"))) as reader:
        frames = list(reader.frames())
    assert len(frames) == 50
    assert all(
        np.abs(one.planes[0] - other.planes[0].astype(float)).mean() < 6
        for one, other in zip(frames[:25], frames[25:], strict=True)
    )


@pytest.mark.parametrize(
    "times, mended",
    [
        ([0, 40, 80, 120, 120, 200, 240, 280], 160),
        ([0, 40, 80, 120, 600_160, 200, 240, 280], 160),
        ([0, 40, 80, 120, 8, 200, 240, 280], 160),
        ([0, 40, 80, 120, 160, 200, 240, 240], 260),
    ],
    ids=["twice", "late", "early", "twice at the end"],
)
def test_a_time_that_repeats_or_is_out_of_step_is_the_middle_of_its_neighbours(
    tmp_path, times, mended
):
    mux_jpegs(tmp_path / "a.mkv", STEADY, times)
    expected = sorted(
        {*range(0, 320, 40)} - ({280} if mended == 260 else set()) | {mended}
    )
    with VideoReader(str(tmp_path / "a.mkv")) as reader:
        frames = list(reader.frames())
        assert [frame.pts for frame in frames] == expected
        assert reader.mended == [mended] and not reader.damage.found
        later = list(reader.frames(mended))
    assert [frame.pts for frame in later] == expected[expected.index(mended) :]
    for one, other in zip(later, frames[expected.index(mended) :], strict=True):
        assert all(
            (plane == same).all()
            for plane, same in zip(one.planes, other.planes, strict=True)
        )


@pytest.mark.data
@pytest.mark.parametrize("name", ["same_time_twice", "one_wrong_time"])
def test_a_time_of_h264_out_of_step_is_mended_without_damage(shared, name):
    with VideoReader(str(shared / "inputs" / f"{name}.mkv")) as reader:
        times = [frame.pts for frame in reader.frames()]
        assert (reader.mended, reader.damage.found) == ([520], False)
    assert times == list(range(times[0], times[0] + 40 * 25, 40))


def test_times_that_stand_still_are_refused_with_the_number_of_the_frame(tmp_path):
    mux_jpegs(tmp_path / "a.mkv", STEADY[:6], [0, 40, 80, 120, 120, 120])
    message = r"frame 4: its time \(pts 120\) is not after .* it \(120\)"
    with (
        VideoReader(str(tmp_path / "a.mkv")) as reader,
        pytest.raises(MediaError, match=message),
    ):
        list(reader.frames())


def bare(timed: Path, path: Path, **settings: Any) -> Path:
    """Copy the packets of a video to a file without times."""

    def timeless(packet: av.Packet) -> list[av.Packet]:
        packet.pts = None
        return [packet]

    return copy_packets(timed, path, timeless, **settings)


@pytest.mark.parametrize(
    ("codec", "suffix", "options"),
    [
        ("libx264", "h264", B_FRAMES),
        ("libx265", "hevc", {"x265-params": "keyint=12:bframes=3:log-level=none"}),
        ("mpeg1video", "m1v", {"bf": "2", "g": "12"}),
    ],
)
@pytest.mark.parametrize("threads", [1, 0])
def test_frames_of_a_raw_stream_have_the_rate_that_it_states(
    tmp_path, codec, suffix, options, threads
):
    write_video(
        tmp_path / "timed.mov", 20, codec, options=options, rate=Fraction(30000, 1001)
    )
    path = bare(tmp_path / "timed.mov", tmp_path / f"bare.{suffix}")
    with (
        VideoReader(str(path), threads=threads) as reader,
        VideoReader(str(tmp_path / "timed.mov")) as timed,
    ):
        frames, expected = list(reader.frames()), list(timed.frames())
        assert (
            reader.info.video.rate
            == 1 / reader.info.video.time_base
            == Fraction(30000, 1001)
        )
        assert [(frame.pts, frame.duration) for frame in frames] == [
            (number, 1) for number in range(20)
        ]
        for frame, other in zip(
            [*frames, *reader.frames(7)], expected + expected[7:], strict=True
        ):
            assert (frame.planes[0] == other.planes[0]).all()
        assert not reader.damage.found


def test_frames_lost_from_a_raw_stream_count_as_missing(tmp_path):
    write_video(tmp_path / "timed.mov", 40, "libx264", options=B_FRAMES)
    path = bare(tmp_path / "timed.mov", tmp_path / "bare.h264")
    data = bytearray(path.read_bytes())
    for place in random.Random(0).sample(range(len(data) // 2, len(data)), 60):
        data[place] ^= 0xFF
    path.write_bytes(data)
    with VideoReader(str(path)) as reader:
        frames = list(reader.frames())
        # a picture whose start is damaged may leave no trace, with some numbers of threads
        assert 39 <= reader.damage.missing_frames + len(frames) <= 40
        assert reader.damage.found
        assert [frame.pts for frame in frames] == list(range(len(frames)))


def test_a_raw_stream_without_a_rate_needs_one(tmp_path):
    options = {"x265-params": "keyint=12:vui-timing-info=0:log-level=none"}
    write_video(tmp_path / "timed.mkv", 8, "libx265", options=options)
    path = bare(tmp_path / "timed.mkv", tmp_path / "bare.hevc")
    with pytest.raises(MediaError, match="states no frame rate; give it by `fps`"):
        VideoReader(str(path))
    with VideoReader(str(path), fps=Fraction(24)) as reader:
        assert reader.info.video.rate == 24 and len(list(reader.frames())) == 8
    with pytest.raises(OptionError, match="a video has its own times"):
        VideoReader(str(tmp_path / "timed.mkv"), fps=Fraction(24))


def test_the_rate_of_raw_mpeg2_is_its_own(tmp_path):
    write_video(tmp_path / "timed.mov", 12, "mpeg2video", rate=Fraction(30000, 1001))
    path = bare(tmp_path / "timed.mov", tmp_path / "bare.m2v", format="mpeg2video")
    with VideoReader(str(path)) as reader:
        assert reader.info.video.rate == Fraction(30000, 1001)


def test_a_second_iteration_ends_the_first_and_begins_again(tmp_path):
    path = tmp_path / "twice.mkv"
    write_video(path, 12)
    with VideoReader(str(path)) as reader:
        first = reader.frames()
        assert next(first).pts == 0
        assert len(list(reader.frames())) == 12
        assert list(first) == []


def test_leaving_early_closes_the_file(tmp_path):
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("needs /proc")
    path = tmp_path / "left.mkv"
    write_video(path, 12)
    before = len(list(folder.iterdir()))
    probe(str(path))
    with VideoReader(str(path)) as reader:
        next(reader.frames())
        assert len(list(folder.iterdir())) == before + 1
    assert len(list(folder.iterdir())) == before


def test_memory_does_not_grow_with_length(tmp_path):
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("needs /proc")
    path = tmp_path / "long.mkv"
    write_video(path, 400, "mpeg4", size=(320, 240))
    gc.collect()
    gc.disable()  # so that a reference cycle per frame would show
    try:
        with VideoReader(str(path)) as reader:
            pages = [int(statm.read_text().split()[1]) for _ in reader.frames()]
    finally:
        gc.enable()
    # 300 frames of 115 kB would be 34 MB
    assert (pages[-1] - pages[100]) * 4096 < 6 << 20


Y4M = [
    ("yuv420p", {}), ("yuv422p", {}), ("yuv444p", {}), ("yuv411p", {}), ("gray", {}),
    ("gray10le", {"strict": "-1"}),
    ("yuv420p10le", {"strict": "-1"}), ("yuv422p12le", {"strict": "-1"}), ("yuv444p16le", {"strict": "-1"}),
]  # fmt: skip


@pytest.fixture
def stdin(monkeypatch):
    def feed(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return feed


@pytest.mark.parametrize("pix_fmt, options", Y4M)
@pytest.mark.parametrize("size", [(64, 48), (17, 9)])
def test_a_y4m_pipe_gives_every_sample(tmp_path, stdin, pix_fmt, options, size):
    path = tmp_path / "pipe.y4m"
    codec = "rawvideo" if options else "wrapped_avframe"
    pictures = write_video(path, 3, codec, pix_fmt, size, rate=30, container=options)
    from_file = read(path)
    stdin(path.read_bytes())
    with VideoReader("-") as reader:
        info, video = reader.info, reader.info.video
        frames = list(reader.frames())
        assert not reader.damage.found
    assert (info.path, info.container, video.format.name) == (
        "-",
        "yuv4mpegpipe",
        pix_fmt,
    )
    assert (video.time_base, video.rate) == (Fraction(1, 30), 30)
    assert (video.width, video.height, video.frames) == (*size, None)
    assert [(frame.pts, frame.duration) for frame in frames] == [(0, 1), (1, 1), (2, 1)]
    for frame, planes, same in zip(frames, pictures, from_file, strict=True):
        assert_same_planes(frame.planes, planes)
        assert_same_planes(same.planes, planes)


@pytest.mark.parametrize(
    "words, pix_fmt, colour, interlaced",
    [
        ("C420jpeg", "yuv420p", ColourTags(chroma_location=2), False),
        ("C420mpeg2 Ip", "yuv420p", ColourTags(chroma_location=1), False),
        ("C420paldv It", "yuv420p", ColourTags(chroma_location=3), True),
        ("", "yuv420p", ColourTags(chroma_location=2), False),
        ("C444 XCOLORRANGE=FULL Ib", "yuv444p", ColourTags(range=2), True),
        (
            "C420p10 XYSCSS=420P10 XCOLORRANGE=LIMITED A1:1",
            "yuv420p10le",
            ColourTags(range=1),
            False,
        ),
    ],
)
def test_a_y4m_header_is_read(stdin, words, pix_fmt, colour, interlaced):
    stdin(
        f"YUV4MPEG2 W2 H2 F2147483647:2147483646 {words}\nFRAME\n".encode() + bytes(24)
    )
    video = VideoReader("-").info.video
    assert (video.pix_fmt, video.colour, video.interlaced) == (
        pix_fmt,
        colour,
        interlaced,
    )
    assert video.time_base == Fraction(2147483646, 2147483647)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "it is empty"),
        (b"\x00\x00\x00 ftypisom" + bytes(5000), "expected a YUV4MPEG2"),
        (b"YUV4MPEG2 W2 H2 C420\n", "the y4m header has no frame rate (F), which"),
        (b"YUV4MPEG2 W2 H2 F0:0\n", "has F0:0, which"),
        (b"YUV4MPEG2 W0 H2 F25:1\n", "has W0, which"),
        (b"YUV4MPEG2 W2 F25:1\n", "has no height (H), which"),
        (b"YUV4MPEG2 W2 H2 F25:1 C422odd Im\n", "has C422odd, Im, which"),
        (b"YUV4MPEG2 W64 H48 F2147483648:1\n", "has F2147483648:1, which"),
        (b"YUV4MPEG2 W64 H48 F1:99999999999\n", "has F1:99999999999, which"),
        (b"YUV4MPEG2 W64 H48 F25:1 A99999999999:1\n", "has A99999999999:1, which"),
        (
            b"YUV4MPEG2 W32768 H32768 F25:1\n",
            "W32768 H32768 F25:1 C420jpeg' is more than FFmpeg takes",
        ),
        (b"YUV4MPEG2 W16000 H16000 F25:1\n", "pictures of 16000x16000, more than"),
        (b"YUV4MPEG2 W" + b"9" * 900 + b" H2 F25:1\n", "has W9999"),
        (b"YUV4MPEG2 W2 H2 F25:1\n", "0 frames"),
        (
            b"YUV4MPEG2 W2 H2 F25:1\nFRAME\n123456FRAME\n12345",
            "the pipe ended in the middle of frame 1",
        ),
        (
            b"YUV4MPEG2 W2 H2 F25:1\nFRAME\n123456FRA",
            "the pipe ended in the middle of frame 1",
        ),
        (
            b"YUV4MPEG2 W2 H2 F25:1\nFRAME\n123456RAME\n123456",
            "frame 1: expected a line FRAME",
        ),
    ],
)
def test_errors_of_a_pipe_are_reported(stdin, data, message):
    stdin(data)
    try:
        with VideoReader("-") as reader:
            frames = list(reader.frames())
        assert len(frames) == 1 and message in reader.damage.sentence
    except MediaError as error:
        assert message in str(error)


def test_a_pipe_is_read_once_and_from_the_start(stdin):
    stdin(b"YUV4MPEG2 W2 H2 F25:1\n" + b"FRAME\n123456" * 6)
    with VideoReader("-") as reader:
        with pytest.raises(MediaError, match="can't be read from the middle"):
            reader.frames(2)
        assert [frame.pts for frame in reader.frames(None, 4)] == [0, 1, 2, 3]
        with pytest.raises(MediaError, match="only once"):
            list(reader.frames())
