"""Write raw frames to a pipe as YUV4MPEG2: a header line, then "FRAME" and the planes of each frame, at a
constant rate.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, BinaryIO

from vidrestore.errors import MediaError
from vidrestore.frames import ColourTags, Frame, PixelFormat, Scale, enlarged_size

if TYPE_CHECKING:
    from vidrestore.media.probe import SourceInfo, VideoInfo

_SUBSAMPLINGS = {(1, 1): "420", (1, 0): "422", (0, 0): "444", (2, 0): "411"}
_DEPTHS = (8, 9, 10, 12, 14, 16)
_SITINGS = {1: "mpeg2", 3: "paldv"}  # left, top-left; others become JPEG's centre, as in FFmpeg
_RANGES = {1: " XCOLORRANGE=LIMITED", 2: " XCOLORRANGE=FULL"}


def colour_space(pixels: PixelFormat, colour: ColourTags) -> str:
    """Return the value of the header's C, such as "420mpeg2" or "422p10 XYSCSS=422P10". Raises MediaError if
    there is none.
    """
    name = _SUBSAMPLINGS.get((pixels.chroma_width_shift, pixels.chroma_height_shift))
    if (
        pixels.alpha
        or pixels.family == "rgb"
        or name is None
        or pixels.depth not in _DEPTHS
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


def header(video: VideoInfo, rate: Fraction, scale: Scale = 1) -> bytes:
    """Return the first line of the stream."""
    aspect = video.sample_aspect_ratio or Fraction(0)
    height, width = enlarged_size(video.height, video.width, scale)
    shape = f"W{width} H{height} F{rate.numerator}:{rate.denominator} Ip"
    ratio = f"A{aspect.numerator}:{aspect.denominator if aspect else 0}"
    return (
        f"YUV4MPEG2 {shape} {ratio} "
        f"C{colour_space(video.format, video.colour)}{_RANGES.get(video.colour.range, '')}\n"
    ).encode()


class Y4mOutput:
    """Writes frames to a binary stream.

    With `rate`, frames are repeated and dropped to keep it; without it, the source's own rate must be
    constant. Raises MediaError for pixels that y4m can't hold, and if the rate turns out to vary.
    """

    def __init__(
        self, stream: BinaryIO, source: SourceInfo, *, rate: Fraction | None = None, scale: Scale = 1
    ) -> None:
        self.stream = stream
        self.warnings: list[str] = []
        self.damage: str | None = None  # a pipe has no copied streams
        self.time_base = source.video.time_base
        self.has_rate = rate is not None
        self.rate = rate or _source_rate(source)
        self.origin: int | None = None
        self.written = self.received = 0
        self.held: Frame | None = None
        self._send(header(source.video, self.rate, scale))

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
