"""Where the groups of a clip's planes are taken: fixed, following the camera, or matched patch by patch."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.camera import camera_motion, camera_places
from vidrestore.models.grouping import origins_of
from vidrestore.models.matching import Grid, fixed_places, matched_places, pair_of

Places = Literal["fixed", "camera", "matched"]
MOVES = ((0, 0), (1, 1), (0, 1), (1, 0))


class ClipPlaces:
    """Places for all planes of a clip, found in its noisy luma (T, H, W) and worked out once for each size
    and way.

    Without `follow` they are fixed, whatever is asked for.
    """

    def __init__(self, luma: Tensor, patch: int, *, follow: bool) -> None:
        self.luma, self.patch, self.follow = luma, patch, follow and len(luma) > 1
        self._known: dict[tuple[torch.Size, int, Places, int], Tensor] = {}
        self._luma_at = {luma.shape: luma}

    def origins(self, shape: torch.Size, stride: int, places: Places, grids: int = 1) -> Tensor:
        """(S, T) flat origins of groups in a plane of `shape` (T, H, W); `stride` is in sixteenths of a
        patch.

        Of `grids` 2 the second is the first one moved by half a stride both ways: groups are found once and
        used twice. With 4 it is moved either way, too.
        """
        key = shape, stride, places, grids
        if key not in self._known:
            frames, height, width = shape
            grid = Grid(height, width, self.patch, max(1, stride * self.patch // 16))
            corners = self._corners(frames, grid, places)
            limit, half = pair_of(corners, height - self.patch, width - self.patch), grid.stride // 2
            moved = [
                torch.minimum(corners + pair_of(corners, half * down, half * right), limit)
                for down, right in MOVES[:grids]
            ]
            self._known[key] = torch.cat([origins_of(each, height, width) for each in moved])
        return self._known[key]

    def _corners(self, frames: int, grid: Grid, places: Places) -> Tensor:
        size = (grid.height, grid.width)
        if places == "fixed" or not self.follow:
            return fixed_places(frames, grid, self.luma.device)
        if places == "camera":
            motion = self._motion
            here, there = pair_of(motion, *self.luma.shape[1:]), pair_of(motion, *size)
            return camera_places(motion * there / here, grid)
        return matched_places(self.luma_at(torch.Size((frames, *size))), grid)

    def luma_at(self, shape: torch.Size) -> Tensor:
        """The luma at the size of another plane (T, H, W), worked out once."""
        if shape not in self._luma_at:
            self._luma_at[shape] = F.interpolate(self.luma[None], size=shape[1:], mode="area")[0]
        return self._luma_at[shape]

    @cached_property
    def _motion(self) -> Tensor:
        return camera_motion(self.luma)
