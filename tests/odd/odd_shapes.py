"""Whole inputs of odd sizes, lengths, times and pixels."""

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

import av
import odd_files as files
from odd_case import Case, Outcome, kept, of_bytes, of_clip, of_video, refused
from odd_files import X264, clip, joined


def sizes() -> Iterator[Case]:
    """Sizes that few think of, and very few frames."""
    part = partial(of_video, "size")
    for size in ((1, 1), (1, 48), (64, 1), (2, 2), (3, 5), (7, 48), (65, 49), (17, 8)):
        outcome = kept(3)
        yield part(
            f"{size[0]}x{size[1]}", "video.mkv", outcome, "rawvideo", 3, size=size
        )
    yield part(
        "1x1, gray", "video.mkv", kept(3), "rawvideo", 3, size=(1, 1), pix_fmt="gray"
    )
    yield part("a strip of 4098x2", "video.mkv", kept(2), "rawvideo", 2, size=(4098, 2))
    yield part("a strip of 2x4098", "video.mkv", kept(2), "rawvideo", 2, size=(2, 4098))
    yield part("65x49, MP4", "video.mp4", kept(3), "mpeg4", 3, size=(65, 49))
    count = partial(of_video, "frames")
    codecs = {
        "mp4": "libx264",
        "mkv": "ffv1",
        "ts": "mpeg2video",
        "avi": "mpeg4",
        "webm": "libvpx-vp9",
    }
    for kind, codec in codecs.items():
        yield count(f".{kind}: 1 frame", f"video.{kind}", kept(1), codec, 1)
        yield count(f".{kind}: 2 frames", f"video.{kind}", kept(2), codec, 2)
    none, nothing = partial(of_bytes, "frames"), refused("the file holds: nothing")
    yield none("MP4: 0 frames", "video.mp4", partial(empty, "mp4"), nothing)
    yield none(
        "MKV: 0 frames", "video.mkv", partial(empty, "matroska"), refused("0 frames")
    )
    yield none("AVI: 0 frames", "video.avi", partial(empty, "avi"), refused("0 frames"))
    yield none(
        "fragments: 0 frames",
        "video.mp4",
        partial(empty, "mp4", files.FRAGMENTS),
        refused("0 frames"),
    )
    yield none(
        "y4m: 0 frames", "video.y4m", lambda: clip("y4m")[:62], refused("video.y4m")
    )


def empty(container: str, options: dict[str, str] | None = None) -> bytes:
    memory = io.BytesIO()
    with av.open(memory, "w", format=container, container_options=options) as output:
        stream = output.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        output.start_encoding()
    return memory.getvalue()


MS = Fraction(1, 1000)
GAPS = (0, 40, 41, 200, 233, 500, 512, 600, 610, 900, 1000, 5000)


def times() -> Iterator[Case]:
    """Frames that come when nobody expects them, or without a time; pictures that are turned."""
    part = partial(of_video, "times", codec="libx264", options=X264, time_base=MS)
    yield part("MKV of varying rate", "video.mkv", kept(12), times=GAPS)
    yield part("MP4 of varying rate", "video.mp4", kept(12), times=GAPS)
    yield part(
        "a gap of 3 hours",
        "video.mp4",
        kept(4),
        frames=4,
        times=(0, 40, 10_800_000, 10_800_040),
    )
    hours = range(36_000_000, 36_000_160, 40)
    yield part("begins after 10 hours", "video.mkv", kept(4), frames=4, times=hours)
    before, as_it_is = (
        kept(12, moved=True, says="begins 0.200 s before 0"),
        {"avoid_negative_ts": "disabled"},
    )
    early = {"times": range(-200, 280, 40), "time_base": MS, "container": as_it_is}
    yield of_video(
        "times", "begins before 0, MKV", "video.mkv", before, "ffv1", **early
    )
    close, coarse = (
        (0, 4, 5, *range(30, 300, 30)),
        refused("counts 1/1000 s, use -o NAME.mp4"),
    )
    into_mkv = {
        "times": close,
        "time_base": Fraction(1, 12000),
        "arguments": ("-o", "out.mkv"),
    }
    yield part("two frames in a tick of MKV", "video.mp4", coarse, **into_mkv)
    fine = Fraction(1, 1_000_000)
    yield part(
        "ticks of 1/1000000 s",
        "video.mp4",
        kept(12),
        times=range(7, 480_007, 40_000),
        time_base=fine,
    )
    late = partial(of_bytes, "times")
    middle = replace(
        kept(12, says="lies in the middle between its neighbours"), mended=True
    )
    yield late(
        "MKV: a time comes twice",
        "video.mkv",
        partial(retimed, "matroska", twice),
        middle,
    )
    several, timeless = refused("joined from several"), lambda number: None
    yield late(
        "MKV: times go back", "video.mkv", partial(retimed, "matroska", back), several
    )
    yield late(
        "NUT without times of showing",
        "video.nut",
        partial(retimed, "nut", timeless),
        kept(12),
    )
    yield late("raw H.264 with B-frames", "video.h264", partial(clip, "h264"), kept(12))
    yield late("raw MPEG-2", "video.m2v", partial(clip, "mpeg2"), kept(12))
    for what, edits, outcome in EDITS:
        edit = partial(edited, edits=edits)
        yield of_clip("edit list", what, "mp4, index last", edit, outcome, apart=True)
    turned = partial(of_video, "turned", codec="libx264", options=X264)
    for degrees in (90, 180, -90, 30):
        display = {"display": {"degrees": degrees}}
        yield turned(f"by {degrees} degrees", "video.mp4", kept(12), settings=display)
    yield turned(
        "mirrored, MKV",
        "video.mkv",
        kept(12),
        settings={"display": {"degrees": 0, "hflip": True}},
    )


Edits = tuple[tuple[int, int], ...]
EDITS: tuple[tuple[str, Edits, Outcome], ...] = (
    ("the first 4 frames are hidden", ((320, 3072),), kept(8)),
    ("begins late", ((500, -1), (480, 1024)), kept(12)),
    ("plays a part twice", ((240, 1024), (240, 1024)), kept(12)),
    ("plays nothing", ((480, 1 << 30),), refused("video.mp4")),
    ("lasts a year", ((-2, 1024),), kept(12)),
)


def edited(data: bytes, edits: Edits) -> bytes:
    return files.with_edits(data, *edits)


def twice(number: int) -> int:
    return 40 * max(0, number - (number > 5))


def back(number: int) -> int:
    return 20 + 40 * (number % 6)


def retimed(container: str, time: Callable[[int], int | None]) -> bytes:
    """Twelve packets of MPEG-4 with these times of showing, in ms."""
    memory = io.BytesIO()
    with (
        av.open(io.BytesIO(clip("m4v"))) as source,
        av.open(memory, "w", format=container) as output,
    ):
        stream = output.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.size]
        for number, packet in enumerate(packets):
            packet.stream, packet.time_base = stream, MS
            packet.pts, packet.dts = time(number), number
            output.mux_one(packet)
    return memory.getvalue()


KEPT_FORMATS = (
    *(
        "gray",
        "yuv410p",
        "yuv411p",
        "yuv420p",
        "yuv422p",
        "yuv440p",
        "yuv444p",
        "yuva420p",
        "yuva444p10le",
    ),
    *(
        "yuv420p9le",
        "yuv420p10le",
        "yuv422p12le",
        "yuv444p14le",
        "yuv444p16le",
        "gray10le",
        "gray16le",
    ),
    *("gbrp10le", "gbrap12le", "bgr0"),
)
RAW_FORMATS = ("nv12", "yuyv422", "uyvy422", "rgb24", "bgra", "gray16be")
REFUSED_FORMATS = ("rgb8", "monob")


def pixels() -> Iterator[Case]:
    """Formats of pixels, ranges, tags and fields."""
    part = partial(of_video, "pixels")
    for name in KEPT_FORMATS:
        yield part(name, "video.mkv", kept(3), "ffv1", 3, pix_fmt=name)
    for name in RAW_FORMATS:
        yield part(f"{name}, raw", "video.nut", kept(3), "rawvideo", 3, pix_fmt=name)
    for name in REFUSED_FORMATS:
        words = refused(f"{name} is not supported; convert")
        yield of_bytes(
            "pixels", f"{name}, raw", "video.nut", partial(blank, name), words
        )
    unkept = refused("no encoder here keeps ya8; convert")
    yield part("ya8, raw", "video.nut", unkept, "rawvideo", 3, pix_fmt="ya8")
    yield part(
        "full range of an old kind",
        "video.mkv",
        kept(3),
        "mjpeg",
        3,
        pix_fmt="yuvj422p",
    )
    h264 = partial(part, outcome=kept(3), codec="libx264", frames=3)
    tags = {"colorspace": 9, "color_primaries": 9, "color_trc": 16, "color_range": 2}
    for name in ("video.mkv", "video.mp4"):
        yield h264(
            f"BT.2020 PQ of full range, {name[5:]}", name, options=X264, settings=tags
        )
    reserved = {"color_trc": 3, "color_primaries": 3}
    yield h264("tags that are reserved", "video.mkv", options=X264, settings=reserved)
    shape = {"sample_aspect_ratio": Fraction(64, 45)}
    yield h264("pixels of 64:45, .mp4", "video.mp4", settings=shape)
    yield h264("pixels of 64:45, .mkv", "video.mkv", settings=shape)
    yield part(
        "pixels of 64:45, .avi", "video.avi", kept(3), "mpeg4", 3, settings=shape
    )
    yield h264(
        "pixels of 1:300",
        "video.mkv",
        settings={"sample_aspect_ratio": Fraction(1, 300)},
    )
    fields = partial(of_video, "fields", codec="libx264", frames=4)
    for order in ("tff", "bff"):
        marked = {"x264-params": f"{order}=1"}
        plain = {"options": marked, "arguments": ("--scan", "progressive")}
        yield fields(
            f"interlaced, {order}, --scan progressive", "film.mkv", kept(4), **plain
        )
        # other samples, as it is deinterlaced
        lossy = {"options": marked, "arguments": ("--encoder", "libx264")}
        yield fields(f"interlaced, {order}", "film.mkv", kept(4), **lossy)
    settings = ({}, {"x264-params": "tff=1"})
    turns = "frame 12: warning: the video turns interlaced here"
    yield of_bytes(
        "fields", "turns interlaced", "video.ts", lambda: joined(settings), kept(24, says=turns),
        arguments=("--encoder", "libx264"),
    )  # fmt: skip


def blank(pix_fmt: str) -> bytes:
    memory = io.BytesIO()
    with av.open(memory, "w", format="nut") as output:
        stream = output.add_stream("rawvideo", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, pix_fmt
        frame = av.VideoFrame(64, 48, pix_fmt)
        frame.pts = 0
        output.mux([*stream.encode(frame), *stream.encode(None)])
    return memory.getvalue()
