"""Pictures of a pair, decoded and compared."""

from __future__ import annotations

import torch
from torch import Tensor

from vidrestore.datasets.records import Pair
from vidrestore.errors import DatasetError
from vidrestore.media.pictures import read_rgb


def read_pair(pair: Pair) -> tuple[Tensor, Tensor]:
    """Degraded and clean, (3, H, W) uint8 R, G, B. Raises DatasetError where their sizes differ, MediaError where one can't be read."""
    degraded, clean = (torch.from_numpy(read_rgb(path)) for path in (pair.degraded, pair.clean))
    if pair.centred:
        clean = _middle(clean, *degraded.shape[1:])
    if degraded.shape != clean.shape:
        (height, width), (clean_height, clean_width) = degraded.shape[1:], clean.shape[1:]
        raise DatasetError(
            f"{pair.degraded}: is {width}x{height}, but its clean picture {pair.clean} is {clean_width}x{clean_height};"
            " one of them is not as released"
        )
    return degraded, clean


def _middle(picture: Tensor, height: int, width: int) -> Tensor:
    """(3, H, W) cut to a size around its middle; as it is where it is smaller."""
    top, left = (picture.shape[1] - height) // 2, (picture.shape[2] - width) // 2
    return picture[:, top : top + height, left : left + width] if top >= 0 and left >= 0 else picture
