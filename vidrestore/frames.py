"""Frames, their pixel format and colour tags, and the video that they belong to; no codecs or models."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

UNSPECIFIED = 2  # the code point of "unknown" in ITU-T H.273, for matrix, primaries and transfer


@dataclass(frozen=True)
class ColourTags:
    """Colour description as ITU-T H.273 code points (FFmpeg's numbers), to be copied unchanged.

    `range` is 0 unspecified, 1 limited (16-235), 2 full; `chroma_location` is 0 unspecified, 1 left, 2
    centre, 3 top-left, 4 top, 5 bottom-left, 6 bottom.
    """

    matrix: int = UNSPECIFIED
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    range: int = 0
    chroma_location: int = 0


@dataclass(frozen=True)
class PixelFormat:
    """The properties of an FFmpeg pix_fmt. `depth` is in bits per sample, 32 for float samples in [0, 1]."""

    name: str
    family: Literal["yuv", "rgb", "gray"]
    depth: int
    chroma_width_shift: int = 0
    chroma_height_shift: int = 0
    alpha: bool = False

    @property
    def plane_count(self) -> int:
        """The number of colour planes, plus one for alpha."""
        return (1 if self.family == "gray" else 3) + self.alpha

    @property
    def unit(self) -> float:
        """Steps of a stored sample per grey level of the 0-255 scale: 1 for 8 bits, 4 for 10."""
        return 1 / 255 if self.depth == 32 else float(2 ** (self.depth - 8))

    def plane_size(self, plane: int, height: int, width: int) -> tuple[int, int]:
        """Return (height, width) of one plane of a frame; chroma of odd sizes is rounded up, as in FFmpeg."""
        if self.family == "yuv" and plane in (1, 2):
            return -(-height >> self.chroma_height_shift), -(-width >> self.chroma_width_shift)
        return height, width


@dataclass(frozen=True)
class VideoInfo:
    """The video stream to restore.

    `format` is what the reader delivers (planar), `pix_fmt` what the file stores (FFmpeg's name: nv12 is
    delivered as yuv420p). `rate` is the average frame rate, `base_rate` FFmpeg's guess of the finest constant
    one; `start` and `duration` count ticks of `time_base`. `rotation` is in degrees counter-clockwise;
    `display_matrix` are the nine integers that it comes from (it may mirror as well). `mastering_display` is
    red x y, green x y, blue x y, white x y, darkest, brightest; `content_light` is MaxCLL, MaxFALL.
    `side_data` names other side data of the first frames (A53_CC, DYNAMIC_HDR_PLUS, ...), and ALPHA_LAYER for
    a transparent VP8 or VP9, whose second layer FFmpeg's own decoder ignores. `reordered` means that decoding
    order differs from display order (B-frames). `marked_order` is "tff" or "bff" (top or bottom field first)
    if the marks of interlaced video say it, `unmarked_order` the same if only the stream is marked, not its
    frames. `numbered` means a raw stream without times: that of a frame is its number, and a tick is one
    frame. `by_order` means that times of showing are missing or wrong: the n-th picture shown has the time of
    the n-th packet, as in AVI.
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
    marked_order: str | None = None
    unmarked_order: str | None = None
    numbered: bool = False
    by_order: bool = False

    @property
    def end(self) -> int | None:
        """The pts at which the stream ends by its own duration; None if unknown."""
        return None if self.start is None or self.duration is None else self.start + self.duration


Scale: TypeAlias = int | Fraction  # output size over source size


def enlarged_size(height: int, width: int, scale: Scale) -> tuple[int, int]:
    """Return the (height, width) of an enlarged picture, even if the factor is not an integer."""
    if scale.denominator == 1:
        return int(height * scale), int(width * scale)
    return 2 * round(height * scale / 2), 2 * round(width * scale / 2)


@dataclass
class Frame:
    """One picture with its time.

    `planes`: Y, U, V or R, G, B or gray, then alpha if the format has it; each (height, width) at its own
    size, uint8, uint16 or float32. `pts` and `duration` count ticks of the stream's time base; `duration` is
    0 if the container doesn't give it. `loss`: sigma of what the coder took from luma and from colour
    differences (`media.coding_loss`). `real_rows`: 0 if a deinterlacer interpolated the odd rows of every
    plane, 1 if the even ones, None if the source has all rows. `second`: the planes of its other field, half
    a frame later, deinterlaced likewise, if that isn't a frame itself.
    """

    planes: tuple[NDArray[Any], ...]
    pts: int
    duration: int = 0
    key: bool = False
    interlaced: bool = False
    corrupt: bool = False
    loss: tuple[float, float] = (0.0, 0.0)
    real_rows: int | None = None
    second: tuple[NDArray[Any], ...] | None = None

    @property
    def nbytes(self) -> int:
        return sum(plane.nbytes for plane in (*self.planes, *(self.second or ())))


@dataclass(frozen=True)
class Span:
    """The frames with start <= pts < stop, in ticks of the video stream; None is the video's own limit.

    An output that has a `start` begins there at time 0.
    """

    start: int | None = None
    stop: int | None = None


WHOLE = Span()
