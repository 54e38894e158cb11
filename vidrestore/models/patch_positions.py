"""Patch positions of the groups of a clip's planes: fixed, following the camera, or matched patch by
patch.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.camera import camera_motion, camera_positions
from vidrestore.models.grouping import origins_of
from vidrestore.models.matching import Common, Found, Grid, fixed_positions, matched_positions, pair_like

# "near": matched close to where the camera's motion puts a patch, in three fifths of the time
Following = Literal["fixed", "camera", "near", "matched"]
SHIFTS = ((0, 0), (1, 1), (0, 1), (1, 0))  # of up to four grids, in half strides down and right


class ClipPositions:
    """Patch positions for all planes of a clip, found in its noisy luma (T, H, W); each result is computed
    once.

    Without `follow` they are always fixed. Those that `before` matched in the same clip's planes are started
    from.
    """

    def __init__(
        self, luma: Tensor, patch: int, *, follow: bool, before: ClipPositions | None = None
    ) -> None:
        self.luma, self.patch, self.follow = luma, patch, follow and len(luma) > 1
        self._before = before
        self._found: dict[tuple[int, int], Found] = {}
        self._cache: dict[tuple[torch.Size, int, Following, int], Tensor] = {}
        self._corners_of: dict[tuple[int, Grid, Following], Tensor] = {}
        self._luma_at = {luma.shape: luma}

    def origins(self, shape: torch.Size, stride: int, places: Following, grids: int = 1) -> Tensor:
        """Return (S, T) flat origins of groups in a plane of `shape` (T, H, W); `stride` is in sixteenths of
        a patch.

        With 2 `grids` the second is the first shifted by half a stride both ways, so that groups are found
        once and used twice. With 4 it is also shifted either way.
        """
        key = shape, stride, places, grids
        if key not in self._cache:
            frames, height, width = shape
            grid = Grid(height, width, self.patch, max(1, stride * self.patch // 16))
            if (frames, grid, places) not in self._corners_of:
                self._corners_of[frames, grid, places] = self._corners(frames, grid, places)
            corners = self._corners_of[frames, grid, places]
            limit, half = pair_like(corners, height - self.patch, width - self.patch), grid.stride // 2
            shifted = [
                torch.minimum(corners + pair_like(corners, half * down, half * right), limit)
                for down, right in SHIFTS[:grids]
            ]
            self._cache[key] = torch.cat([origins_of(each, height, width) for each in shifted])
        return self._cache[key]

    def _corners(self, frames: int, grid: Grid, places: Following) -> Tensor:
        size = (grid.height, grid.width)
        if places == "fixed" or not self.follow:
            return fixed_positions(frames, grid, self.luma.device)
        if places == "camera":
            return camera_positions(self._motion_at(size), grid)
        if places == "near":
            known: Found | Common | None = Common(self._motion_at(size).round().long().diff(dim=0))
        else:
            known = self._before._found.get(size) if self._before else None
        matched = matched_positions(self.luma_at(torch.Size((frames, *size))), grid, known)
        self._found[size] = Found(matched, grid)
        return matched

    def luma_at(self, shape: torch.Size) -> Tensor:
        """Return the luma at the size of another plane (T, H, W), computed once."""
        if shape not in self._luma_at:
            self._luma_at[shape] = F.interpolate(self.luma[None], size=shape[1:], mode="area")[0]
        return self._luma_at[shape]

    def _motion_at(self, size: tuple[int, int]) -> Tensor:
        """Return the camera's motion (T, 2) since the first frame, in pixels of a plane of that size."""
        motion = self._motion
        return motion * pair_like(motion, *size) / pair_like(motion, *self.luma.shape[1:])

    @cached_property
    def _motion(self) -> Tensor:
        return camera_motion(self.luma)
