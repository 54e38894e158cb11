"""Write a pipe of YUV4MPEG2 (y4m), by FFmpeg's yuv4mpegpipe: frames at a constant rate, from any times."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import BinaryIO

import av

from vidrestore.errors import MediaError
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.encoding import add_encoder, picture
from vidrestore.media.formats.source import Y4M
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.pixels.frames import Frame

# Pixel formats that FFmpeg writes
_WRITTEN = re.compile(
    r"yuv4(20|22|44)p((9|10|12|14|16)le)?|yuv411p|gray((9|10|12|16)le)?"
)


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
