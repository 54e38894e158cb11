"""A picture restored twice: what is coarse comes from the whole of it made small, what is fine from its own
pixels.

How much haze there is shows in a whole scene, not in a corner of it, and networks judge best at the scale
that they were trained at; large pictures are beyond it. The two are put together as levels of a Laplacian
pyramid: P. Burt, E. Adelson, "A multiresolution spline with application to image mosaics", ACM Transactions
on Graphics, 1983.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import CheckpointError

COARSE_LINES = "coarse_lines"  # the parameter of weights that says so
LEAST_RATIO = 1.5  # of a picture's shorter side to the small one's: below, its own pixels show as much


def coarse_lines(parameters: Mapping[str, Any], name: str) -> int | None:
    """Lines of the small picture, as the weights called `name` want them; None if they want none.

    Raises CheckpointError for anything but a whole number above 0.
    """
    lines = parameters.get(COARSE_LINES)
    if lines is not None and (type(lines) is not int or lines < 1):
        raise CheckpointError(f"{name}: {COARSE_LINES} must be a whole number above 0, found {lines!r}")
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


def with_coarse(fine: Tensor, coarse: Tensor) -> Tensor:
    """`fine` (B, C, H, W) with what is coarse in it replaced by `coarse` (B, C, h, w), of the same scene."""
    change = coarse - made_small(fine, (coarse.shape[-2], coarse.shape[-1]))
    return fine + F.interpolate(change, size=fine.shape[-2:], mode="bilinear", align_corners=False)
