"""Planes cut into patches side by side, and put together again: where the measurements of compressed sensing
are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class PatchGrid:
    """`rows` x `columns` square patches that cover a plane of `height` x `width` without overlap.

    Beyond the far edges the plane is continued by its last row and column. Patches come in reading order, and
    so do their pixels.
    """

    height: int
    width: int
    patch: int

    @property
    def rows(self) -> int:
        return -(-self.height // self.patch)

    @property
    def columns(self) -> int:
        return -(-self.width // self.patch)

    @property
    def count(self) -> int:
        return self.rows * self.columns

    def cut(self, planes: Tensor) -> Tensor:
        """(T, height, width) planes -> (T, count, N) patches."""
        below, right = self.rows * self.patch - self.height, self.columns * self.patch - self.width
        if below or right:
            planes = F.pad(planes[:, None], (0, right, 0, below), mode="replicate")[:, 0]
        cells = planes.reshape(-1, self.rows, self.patch, self.columns, self.patch)
        return cells.transpose(2, 3).reshape(len(planes), self.count, self.patch**2)

    def joined(self, patches: Tensor) -> Tensor:
        """The way back: (T, count, N) patches -> (T, height, width) planes, what lies beyond the edges cut
        off.
        """
        cells = patches.reshape(-1, self.rows, self.columns, self.patch, self.patch).transpose(2, 3)
        return cells.reshape(-1, self.rows * self.patch, self.columns * self.patch)[
            :, : self.height, : self.width
        ]
