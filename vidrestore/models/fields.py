"""Deinterlaced planes: the real rows, which a camera recorded, and those that were interpolated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Rows = Sequence[int | None]  # parity of the real rows of every frame; None: all are real


def real_samples(rows: Rows, plane: Tensor) -> Tensor | None:
    """Return (T, H, 1), true in the real rows of a plane (T, H, W); None if all are real."""
    if all(parity is None for parity in rows):
        return None
    real = torch.tensor([[parity in (None, row % 2) for row in range(plane.shape[1])] for parity in rows])
    return real[..., None].to(plane.device)


class Field(NamedTuple):
    """The real rows of those frames that have the same ones; `groups` (S, T) are flat origins of patches
    there.
    """

    frames: slice | list[int]
    rows: slice
    groups: Tensor

    def of(self, plane: Tensor) -> Tensor:
        return plane[self.frames, self.rows]


def field_of(rows: Rows, plane: Tensor, groups: Tensor, side: int) -> Field | None:
    """Return the field of a plane (T, H, W) without interpolated rows, the whole plane if it has none; None
    if it holds no patch of `side` pixels. `groups` (S, T) are flat origins of patches in the plane.
    """
    parity = next((parity for parity in rows if parity is not None), None)
    if parity is None:
        return Field(slice(None), slice(None), groups)
    frames = [frame for frame, other in enumerate(rows) if other == parity]
    field = Field(frames, slice(parity, None, 2), groups)
    height, width = field.of(plane).shape[1:]
    if height < side:
        return None
    place = groups[:, frames] % (plane.shape[1] * width)
    row = (place // width // 2).clamp(max=height - side)
    numbers = torch.arange(len(frames), device=groups.device)
    return field._replace(groups=(numbers * height + row) * width + place % width)
