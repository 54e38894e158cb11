"""Pictures between decoder and encoder: native planes, their pixel format, their colour tags. Plain
data, no codec, no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

UNSPECIFIED = 2  # the code point of "unknown" in ITU-T H.273, for matrix, primaries and transfer


@dataclass(frozen=True)
class ColourTags:
    """Colour description as ITU-T H.273 code points (FFmpeg's numbers), so that it is copied and never
    guessed.

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
    """One FFmpeg pix_fmt, taken apart. `depth` is in bits per sample, 32 for float samples in [0, 1]."""

    name: str
    family: Literal["yuv", "rgb", "gray"]
    depth: int
    chroma_width_shift: int = 0
    chroma_height_shift: int = 0
    alpha: bool = False

    @property
    def plane_count(self) -> int:
        """Colour planes plus, last, the alpha plane where there is one."""
        return (1 if self.family == "gray" else 3) + self.alpha

    @property
    def unit(self) -> float:
        """Steps of a stored sample per grey level of the 0-255 scale: 1 for 8 bits, 4 for 10,
        1/255 for float.
        """
        return 1 / 255 if self.depth == 32 else float(2 ** (self.depth - 8))

    def plane_size(self, plane: int, height: int, width: int) -> tuple[int, int]:
        """(height, width) of one plane of a frame; chroma of odd sizes is rounded up, as in FFmpeg."""
        if self.family == "yuv" and plane in (1, 2):
            return -(-height >> self.chroma_height_shift), -(-width >> self.chroma_width_shift)
        return height, width


Scale: TypeAlias = int | Fraction  # of an output's width and height to the source's


def enlarged_size(height: int, width: int, scale: Scale) -> tuple[int, int]:
    """Return the size of a picture made larger; the sides are even if the factor is no whole number."""
    if scale.denominator == 1:
        return int(height * scale), int(width * scale)
    return 2 * round(height * scale / 2), 2 * round(width * scale / 2)


@dataclass
class Frame:
    """One picture with its time.

    `planes`: Y, U, V or R, G, B or gray, then alpha where the format has it; each (height, width) at its own
    size, uint8, uint16 or float32. `pts` and `duration` count ticks of the stream's time base; `duration` is
    0 where the container doesn't say.
    """

    planes: tuple[NDArray[Any], ...]
    pts: int
    duration: int = 0
    key: bool = False
    interlaced: bool = False
    corrupt: bool = False

    @property
    def nbytes(self) -> int:
        return sum(plane.nbytes for plane in self.planes)
