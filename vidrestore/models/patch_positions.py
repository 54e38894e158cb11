"""Patch positions of the groups of a clip's planes, fixed or matched patch by patch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.grouping import origins_of
from vidrestore.models.matching import Grid, fixed_positions, matched_positions, pair_like

SHIFTS = ((0, 0), (1, 1), (0, 1), (1, 0))  # of up to four grids, in half strides down and right


class ClipPositions:
    """Patch positions for all planes of a clip, found in its noisy luma (T, H, W); each result is computed
    once.

    Without `follow` they are fixed.
    """

    def __init__(self, luma: Tensor, patch: int, *, follow: bool) -> None:
        self.luma, self.patch, self.follow = luma, patch, follow and len(luma) > 1
        self._corners: dict[Grid, Tensor] = {}

    def origins(self, shape: torch.Size, stride: int, grids: int = 1) -> Tensor:
        """Return (S, T) flat origins of groups in a plane of `shape` (T, H, W); `stride` is in sixteenths of
        a patch.

        With 2 `grids` the second is the first shifted by half a stride both ways, so that groups are found
        once and used twice. With 4 it is also shifted either way.
        """
        _, height, width = shape
        grid = Grid(height, width, self.patch, max(1, stride * self.patch // 16))
        if grid not in self._corners:
            self._corners[grid] = self._matched(shape, grid)
        corners = self._corners[grid]
        limit, half = pair_like(corners, height - self.patch, width - self.patch), grid.stride // 2
        shifted = [
            torch.minimum(corners + pair_like(corners, half * down, half * right), limit)
            for down, right in SHIFTS[:grids]
        ]
        return torch.cat([origins_of(each, height, width) for each in shifted])

    def _matched(self, shape: torch.Size, grid: Grid) -> Tensor:
        if not self.follow:
            return fixed_positions(shape[0], grid, self.luma.device)
        if shape == self.luma.shape:
            return matched_positions(self.luma, grid)
        return matched_positions(F.interpolate(self.luma[None], shape[1:], mode="area")[0], grid)
