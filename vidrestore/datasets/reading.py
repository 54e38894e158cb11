"""Read the pictures of pairs and clips and compare their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from vidrestore.datasets.records import Pair
from vidrestore.errors import DatasetError
from vidrestore.media.pictures import read_rgb


def read_pair(pair: Pair) -> tuple[Tensor, Tensor]:
    """Return the degraded and the clean picture, (3, H, W) uint8 R, G, B.

    Raises DatasetError if their sizes differ, MediaError if one can't be read.
    """
    degraded, clean = (torch.from_numpy(read_rgb(path)) for path in (pair.degraded, pair.clean))
    if pair.centred:
        clean = _middle(clean, *degraded.shape[1:])
    if degraded.shape != clean.shape:
        raise DatasetError(
            f"{pair.degraded}: is {_size(degraded)}, but its clean picture {pair.clean} is {_size(clean)}; "
            "fetch both again"
        )
    return degraded, clean


def read_frames(paths: Sequence[Path]) -> Tensor:
    """Return pictures of one size, (T, 3, H, W) uint8 R, G, B. Raises DatasetError if sizes differ,
    MediaError as `read_rgb` does.
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
    """Crop (3, H, W) to a size around its middle; a smaller picture is unchanged."""
    top, left = (picture.shape[1] - height) // 2, (picture.shape[2] - width) // 2
    return picture[:, top : top + height, left : left + width] if top >= 0 and left >= 0 else picture
