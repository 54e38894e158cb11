"""Encode planes to packets: convert them to an encoder's format, fill FFmpeg's frames without swscale, tag
them like the source, try encoders.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any, Self

import av
import numpy as np
from av.codec.context import Flags
from av.container import OutputContainer
from av.format import Flags as FormatFlags
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from vidrestore.errors import MediaError
from vidrestore.files.regular import write_problem
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.pixel_formats import layout_of
from vidrestore.pixels.frames import (
    UNSPECIFIED,
    ColourTags,
    Frame,
    PixelFormat,
    VideoInfo,
)

_TRIAL_FRAMES = 3
# code points of ITU-T H.273
BT709, BT601 = 1, 5
_LIMITED_SAMPLES, _FULL_SAMPLES = 1, 2  # FFmpeg's numbers of ranges
_LEFT_CHROMA, _CENTRE_CHROMA = 1, 2  # and of places of chroma samples
_PROGRESSIVE = 1  # one of FFmpeg's field orders; 0 is unknown


class Encoder:
    """Encodes frames to packets, which have the pts and durations of their pictures: `encode` each frame,
    then `flush`.
    """

    def __init__(
        self, context: VideoCodecContext, choice: EncoderChoice, video: VideoInfo
    ) -> None:
        self.context = context  # open, or opened with its container
        self.choice, self.video, self.encoded = choice, video, as_encoded(video, choice)
        self.frames = 0
        # durations by pts of the pictures inside the encoder; some encoders lose them
        self._durations: dict[int, int] = {}

    @property
    def head(self) -> str:
        """A short digest of the encoder's extradata."""
        return hashlib.sha256(self.context.extradata or b"").hexdigest()[:16]

    @classmethod
    def opened(cls, choice: EncoderChoice, video: VideoInfo) -> Self:
        """Open an encoder without a file, with the same settings as in a file."""
        # set all before it is opened
        context: Any = av.CodecContext.create(choice.encoder, "w")
        context.bit_rate, context.framerate = 0, _encoder_rate(choice, video)
        context.options = choice.settings
        _describe(context, choice, video)
        header_apart: Any = FormatFlags.global_header.value
        if av.ContainerFormat(choice.container, "w").flags & header_apart:
            context.flags |= Flags.global_header
        context.open()
        return cls(context, choice, video)

    def encode(self, frame: Frame, pts: int, duration: int) -> Iterator[Packet[Any]]:
        """Encode the next frame, shown at `pts` for `duration` ticks; yield the packets that are ready."""
        frame = converted(frame, self.video, self.encoded)
        video_frame = picture(
            frame, self.choice.pix_fmt, self.video.time_base, self.encoded.colour
        )
        video_frame.pts, video_frame.duration = pts, duration
        self._durations[pts] = duration
        self.frames += 1
        yield from self._packets(video_frame)

    def flush(self) -> Iterator[Packet[Any]]:
        """Yield the remaining packets."""
        yield from self._packets(None)

    def _packets(self, video_frame: VideoFrame | None) -> Iterator[Packet[Any]]:
        for packet in self.context.encode(video_frame):
            # packets come in decoding order, with the durations of their pictures
            assert packet.pts is not None
            if self.frames <= self.choice.row.wrong_dts:
                packet.dts = packet.pts
            packet.duration = self._durations.pop(packet.pts)
            yield packet


def add_encoder(
    container: OutputContainer, choice: EncoderChoice, video: VideoInfo
) -> VideoStream:
    """Add the encoded stream, with the description and rotation of the video. It is not opened yet."""
    stream = container.add_stream(
        choice.encoder, rate=_encoder_rate(choice, video), options=choice.settings
    )
    assert isinstance(stream, av.VideoStream)
    stream.time_base = video.time_base
    _describe(stream.codec_context, choice, video)
    if video.display_matrix:
        stream.set_display_matrix(video.display_matrix)
    return stream


def _rate(video: VideoInfo) -> Fraction:
    return video.rate or video.base_rate or Fraction(25)


def _encoder_rate(choice: EncoderChoice, video: VideoInfo) -> Fraction:
    """Return the rate for an encoder's own planning: SVT-AV1 refuses more than 240 frames per second."""
    return min(_rate(video), Fraction(choice.row.greatest_rate or _rate(video)))


def _describe(
    context: VideoCodecContext, choice: EncoderChoice, video: VideoInfo
) -> None:
    """Set the properties of an encoder's input."""
    # SVT-AV1 would print its settings and errors to stderr
    os.environ.setdefault("SVT_LOG", "0")
    # tags are those of the frames as they are encoded
    colour = as_encoded(video, choice).colour
    context.height, context.width = video.height, video.width
    context.pix_fmt = choice.pix_fmt
    context.time_base = video.time_base
    context.thread_count = choice.threads
    context.flags |= Flags.frame_duration | Flags.bitexact
    if video.sample_aspect_ratio:
        context.sample_aspect_ratio = video.sample_aspect_ratio
    if choice.codec_tag:
        context.codec_tag = choice.codec_tag
    context.field_order = _PROGRESSIVE
    context.colorspace, context.color_primaries = colour.matrix, colour.primaries
    context.color_trc, context.color_range = colour.transfer, colour.range
    if colour.chroma_location:
        context.options = {
            **context.options,
            "chroma_sample_location": str(colour.chroma_location),
        }


def picture(
    frame: Frame, pix_fmt: str, time_base: Fraction, colour: ColourTags
) -> VideoFrame:
    """Copy a frame into FFmpeg's; its planes must have the sizes and sample type of `pix_fmt`."""
    height, width = frame.planes[0].shape
    video_frame = av.VideoFrame(width, height, pix_fmt)
    layout = layout_of(pix_fmt)
    # into FFmpeg's own planes, where samples may lie apart or in high bits
    for samples, plane in zip(layout.samples, frame.planes, strict=True):
        target: Any = video_frame.planes[samples.plane]
        rows = np.frombuffer(target, layout.stored).reshape(target.height, -1)
        lines, count = plane.shape
        stop = samples.start + samples.step * (count - 1) + 1
        columns = slice(samples.start, stop, samples.step)
        rows[:lines, columns] = plane << layout.shift if layout.shift else plane
    video_frame.pts, video_frame.duration, video_frame.time_base = (
        frame.pts,
        frame.duration,
        time_base,
    )
    video_frame.colorspace, video_frame.color_primaries = (
        colour.matrix,
        colour.primaries,
    )
    video_frame.color_trc, video_frame.color_range = colour.transfer, colour.range
    return video_frame


def check_frame(frame: Frame, video: VideoInfo, where: str) -> None:
    """Raise MediaError unless a frame's planes have the video's depth and size."""
    # sizes and sample types, before FFmpeg reads beyond a plane
    planes = range(video.format.plane_count)
    expected = [
        video.format.plane_size(plane, video.height, video.width) for plane in planes
    ]
    shapes = [plane.shape for plane in frame.planes]
    size = {8: 1, 32: 4}.get(video.format.depth, 2)  # bytes
    if shapes != expected:
        raise MediaError(
            f"{where}: planes of {shapes} (height, width), but {expected} were expected"
        )
    if any(plane.dtype.itemsize != size for plane in frame.planes):
        raise MediaError(
            f"{where}: samples of {frame.planes[0].dtype}, but the video has {video.format.depth} bits"
        )


def try_encoder(choice: EncoderChoice, video: VideoInfo, output: str) -> None:
    """Encode a few gray frames in memory and read them back. Raises MediaError if that fails."""
    memory = io.BytesIO()
    # write them, and count the packets that are read again
    try:
        with av.open(memory, "w", format=choice.container) as container:
            stream = add_encoder(container, choice, video)
            for trial_picture in [*_trial_pictures(choice, video), None]:
                container.mux(stream.encode(trial_picture))
            # options that the encoder did not use
            unknown = sorted(
                choice.settings.keys() & stream.codec_context.options.keys()
            )
        memory.seek(0)
        with av.open(memory, "r", format=choice.container) as container:
            count = sum(1 for packet in container.demux(video=0) if packet.size)
    except (av.error.FFmpegError, ValueError) as error:
        settings = " ".join(f"{key}={value}" for key, value in choice.options.items())
        reason = getattr(error, "strerror", None) or error
        raise MediaError(
            f"{output}: {choice.encoder} can't encode {choice.pix_fmt} with {settings} ({reason})"
        ) from error

    if unknown:
        raise MediaError(
            f"{output}: {choice.encoder} has no option {', '.join(unknown)}; remove "
            f"`options={unknown[0]}=...`"
        )
    if count != _TRIAL_FRAMES:
        raise MediaError(
            f"{output}: {choice.encoder} made {count} pictures of {_TRIAL_FRAMES}; choose another `encoder`"
        )


def opens(
    encoder: str, pix_fmt: str, width: int, height: int, options: Mapping[str, str]
) -> bool:
    """Return True if an encoder opens for pictures of this size with these options."""
    context: Any = av.CodecContext.create(encoder, "w")
    context.width, context.height, context.pix_fmt = width, height, pix_fmt
    context.time_base, context.options = Fraction(1, 25), dict(options)
    try:
        context.open()
    except (av.error.FFmpegError, ValueError):
        return False
    return True


def _trial_pictures(choice: EncoderChoice, video: VideoInfo) -> Iterator[VideoFrame]:
    video = as_encoded(video, choice)
    pixels = video.format
    # grey pictures, in the middle of the range
    kind = np.uint8 if pixels.depth == 8 else np.uint16
    sizes = [
        pixels.plane_size(plane, video.height, video.width)
        for plane in range(pixels.plane_count)
    ]
    planes = tuple(np.full(size, 128 * int(pixels.unit), kind) for size in sizes)
    step = frame_ticks(video)
    for index in range(_TRIAL_FRAMES):
        yield picture(
            Frame(planes, index * step, step),
            choice.pix_fmt,
            video.time_base,
            video.colour,
        )


def frame_ticks(video: VideoInfo) -> int:
    """Return the duration of a frame of the usual rate in ticks, at least one."""
    return max(1, round(1 / (_rate(video) * video.time_base)))


def full_duration(duration: int, video: VideoInfo) -> int:
    """Return a duration in ticks: the usual one if it is unknown or truncated to a tick, as in Matroska."""
    exact = 1 / (_rate(video) * video.time_base)
    return duration if duration not in (0, int(exact)) else frame_ticks(video)


@contextmanager
def write_errors(output: str) -> Iterator[None]:
    """Raise errors of FFmpeg and of the system in the block as MediaError about `output`."""
    try:
        yield
    except MemoryError:
        raise
    except OSError as error:
        raise write_problem(output, error) from error
    except (ValueError, av.error.FFmpegError) as error:
        raise MediaError(f"{output}: writing it failed ({error})") from error


def as_encoded(video: VideoInfo, choice: EncoderChoice) -> VideoInfo:
    """Return the description of the frames that the encoder gets.

    That is `video` itself, unless pictures become a video or a video becomes pictures.
    """
    # JPEG and videos made of pictures have colours of their own
    pixels = layout_of(choice.pix_fmt).format
    if choice.encoder == "mjpeg":
        colour = replace(
            video.colour,
            matrix=BT601,
            range=_FULL_SAMPLES,
            chroma_location=_CENTRE_CHROMA,
        )
    elif pixels == video.format:
        return video
    elif _is_deeper(pixels, video.format):
        return replace(video, format=pixels, pix_fmt=choice.pix_fmt)
    elif pixels.family == "yuv":
        colour = replace(
            video.colour,
            matrix=BT709,
            range=_LIMITED_SAMPLES,
            chroma_location=_LEFT_CHROMA,
        )
    else:
        colour = replace(video.colour, matrix=0, range=_FULL_SAMPLES, chroma_location=0)
    if pixels.family == "gray":
        colour = replace(colour, matrix=UNSPECIFIED)
    return replace(video, format=pixels, pix_fmt=choice.pix_fmt, colour=colour)


def converted(frame: Frame, video: VideoInfo, target: VideoInfo) -> Frame:
    """Convert a frame of `video` to the samples of `target`."""
    if _interpretation(video.colour) == _interpretation(target.colour):
        # the same colours: only the number of bits may differ
        if video.format == target.format:
            return frame
        if _is_deeper(target.format, video.format):
            return replace(frame, planes=_deepened(frame, video, target.format.depth))
    return replace(frame, planes=_planes(frame, video, target))


def _is_deeper(pixels: PixelFormat, source: PixelFormat) -> bool:
    """Return True for the same planes with more than 8 bits in 16."""
    return (
        pixels.depth == 16
        and pixels == replace(source, name=pixels.name, depth=16)
        and source.depth > 8
    )


def _deepened(frame: Frame, video: VideoInfo, depth: int) -> tuple[NDArray[Any], ...]:
    """Return planes with more bits, from which a shift gives back the samples: those of limited range, and of
    chroma, are multiples; the largest of full range, and of alpha, stays the largest.
    """
    pixels, planes = video.format, []
    shift = depth - pixels.depth
    # the highest bits are repeated where white must stay white
    for number, plane in enumerate(frame.planes):
        is_alpha = pixels.alpha and number == len(frame.planes) - 1
        is_full_luma = video.colour.range == _FULL_SAMPLES and number == 0
        is_full = pixels.family != "yuv" or is_alpha or is_full_luma
        deeper = plane << shift
        planes.append(deeper | plane >> (pixels.depth - shift) if is_full else deeper)
    return tuple(planes)


def _interpretation(colour: ColourTags) -> tuple[int, ...]:
    """Return the tags that determine the colours of samples."""
    matrix = BT601 if colour.matrix == 6 else colour.matrix
    return matrix, colour.range, colour.chroma_location


def _planes(
    frame: Frame, video: VideoInfo, target: VideoInfo
) -> tuple[NDArray[Any], ...]:
    from vidrestore.pixels.colour import (
        grey_to_planes,
        planes_to_grey,
        rgb_to_yuv,
        yuv_to_rgb,
    )

    # by way of R'G'B', as both sides define their colours by it
    source = planes_to_grey(frame.planes, video.format)
    rgb = yuv_to_rgb(source, video.format, video.colour, video.height)
    planes = list(rgb_to_yuv(rgb, target.format, target.colour, video.height))
    if target.format.alpha:
        planes.append(source[-1] * (_white(target.format) / _white(video.format)))
    return grey_to_planes(planes, target.format)


def _white(pixels: PixelFormat) -> float:
    """Return the largest sample on the 0-255 scale."""
    return 255.0 if pixels.depth == 32 else (2**pixels.depth - 1) / pixels.unit
