"""Convert display values to linear light and back; light adds up in linear values only.

Video stores about the 2.2th root of light; photographs have contrast added to that, or a `Response` of their
own.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

GAMMA = 2.2
WAVELENGTHS = (630.0, 532.0, 465.0)  # nm, of R, G, B


def to_light(rgb: Tensor) -> Tensor:
    """Convert R'G'B' to linear light, [0, 1] -> [0, 1]; values outside are clipped."""
    return rgb.clamp(0, 1) ** GAMMA


def from_light(light: Tensor) -> Tensor:
    """Convert linear light to R'G'B': the inverse of `to_light`."""
    return light.clamp(0, 1) ** (1 / GAMMA)


@dataclass(frozen=True)
class Response:
    """The curve by which a camera stores light, both in [0, 1].

    power: of the stored values without their contrast, which is light
    contrast: the slope of the stored values over those without it, where they are a half; 1 if there is none
    """

    power: float = GAMMA
    contrast: float = 1.0

    def to_light(self, rgb: Tensor) -> Tensor:
        """Convert stored values to light; values outside are clipped."""
        return _with_contrast(rgb.clamp(0, 1), 1 / self.contrast) ** self.power

    def from_light(self, light: Tensor) -> Tensor:
        """Convert light to stored values: the inverse of `to_light`."""
        return _with_contrast(light.clamp(0, 1) ** (1 / self.power), self.contrast)


def _with_contrast(values: Tensor, slope: float) -> Tensor:
    """Return values in [0, 1] with another slope at a half; the inverse has the inverse slope."""
    if slope == 1:
        return values
    high = values**slope
    return high / (high + (1 - values) ** slope)
