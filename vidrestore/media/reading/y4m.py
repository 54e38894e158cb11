"""Pipes of YUV4MPEG2 (y4m), by FFmpeg's yuv4mpegpipe: a header line for the stream, a line before each frame,
then the raw planes, at a constant rate.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from types import SimpleNamespace
from typing import Any, BinaryIO

import av
from av.packet import Packet
from av.video.frame import VideoFrame

from vidrestore.errors import MediaError
from vidrestore.media.formats.damage import Damage
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.encoding import add_encoder, picture
from vidrestore.media.formats.source import PIPE, Y4M
from vidrestore.media.formats.y4m_header import LONGEST_HEADER, whole_header
from vidrestore.media.reading.probe import (
    SourceInfo,
    StreamInfo,
    check_size,
    describe_video,
)
from vidrestore.pixels.frames import Frame

_FRAME = b"FRAME\n"
# Pixel formats that FFmpeg writes
_WRITTEN = re.compile(
    r"yuv4(20|22|44)p((9|10|12|14|16)le)?|yuv411p|gray((9|10|12|16)le)?"
)


class Y4mInput:
    """A y4m stream, read once from front to back, with the interface of `Decoding`. Raises MediaError if it
    isn't y4m or has no frame.
    """

    longest = 1  # duration of a frame, in ticks
    reach = 0  # no frame is reordered
    jpeg, is_altered = (), False

    def __init__(self, stream: BinaryIO) -> None:
        self.damage = Damage()
        self._stream, self._used = stream, False
        # the header is checked before FFmpeg reads it again
        self._head = head = whole_header(stream.readline(LONGEST_HEADER), PIPE)
        self._count = 0  # bytes read
        try:
            self._container = av.open(SimpleNamespace(read=self._read), "r", format=Y4M)
        except av.error.FFmpegError as error:
            raise MediaError(
                f"-: the y4m header {head.decode().strip()!r} is more than FFmpeg takes; cut the video up"
            ) from error
        stored = self._container.streams.video[0]
        check_size(PIPE, stored)
        # the first frame shows what the header doesn't, and is kept for `pictures`
        self._pictures = self._decoded()
        first = next(self._pictures, None)
        if first is None:
            raise MediaError(
                "-: the y4m stream has 0 frames; look for an error of the program that feeds the pipe"
            )
        self._pictures = chain([first], self._pictures)
        video = replace(describe_video(PIPE, stored, [first], Y4M), duration=None)
        self.info = SourceInfo(PIPE, Y4M, video, (StreamInfo(0, "video", video.codec),))

    def _read(self, size: int) -> bytes:
        """Return the header, then the bytes of the pipe."""
        data = self._head or self._stream.read(size)
        self._head = b""
        self._count += len(data)
        return data

    def pictures(
        self,
        start_pts: int | None = None,
        stop_pts: int | None = None,
        *,
        around: int = 0,
    ) -> Generator[VideoFrame]:
        """Yield the frames, pts counting from 0, one tick each. A truncated frame is damage."""
        if self._used:
            raise MediaError("-: a pipe can be read only once; save it to a file first")
        self._used = True
        yield from self._pictures

    def _decoded(self) -> Iterator[VideoFrame]:
        number, last = 0, None
        try:
            # a packet is a frame, whole or cut short
            for packet in self._container.demux(video=0):
                last = packet if packet.size else last
                for frame in packet.decode():
                    frame.pts, frame.duration = number, 1
                    number += 1
                    yield frame
        except av.error.InvalidDataError as error:
            raise MediaError(
                f"-, frame {number}: expected a line FRAME; the pipe is not y4m or lost bytes"
            ) from error
        if last and bytes_lacking(last, self._count):
            self.damage.add(f"the pipe ended in the middle of frame {number}")
            self.damage.missing_frames += 1


def bytes_lacking(last: Packet[Any], size: int) -> int:
    """Return how many bytes the frame after the last packet lacks in a y4m of `size` bytes: FFmpeg drops it
    silently. Return 0 if none was begun.
    """
    # what came after the last whole frame belongs to one that is cut short
    begun = size - (last.pos or 0) - last.size
    return max(0, len(_FRAME) + last.size - begun) if begun > 0 else 0


def check_written(pix_fmt: str) -> None:
    """Raise MediaError for a pixel format that y4m has no name for."""
    if not _WRITTEN.fullmatch(pix_fmt):
        raise MediaError(
            f"a y4m pipe can't hold {pix_fmt}; write a file instead, for example `output=OUT.mkv` with "
            "`encoder=ffv1`"
        )


class Y4mOutput:
    """Writes frames to a binary stream. With `rate`, frames are repeated and dropped to match it; without it,
    the source's rate must be constant. Raises MediaError if it varies.
    """

    def __init__(
        self, stream: BinaryIO, source: SourceInfo, *, rate: Fraction | None = None
    ) -> None:
        self.stream = stream
        self.warnings: list[str] = []
        self.damage: str | None = None  # a pipe has no copied streams
        self.time_base = source.video.time_base
        self.has_rate = rate is not None
        self.rate = rate or _source_rate(source)
        self.origin: int | None = None
        self.written = self.received = 0
        self.last_frame: Frame | None = None
        base = 1 / self.rate
        # y4m has one rate and no orientation
        self._video = replace(
            source.video, rate=self.rate, time_base=base, display_matrix=None
        )
        self._container = av.open(
            SimpleNamespace(write=self._write),
            "w",
            format=Y4M,
            container_options={"strict": "-1"},
        )
        choice = EncoderChoice("wrapped_avframe", source.video.format.name, Y4M, {})
        self._video_stream = add_encoder(self._container, choice, self._video)
        with _pipe_errors():
            self._container.start_encoding()

    def _write(self, data: bytes) -> None:
        """Write to the pipe, with the pixel aspect in the header, which PyAV can't set."""
        ratio = self._video.sample_aspect_ratio
        if ratio and data.startswith(b"YUV4MPEG2"):
            data = data.replace(
                b" A0:0 ", f" A{ratio.numerator}:{ratio.denominator} ".encode()
            )
        self.stream.write(data)

    def write(self, frame: Frame) -> None:
        self.origin = frame.pts if self.origin is None else self.origin
        # by time where a rate was asked for, else as they come
        if self.has_rate:
            self._fill_up_to(self._place(frame.pts))
            self.last_frame = frame
        else:
            self._check_steady(frame)
            self._put(frame)
        self.received += 1

    def finish(self) -> None:
        if self.last_frame is not None:
            stop = self._place(self.last_frame.pts + self.last_frame.duration)
            self._fill_up_to(max(stop, self.written, 1))
        with _pipe_errors():
            self._container.close()
            self.stream.flush()

    def abort(self) -> None:
        """Stop writing: data sent to a pipe can't be taken back."""
        with suppress(Exception):  # the pipe that broke
            self._container.close()

    def _place(self, pts: int) -> int:
        """Return the output frame, counted from 0, nearest to a time."""
        return round((pts - (self.origin or 0)) * self.time_base * self.rate)

    def _fill_up_to(self, stop: int) -> None:
        while self.last_frame is not None and self.written < stop:
            self._put(self.last_frame)

    def _check_steady(self, frame: Frame) -> None:
        # half a frame is as far as rounding of times goes
        late = (
            frame.pts - (self.origin or 0)
        ) * self.time_base - self.received / self.rate
        if abs(late) > max(self.time_base, 1 / (2 * self.rate)):
            raise MediaError(
                f"the frame rate varies (frame {self.received} comes {float(late):+.3f} s off the rate of "
                f"{float(self.rate):g} frames per second) and a y4m pipe has only one; give one with `cfr`, "
                "or name a file"
            )

    def _put(self, frame: Frame) -> None:
        video_frame = picture(
            frame, self._video.format.name, 1 / self.rate, self._video.colour
        )
        video_frame.pts, video_frame.duration = self.written, 1
        with _pipe_errors():
            self._container.mux(self._video_stream.encode(video_frame))
        self.written += 1


@contextmanager
def _pipe_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (
            "the program that read it ended"
            if error.errno == errno.EPIPE
            else str(error)
        )
        raise MediaError(f"the y4m pipe broke ({reason})") from error


def _source_rate(source: SourceInfo) -> Fraction:
    rate = source.video.base_rate or source.video.rate
    # a rate at which some frames are missing is not constant
    if not rate:
        raise MediaError(
            f"{source.path}: its frame rate is unknown and a y4m pipe needs one; give it with `cfr`"
        )
    average = source.video.rate or rate
    if abs(average - rate) > rate / 20:
        raise MediaError(
            f"{source.path}: the frame rate varies ({float(average):g} frames per second on average, "
            f"{float(rate):g} at most) and a y4m pipe has only one; give one with `cfr`, or name a file"
        )
    return rate
