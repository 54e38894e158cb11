"""Pictures of pairs and clips, decoded and compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from vidrestore.datasets.records import Pair
from vidrestore.errors import DatasetError
from vidrestore.media.pictures import read_rgb


def read_pair(pair: Pair) -> tuple[Tensor, Tensor]:
    """Degraded and clean, (3, H, W) uint8 R, G, B. Raises DatasetError where their sizes differ, MediaError
    where one can't be read.
    """
    degraded, clean = (torch.from_numpy(read_rgb(path)) for path in (pair.degraded, pair.clean))
    if pair.centred:
        clean = _middle(clean, *degraded.shape[1:])
    if degraded.shape != clean.shape:
        raise DatasetError(
            f"{pair.degraded}: is {_size(degraded)}, but its clean picture {pair.clean} is {_size(clean)}; "
            "one of them is not as released"
        )
    return degraded, clean


def read_frames(paths: Sequence[Path]) -> Tensor:
    """Pictures of one size, (T, 3, H, W) uint8 R, G, B. Raises DatasetError where sizes differ, MediaError as
    `read_rgb` does.
    """
    frames = [torch.from_numpy(read_rgb(path)) for path in paths]
    for path, frame in zip(paths, frames, strict=True):
        if frame.shape != frames[0].shape:
            raise DatasetError(
                f"{path}: is {_size(frame)}, but {paths[0]} of the same clip is {_size(frames[0])}; unpack "
                "the release again"
            )
    return torch.stack(frames)


def _size(picture: Tensor) -> str:
    return f"{picture.shape[-1]}x{picture.shape[-2]}"


def _middle(picture: Tensor, height: int, width: int) -> Tensor:
    """(3, H, W) cut to a size around its middle; as it is where it is smaller."""
    top, left = (picture.shape[1] - height) // 2, (picture.shape[2] - width) // 2
    return picture[:, top : top + height, left : left + width] if top >= 0 and left >= 0 else picture
