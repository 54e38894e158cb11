"""Read a pipe of YUV4MPEG2 (y4m): a header line for the stream, a line before each frame, then the raw
planes, at a constant rate.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any, BinaryIO

import av
from av.packet import Packet
from av.video.frame import VideoFrame

from vidrestore.errors import MediaError
from vidrestore.media.formats.damage import Damage
from vidrestore.media.formats.source import PIPE, Y4M
from vidrestore.media.formats.y4m_header import LONGEST_HEADER, whole_header
from vidrestore.media.reading.probe import (
    SourceInfo,
    StreamInfo,
    check_size,
    describe_video,
)

_FRAME = b"FRAME\n"


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
