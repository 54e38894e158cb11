"""Patch positions that follow the motion, by block matching: the positions of DUST's tokens.

The attention of DUST has no positional encoding, so the tokens of a group may come from anywhere (paper,
Section III-A: "the most similar patches"). Here every frame of a clip is covered by one patch per cell of a
regular grid, and patches of different frames that show the same content share a *slot*: a column of the table
`positions` (T, S, 2). A slot follows its patch from frame to frame by block matching, coarse to fine, on a
pre-smoothed guide. If two patches end in one cell, the better match keeps it; the slot of the other restarts
in a cell that no patch moved into (new scenery, occlusions). So each frame has exactly one patch per cell,
whatever moves, and the work per frame is constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.grouping import frames_at_once

# search radius at a quarter, half and full size: changes of motion of up to 16 + 4 + 1 pixels per frame
SEARCH_RADII = (4, 2, 1)
# a slot's own motion is used if it saves this share of the median cost
MATCH_RELUCTANCE = 1.0
# largest distance of a slot from its cell in strides; with 1 twice as many tracks break, with 0.5 four times
REACH = 2
TURNS, FEW_CELLS = 5, 256  # turns of the assignment of slots to cells on a GPU
MEMORY = 4  # frames that the running mean of a template covers
TABLES_KEPT = 32  # sizes of planes


def blurred(pictures: Tensor) -> Tensor:
    """Filter (T, H, W) by the binomial [1 2 1] / 4 both ways, on a GPU by two means of 2 x 2 pixels."""
    padded = F.pad(pictures, (1, 1, 1, 1), mode="replicate")
    if pictures.device.type != "cpu":
        return F.avg_pool2d(F.avg_pool2d(padded, 2, 1), 2, 1)
    rows = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    return (rows[..., :-2] + 2 * rows[..., 1:-1] + rows[..., 2:]) / 16


def halve(plane: Tensor) -> Tensor:
    """Downscale (T, H, W) to (T, H/2, W/2), rounded up, by means of 2 x 2 pixels, which halves white noise.

    An odd last row or column is averaged alone.
    """
    height, width = plane.shape[1:]
    if height % 2 or width % 2:
        plane = F.pad(plane[:, None], (0, width % 2, 0, height % 2), mode="replicate")[
            :, 0
        ]
    rows = plane[:, ::2] + plane[:, 1::2]
    # four times as fast as avg_pool2d
    return (rows[..., ::2] + rows[..., 1::2]).mul_(0.25)


@dataclass(frozen=True)
class Grid:
    """Cells that cover a plane: rows x columns of patch corners, `stride` apart; the last ones are moved in
    to fit.

    Raises ValueError if a patch is larger than the plane or the stride is out of range.
    """

    height: int
    width: int
    patch: int
    stride: int

    def __post_init__(self) -> None:
        if min(self.height, self.width) < self.patch:
            raise ValueError(
                f"a plane of {self.height}x{self.width} is smaller than a patch of "
                f"{self.patch}x{self.patch}; pad it first"
            )
        if not 0 < self.stride <= self.patch:
            raise ValueError(f"stride must be in [1, {self.patch}], got {self.stride}")

    @property
    def rows(self) -> int:
        return -(-(self.height - self.patch) // self.stride) + 1

    @property
    def columns(self) -> int:
        return -(-(self.width - self.patch) // self.stride) + 1

    def corners(self, device: torch.device | None = None) -> Tensor:
        """Return (S, 2) rows and columns of the upper left corners, in reading order of the cells."""
        y = (torch.arange(self.rows, device=device) * self.stride).clamp(
            max=self.height - self.patch
        )
        x = (torch.arange(self.columns, device=device) * self.stride).clamp(
            max=self.width - self.patch
        )
        return torch.cartesian_prod(y, x)

    def nearby_cells(self, positions: Tensor) -> Tensor:
        """Return (S, 16): the cells whose corners are within two strides of (S, 2) positions, nearest first.

        At the border some are repeated.
        """
        tables = tables_of(self, positions.device)
        cells = positions.div(self.stride, rounding_mode="floor")
        rows, columns = torch.sub(positions, cells, alpha=self.stride).unbind(1)
        nearest = tables.nearest.index_select(
            0, torch.add(columns, rows, alpha=self.stride)
        )
        rows, columns = (cells[:, None] + nearest).clamp(*tables.cells).unbind(2)
        return torch.add(columns, rows, alpha=self.columns)


class Tables(NamedTuple):
    """Tensors that depend on a grid alone."""

    corners: Tensor  # (S, 2)
    inside: Bounds  # bounds of corners
    cells: Bounds  # bounds of rows and columns of cells
    # (stride^2, 16, 2): steps to the nearest cells from each place within a stride
    nearest: Tensor
    around: Tensor  # (9, S): the cells around each; beyond the border the nearest one


@lru_cache(TABLES_KEPT)
def tables_of(grid: Grid, device: torch.device) -> Tables:
    """Return the tables of a grid, computed on the device."""
    line, reach = (
        torch.arange(first, stop, device=device)
        for first, stop in ((0, grid.stride), (1 - REACH, 1 + REACH))
    )
    steps = torch.cartesian_prod(reach, reach)
    distances = (
        (steps * grid.stride - torch.cartesian_prod(line, line)[:, None])
        .square()
        .sum(-1)
    )
    cells = torch.arange(grid.rows * grid.columns, device=device).view(
        1, grid.rows, grid.columns
    )
    around = (
        F.pad(cells.double(), (1, 1, 1, 1), mode="replicate")
        .unfold(1, 3, 1)
        .unfold(2, 3, 1)
    )
    return Tables(
        grid.corners(device),
        bounds_up_to(grid.height - grid.patch, grid.width - grid.patch, device),
        bounds_up_to(grid.rows - 1, grid.columns - 1, device),
        steps[distances.sort(dim=1, stable=True).indices],
        around.reshape(-1, 9).T.long().contiguous(),
    )


Bounds = tuple[Tensor, Tensor]  # the least and the greatest of integers (..., 2)


def bounds_up_to(rows: int, columns: int, device: torch.device) -> Bounds:
    """Return bounds from 0, created on the device: copying them there would wait for it."""
    least = torch.zeros(2, dtype=torch.long, device=device)
    return least, pair_like(least, rows, columns)


def pair_like(like: Tensor, first: float, second: float) -> Tensor:
    """Return (2,) numbers with a tensor's dtype, created on its device: a copy would wait for a GPU."""
    pair = like.new_full((2,), first)
    pair[1:].fill_(second)
    return pair


def fixed_positions(
    frames: int, grid: Grid, device: torch.device | None = None
) -> Tensor:
    """Return (T, S, 2) positions that stay at their cells, as in the paper."""
    return grid.corners(device).expand(frames, -1, -1)


def matched_positions(guide: Tensor, grid: Grid) -> Tensor:
    """Follow the patches of `grid` through a clip.

    guide: (T, H, W) float, the noisy luma at the plane's size. Returns (T, S, 2) int64 corners; in each frame
    every cell holds one slot.
    """
    tables = tables_of(grid, guide.device)
    templates = [
        _blocks(level, tables.corners) for level in _levels(guide[:1], grid.patch)
    ]
    cost = torch.zeros(len(tables.corners), device=guide.device)
    slots = _Slots(
        tables.corners,
        torch.zeros_like(tables.corners),
        templates,
        1 + cost,
        tables.around,
        cost,
    )
    positions = [tables.corners]
    at_once = frames_at_once(guide)
    for first in range(1, len(guide), at_once):
        levels = _levels(guide[first : first + at_once], grid.patch)
        for index in range(len(levels[0].pictures)):
            pyramid = [level.frame(index) for level in levels]
            _follow(slots, pyramid, tables)
            _assign_cells(slots, pyramid, grid, tables)
            positions.append(slots.positions)
    return torch.stack(positions)


@dataclass
class _Level:
    """One scale of some guide frames, prepared for a search with blocks of `side` pixels."""

    scale: int  # pixels of the plane per pixel of the level
    side: int
    radius: int
    margin: int  # pixels of the plane by which a block extends beyond its patch
    width: int
    bounds: Bounds  # bounds of the corners of a block
    places: Tensor  # (span^2, 2): places in a search, relative to its first one
    steps: Tensor  # the same relative to its middle
    # (T, N) samples in reading order, with `radius` replicated ones on each side
    pictures: Tensor
    energy: Tensor  # mean square of the block that begins at each sample of `pictures`

    def frame(self, index: int) -> _Level:
        """Return the level of one frame, with pictures and energy (N,)."""
        return replace(self, pictures=self.pictures[index], energy=self.energy[index])

    def origins(self, positions: Tensor) -> Tensor:
        """Return corners of the blocks of patches at `positions`; a larger one is centred on its patch."""
        if self.margin:
            positions = positions - self.margin
        return (
            positions
            if self.scale == 1
            else positions.div(self.scale, rounding_mode="floor")
        )

    def inside(self, origins: Tensor) -> Tensor:
        """Move in the blocks that extend beyond the plane, as only those larger than their patches can."""
        return origins.clamp(*self.bounds) if self.margin else origins

    def windows(self, samples: Tensor, origins: Tensor, size: int) -> Tensor:
        """Return the (S, size, size) parts of `pictures` or `energy` at (S, 2) corners."""
        last = len(samples) - (size - 1) * (self.width + 1)
        view = samples.as_strided((last, size, size), (1, self.width, 1))
        rows, columns = origins.unbind(1)
        return view.index_select(
            0, torch.add(columns, rows, alpha=self.width)
        )  # a third of two indices' time


@dataclass
class _Slots:
    positions: Tensor  # (S, 2) corners in the current frame
    motion: Tensor  # (S, 2) last step, the prediction of the next
    templates: list[Tensor]  # per level (S, side, side): running mean of the patch
    count: Tensor  # (S,) frames that the templates are means of
    around: Tensor  # (9, S) the slots that hold the cells around each slot's
    cost: Tensor  # (S,) mean squared difference of the last match


def _levels(guide: Tensor, patch: int) -> list[_Level]:
    """Smooth (T, H, W) guide frames at a quarter, half and full size: blurring first keeps noise out of the
    matching.

    Blocks are as large as the patch, but twice that at a quarter, where few pixels would be left.
    """
    full = blurred(guide)
    half = blurred(halve(full))
    sides, margins = (patch // 2, patch // 2, patch), (patch // 2, 0, 0)
    pictures = (halve(half), half, full)
    return [
        _level(4 >> index, picture, *sizes)
        for index, (picture, *sizes) in enumerate(
            zip(pictures, sides, SEARCH_RADII, margins, strict=True)
        )
    ]


def _level(scale: int, pictures: Tensor, side: int, radius: int, margin: int) -> _Level:
    """Replicate the border of pictures (T, H, W) by `radius`, and to at least the size of one block."""
    height, width = pictures.shape[1:]
    below, right = max(0, side - height), max(0, side - width)
    padded = F.pad(
        pictures, (radius, radius + right, radius, radius + below), mode="replicate"
    )
    constants = _constants(
        height + below - side, width + right - side, radius, pictures.device
    )
    flat, width = padded.flatten(1), padded.shape[2]
    # blocks across the end of a line are summed, too, but not used
    energy = means_of_blocks(padded.square(), side)
    return _Level(scale, side, radius, margin, width, *constants, flat, energy)


@lru_cache(TABLES_KEPT)
def _constants(
    rows: int, columns: int, radius: int, device: torch.device
) -> tuple[Bounds, Tensor, Tensor]:
    line = torch.arange(2 * radius + 1, device=device)
    places = torch.cartesian_prod(line, line)
    return bounds_up_to(rows, columns, device), places, places - radius


def means_of_blocks(samples: Tensor, side: int) -> Tensor:
    """Return (T, N): the mean of the block that begins at each sample of (T, H, W), in reading order."""
    if samples.device.type != "cpu":
        columns = F.avg_pool2d(samples, (side, 1), 1).flatten(1)
        return F.avg_pool1d(columns, side, 1)
    columns = _line_sums(samples.flatten(1), side, samples.shape[2])
    return _line_sums(columns, side, 1).div_(side**2)


def maps_of_means(pictures: Tensor, side: int) -> Tensor:
    """Return the means of the blocks of pictures (N, H, W) as maps (N, H - side + 1, W - side + 1), which
    are not contiguous.
    """
    means = means_of_blocks(pictures, side)
    count, height, width = pictures.shape
    # without blocks across the end of a line
    shape = (count, height - side + 1, width - side + 1)
    return means.as_strided(shape, (means.shape[1], width, 1))


def _line_sums(samples: Tensor, count: int, step: int) -> Tensor:
    """Return sums of `count` samples of (T, N), `step` apart, computed from those of half as many."""
    if count == 1:
        return samples
    half = _line_sums(samples, count // 2, step)
    length = samples.shape[1] - (count - 1) * step
    sums = half[:, :length] + half[:, count // 2 * step :][:, :length]
    return sums.add_(samples[:, (count - 1) * step :]) if count % 2 else sums


def _blocks(level: _Level, positions: Tensor) -> Tensor:
    """Return the (S, side, side) blocks of a level at the patches' positions."""
    pictures = level.pictures.flatten()[level.radius * (level.width + 1) :]
    return level.windows(pictures, level.inside(level.origins(positions)), level.side)


# Compare-and-swap steps after which the middle one of nine values is their median (Paeth, Graphics Gems,
# 1990).
_SWAPS = [
    (1, 2),
    (4, 5),
    (7, 8),
    (0, 1),
    (3, 4),
    (6, 7),
    (1, 2),
    (4, 5),
    (7, 8),
    (0, 3),
]
_SWAPS += [(5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2)]


def median_of_nine(values: Tensor) -> Tensor:
    """Return the median over axis 1 of (A, 9, ...).

    On a CPU it is found by whole rows, six times as fast as by `torch.median` of short axes; on a GPU by one
    launch.
    """
    if values.device.type != "cpu":
        return values.median(1).values
    rows = list(values.unbind(1))
    for low, high in _SWAPS:
        rows[low], rows[high] = (
            torch.minimum(rows[low], rows[high]),
            torch.maximum(rows[low], rows[high]),
        )
    return rows[4]


def _median_motion(motion: Tensor, slots: _Slots) -> Tensor:
    """Return the component-wise median of the (S, 2) motions over the 3 x 3 cells around each slot."""
    motions = motion.index_select(0, slots.around.flatten())
    return median_of_nine(motions.view(1, 9, -1)).view_as(motion)


def _search(
    level: _Level, template: Tensor, origins: Tensor, ahead: Tensor, slots: _Slots
) -> tuple[Tensor, Tensor]:
    """Return the best (S, 2) steps from `origins` and their costs, the mean squared differences between
    templates and blocks; `origins` are `ahead` of the patch before.

    The neighbourhood's motion is used unless the slot's own is clearly better.
    """
    span = 2 * level.radius + 1
    window = level.windows(level.pictures, origins, level.side + span - 1)
    cross = F.conv2d(window[None], template[:, None], groups=len(template))[0]
    costs = level.windows(level.energy, origins, span).add_(
        cross, alpha=-2 / level.side**2
    )
    flat = costs.add_(template.square().mean((1, 2))[:, None, None]).flatten(1)
    least, best = flat.min(1)
    common = _median_motion(ahead + level.places.index_select(0, best), slots) - ahead
    down, right = common.clamp(0, span - 1).unbind(1)
    position = torch.add(right, down, alpha=span)
    at_common = flat.gather(1, position[:, None])[:, 0]
    follows = at_common <= torch.add(least, least.median(), alpha=MATCH_RELUCTANCE)
    step = level.steps.index_select(0, torch.where(follows, position, best))
    return step, torch.where(follows, at_common, least)


def _follow(slots: _Slots, levels: list[_Level], tables: Tables) -> None:
    """Move every slot to the best match of its templates."""
    before = slots.positions
    guess = before + slots.motion
    for level, template in zip(levels, slots.templates, strict=True):
        current, target = level.origins(before), level.origins(guess)
        start = level.inside(
            current
        )  # last position of the template, which differs from its patch's at borders
        target = target if start is current else start + target - current
        origins = target.clamp(*level.bounds)
        step, slots.cost = _search(level, template, origins, origins - start, slots)
        match = origins + step
        guess = (
            match
            if level.scale == 1
            else torch.add(guess, match - target, alpha=level.scale)
        )
    slots.positions = guess.clamp(*tables.inside)
    slots.motion = slots.positions - before


def _assign_cells(
    slots: _Slots, levels: list[_Level], grid: Grid, tables: Tables
) -> None:
    """Give each cell one slot, restart slots without a free cell nearby, and update the templates."""
    cells, empty = _assign(grid.nearby_cells(slots.positions), slots.cost)
    lost = cells < 0
    if cells.device.type == "cpu":
        slots.positions[lost], cells[lost] = tables.corners[empty], empty
    else:
        freed = empty[lost.cumsum(0) - 1]
        slots.positions = torch.where(
            lost[:, None], tables.corners[freed], slots.positions
        )
        cells = torch.where(lost, freed, cells)
    slots.around = torch.argsort(cells)[tables.around.index_select(1, cells)]
    slots.motion = torch.where(
        lost[:, None], _median_motion(slots.motion, slots), slots.motion
    )
    slots.count = (slots.count + 1).clamp_(max=MEMORY).masked_fill_(lost, 1)
    share = slots.count.reciprocal()[:, None, None]
    for level, template in zip(levels, slots.templates, strict=True):
        template.lerp_(_blocks(level, slots.positions), share)


def _assign(candidates: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
    """Give every cell to at most one slot. Return (S,) the cell of each slot, -1 for none, and the cells
    without a slot in order; on a GPU others follow those.

    `candidates` (S, W) are the cells that each slot may take, best first. In each round, slots without a cell
    ask for their next candidate if it is free, and the best match among them gets it.
    """
    order = torch.argsort(cost, stable=True)
    slots = torch.arange(len(cost), device=cost.device)
    rank = torch.empty_like(slots).scatter_(0, order, slots)  # 0 is the best match
    if cost.device.type != "cpu":
        return _assign_on_device(candidates, rank)
    cells, holder = torch.full_like(slots, -1), torch.full_like(slots, -1)
    for candidate in candidates.T:
        asking = slots[(cells < 0) & (holder[candidate] < 0)]
        if not len(asking):
            continue
        best = torch.full_like(slots, len(slots)).scatter_reduce_(
            0, candidate[asking], rank[asking], "amin"
        )
        served = asking[best[candidate[asking]] == rank[asking]]
        cells[served], holder[candidate[served]] = candidate[served], served
    return cells, torch.nonzero(holder < 0)[:, 0]


def _assign_on_device(candidates: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same as `_assign` without a synchronisation: no size depends on a value.

    A cell goes to the request with the least key, round times S + rank. All rounds are computed at once,
    `TURNS` times: a granted request cancels the later ones of its slot. After n turns the first n rounds are
    right; for 152 frames of real video all were right after five. A grid of few cells takes as many turns as
    rounds.
    """
    (count, rounds), wishes = candidates.shape, candidates.T.contiguous()
    keys = torch.arange(0, rounds * count, count, device=rank.device)[:, None] + rank
    # none has what lies beyond
    unowned = F.pad(keys.new_full((count,), rounds * count), (0, 1), value=-1)
    open_wishes, beyond = wishes.clone(), wishes.new_full((), count)
    for _ in range(rounds if count < FEW_CELLS else TURNS):
        owner = unowned.scatter_reduce(0, open_wishes.flatten(), keys.flatten(), "amin")
        granted = owner[open_wishes] == keys
        before = granted.cummax(0).values[:-1]
        torch.where(before, beyond, wishes[1:], out=open_wishes[1:])
    cells = torch.where(granted, open_wishes, beyond).amin(0)
    is_taken = unowned.new_zeros(count + 1).scatter_(0, cells, 1)[:count]
    return cells.masked_fill_(cells == count, -1), torch.argsort(is_taken, stable=True)
