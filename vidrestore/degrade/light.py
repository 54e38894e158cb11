"""Display values and light: video stores about the 2.2th root of light, which is where optics and sensors
add.
"""

from __future__ import annotations

from torch import Tensor

GAMMA = 2.2


def to_light(rgb: Tensor) -> Tensor:
    """R'G'B' -> light, [0, 1] -> [0, 1]; what lies outside is clipped."""
    return rgb.clamp(0, 1) ** GAMMA


def from_light(light: Tensor) -> Tensor:
    """The way back from `to_light`."""
    return light.clamp(0, 1) ** (1 / GAMMA)
