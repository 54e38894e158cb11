"""Open a video file safely and describe it, decoding a few frames for what its header lacks."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice, pairwise
from statistics import median
from typing import Any

import av
from av import logging as ffmpeg
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition, Stream
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vidrestore.errors import MediaError, OptionError
from vidrestore.media.containers.matroska import unreadable_tracks
from vidrestore.media.containers.structure import lacks_index
from vidrestore.media.formats.damage import check_memory
from vidrestore.media.formats.log import log_level
from vidrestore.media.formats.photo_notes import check_text
from vidrestore.media.formats.pixel_formats import layout_of
from vidrestore.media.formats.side_data import (
    filtered,
    lacks_base_layer,
    mastering_display,
    matrix_in,
    read_side_data,
)
from vidrestore.media.formats.source import (
    NUMBERED_PICTURES,
    PIPE,
    Pictures,
    Source,
    foreign_content,
    kind_by_content,
)
from vidrestore.media.formats.y4m_header import check_y4m
from vidrestore.pixels.frames import UNSPECIFIED, ColourTags, VideoInfo, uncropped

# Demuxers that read one file and nothing else. Playlists (hls, concat, dash, imf) and devices could read
# other files or the network.
_DEMUXERS = (
    "mov", "matroska", "avi", "mpegts", "mpeg", "mpegvideo", "flv", "asf", "ogg", "mxf", "nut", "ivf", "obu",
    "gif", "apng", "yuv4mpegpipe", "h264", "hevc", "vvc", "av1", "m4v", "dv", "rm", "wtv", "gxf", "lxf",
    "nsv", "bink", "smk", "roq", "dirac",
)  # fmt: skip
_SOUNDS = (
    ".mp3",
    ".wav",
    ".flac",
    ".aac",
    ".m4a",
    ".ogg",
    ".opus",
    ".wma",
    ".aiff",
    ".ac3",
    ".mka",
)
_CHROMA_LOCATIONS = {
    "left": 1,
    "center": 2,
    "topleft": 3,
    "top": 4,
    "bottomleft": 5,
    "bottom": 6,
}
# which field is shown first; 4 and 5 are coded in the other order
_FIELD_ORDERS = {2: "tff", 3: "bff", 4: "bff", 5: "tff"}
_LOGGED_ORDERS = {"T": "tff", "B": "bff"}
_DECRYPT = "decrypt it first, by the player or shop that it comes from"
# brands of HEIF
_STILL_BRANDS = frozenset({"heic", "heix", "heim", "heis", "mif1", "mif2", "avif"})
# pixels: a little more than 16K (15360x8640); a damaged or hostile header may claim any size
MOST_PIXELS = 1 << 27
MOST_TAGS = 4096  # most tags of a file, its streams and chapters; 300 are already many
_UNTIMED_CONTAINERS = {"h264", "hevc", "vvc", "av1", "obu"}  # without times or rate
_NO_TIMES = 0x80  # AVFMT_NOTIMESTAMPS
# limits the sizes of pictures, and verifies checksums
DECODER_OPTIONS = {"max_pixels": str(MOST_PIXELS), "err_detect": "crccheck"}
_PROBED_FRAMES = 4  # enough to find a field flag quickly
# Packets by which bits and rate are measured. More bytes than these few minutes have are needless: at so many
# bits per pixel the quality is the best one.
_MEASURED_PACKETS, _MEASURED_BYTES = 3000, 1 << 26
# a stated rate so many times that of the times isn't one (Matroska's 1000 for milliseconds)
_NOMINAL = 1.5
_Sample = list[tuple[int | None, int]]  # time and size of packets
ALPHA_KEY = "alpha_mode"  # of a stream with transparency beside its frames
_STILLS = frozenset({"mjpeg", "png", "gif", "bmp", "webp", "tiff"})  # codecs of posters


@dataclass(frozen=True)
class StreamInfo:
    """One stream of any kind: video, audio, subtitle, attachment or data."""

    index: int
    kind: str  # FFmpeg's type of stream
    codec: str  # FFmpeg's name, or "unknown"
    language: str | None = None
    title: str | None = None
    attached_picture: bool = False  # cover art, which FFmpeg stores as a video stream
    # True for sound whose channels have no places, only a number, as in AVI
    unplaced: bool = False

    @property
    def role(self) -> str:
        """The kind, or "cover" for an attached picture."""
        return "cover" if self.attached_picture else self.kind

    @property
    def word(self) -> str:
        """The word for it in `drop`."""
        return f"{self.role}s" if self.kind in ("subtitle", "attachment") else self.role


def to_drop(refused: Sequence[StreamInfo], streams: Iterable[StreamInfo]) -> str:
    """Return the value of `drop` that leaves out the refused ones of some streams and no other: the word of a
    kind if all of it is refused, else numbers.
    """
    # a kind of which some are kept can't be named by its word
    rest = {info.word for info in streams if info not in refused}
    words = (str(info.index) if info.word in rest else info.word for info in refused)
    return ",".join(dict.fromkeys(words))


@dataclass(frozen=True)
class SourceInfo:
    """The description of a source: its container, the video to restore, and all streams."""

    path: str
    container: str  # FFmpeg's name of the format
    video: VideoInfo
    streams: tuple[StreamInfo, ...]  # the video included
    chapters: int = 0  # their number
    metadata: Mapping[str, str] = field(default_factory=dict)
    duration: Fraction | None = None  # seconds
    size: int | None = None  # bytes

    @property
    def pictures(self) -> Pictures | None:
        """The pictures that are its frames; None for a video."""
        return (
            Source(self.path).pictures if self.container == NUMBERED_PICTURES else None
        )

    @property
    def is_alone(self) -> bool:
        """True if nothing but the video is there to copy: for a pipe, and for pictures."""
        return self.path == PIPE or self.container == NUMBERED_PICTURES


def decoder_of(codec: str) -> av.codec.Codec | None:
    """Return this FFmpeg's decoder for a codec by FFmpeg's name; None if it has none."""
    try:
        return av.codec.Codec(codec, "r")
    except av.codec.codec.UnknownCodecError:
        return None


def is_lossless(codec: str) -> bool:
    """Return True if a codec, by FFmpeg's name, is always lossless."""
    decoder = decoder_of(codec)
    return decoder is not None and decoder.lossless and not decoder.lossy


def open_input(source: str, **settings: str) -> InputContainer:
    """Open a file with access to nothing but this file: by the file protocol, in a known container.
    `settings` are options of its demuxer.

    Raises MediaError if the file is missing, a folder, empty, or not a video.
    """
    _check_file(source)
    safe = {"protocol_whitelist": "file", "format_whitelist": ",".join(_DEMUXERS)}
    options = settings | safe

    # open it, and say what is there instead of a video
    try:
        container = av.open(
            f"file:{source}", "r", container_options=options, metadata_errors="replace"
        )
    except av.error.PermissionError:
        raise MediaError(f"{source}: no permission to read it") from None
    except av.error.EOFError:
        early = f"{source}: the file ends before its first frame (0 frames)"
        raise MediaError(f"{early}; record or copy it again") from None
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        if isinstance(error, MemoryError):
            check_memory()
        raise _unreadable(source, error) from error

    # refuse what FFmpeg would read wrong
    _check_tags(source, container)
    if container.metadata.get("major_brand", "").strip() in _STILL_BRANDS:
        container.close()
        raise MediaError(
            f"{source}: a still picture (HEIF), of which FFmpeg may read one tile only; convert it to PNG "
            "first"
        )
    if container.format.name == "avi":
        # AVI has decoding times only. PyAV asks FFmpeg to generate presentation times, which are a frame
        # late; the reader derives them instead.
        made_up: Any = av.container.Flags.gen_pts.value
        container.flags &= ~made_up
    return container


def _unreadable(source: str, error: Exception) -> MediaError:
    """Return the error for a file that no demuxer opens, with what it is instead and the way out."""
    unread = f"{source}: not a video file that can be read"
    # from what is certain to what is likely
    if picture := kind_by_content(source):
        return MediaError(
            f"{unread}, but a still picture ({picture.removesuffix('_pipe').upper()}); give its name that "
            "suffix, or name the folder of the pictures, or a pattern such as 'frames/%04d.png'"
        )
    if lacks_index(source):
        return MediaError(
            f"{unread}: its index (moov) is missing, so the recording was not finished; a tool such as "
            "untrunc rebuilds it with a whole file of the same camera"
        )
    if source.lower().endswith(_SOUNDS):
        return MediaError(f"{unread}, but of sound only")
    if foreign := foreign_content(source):
        return MediaError(f"{unread}, but {foreign}")
    if isinstance(error, av.error.PatchWelcomeError):
        reason = "; it uses a part of its format that FFmpeg doesn't implement"
    elif isinstance(error, av.error.InvalidDataError | MemoryError):
        reason = "; its header is missing or damaged"
    else:  # that of a demuxer that isn't in `_DEMUXERS` is "invalid argument"
        reason = "" if isinstance(error, av.error.ArgumentError) else f" ({error})"
    expected = f"{unread}{reason}; expected MP4, MKV, WebM, MOV, AVI, TS or the like"
    return MediaError(
        f"{expected}; others may become one: ffmpeg -i IN -c:v ffv1 -c:a copy OUT.mkv"
    )


def _check_tags(source: str, container: InputContainer) -> None:
    """Refuse too many tags: each is compared with all others when a file is opened; 20,000 took 20 s."""
    tags = len(container.metadata) + sum(
        len(stream.metadata) for stream in container.streams
    )
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
        raise MediaError(
            f"{source}: a folder, but a video file was expected; name a file in it"
        )
    if not os.path.isfile(source):
        odd = f"{source}: a pipe or device, but a file was expected"
        raise MediaError(f"{odd}: it is read more than once; pipe y4m into - instead")
    if os.path.getsize(source) == 0:
        raise MediaError(
            f"{source}: the file is empty (0 bytes); copy or record it again"
        )


def video_stream(container: InputContainer) -> VideoStream:
    """Return the main video: of the streams that aren't covers the first that isn't shorter than half of the
    longest, by what their headers state. Raises MediaError without one or its decoder.
    """
    # covers aren't videos, and a short stream beside a long one is a title or a menu
    streams = [stream for stream in container.streams.video if not is_attached(stream)]
    source = container.name.removeprefix("file:")
    if not streams:
        kinds = (
            ", ".join(sorted({stream.type for stream in container.streams}))
            or "nothing"
        )
        pictures = (
            " (a cover picture is not a video)" if container.streams.video else ""
        )
        raise MediaError(
            f"{source}: no video stream{pictures}; the file holds: {kinds}"
        )
    lengths = (
        [_stated_length(stream) for stream in streams]
        if len(streams) > 1
        else [Fraction(1)]
    )
    long_enough = [2 * length >= max(lengths) for length in lengths]
    main = streams[long_enough.index(True)]
    if main.codec_context is None:
        raise MediaError(
            f"{source}: stream {main.index}: this FFmpeg has no decoder for the video codec; convert "
            "it with another tool first"
        )
    return main


def _stated_length(stream: VideoStream) -> Fraction:
    """Return a stream's length in seconds; 0 for one picture, and without a decoder. If no length is stated,
    return 0 for a codec of still pictures, else more than any video has.
    """
    # a poster has one picture, or a codec of pictures without a length
    is_one = stream.frames == 1 or stream.metadata.get("NUMBER_OF_FRAMES") == "1"
    if is_one or stream.codec_context is None:
        return Fraction(0)
    start = stream.start_time or 0
    ticks = _duration(stream, start, stream.container.format.name)
    if ticks is None:
        return Fraction(0 if stream.codec_context.name in _STILLS else 1_000_000)
    return ticks * Fraction(stream.time_base or 1)


def probe(source: str, fps: Fraction | None = None) -> SourceInfo:
    """Describe a video file, decoding its first frames for rotation, fields, colour and pixel format. `fps`
    is the rate of a raw stream that states none.

    Raises MediaError if the file can't be read, has no video or no frames, or has an unsupported pixel
    format, OptionError for `fps` of a video with times.
    """
    _check_file(source)
    check_text(source)  # an APNG has notes, too
    check_y4m(source)
    with open_input(source) as container:
        stream = video_stream(container)
        check_size(source, stream)

        # decode its first frames
        packets, sample = packets_of(container, stream), _Sample()
        frames = _first_frames(container, stream, packets, sample)
        if not frames:
            if encoding := unreadable_tracks(source).get(stream.index):
                raise MediaError(
                    f"{source}: the video is {encoding}, which FFmpeg can't undo; {_DECRYPT}"
                )
            raise MediaError(
                f"{source}: the video stream has 0 frames that can be decoded; the file is empty or "
                "damaged, record or copy it again"
            )

        # describe the video, as it will be read
        name, duration = container.format.name, container.duration
        video = describe_video(source, stream, frames, name)
        video = _with_bits(video, stream, packets, sample)
        has_fields = _are_fields(stream, frames)
        rate = 2 * fps if fps and has_fields else fps
        video = _with_rate(source, video, container, stream, rate)
        video = _of_woven(video) if has_fields else video
        return SourceInfo(
            path=source,
            container=name,
            video=video,
            streams=tuple(map(describe_stream, container.streams)),
            chapters=len(container.chapters()),
            metadata=dict(container.metadata),
            duration=None if duration is None else Fraction(duration, 1_000_000),
            size=container.size if container.size > 0 else None,
        )


def _with_rate(
    source: str,
    video: VideoInfo,
    container: InputContainer,
    stream: VideoStream,
    fps: Fraction | None,
) -> VideoInfo:
    """Give a video from a container without times the rate that its own stream states, or `fps`."""
    # times are the container's, the stream's, or made up by a rate
    name = container.format.name
    raw = name in _UNTIMED_CONTAINERS or (
        name == "mpegvideo" and video.codec == "mpeg1video"
    )
    if fps is not None and not raw:
        raise OptionError(
            f"`fps={fps}` is for pictures; a video has its own times, remove the option"
        )
    if not container.format.flags & _NO_TIMES:
        return video
    rate = fps or (stream.guessed_rate if stream.codec_context.framerate else None)
    if not raw:  # the stream has times, but FFmpeg takes the average rate for 25
        return replace(video, rate=rate or video.rate, duration=None)
    if not rate:
        raise MediaError(
            f"{source}: a raw stream that states no frame rate; give it by `fps`, such as 25"
        )
    return replace(
        video,
        rate=rate,
        base_rate=rate,
        time_base=1 / rate,
        start=0,
        duration=None,
        numbered=True,
    )


def _are_fields(stream: VideoStream, frames: list[VideoFrame]) -> bool:
    """Return True for pictures of one field each, of which FFmpeg weaves those of other codecs: marked as
    interlaced, with the top field and the bottom field first by turns.
    """
    if (
        stream.codec_context.codec.canonical_name != "hevc"
        or not frames[0].interlaced_frame
    ):
        return False
    # marks of both orders by turns, in one sequence
    marks = [_log_value(stream, frame, "i") for frame in frames]
    return len(marks) > 1 and all(
        {*pair} == {*_LOGGED_ORDERS} for pair in pairwise(marks)
    )


def _of_woven(video: VideoInfo) -> VideoInfo:
    """Return the description of frames that are woven of two pictures each."""
    bits = video.frame_bits
    frames = video.frames
    whole = uncropped(video)
    return replace(
        whole,
        height=2 * whole.height,
        rate=video.rate and video.rate / 2,
        base_rate=video.base_rate and video.base_rate / 2,
        frames=frames and (frames + 1) // 2,
        frame_bits=bits and 2 * bits,
        field_pictures=True,
    )


def check_size(source: str, stream: VideoStream) -> None:
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > MOST_PIXELS:
        raise MediaError(
            f"{source}: pictures of {width}x{height}, more than the {MOST_PIXELS} pixels that are taken for "
            "possible; if it is true, make it smaller first"
        )


def packets_of(
    container: InputContainer,
    streams: Any = None,
    late: Callable[[], None] = lambda: None,
) -> Iterator[Packet[Any]]:
    """Yield packets as `demux` does, without those of streams that begin within the file, at which PyAV 18
    raises IndexError; `late` is called for each of them.
    """
    while True:
        try:
            yield from container.demux(streams)
            return
        except IndexError:
            late()


def _first_frames(
    container: InputContainer,
    stream: VideoStream,
    packets: Iterator[Packet[Any]],
    sample: _Sample,
) -> list[VideoFrame]:
    """Decode the first frames, whose packets go to the sample, too."""
    stream.codec_context.thread_type = "NONE"
    stream.codec_context.options = dict(DECODER_OPTIONS)
    frames: list[VideoFrame] = []
    # a few packets before a key frame may give nothing
    while len(frames) < _PROBED_FRAMES:
        try:
            packet = next(packets, None)
            if packet is None:
                break
            if packet.has_sidedata("encryption_info"):
                raise MediaError(
                    f"{container.name.removeprefix('file:')}: the video is encrypted; {_DECRYPT}"
                )
            sample.append((packet.pts, packet.size))
            frames += packet.decode()
        except av.error.FFmpegError:  # damage, which the reader reports
            if frames:
                break
    return frames


def _with_bits(
    video: VideoInfo,
    stream: VideoStream,
    packets: Iterator[Packet[Any]],
    sample: _Sample,
) -> VideoInfo:
    """Set the bits of a frame by the sizes of packets, of an index or the first ones, and a rate that is only
    nominal by the packets' times.
    """
    # an index has all sizes; else the first packets stand for all
    entries = stream.index_entries
    is_full = stream.container.format.name.startswith(("mov", "avi"))
    numbers = range(0, len(entries), 1 + len(entries) // _MEASURED_PACKETS)
    sizes = [entries[number].size for number in numbers]
    # a fragment has an index of its own; flipped bits make sizes negative
    if is_full and len(sizes) > _PROBED_FRAMES and min(sizes) > 0:
        return replace(video, frame_bits=8 * sum(sizes) / len(sizes))
    remaining_bytes = _MEASURED_BYTES
    with suppress(av.error.FFmpegError):  # damage, which the reader reports
        for packet in islice(packets, _MEASURED_PACKETS):
            sample.append((packet.pts, packet.size))
            remaining_bytes -= packet.size
            if remaining_bytes < 0:
                break
    sizes = [size for _, size in sample if size]
    video = replace(video, frame_bits=8 * sum(sizes) / len(sizes) if sizes else None)
    # a nominal rate says how fine times are, not how many frames there are
    times = sorted({time for time, _ in sample if time is not None})
    if video.rate is None or len(times) < 2:
        return video
    ticks = median(later - time for time, later in pairwise(times))
    rate = 1 / (Fraction(ticks) * video.time_base)
    return replace(video, rate=rate) if video.rate > _NOMINAL * rate else video


def is_attached(stream: Stream) -> bool:
    """Return True for a cover, a picture that is stored as a video stream."""
    return bool(stream.disposition & Disposition.attached_pic)


def describe_stream(stream: Stream) -> StreamInfo:
    context: Any = stream.codec_context
    return StreamInfo(
        index=stream.index,
        # a type that FFmpeg doesn't know
        kind="data" if stream.type == "unknown" else stream.type,
        codec=context.codec.canonical_name
        if context is not None
        else _codec_without_decoder(stream),
        language=stream.language,
        title=stream.metadata.get("title"),
        attached_picture=is_attached(stream),
        unplaced=stream.type == "audio"
        and context is not None
        and "channels" in context.layout.name,
    )


def _codec_without_decoder(stream: Stream) -> str:
    """Return a codec's name, or "unknown" with its tag, from FFmpeg's own description of the file, such as
    "Data: none (mebx / 0x7862656D)"; PyAV 18 has no attribute for the tag.
    """
    # from FFmpeg's own words, for lack of an attribute
    if stream.type == "attachment":
        return "unknown"
    if stream.type == "subtitle" and _all_unknown_are_webvtt(stream.container):
        return "webvtt"
    pattern = rf"Stream #0:{stream.index}\b.*?: \w+: (\w+)(?: (\(\w{{4}}) /)?"
    match = re.search(pattern, _description(stream))
    if not match or match[1] in ("none", "unknown_codec"):
        return f"unknown {match[2]})" if match and match[2] else "unknown"
    return match[1]


def _description(stream: Stream) -> str:
    """Return FFmpeg's own description of a stream's file."""
    with log_level(ffmpeg.INFO):
        text: str = stream.container.dumps_format()  # type: ignore[attr-defined]
    return text


def _crop(stream: VideoStream, frame: VideoFrame) -> tuple[int, int, int, int]:
    """Return the columns and rows (left, right, top, bottom) that Matroska's PixelCrop or MP4's clap hides,
    in whole samples of chroma of each field; 0 if nothing would be left.
    """
    # PyAV has no attribute for it; rows are cut in whole samples of chroma of both fields
    text = (
        _description(stream)
        .partition(f"Stream #0:{stream.index}")[2]
        .partition("Stream #")[0]
    )
    match = re.search(r"\n +Frame Cropping: (\d+)/(\d+)/(\d+)/(\d+)\n", text)
    left, right, top, bottom = map(int, match.groups()) if match else (0, 0, 0, 0)
    columns = 1 << layout_of(frame.format.name).format.chroma_width_shift
    left, top = left // columns * columns, top // 4 * 4
    fits = left + right < frame.width and top + bottom < frame.height
    return (left, right, top, bottom) if fits else (0, 0, 0, 0)


def _all_unknown_are_webvtt(container: Any) -> bool:
    """Return True if all subtitles without a decoder are WebVTT as mkvmerge calls it in Matroska."""
    if not container.format.name.startswith("matroska"):
        return False
    unknown = sum(
        stream.codec_context is None for stream in container.streams.subtitles
    )
    with open(container.name.removeprefix("file:"), "rb") as file:
        return file.read(1 << 22).count(b"S_TEXT/WEBVTT") == unknown


def describe_video(
    source: str, stream: VideoStream, frames: list[VideoFrame], container: str
) -> VideoInfo:
    """Return the properties of a video stream by its first frames. Raises MediaError for what can't be
    restored.
    """
    first, context = frames[0], stream.codec_context

    # refuse what can't be restored
    if stream.time_base is None:
        raise MediaError(
            f"{source}: stream {stream.index} has no time base, so its frames have no times; remux it first"
        )
    try:
        layout = layout_of(first.format.name)
    except MediaError as error:
        raise MediaError(f"{source}: {error}") from error
    order = _FIELD_ORDERS.get(context.field_order)
    marked = [frame for frame in frames if frame.interlaced_frame]
    start = min(
        (time for time in (stream.start_time, first.pts) if time is not None),
        default=None,
    )
    side_data = read_side_data(first, stream)
    if lacks_base_layer(side_data):
        raise MediaError(
            f"{source}: Dolby Vision of profile 5, whose colours are true only in players for it (elsewhere "
            "they look green and purple); restore a copy in HDR10 or of profile 8"
        )

    # kinds of side data of any frame
    names = {
        *side_data,
        *(name for frame in frames[1:] for name in read_side_data(frame, stream)),
    }
    if any(
        key.lower() == ALPHA_KEY and value == "1"
        for key, value in stream.metadata.items()
    ):
        names.add("ALPHA_LAYER")
    light = side_data.get("CONTENT_LIGHT_LEVEL")

    # frames whose times don't rise get those of their packets in order
    times = [frame.pts for frame in frames]
    reordered = bool(context.has_b_frames)
    rise = sorted({time for time in times if time is not None}) == times
    crop = left, right, top, bottom = _crop(stream, first)
    return VideoInfo(
        index=stream.index,
        codec=context.codec.canonical_name,
        width=first.width - left - right,
        height=first.height - top - bottom,
        format=layout.format,
        pix_fmt=first.format.name,
        time_base=stream.time_base,
        rate=stream.average_rate or None,
        base_rate=stream.base_rate or None,
        sample_aspect_ratio=stream.sample_aspect_ratio or None,
        rotation=first.rotation,
        display_matrix=matrix_in(side_data),
        colour=_colour_tags(stream, first),
        interlaced=bool(marked) or order is not None,
        frames=stream.frames or None,
        start=start,
        duration=_duration(stream, start, container),
        profile=stream.profile,
        mastering_display=mastering_display(
            side_data.get("MASTERING_DISPLAY_METADATA")
        ),
        content_light=None if light is None else struct.unpack_from("=2I", light),
        side_data=frozenset(names),
        reordered=reordered,
        by_order=reordered and (container == "avi" or not rise),
        marked_order=_LOGGED_ORDERS.get(_log_value(stream, marked[0], "i"))
        if marked
        else order,
        unmarked_order=None if marked else order,
        crop=crop,
    )


def _duration(stream: VideoStream, start: int | None, container: str) -> int | None:
    """Return a duration in ticks, if the stream itself has one.

    Matroska has it per track in a tag, "00:00:02.500000000", as the end of the last frame counted from 0. Of
    a very short track FFmpeg gives the times of the whole file instead, which may be the sound's. IVF has a
    number of packets, hidden ones included, which its structure is held against.
    """
    if container == "ivf":
        return None
    # most containers state it in ticks, Matroska in words
    if not container.startswith("matroska"):
        return stream.duration
    tag = stream.metadata.get("DURATION", "").rstrip("\0")
    match = re.fullmatch(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)", tag)
    if not match or not stream.time_base:
        return None
    hours, minutes, seconds = match.groups()
    end = int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds)
    return round(end / stream.time_base) - (start or 0)


def _colour_tags(stream: VideoStream, frame: VideoFrame) -> ColourTags:
    context = stream.codec_context
    full = frame.format.name.startswith("yuvj")

    def tag(of_frame: int, of_stream: int, unknown: int = UNSPECIFIED) -> int:
        return int(of_frame if of_frame != unknown else of_stream)

    return ColourTags(
        matrix=tag(frame.colorspace, context.colorspace),
        primaries=tag(frame.color_primaries, context.color_primaries),
        transfer=tag(frame.color_trc, context.color_trc),
        range=2 if full else tag(frame.color_range, context.color_range, 0),
        chroma_location=_CHROMA_LOCATIONS.get(_log_value(stream, frame, "cl"), 0),
    )


def _log_value(stream: VideoStream, frame: VideoFrame, name: str) -> str:
    """Return what the log of FFmpeg's `showinfo` filter has by a name that PyAV 18 doesn't have."""
    with log_level(ffmpeg.INFO), ffmpeg.Capture() as messages:
        # Without the side data: showinfo logs each byte of an encoder's note on its own.
        filtered(stream, frame, ("sidedata", "mode=delete"), ("showinfo", "checksum=0"))
    log = "".join(text for _, source, text in messages if source == "showinfo")
    match = re.search(rf"\b{name}:(\w+)", log)
    return match[1] if match else ""
