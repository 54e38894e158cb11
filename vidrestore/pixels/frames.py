"""Frames, their pixel format and colour tags, and the video that they belong to; no codecs or models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

# the code point of "unknown" in ITU-T H.273, for matrix, primaries and transfer
UNSPECIFIED = 2


@dataclass(frozen=True)
class ColourTags:
    """Colour description as ITU-T H.273 code points (FFmpeg's numbers), to be copied unchanged."""

    matrix: int = UNSPECIFIED
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    range: int = 0  # 0 unspecified, 1 limited (16-235), 2 full
    # 0 unspecified, 1 left, 2 centre, 3 top-left, 4 top, 5 bottom-left, 6 bottom
    chroma_location: int = 0


@dataclass(frozen=True)
class PixelFormat:
    """The properties of an FFmpeg pix_fmt."""

    name: str
    family: Literal["yuv", "rgb", "gray"]
    depth: int  # bits per sample; 32 for float samples in [0, 1]
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
            return -(-height >> self.chroma_height_shift), -(
                -width >> self.chroma_width_shift
            )
        return height, width


@dataclass(frozen=True)
class VideoInfo:
    """The video stream to restore."""

    index: int
    codec: str
    width: int  # without the columns of `crop`
    height: int  # without the rows of `crop`
    format: PixelFormat  # delivered by the reader, planar
    time_base: Fraction
    rate: Fraction | None = None  # average frame rate
    # FFmpeg's guess of the finest constant frame rate
    base_rate: Fraction | None = None
    sample_aspect_ratio: Fraction | None = None
    rotation: int = 0  # degrees counter-clockwise
    colour: ColourTags = field(default_factory=ColourTags)
    interlaced: bool = False
    frames: int | None = None
    start: int | None = None  # ticks of `time_base`
    duration: int | None = None  # ticks of `time_base`
    frame_bits: float | None = None  # mean size of a coded frame
    profile: str | None = None
    # stored in the file, by FFmpeg's name: nv12 is delivered as yuv420p
    pix_fmt: str = ""
    # nine integers, the source of `rotation`
    display_matrix: tuple[int, ...] | None = None
    # red x y, green, blue, white, darkest, brightest
    mastering_display: tuple[Fraction, ...] | None = None
    content_light: tuple[int, int] | None = None  # MaxCLL, MaxFALL
    # other side data of the first frames (A53_CC, DYNAMIC_HDR_PLUS, ...), and ALPHA_LAYER for a transparent
    # VP8 or VP9, whose second layer FFmpeg's own decoder ignores
    side_data: frozenset[str] = frozenset()
    reordered: bool = False  # decoding order differs from display order (B-frames)
    # "tff" or "bff", top or bottom field first, by the marks of its frames
    marked_order: str | None = None
    # the same by the stream's mark, if its frames have none
    unmarked_order: str | None = None
    # a raw stream without times: that of a frame is its number, a tick is one frame
    numbered: bool = False
    # presentation times are missing or wrong: the n-th picture has the time of the n-th packet, as in AVI
    by_order: bool = False
    # left, right, top, bottom that the container hides
    crop: tuple[int, int, int, int] = (0, 0, 0, 0)
    # the stream's pictures have one field each; frames are woven of two
    field_pictures: bool = False

    @property
    def end(self) -> int | None:
        """The pts at which the stream ends by its own duration; None if unknown."""
        return (
            None
            if self.start is None or self.duration is None
            else self.start + self.duration
        )


def uncropped(video: VideoInfo) -> VideoInfo:
    """Return a video with the columns and rows that its container hides."""
    left, right, top, bottom = video.crop
    width = video.width + left + right
    height = video.height + top + bottom
    return replace(video, width=width, height=height, crop=(0, 0, 0, 0))


Scale: TypeAlias = int | Fraction  # output size over source size


def enlarged_size(height: int, width: int, scale: Scale) -> tuple[int, int]:
    """Return the (height, width) of an enlarged picture, even if the factor is not an integer."""
    if scale.denominator == 1:
        return int(height * scale), int(width * scale)
    return 2 * round(height * scale / 2), 2 * round(width * scale / 2)


@dataclass
class Frame:
    """One picture with its time, in ticks of the stream's time base."""

    # Y, U, V or R, G, B or gray, then alpha if the format has it; each (height, width) at its own size, in
    # uint8, uint16 or float32
    planes: tuple[NDArray[Any], ...]
    pts: int
    duration: int = 0  # 0 if the container doesn't give it
    interlaced: bool = False
    corrupt: bool = False
    # sigma of the loss of coding, of luma and of colour differences (`media.reading.coding_loss`)
    loss: tuple[float, float] = (0.0, 0.0)
    # 0 if a deinterlacer interpolated the odd rows of every plane, 1 if the even ones; None if no rows
    real_rows: int | None = None
    # planes of its other field, half a frame later, deinterlaced likewise, if that isn't a frame itself
    second: tuple[NDArray[Any], ...] | None = None
    steps: tuple[NDArray[Any], ...] = ()  # of each plane's quantiser (8, 8), of JPEG
    dropouts: int = 0  # of a tape, which were found and filled in its fields

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
