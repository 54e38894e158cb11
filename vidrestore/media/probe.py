"""The content of a video file: opened safely, described completely, the first frames decoded where the header
doesn't say.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from vidrestore.errors import MediaError
from vidrestore.frames import UNSPECIFIED, ColourTags, PixelFormat
from vidrestore.media.damage import check_memory
from vidrestore.media.formats import layout_of
from vidrestore.media.log import log_level

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.stream import Stream
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

# Demuxers that read one file and nothing else. Playlists (hls, concat, dash, imf) and devices could read
# other files or the network.
_DEMUXERS = (
    "mov", "matroska", "avi", "mpegts", "mpeg", "mpegvideo", "flv", "asf", "ogg", "mxf", "nut", "ivf", "obu",
    "gif", "apng", "yuv4mpegpipe", "h264", "hevc", "vvc", "av1", "m4v", "dv", "rm", "wtv", "gxf", "lxf",
    "nsv", "bink", "smk", "roq", "dirac",
)  # fmt: skip
_CHROMA_LOCATIONS = {
    "unspecified": 0,
    "left": 1,
    "center": 2,
    "topleft": 3,
    "top": 4,
    "bottomleft": 5,
    "bottom": 6,
}
# which field is shown first; 4 and 5 are coded in the other order
_FIELD_ORDERS = {2: "tff", 3: "bff", 4: "bff", 5: "tff"}
_PAN_OFFSETS = slice(12, 24)  # of an AVPanScan: behind id, width and height
# what a picture file starts with
_PICTURES = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"II*\0": "TIFF", b"MM\0*": "TIFF"}
# of a picture: 16K (15360x8640) and a little more; a damaged or hostile header may say anything
MOST_PIXELS = 1 << 27
MOST_TAGS = 4096  # of a file, its streams and chapters; 300 are many
_PROBED_FRAMES = 4  # enough to see a field flag, few enough to be quick


@dataclass(frozen=True)
class StreamInfo:
    """One stream of any kind; `kind` is video, audio, subtitle, attachment or data; `codec` is FFmpeg's name
    or "unknown".
    """

    index: int
    kind: str
    codec: str
    language: str | None = None
    title: str | None = None
    attached_picture: bool = False


@dataclass(frozen=True)
class VideoInfo:
    """The video stream that is restored.

    `format` is what the reader delivers (planar), `pix_fmt` what the file stores (FFmpeg's name: nv12 is
    delivered as yuv420p). `rate` is the average, `base_rate` FFmpeg's guess of the finest constant one;
    `start` and `duration` count ticks of `time_base`. `rotation` is in degrees counter-clockwise;
    `display_matrix` the nine integers it comes from (it may mirror as well). `mastering_display` is red x y,
    green x y, blue x y, white x y, darkest, brightest; `content_light` is MaxCLL, MaxFALL. `side_data` names
    what else rides on the first frames (A53_CC, DYNAMIC_HDR_PLUS, ...), and ALPHA_LAYER for a transparent VP8
    or VP9, whose second layer FFmpeg's own decoder leaves out; `reordered` says that the order of decoding is
    not that of showing (B-frames). `unmarked_order` is "tff" or "bff" where the stream says that it is
    interlaced, and which field comes first, but its frames don't.
    """

    index: int
    codec: str
    width: int
    height: int
    format: PixelFormat
    time_base: Fraction
    rate: Fraction | None = None
    base_rate: Fraction | None = None
    sample_aspect_ratio: Fraction | None = None
    rotation: int = 0
    colour: ColourTags = field(default_factory=ColourTags)
    interlaced: bool = False
    frames: int | None = None
    start: int | None = None
    duration: int | None = None
    bit_rate: int | None = None
    profile: str | None = None
    pix_fmt: str = ""
    display_matrix: tuple[int, ...] | None = None
    mastering_display: tuple[Fraction, ...] | None = None
    content_light: tuple[int, int] | None = None
    side_data: frozenset[str] = frozenset()
    reordered: bool = False
    unmarked_order: str | None = None

    @property
    def end(self) -> int | None:
        """The pts at which the stream itself says that it ends; None where it does not say."""
        return None if self.start is None or self.duration is None else self.start + self.duration


@dataclass(frozen=True)
class SourceInfo:
    """A source as a whole; `container` is FFmpeg's format name ("mov,mp4,m4a,3gp,3g2,mj2"), `duration` in
    seconds, `size` in bytes.
    """

    path: str
    container: str
    video: VideoInfo
    streams: tuple[StreamInfo, ...]
    chapters: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    duration: Fraction | None = None
    size: int | None = None


def open_input(source: str, options: Mapping[str, str] | None = None) -> InputContainer:
    """Open a file for reading, so that nothing but this one file can be read: a `file:` URL, the file
    protocol, known containers only.

    Raises MediaError where there is no such file, or where it is a folder, empty, or no video container.
    """
    import av

    _check_file(source)
    safe = {"protocol_whitelist": "file", "format_whitelist": ",".join(_DEMUXERS)}
    try:
        container = av.open(
            f"file:{source}", "r", container_options={**(options or {}), **safe}, metadata_errors="replace"
        )
    except av.error.PermissionError:
        raise MediaError(f"{source}: no permission to read it") from None
    except av.error.EOFError:
        raise MediaError(
            f"{source}: the file ends before its first frame (0 frames); record or copy it again"
        ) from None
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        if isinstance(error, MemoryError):
            check_memory()
        if picture := _picture_kind(source):
            raise MediaError(
                f"{source}: not a video file that can be read, but a still picture ({picture}); give its "
                "name that suffix, or name the folder of the pictures, or a pattern such as 'frames/%04d.png'"
            ) from None
        reason = (
            "; its header is missing or damaged"
            if isinstance(error, av.error.InvalidDataError | MemoryError)
            else f" ({error})"
        )
        raise MediaError(
            f"{source}: not a video file that can be read{reason}; expected MP4, MKV, WebM, MOV, AVI, TS or "
            "the like"
        ) from error
    _check_tags(source, container)
    if container.format.name == "avi":
        # AVI has decoding times only. PyAV asks FFmpeg to make up presentation times, which come out a frame
        # late; the reader derives them.
        made_up: Any = av.container.Flags.gen_pts.value
        container.flags &= ~made_up
    return container


def _check_tags(source: str, container: InputContainer) -> None:
    """Each tag is compared with all others whenever a file is opened or written: 20,000 took 20 s."""
    tags = len(container.metadata) + sum(len(stream.metadata) for stream in container.streams)
    tags += sum(len(chapter["metadata"]) for chapter in container.chapters())
    if tags > MOST_TAGS:
        container.close()
        raise MediaError(
            f"{source}: {tags} titles and other tags, more than the {MOST_TAGS} that are taken for possible; "
            "copy it without: ffmpeg -i IN -map 0 -map_metadata -1 -c copy OUT"
        )


def _check_file(source: str) -> None:
    if not os.path.exists(source):
        raise MediaError(f"{source}: no such file; check the path")
    if os.path.isdir(source):
        raise MediaError(f"{source}: a folder, but a video file was expected; name a file in it")
    if not os.path.isfile(source):
        raise MediaError(
            f"{source}: a pipe or device, but a file was expected: it is read more than once; pipe y4m into "
            "- instead"
        )
    if os.path.getsize(source) == 0:
        raise MediaError(f"{source}: the file is empty (0 bytes); copy or record it again")


def _picture_kind(source: str) -> str | None:
    with open(source, "rb") as file:
        start = file.read(4)
    return next((kind for magic, kind in _PICTURES.items() if start.startswith(magic)), None)


def video_stream(container: InputContainer) -> VideoStream:
    """The first video stream that is no attached picture (cover art); MediaError where there is none or no
    decoder for it.
    """
    streams = [stream for stream in container.streams.video if not _is_picture(stream)]
    source = container.name.removeprefix("file:")
    if not streams:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        pictures = " (a cover picture is not a video)" if container.streams.video else ""
        raise MediaError(f"{source}: no video stream{pictures}; the file holds: {kinds}")
    if streams[0].codec_context is None:
        raise MediaError(
            f"{source}: stream {streams[0].index}: this FFmpeg has no decoder for the video codec; convert "
            "it with another tool first"
        )
    return streams[0]


def probe(source: str) -> SourceInfo:
    """Describe a video file; decodes its first frames for what a header may not say (rotation, fields,
    colour, pixel format).

    Raises MediaError where the file can't be read, has no video or no frames, or its pixel format is not
    supported.
    """
    with open_input(source) as container:
        stream = video_stream(container)
        check_size(source, stream)
        frames = _first_frames(container, stream)
        if not frames:
            raise MediaError(
                f"{source}: the video stream has 0 frames that can be decoded; the file is empty or "
                "damaged, record or copy it again"
            )
        return SourceInfo(
            path=source,
            container=container.format.name,
            video=describe_video(source, stream, frames, container.format.name),
            streams=tuple(_describe_stream(each) for each in container.streams),
            chapters=len(container.chapters()),
            metadata=dict(container.metadata),
            duration=None if container.duration is None else Fraction(container.duration, 1_000_000),
            size=container.size if container.size > 0 else None,
        )


def check_size(source: str, stream: VideoStream) -> None:
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > MOST_PIXELS:
        raise MediaError(
            f"{source}: pictures of {width}x{height}, more than the {MOST_PIXELS} pixels that are taken for "
            "possible; if it is true, "
            "make it smaller first"
        )


def decoder_options() -> dict[str, str]:
    """For a decoder that isn't open yet: no larger pictures, and check sums are looked at where a codec has
    them.
    """
    return {"max_pixels": str(MOST_PIXELS), "err_detect": "crccheck"}


def _first_frames(container: InputContainer, stream: VideoStream) -> list[VideoFrame]:
    import av

    stream.codec_context.thread_type = "NONE"
    stream.codec_context.options = decoder_options()
    frames: list[VideoFrame] = []
    packets = container.demux(stream)
    while len(frames) < _PROBED_FRAMES:
        try:
            packet = next(packets, None)
            if packet is None:
                break
            frames += packet.decode()
        except (
            av.error.FFmpegError
        ):  # damage at the start: the reader reports it, here only a frame is wanted
            if frames:
                break
    return frames


def _is_picture(stream: Stream) -> bool:
    from av.stream import Disposition

    return bool(stream.disposition & Disposition.attached_pic)


def _describe_stream(stream: Stream) -> StreamInfo:
    context = stream.codec_context
    return StreamInfo(
        index=stream.index,
        kind="data" if stream.type == "unknown" else stream.type,  # of a type that FFmpeg does not know
        codec=context.codec.canonical_name if context is not None else "unknown",
        language=stream.language,
        title=stream.metadata.get("title"),
        attached_picture=_is_picture(stream),
    )


def describe_video(source: str, stream: VideoStream, frames: list[VideoFrame], container: str) -> VideoInfo:
    first, context = frames[0], stream.codec_context
    if stream.time_base is None:
        raise MediaError(
            f"{source}: stream {stream.index} has no time base, so its frames have no times; remux it first"
        )
    try:
        layout = layout_of(first.format.name)
    except MediaError as error:
        raise MediaError(f"{source}: {error}") from error
    order, marked = _FIELD_ORDERS.get(context.field_order), any(frame.interlaced_frame for frame in frames)
    start = min((time for time in (stream.start_time, first.pts) if time is not None), default=None)
    side_data = _side_data(first, stream)
    others = [name for frame in frames[1:] for name in _side_data(frame, stream)]
    return VideoInfo(
        index=stream.index,
        codec=context.codec.canonical_name,
        width=first.width,
        height=first.height,
        format=layout.format,
        pix_fmt=first.format.name,
        time_base=stream.time_base,
        rate=stream.average_rate or None,
        base_rate=stream.base_rate or None,
        sample_aspect_ratio=stream.sample_aspect_ratio or None,
        rotation=first.rotation,
        display_matrix=_matrix(side_data),
        colour=_colour_tags(stream, first),
        interlaced=marked or order is not None,
        frames=stream.frames or None,
        start=start,
        duration=_duration(stream, start, container),
        bit_rate=stream.bit_rate,
        profile=stream.profile,
        mastering_display=_mastering_display(side_data.get("MASTERING_DISPLAY_METADATA")),
        content_light=struct.unpack_from("=2I", side_data["CONTENT_LIGHT_LEVEL"])
        if "CONTENT_LIGHT_LEVEL" in side_data
        else None,
        side_data=frozenset(
            [*side_data, *others, *(["ALPHA_LAYER"] if stream.metadata.get("alpha_mode") == "1" else [])]
        ),
        reordered=bool(context.has_b_frames),
        unmarked_order=None if marked else order,
    )


def display_matrix(frame: VideoFrame, stream: VideoStream) -> tuple[int, ...] | None:
    """Return how a frame is to be turned or mirrored when it is shown; None for as it is."""
    return _matrix(_named_side_data(frame, stream))


def _matrix(side_data: dict[str, bytes]) -> tuple[int, ...] | None:
    return struct.unpack("=9i", side_data["DISPLAYMATRIX"]) if "DISPLAYMATRIX" in side_data else None


def _side_data(frame: VideoFrame, stream: VideoStream) -> dict[str, bytes]:
    found = _named_side_data(frame, stream)
    if not any(found.get("PANSCAN", b"")[_PAN_OFFSETS]):  # every MPEG-2 picture has one, and most say nothing
        found.pop("PANSCAN", None)
    return found


_UNNAMED = {"31": "EXIF"}  # kinds that FFmpeg's headers number, which PyAV doesn't name


def _named_side_data(frame: VideoFrame, stream: VideoStream) -> dict[str, bytes]:
    """By its kind, but for kinds that PyAV has no name for: of a frame with one of these it reads nothing
    ("31 is not a valid Type").
    """
    unnamed: list[str] = []
    named: dict[str, bytes] = {}
    while True:
        try:
            container: Any = frame.side_data  # PyAV's annotation is wrong: it iterates over the items
            return named | {data.type.name: bytes(data) for data in container}
        except ValueError as error:
            kind = str(error).split()[0]
            if kind in unnamed or not kind.isdigit():
                raise
            unnamed.append(kind)
            named |= {_UNNAMED[kind]: b""} if kind in _UNNAMED else {}
            frame = filtered(stream, frame, ("sidedata", f"mode=delete:type={kind}"))


def filtered(stream: VideoStream, frame: VideoFrame, *filters: tuple[str, str]) -> VideoFrame:
    """A frame that went through FFmpeg's filters, (name, options) each."""
    from av.filter import Graph

    graph = Graph()
    source = graph.add_buffer(template=stream, width=frame.width, height=frame.height, format=frame.format)
    graph.link_nodes(
        source, *(graph.add(name, options) for name, options in filters), graph.add("buffersink")
    ).configure()
    graph.push(frame)
    return cast("VideoFrame", graph.pull())


def _duration(stream: VideoStream, start: int | None, container: str) -> int | None:
    """In ticks, where the stream itself says it.

    Matroska keeps it per track in a tag, "00:00:02.500000000", as the end of the last frame counted from 0.
    Of a track that is too short for FFmpeg to know its beginning, FFmpeg gives the times of the whole file
    instead, which may be the sound's.
    """
    if not container.startswith("matroska"):
        return stream.duration
    found = re.fullmatch(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)", stream.metadata.get("DURATION", "").rstrip("\0"))
    if not found or not stream.time_base:
        return None
    end = int(found.group(1)) * 3600 + int(found.group(2)) * 60 + Fraction(found.group(3))
    return round(end / stream.time_base) - (start or 0)


def _mastering_display(data: bytes | None) -> tuple[Fraction, ...] | None:
    if data is None:
        return None
    *numbers, has_primaries, has_luminance = struct.unpack_from("=22i", data)  # 10 rationals, then two flags
    if not (has_primaries and has_luminance) or not all(numbers[1::2]):
        return None
    return tuple(Fraction(top, bottom) for top, bottom in zip(numbers[::2], numbers[1::2], strict=True))


def _colour_tags(stream: VideoStream, frame: VideoFrame) -> ColourTags:
    context = stream.codec_context
    full = frame.format.name.startswith("yuvj")

    def known(of_frame: int, of_stream: int, unknown: int = UNSPECIFIED) -> int:
        return int(of_frame if of_frame != unknown else of_stream)

    return ColourTags(
        matrix=known(frame.colorspace, context.colorspace),
        primaries=known(frame.color_primaries, context.color_primaries),
        transfer=known(frame.color_trc, context.color_trc),
        range=2 if full else known(frame.color_range, context.color_range, 0),
        chroma_location=_chroma_location(stream, frame),
    )


def _chroma_location(stream: VideoStream, frame: VideoFrame) -> int:
    """PyAV 18 has no attribute for it; FFmpeg's `showinfo` filter tells it in the log ("cl:left")."""
    from av import logging as ffmpeg

    with log_level(ffmpeg.INFO), ffmpeg.Capture() as messages:
        # Without the side data: showinfo logs each byte of an encoder's note on its own.
        filtered(stream, frame, ("sidedata", "mode=delete"), ("showinfo", "checksum=0"))
    found = re.search(r"\bcl:(\w+)", "".join(text for _, name, text in messages if name == "showinfo"))
    return _CHROMA_LOCATIONS.get(found.group(1), 0) if found else 0
