"""Cut planes into patches side by side and join them again, for the measurements of compressed sensing."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class PatchGrid:
    """`rows` x `columns` square patches that cover a plane of `height` x `width` without overlap.

    The plane is padded at the right and at the bottom by replication. Patches, and their pixels, are in
    reading order.
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
        """Cut (T, height, width) planes into (T, count, N) patches."""
        below, right = self.rows * self.patch - self.height, self.columns * self.patch - self.width
        if below or right:
            planes = F.pad(planes[:, None], (0, right, 0, below), mode="replicate")[:, 0]
        cells = planes.reshape(-1, self.rows, self.patch, self.columns, self.patch)
        return cells.transpose(2, 3).reshape(len(planes), self.count, self.patch**2)

    def joined(self, patches: Tensor) -> Tensor:
        """Join (T, count, N) patches to (T, height, width) planes, without the padding."""
        cells = patches.reshape(-1, self.rows, self.columns, self.patch, self.patch).transpose(2, 3)
        return cells.reshape(-1, self.rows * self.patch, self.columns * self.patch)[
            :, : self.height, : self.width
        ]
