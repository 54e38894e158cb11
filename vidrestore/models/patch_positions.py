"""Patch positions of the groups of a clip's planes: fixed, following the camera, or matched patch by patch.

To follow the camera, a whole grid moves by one motion per frame, that of most of the picture. This is far
cheaper than matching every patch, and no gaps open between patches that move apart. Objects that move against
the camera are left to the network, which recognises that their tokens differ. A few frames in turn are
compared with the same earlier one, because from frame to frame motion below half a pixel would be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.fitted import on_device
from vidrestore.models.grouping import frames_at_once, origins_of
from vidrestore.models.halfsize import halve
from vidrestore.models.matching import (
    TABLES_KEPT,
    Bounds,
    Common,
    Found,
    Grid,
    blurred,
    fixed_positions,
    matched_positions,
    pair_like,
)

# "near": matched close to where the camera's motion puts a patch, in three fifths of the time
Following = Literal["fixed", "camera", "near", "matched"]
SHIFTS = ((0, 0), (1, 1), (0, 1), (1, 0))  # of up to four grids, in half strides down and right
BLOCK = 8  # side of the blocks that vote on a motion, in pixels of a level
VOTING_ROWS = 16  # about so many rows of blocks, evenly spread, are enough
# Search radii at each scale, in its pixels: changes of motion of up to 24 pixels per frame are found.
SCALES, RADII = (8, 4, 2), (4, 1, 1)
NEAR = 8  # pixels of motion until another earlier frame is used for comparison


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


def camera_motion(guide: Tensor) -> Tensor:
    """Return (T, 2): the motion of the picture since the first frame, in pixels down and to the right, of
    noisy luma (T, H, W).
    """
    moved = [torch.zeros(2, device=guide.device)]
    step, anchor = moved[0], moved[0]
    earlier = [level[0] for level in _levels(guide[:1])]
    for part in guide[1:].split(frames_at_once(guide)):
        for levels in zip(*_levels(part), strict=True):
            moved.append(anchor + _motion(earlier, levels, moved[-1] + step - anchor))
            step = moved[-1] - moved[-2]
            far = (moved[-1] - anchor).abs().max() >= NEAR
            earlier = [_select(far, *pair) for pair in zip(levels, earlier, strict=True)]
            anchor = _select(far, moved[-1], anchor)
    return torch.stack(moved)


def camera_positions(motion: Tensor, grid: Grid) -> Tensor:
    """Return (T, S, 2) corners of patches, spaced like those of `grid`, that move by (T, 2) pixels and always
    cover the plane.

    A patch that leaves on one side enters on the other; patches that stick out are moved in.
    """
    shift = motion.round().long()
    down, right = (
        _ring_positions(shift[:, axis], size, grid) for axis, size in enumerate((grid.height, grid.width))
    )
    rows, columns = down.shape[1], right.shape[1]
    positions = [down[:, :, None].expand(-1, -1, columns), right[:, None].expand(-1, rows, -1)]
    return torch.stack(positions, -1).flatten(1, 2)


def _ring_positions(shift: Tensor, size: int, grid: Grid) -> Tensor:
    """Return (T, P) positions along one axis: a ring of P patches, as many as cover it at any shift."""
    room = size - grid.patch
    count = -(-room // grid.stride) + 2
    ring = (torch.arange(count, device=shift.device) * grid.stride + shift[:, None]) % (count * grid.stride)
    return (ring - grid.stride).clamp(0, room)


def _levels(frames: Tensor) -> list[Tensor]:
    """Return frames (T, H, W) downscaled and smoothed to each scale of the search; blurring first keeps noise
    out of the comparison.
    """
    levels = [blurred(halve(frames))]
    while len(levels) < len(SCALES):
        levels.append(halve(levels[-1]))
    return levels[::-1]


def _motion(before: Sequence[Tensor], now: Sequence[Tensor], guess: Tensor) -> Tensor:
    """Return the motion (2,) between two frames, in pixels; the search starts at `guess`."""
    motion = guess / (2 * SCALES[0])
    for radius, earlier, later in zip(RADII, before, now, strict=True):
        start = (2 * motion).round()
        motion = start + _subpixel_minimum(_disagreement(earlier, later, start.long(), radius))
    return motion * SCALES[-1]


def _disagreement(before: Tensor, now: Tensor, start: Tensor, radius: int) -> Tensor:
    """Return (2 radius + 1, 2 radius + 1): the share of blocks that reject the motion `start` + (row, column)
    - radius.

    A block's vote is its mean squared difference above its minimum, mapped by x / (x + s), with s the median
    difference at the best motion. Blocks without texture abstain, and those with another motion count once,
    however much they differ.
    """
    height, width = before.shape
    shown = _shifted(now, start, radius)
    side, span = min(BLOCK, height, width), 2 * radius + 1
    every = side * max(1, height // side // VOTING_ROWS)
    bands = (height - side) // every + 1
    row = shown.stride(0)
    shifted = shown.as_strided((span, span, bands, side, width), (row, 1, every * row, row, 1))
    still = before.as_strided((bands, side, width), (every * width, width, 1))
    blocks = F.avg_pool2d((shifted - still).square_().flatten(2, 3), side)
    best = blocks.amin((0, 1))
    excess = blocks - best
    return (excess / (excess + best.median() + 1e-3)).mean((2, 3))


def _select(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Return one of two tensors by a condition; on a GPU this avoids a synchronisation."""
    if condition.device.type == "cpu":
        return yes if condition else no
    return torch.where(condition, yes, no)


def _shifted(picture: Tensor, start: Tensor, radius: int) -> Tensor:
    """Return a picture from position `start` - radius on, longer by at least twice the radius, its border
    replicated.
    """
    if picture.device.type == "cpu":  # a view, since reading `start` needs no synchronisation here
        down, right = start.tolist()
        reach = radius + max(abs(down), abs(right))
        around = F.pad(picture[None], (reach, reach, reach, reach), mode="replicate")[0]
        return around[reach + down - radius :, reach + right - radius :]
    lines, bounds = _lines(picture.shape, radius, picture.device)
    rows, columns = bounds.limit(lines + start).unbind(1)
    height, width = (size + 2 * radius for size in picture.shape)
    return picture[rows[:height, None], columns[:width]]


@lru_cache(TABLES_KEPT)
def _lines(shape: torch.Size, radius: int, device: torch.device) -> tuple[Tensor, Bounds]:
    """Return (N, 2) rows and columns from -radius on, and those of a picture."""
    line, (height, width) = torch.arange(-radius, max(shape) + radius, device=device), shape
    return line[:, None].expand(-1, 2), Bounds.upto(height - 1, width - 1, device)


def _subpixel_minimum(cost: Tensor) -> Tensor:
    """Return the row and column of the least cost, relative to the centre of (2 radius + 1, 2 radius + 1)
    costs.
    """
    centres, lines = _places(len(cost) // 2, cost.device)
    least = cost[1:-1, 1:-1].argmin()[None]
    return (centres[least] + _parabola_minimum(cost.take(lines[least][0])))[0]


@lru_cache(TABLES_KEPT)
def _places(radius: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return for each of the inner costs its place (N, 2) relative to the centre, and the numbers (N, 2, 3)
    of the three costs across it down and to the right.
    """
    line, span = torch.arange(1 - radius, radius, device=device), 2 * radius + 1
    centres = torch.cartesian_prod(line, line)
    middle = (centres[:, :1] + radius) * span + centres[:, 1:] + radius
    step = torch.arange(-1, 2, device=device)
    return centres, torch.stack((middle + span * step, middle + step), 1)


def _parabola_minimum(lines: Tensor) -> Tensor:
    """Return the minima in [-1, 1] of the parabolas through three values (N, 3) at -1, 0 and 1.

    If a parabola opens downwards, its lower end is returned.
    """
    slope, curvature = (lines @ _parabolas(lines.device)).unbind(1)
    return slope.div(curvature.clamp(min=1e-9)).clamp(-1, 1)


@lru_cache(TABLES_KEPT)
def _parabolas(device: torch.device) -> Tensor:
    """Return (3, 2): the weights of three values for the slope of a parabola, negative, and its curvature."""
    return on_device(torch.tensor([[0.5, 1.0], [0.0, -2.0], [-0.5, 1.0]]), device)
