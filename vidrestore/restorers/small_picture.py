"""Restore a frame by way of a small picture: the network restores that, and its change, a gain and an offset
for every place and colour, is applied to the frame's own pixels.

The amount of haze is seen in a whole scene, not in a corner of it, and haze changes little from pixel to
pixel. So a small picture suffices, and takes a fraction of the time. The gain and the offset are those of the
fast guided filter: K. He, J. Sun, "Fast Guided Filter", arXiv 1505.00996, 2015; K. He, J. Sun, X. Tang,
"Guided Image Filtering", IEEE TPAMI 35, 2013.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import CheckpointError

COARSE_LINES = "coarse_lines"  # parameter of weights: the lines of the small picture
MOST_LINES = 1 << 15
LEAST_RATIO = 1.5  # a frame whose shorter side is below this times the lines is restored itself
RADIUS = 2  # of the windows, in pixels of the small picture
FLAT = 1e-5  # added to the variance in a window, so that the gain of flat windows is near 1


def coarse_lines(parameters: Mapping[str, Any], name: str) -> int | None:
    """Return the lines of the small picture from the parameters of the weights `name`; None if the network
    restores whole frames.

    Raises CheckpointError unless they are a whole number from 1 to MOST_LINES.
    """
    lines = parameters.get(COARSE_LINES)
    if lines is not None and (type(lines) is not int or not 1 <= lines <= MOST_LINES):
        raise CheckpointError(
            f"{name}: {COARSE_LINES} must be a whole number from 1 to {MOST_LINES}, found {lines!s:.40}"
        )
    return lines


def coarse_size(height: int, width: int, lines: int | None, multiple: int) -> tuple[int, int] | None:
    """Return the size of the small picture: the shorter side is near `lines`, both are multiples of
    `multiple`. None if the frame itself is to be restored.
    """
    if lines is None or min(height, width) < LEAST_RATIO * lines:
        return None
    scale = lines / min(height, width)
    rows, columns = (max(multiple, round(side * scale / multiple) * multiple) for side in (height, width))
    return rows, columns


def downscale(picture: Tensor, size: tuple[int, int]) -> Tensor:
    """Downscale (..., H, W) to `size` by means over areas."""
    return F.interpolate(picture, size=size, mode="area")


def changed_as(small: Tensor, restored: Tensor, frame: Tensor) -> Tensor:
    """Apply to `frame` (B, C, H, W) the change from `small` (B, C, h, w), the same scene, to `restored`.

    In every window of `small` and for every colour, gain and offset make gain * small + offset nearest to
    `restored` by least squares (He et al. 2013, eqs. 5 and 6; here the gain of flat windows tends to 1).
    Their means over the windows that cover a pixel are enlarged bilinearly to the frame (He and Sun 2015,
    algorithm 2).
    """
    level = small.mean((-2, -1), keepdim=True)  # subtracted, since rounding would outweigh a small variance
    small, frame = small - level, frame - level
    mean, aim = _means(small), _means(restored)
    variance, covariance = _means(small * small) - mean * mean, _means(small * restored) - mean * aim
    gain = (covariance + FLAT) / (variance + FLAT)
    gain, offset = _means(gain), _means(aim - gain * mean)
    return enlarged(gain, frame) * frame + enlarged(offset, frame)


def _means(maps: Tensor) -> Tensor:
    """Return means over windows; at the borders over the part inside the picture."""
    return F.avg_pool2d(maps, 2 * RADIUS + 1, stride=1, padding=RADIUS, count_include_pad=False)


def enlarged(maps: Tensor, frame: Tensor) -> Tensor:
    """Enlarge maps (B, C, h, w) of a small picture to the size of a frame, bilinearly."""
    return F.interpolate(maps, size=frame.shape[-2:], mode="bilinear", align_corners=False)
