"""Read YUV4MPEG2 from a pipe: a header line for the stream, a line before each frame, then the raw planes."""

from __future__ import annotations

import os
from collections.abc import Generator
from fractions import Fraction
from itertools import count
from typing import BinaryIO

import numpy as np

from vidrestore.errors import MediaError
from vidrestore.frames import ColourTags, Frame, PixelFormat
from vidrestore.media.damage import Damage
from vidrestore.media.formats import layout_of
from vidrestore.media.probe import SourceInfo, StreamInfo, VideoInfo

_MAGIC = b"YUV4MPEG2"
_LONGEST_LINE = 1024
_LARGEST_TERM = 2**31 - 1  # FFmpeg's limit for terms of a ratio
_MOST_SAMPLES = 2**31 // 8  # FFmpeg's limit for (width + 128) * (height + 128)
_DEPTHS = (9, 10, 12, 14, 16)
_FORMATS = {
    "420jpeg": "yuv420p",
    "420mpeg2": "yuv420p",
    "420paldv": "yuv420p",
    "420": "yuv420p",
    "411": "yuv411p",
    "422": "yuv422p",
    "444": "yuv444p",
    "444alpha": "yuva444p",
    "mono": "gray",
    **{
        f"{chroma}p{depth}": f"yuv{chroma}p{depth}le" for chroma in ("420", "422", "444") for depth in _DEPTHS
    },
    **{f"mono{depth}": f"gray{depth}le" for depth in _DEPTHS},
}
_CHROMA_LOCATIONS = {"420jpeg": 2, "420mpeg2": 1, "420paldv": 3}
_RANGES = {"LIMITED": 1, "FULL": 2}


class Y4mInput:
    """A y4m stream that is read once, from front to back; `name` is for messages. Raises MediaError if it
    isn't y4m.
    """

    def __init__(self, stream: BinaryIO, name: str = "-") -> None:
        self.name = name
        self._stream = stream
        self.info = self._parse(_read_line(stream))
        self._used = False

    def frames(self, damage: Damage) -> Generator[Frame]:
        """Yield the frames, pts counting from 0, one tick each. A truncated frame is damage; without frames
        raises MediaError.
        """
        if self._used:
            raise MediaError(f"{self.name}: a pipe can be read only once; save it to a file first")
        self._used = True
        for number in count():
            header = _read_line(self._stream)
            if not header:
                break
            if header.split(b" ")[0] != b"FRAME":
                raise MediaError(
                    f"{self.name}, frame {number}: expected a line FRAME, found {header[:20]!r}; the pipe "
                    "is not y4m or lost bytes"
                )
            frame = self._read_frame(number)
            if frame is None:
                damage.add(f"the pipe ended in the middle of frame {number}")
                damage.missing_frames += 1
                break
            yield frame
        if number == 0:
            raise MediaError(
                f"{self.name}: the y4m stream has 0 frames; look for an error of the program that feeds the "
                "pipe"
            )

    def _read_frame(self, number: int) -> Frame | None:
        video = self.info.video
        dtype = np.dtype("u1" if video.format.depth == 8 else "<u2")
        planes = []
        for plane in range(video.format.plane_count):
            height, width = video.format.plane_size(plane, video.height, video.width)
            data = self._stream.read(height * width * dtype.itemsize)
            if len(data) < height * width * dtype.itemsize:
                return None
            planes.append(np.frombuffer(bytearray(data), dtype).reshape(height, width))
        return Frame(tuple(planes), pts=number, duration=1, key=True, interlaced=video.interlaced)

    def _parse(self, line: bytes) -> SourceInfo:
        magic, *words = line.decode("ascii", "replace").split(" ")
        if magic.encode() != _MAGIC:
            found = f"it begins with {line[:12]!r}" if line else "it is empty"
            raise MediaError(
                f"{self.name}: expected a YUV4MPEG2 (y4m) stream on the pipe, but {found}; for example: "
                "ffmpeg -i IN -f yuv4mpegpipe -"
            )
        tags = {word[0]: word[1:] for word in words if word and word[0] != "X"}
        comments = dict(word[1:].partition("=")[::2] for word in words if word.startswith("X"))
        rate = self._ratio(tags, "F")
        if rate is None:
            raise MediaError(
                f"{self.name}: the y4m header has no frame rate (F), so its frames have no times; write "
                "one, such as F25:1"
            )
        chroma, (width, height) = tags.get("C", "420jpeg"), self._sides(tags)
        video = VideoInfo(
            index=0,
            codec="rawvideo",
            width=width,
            height=height,
            format=self._format(chroma),
            pix_fmt=self._format(chroma).name,
            time_base=1 / rate,
            rate=rate,
            base_rate=rate,
            sample_aspect_ratio=self._ratio(tags, "A"),
            colour=ColourTags(
                range=_RANGES.get(comments.get("COLORRANGE", ""), 0),
                chroma_location=_CHROMA_LOCATIONS.get(chroma, 0),
            ),
            interlaced=tags.get("I", "p") in ("t", "b", "m"),
            start=0,
        )
        return SourceInfo(self.name, "yuv4mpegpipe", video, (StreamInfo(0, "video", "rawvideo"),))

    def _sides(self, tags: dict[str, str]) -> tuple[int, int]:
        width, height = self._size(tags, "W"), self._size(tags, "H")
        if (width + 128) * (height + 128) >= _MOST_SAMPLES:
            raise MediaError(
                f"{self.name}: the y4m header says W{width} H{height}, which is more than FFmpeg can take; "
                "cut it up"
            )
        return width, height

    def _format(self, chroma: str) -> PixelFormat:
        if chroma not in _FORMATS:
            raise MediaError(
                f"{self.name}: y4m colour space C{chroma} is not supported; there are: {', '.join(_FORMATS)}"
            )
        return layout_of(_FORMATS[chroma]).format

    def _size(self, tags: dict[str, str], letter: str) -> int:
        text = tags.get(letter, "")
        if not text.isdecimal() or not 0 < int(text) <= 32768:
            raise MediaError(
                f"{self.name}: the y4m header says {letter}{text or ' nothing'}, but {letter} must be a "
                "size from 1 to 32768"
            )
        return int(text)

    def _ratio(self, tags: dict[str, str], letter: str) -> Fraction | None:
        """Return a ratio; None if it is missing or 0:0, which means unknown."""
        text = tags.get(letter, "0:0")
        over, colon, under = text.partition(":")
        if not (
            colon and over.isdecimal() and under.isdecimal() and max(int(over), int(under)) <= _LARGEST_TERM
        ):
            wanted = f"a ratio such as {letter}25:1 was expected, of terms up to {_LARGEST_TERM}"
            raise MediaError(f"{self.name}: the y4m header says {letter}{text}, but {wanted}")
        return Fraction(int(over), int(under)) if int(over) and int(under) else None


def y4m_missing_bytes(path: str) -> int:
    """Return the number of bytes that the last frame of a y4m file lacks; FFmpeg drops such a frame
    silently.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            video = Y4mInput(file, path).info.video
        except MediaError:  # a variant that only FFmpeg reads
            return 0
        sizes = (
            video.format.plane_size(plane, video.height, video.width)
            for plane in range(video.format.plane_count)
        )
        frame = sum(height * width for height, width in sizes) * (1 if video.format.depth == 8 else 2)
        while _read_line(file):
            file.seek(frame, os.SEEK_CUR)
        return max(0, file.tell() - size)


def _read_line(stream: BinaryIO) -> bytes:
    """Read one line without its end, empty at the end of the stream; its length is bounded, since input may
    have no line ends.
    """
    return stream.readline(_LONGEST_LINE).rstrip(b"\n")
