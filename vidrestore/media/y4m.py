"""Read YUV4MPEG2 from a pipe: a header line for the stream, a line before each frame, then the raw planes.

Writing is the same at a constant rate.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from vidrestore.errors import MediaError
from vidrestore.frames import ColourTags, Frame, PixelFormat, VideoInfo
from vidrestore.media.damage import Damage
from vidrestore.media.formats import layout_of
from vidrestore.media.probe import SourceInfo, StreamInfo

if TYPE_CHECKING:
    from vidrestore.frames import VideoInfo
    from vidrestore.media.probe import SourceInfo

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


_SUBSAMPLINGS = {(1, 1): "420", (1, 0): "422", (0, 0): "444", (2, 0): "411"}
_WRITTEN_DEPTHS = (8, 9, 10, 12, 14, 16)
_SITINGS = {1: "mpeg2", 3: "paldv"}  # left, top-left; others become JPEG's centre, as in FFmpeg
_RANGE_WORDS = {1: " XCOLORRANGE=LIMITED", 2: " XCOLORRANGE=FULL"}


def colour_space(pixels: PixelFormat, colour: ColourTags) -> str:
    """Return the value of the header's C, such as "420mpeg2" or "422p10 XYSCSS=422P10". Raises MediaError if
    there is none.
    """
    name = _SUBSAMPLINGS.get((pixels.chroma_width_shift, pixels.chroma_height_shift))
    if (
        pixels.alpha
        or pixels.family == "rgb"
        or name is None
        or pixels.depth not in _WRITTEN_DEPTHS
        or (name == "411" and pixels.depth > 8)
    ):
        raise MediaError(
            f"a y4m pipe can't hold {pixels.name}; write a file instead, for example "
            "`output=OUT.mkv` with `encoder=ffv1`"
        )
    if pixels.family == "gray":
        return "mono" + (str(pixels.depth) if pixels.depth > 8 else "")
    if pixels.depth > 8:
        return f"{name}p{pixels.depth} XYSCSS={name}P{pixels.depth}"
    if name == "420":
        siting = _SITINGS.get(colour.chroma_location, "jpeg")
        return f"420{siting} XYSCSS=420{siting.upper()}"
    return name


def header(video: VideoInfo, rate: Fraction) -> bytes:
    """Return the first line of the stream."""
    aspect = video.sample_aspect_ratio or Fraction(0)
    shape = f"W{video.width} H{video.height} F{rate.numerator}:{rate.denominator} Ip"
    ratio = f"A{aspect.numerator}:{aspect.denominator if aspect else 0}"
    return (
        f"YUV4MPEG2 {shape} {ratio} "
        f"C{colour_space(video.format, video.colour)}{_RANGE_WORDS.get(video.colour.range, '')}\n"
    ).encode()


class Y4mOutput:
    """Writes frames to a binary stream.

    With `rate`, frames are repeated and dropped to keep it; without it, the source's own rate must be
    constant. Raises MediaError for pixels that y4m can't hold, and if the rate turns out to vary.
    """

    def __init__(self, stream: BinaryIO, source: SourceInfo, *, rate: Fraction | None = None) -> None:
        self.stream = stream
        self.warnings: list[str] = []
        self.damage: str | None = None  # a pipe has no copied streams
        self.time_base = source.video.time_base
        self.has_rate = rate is not None
        self.rate = rate or _source_rate(source)
        self.origin: int | None = None
        self.written = self.received = 0
        self.held: Frame | None = None
        self._send(header(source.video, self.rate))

    def write(self, frame: Frame) -> None:
        self.origin = frame.pts if self.origin is None else self.origin
        if self.has_rate:
            self._fill_up_to(self._place(frame.pts))
            self.held = frame
        else:
            self._check_steady(frame)
            self._put(frame)
        self.received += 1

    def finish(self) -> None:
        if self.held is not None:
            self._fill_up_to(
                max(self._place(self.held.pts + self.held.duration), self.written + (not self.written))
            )
        self._guarded(self.stream.flush)

    def abort(self) -> None:
        """Do nothing: data sent to a pipe can't be taken back."""

    def _place(self, pts: int) -> int:
        """Return the output frame, counted from 0, that starts nearest to a time."""
        return round((pts - (self.origin or 0)) * self.time_base * self.rate)

    def _fill_up_to(self, stop: int) -> None:
        while self.held is not None and self.written < stop:
            self._put(self.held)

    def _check_steady(self, frame: Frame) -> None:
        late = (frame.pts - (self.origin or 0)) * self.time_base - self.received / self.rate
        if abs(late) > max(self.time_base, 1 / (2 * self.rate)):
            seen = (
                f"frame {self.received} comes {float(late):+.3f} s off the rate of {float(self.rate):g} "
                "frames per second"
            )
            raise MediaError(
                f"the frame rate varies ({seen}) and a y4m pipe has only one; give one with `cfr`, or name "
                "a file"
            )

    def _put(self, frame: Frame) -> None:
        self._send(b"FRAME\n")
        for plane in frame.planes:
            self._send(plane.astype(plane.dtype.newbyteorder("<"), copy=False).tobytes())
        self.written += 1

    def _send(self, data: bytes) -> None:
        self._guarded(lambda: self.stream.write(data))

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            reason = "its reader went away" if error.errno == errno.EPIPE else str(error)
            raise MediaError(f"the y4m pipe broke ({reason})") from error


def _source_rate(source: SourceInfo) -> Fraction:
    rate = source.video.base_rate or source.video.rate
    if not rate:
        raise MediaError(
            f"{source.path}: its frame rate is unknown and a y4m pipe needs one; give it with `cfr`"
        )
    average = source.video.rate or rate
    if abs(average - rate) > rate / 20:
        seen = f"{float(average):g} frames per second on average, {float(rate):g} at most"
        raise MediaError(
            f"{source.path}: the frame rate varies ({seen}) and a y4m pipe has only one; give one with "
            "`cfr`, or name a file"
        )
    return rate
