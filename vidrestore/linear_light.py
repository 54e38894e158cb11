"""Convert display values to linear light and back; light adds up in linear values only.

Video stores about the 2.2th root of light.
"""

from __future__ import annotations

from torch import Tensor

GAMMA = 2.2
WAVELENGTHS = (630.0, 532.0, 465.0)  # nm, of R, G, B


def to_light(rgb: Tensor) -> Tensor:
    """Convert R'G'B' to linear light, [0, 1] -> [0, 1]; values outside are clipped."""
    return rgb.clamp(0, 1) ** GAMMA


def from_light(light: Tensor) -> Tensor:
    """Convert linear light to R'G'B': the inverse of `to_light`."""
    return light.clamp(0, 1) ** (1 / GAMMA)
