"""A frame restored as a small picture of it: what the network changes there, as a gain and an offset for
every place and colour, is done to the frame's own pixels.

How much haze there is shows in a whole scene, not in a corner of it, and haze changes little from pixel to
pixel: so a small picture tells all, in a fraction of the time. The gain and the offset are those of the fast
guided filter: K. He, J. Sun, "Fast Guided Filter", arXiv 1505.00996, 2015; K. He, J. Sun, X. Tang, "Guided
Image Filtering", IEEE TPAMI 35, 2013.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import CheckpointError

COARSE_LINES = "coarse_lines"  # the parameter of weights that says so
MOST_LINES = 1 << 15
LEAST_RATIO = 1.5  # of a picture's shorter side to the small one's: below, the frame itself is restored
RADIUS = 2  # of windows of the small picture, in its pixels
# variance that windows are taken to have besides their own: in flat ones the gain stays near 1
FLAT = 1e-5


def coarse_lines(parameters: Mapping[str, Any], name: str) -> int | None:
    """Lines of the small picture, as the weights called `name` want them; None if they want none.

    Raises CheckpointError for anything but a whole number in a picture's range.
    """
    lines = parameters.get(COARSE_LINES)
    if lines is not None and (type(lines) is not int or not 1 <= lines <= MOST_LINES):
        raise CheckpointError(
            f"{name}: {COARSE_LINES} must be a whole number from 1 to {MOST_LINES}, found {lines!s:.40}"
        )
    return lines


def coarse_size(height: int, width: int, lines: int | None, multiple: int) -> tuple[int, int] | None:
    """Size of the small picture, its shorter side near `lines`, sides multiples of `multiple`; None for
    pictures that need none.
    """
    if lines is None or min(height, width) < LEAST_RATIO * lines:
        return None
    scale = lines / min(height, width)
    rows, columns = (max(multiple, round(side * scale / multiple) * multiple) for side in (height, width))
    return rows, columns


def made_small(picture: Tensor, size: tuple[int, int]) -> Tensor:
    """(..., H, W) to `size`: means over areas."""
    return F.interpolate(picture, size=size, mode="area")


def changed_as(small: Tensor, restored: Tensor, frame: Tensor) -> Tensor:
    """`frame` (B, C, H, W) changed as `small` (B, C, h, w), the same scene, was by becoming `restored`.

    In every window of `small` and for every colour, restored = gain small + offset by least squares (He et
    al. 2013, eqs. 5 and 6; here flat windows are drawn to a gain of 1). Then means over the windows that
    cover a pixel are enlarged bilinearly to the frame (He and Sun 2015, algorithm 2).
    """
    level = small.mean((-2, -1), keepdim=True)  # without it rounding outweighs what varies in a flat window
    small, frame = small - level, frame - level
    mean, aim = _means(small), _means(restored)
    variance, covariance = _means(small * small) - mean * mean, _means(small * restored) - mean * aim
    gain = (covariance + FLAT) / (variance + FLAT)
    gain, offset = _means(gain), _means(aim - gain * mean)
    return enlarged(gain, frame) * frame + enlarged(offset, frame)


def _means(maps: Tensor) -> Tensor:
    """Over windows, of which borders cut off a part."""
    return F.avg_pool2d(maps, 2 * RADIUS + 1, stride=1, padding=RADIUS, count_include_pad=False)


def enlarged(maps: Tensor, frame: Tensor) -> Tensor:
    """Return maps (B, C, h, w) of a small picture for all pixels of a frame, bilinearly."""
    return F.interpolate(maps, size=frame.shape[-2:], mode="bilinear", align_corners=False)
