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

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.halfsize import halve

# search radius at a quarter, half and full size: changes of motion of up to 16 + 4 + 1 pixels per frame
RADIUS = (4, 2, 1)
NEAR_RADIUS = 2  # at full size, around motion that is known
RELUCTANCE = 1.0  # a slot's own motion is used if it saves this share of the median cost
# largest distance of a slot from its cell in strides; with 1 twice as many tracks break, with 0.5 four times
REACH = 2
MEMORY = 4  # frames that the running mean of a template covers


def halved(picture: Tensor) -> Tensor:
    """Return means of 2 x 2 pixels of (H, W); an odd last row or column is replicated."""
    return halve(picture[None])[0]


def blurred(picture: Tensor) -> Tensor:
    """Filter (H, W) by the binomial [1 2 1] / 4 in both directions."""
    padded = F.pad(picture[None], (1, 1, 1, 1), mode="replicate")[0]
    rows = padded[:-2] + 2 * padded[1:-1] + padded[2:]
    return (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 16


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
        y = (torch.arange(self.rows, device=device) * self.stride).clamp(max=self.height - self.patch)
        x = (torch.arange(self.columns, device=device) * self.stride).clamp(max=self.width - self.patch)
        return torch.cartesian_prod(y, x)

    def nearby_cells(self, positions: Tensor) -> Tensor:
        """Return (S, 16): the cells whose corners are within two strides of (S, 2) positions, nearest first.

        At the border some are repeated.
        """
        exact = positions / self.stride
        reach = torch.arange(1 - REACH, 1 + REACH, device=positions.device)
        around = torch.cartesian_prod(reach, reach)
        cells = exact.floor().long()[:, None] + around
        order = (cells - exact[:, None]).square().sum(-1).sort(dim=1, stable=True).indices
        rows, columns = cells[..., 0].clamp(0, self.rows - 1), cells[..., 1].clamp(0, self.columns - 1)
        return (rows * self.columns + columns).gather(1, order)


def pair_like(like: Tensor, first: float, second: float) -> Tensor:
    """Return (2,) numbers with a tensor's dtype, created on its device: copying them there would wait for a
    GPU.
    """
    pair = like.new_full((2,), first)
    pair[1:].fill_(second)
    return pair


def fixed_positions(frames: int, grid: Grid, device: torch.device | None = None) -> Tensor:
    """Return (T, S, 2) positions that stay at their cells, as in the paper."""
    return grid.corners(device).expand(frames, -1, -1)


@dataclass(frozen=True)
class Found:
    """Positions (T, S, 2) that were matched before on a grid of the same plane."""

    positions: Tensor
    grid: Grid

    def motion(self, frame: int, corners: Tensor) -> Tensor:
        """Return (S, 2): the motion from `frame` to the next one of the patches nearest to (S, 2) corners.

        It is a median of neighbours, since a slot that restarts elsewhere has no motion.
        """
        grid, here = self.grid, self.positions[frame]
        slots = torch.arange(len(here), device=here.device)
        none = torch.full_like(
            slots, len(here)
        )  # as many cells as slots, some with several and some with none
        holder = none.scatter_reduce(0, _nearest_cell(here, grid), slots, "amin")
        moved = F.pad(self.positions[frame + 1] - here, (0, 0, 0, 1))
        return _smoothed(moved[holder], grid)[_nearest_cell(corners, grid)]


@dataclass(frozen=True)
class Common:
    """The same motion of all patches: steps (T - 1, 2) from each frame to the next."""

    steps: Tensor

    def motion(self, frame: int, corners: Tensor) -> Tensor:
        """Return (S, 2): the motion from `frame` to the next one of the patches at (S, 2) corners."""
        return self.steps[frame].expand_as(corners)


def _nearest_cell(corners: Tensor, grid: Grid) -> Tensor:
    cells = (corners + grid.stride // 2).div(grid.stride, rounding_mode="floor")
    limits = pair_like(cells, grid.rows - 1, grid.columns - 1)
    rows, columns = torch.minimum(cells, limits).unbind(1)
    return rows * grid.columns + columns


def matched_positions(guide: Tensor, grid: Grid, found: Found | Common | None = None) -> Tensor:
    """Follow the patches of `grid` through a clip.

    guide: (T, H, W) float, the noisy luma at the plane's size. With `found`, patches are searched for around
    that motion, at full size only. Returns (T, S, 2) int64 corners; in each frame every cell holds
    one slot.
    """
    corners = grid.corners(guide.device)
    prepared = _levels if found is None else _full_level
    order = torch.arange(len(corners), device=corners.device)
    zeros = torch.zeros(len(corners), device=corners.device)
    templates = [_blocks(level, corners) for level in prepared(guide[0], grid.patch)]
    slots = _Slots(corners, torch.zeros_like(corners), templates, zeros, order, order, zeros)
    positions = [corners]
    for index, frame in enumerate(guide[1:]):
        levels = prepared(frame, grid.patch)
        if found is not None:
            slots.motion = found.motion(index, slots.positions)
        _follow(slots, levels, grid)
        _assign_cells(slots, levels, grid, corners)
        positions.append(slots.positions.clone())
    return torch.stack(positions)


@dataclass
class _Level:
    """One scale of a guide frame, prepared for a search with blocks of `side` pixels."""

    scale: int  # pixels of the plane per pixel of the level
    side: int
    radius: int
    picture: Tensor  # (h + 2 radius, w + 2 radius)
    energy: Tensor  # mean square of the block at each position of `picture`
    margin: int  # pixels of the plane by which a block extends beyond its patch

    def origins(self, positions: Tensor) -> Tensor:
        """Return corners of the compared blocks of patches at `positions`; a larger block is centred on its
        patch.
        """
        return (positions - self.margin).div(self.scale, rounding_mode="floor")

    def inside(self, origins: Tensor) -> Tensor:
        height, width = self.picture.shape
        beyond = 2 * self.radius + self.side
        limits = pair_like(origins, height - beyond, width - beyond)
        return torch.minimum(origins.clamp(min=0), limits)


@dataclass
class _Slots:
    positions: Tensor  # (S, 2) corners in the current frame
    motion: Tensor  # (S, 2) last step, the prediction of the next
    templates: list[Tensor]  # per level (S, side, side): running mean of the patch
    age: Tensor  # (S,) frames since the slot began
    cell: Tensor  # (S,) the cell that each slot holds
    holder: Tensor  # (S,) the slot that holds each cell
    cost: Tensor  # (S,) mean squared difference of the last match


def _levels(guide: Tensor, patch: int) -> list[_Level]:
    """Smooth the guide at a quarter, half and full size: blurring first keeps noise out of the matching.

    Blocks are as large as the patch, but twice that at a quarter, where few pixels would be left.
    """
    full = blurred(guide)
    half = blurred(halved(full))
    sides, margins = (patch // 2, patch // 2, patch), (patch // 2, 0, 0)
    pictures = [
        _padded(picture, side, radius)
        for picture, side, radius in zip((halved(half), half, full), sides, RADIUS, strict=True)
    ]
    return [
        _Level(4 >> index, side, RADIUS[index], picture, _box_mean(picture.square(), side), margin)
        for index, (picture, side, margin) in enumerate(zip(pictures, sides, margins, strict=True))
    ]


def _full_level(guide: Tensor, patch: int) -> list[_Level]:
    """Smooth the guide at full size only, for a search around known motion."""
    picture = _padded(blurred(guide), patch, NEAR_RADIUS)
    return [_Level(1, patch, NEAR_RADIUS, picture, _box_mean(picture.square(), patch), 0)]


def _padded(picture: Tensor, side: int, radius: int) -> Tensor:
    """Replicate the border by `radius` on each side, and to at least the size of one block."""
    height, width = picture.shape
    below, right = max(0, side - height), max(0, side - width)
    return F.pad(picture[None], (radius, radius + right, radius, radius + below), mode="replicate")[0]


def _box_mean(picture: Tensor, side: int) -> Tensor:
    """Return the mean over side x side blocks at every position."""
    return _line_sums(_line_sums(picture, side, 0), side, 1).div_(side**2)


def _line_sums(picture: Tensor, side: int, dim: int) -> Tensor:
    """Return sums of `side` neighbours along a dimension, computed from those of half as many."""
    if side == 1:
        return picture
    half = _line_sums(picture, side // 2, dim)
    length = picture.shape[dim] - side + 1
    sums = half.narrow(dim, 0, length) + half.narrow(dim, side // 2, length)
    return sums.add_(picture.narrow(dim, side - 1, length)) if side % 2 else sums


def _windows(picture: Tensor, origins: Tensor, size: int) -> Tensor:
    """Return the (S, size, size) parts of a picture at (S, 2) corners."""
    height, width = picture.shape
    last = height * width - (size - 1) * (width + 1)
    view = picture.as_strided((last, size, size), (1, width, 1))
    return view.index_select(0, origins[:, 0] * width + origins[:, 1])  # three times as fast as two indices


def _blocks(level: _Level, positions: Tensor) -> Tensor:
    """Return the (S, side, side) blocks of a level at the patches' positions."""
    return _windows(level.picture, level.inside(level.origins(positions)) + level.radius, level.side)


def _costs(level: _Level, template: Tensor, origins: Tensor) -> Tensor:
    """Return (S, span, span) mean squared differences between templates and the blocks around (S, 2)
    origins.
    """
    window = _windows(level.picture, origins, level.side + 2 * level.radius)
    cross = F.conv2d(window[None], template[:, None], groups=len(template))[0]
    energy = _windows(level.energy, origins, 2 * level.radius + 1)
    return energy.add_(cross, alpha=-2 / level.side**2).add_(template.square().mean((1, 2))[:, None, None])


# Compare-and-swap steps after which the middle one of nine values is their median (Paeth, Graphics Gems,
# 1990).
_SWAPS = [(1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3)]
_SWAPS += [(5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2)]


def median_of_nine(values: Tensor) -> Tensor:
    """Return the median over axis 1 of (A, 9, S), by whole rows: six times as fast as `torch.median` of short
    axes.
    """
    rows = list(values.unbind(1))
    for low, high in _SWAPS:
        rows[low], rows[high] = torch.minimum(rows[low], rows[high]), torch.maximum(rows[low], rows[high])
    return rows[4]


def _median_motion(motion: Tensor, slots: _Slots, grid: Grid) -> Tensor:
    """Return the component-wise median of the (S, 2) motions over the 3 x 3 cells around each slot."""
    return _smoothed(motion[slots.holder], grid)[slots.cell]


def _smoothed(motion: Tensor, grid: Grid) -> Tensor:
    """Return the component-wise median of the (cells, 2) motions over 3 x 3 cells."""
    field = motion.float().view(1, grid.rows, grid.columns, 2).permute(3, 0, 1, 2)
    around = F.unfold(F.pad(field, (1, 1, 1, 1), mode="replicate"), 3)
    return median_of_nine(around).T.long()


def _search(
    costs: Tensor, origins: Tensor, start: Tensor, slots: _Slots, grid: Grid
) -> tuple[Tensor, Tensor]:
    """Return the best (S, 2) origins in the cost volumes, and their costs.

    The neighbourhood's motion is used unless the slot's own is clearly better.
    """
    span = costs.shape[-1]
    radius = span // 2
    flat = costs.flatten(1)
    least, best = flat.min(1)
    own = torch.stack([best // span - radius, best % span - radius], 1)
    common = (_median_motion(origins + own - start, slots, grid) + start - origins).clamp(-radius, radius)
    at_common = flat.gather(1, ((common[:, 0] + radius) * span + common[:, 1] + radius)[:, None])[:, 0]
    follows = at_common <= least + RELUCTANCE * least.median()
    return origins + torch.where(follows[:, None], common, own), torch.where(follows, at_common, least)


def _follow(slots: _Slots, levels: list[_Level], grid: Grid) -> None:
    """Move every slot to the best match of its templates."""
    before = slots.positions
    guess = before + slots.motion
    for level, template in zip(levels, slots.templates, strict=True):
        # last position of the template, which differs from its patch's at borders
        start = level.inside(level.origins(before))
        wanted = start + level.origins(guess) - level.origins(before)
        origins = level.inside(wanted)
        found, slots.cost = _search(_costs(level, template, origins), origins, start, slots, grid)
        guess = guess + (found - wanted) * level.scale
    limits = pair_like(guess, grid.height - grid.patch, grid.width - grid.patch)
    slots.positions = torch.minimum(guess.clamp(min=0), limits)
    slots.motion = slots.positions - before


def _assign_cells(slots: _Slots, levels: list[_Level], grid: Grid, corners: Tensor) -> None:
    """Give each cell one slot; slots without a free cell nearby restart in the empty cells. Update the
    templates.
    """
    cells, holder = _assign(grid.nearby_cells(slots.positions), slots.cost)
    lost = cells < 0
    if cells.device.type == "cpu":
        empty = torch.nonzero(holder < 0)[:, 0]
        slots.positions[lost], cells[lost] = corners[empty], empty
    else:
        empty = torch.argsort((holder >= 0).int(), stable=True)  # the empty cells come first, in order
        given = empty[(lost.cumsum(0) - 1).clamp(min=0)]
        slots.positions = torch.where(lost[:, None], corners[given], slots.positions)
        cells = torch.where(lost, given, cells)
    slots.cell, slots.holder = cells, torch.argsort(cells)
    slots.motion = torch.where(lost[:, None], _median_motion(slots.motion, slots, grid), slots.motion)
    slots.age = torch.where(lost, torch.zeros_like(slots.age), slots.age + 1)
    share = 1 / (slots.age + 1).clamp(max=MEMORY)
    for level, template in zip(levels, slots.templates, strict=True):
        template += (_blocks(level, slots.positions) - template) * share[:, None, None]


def _assign(candidates: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
    """Give every cell to at most one slot: (S,) the cell of each slot and the slot of each cell, -1 for none.

    `candidates` (S, W) are the cells that each slot may take, best first. In each round, slots without a cell
    ask for their next candidate if it is free, and the best match among them gets it.
    """
    slots = torch.arange(len(cost), device=cost.device)
    cells, holder = torch.full_like(slots, -1), torch.full_like(slots, -1)
    rank = torch.empty_like(slots).scatter_(0, torch.argsort(cost, stable=True), slots)  # 0 is the best match
    if cost.device.type != "cpu":
        return _assign_on_device(candidates, rank, slots)
    for candidate in candidates.T:
        asking = slots[(cells < 0) & (holder[candidate] < 0)]
        if not len(asking):
            continue
        best = torch.full_like(slots, len(slots)).scatter_reduce_(0, candidate[asking], rank[asking], "amin")
        served = asking[best[candidate[asking]] == rank[asking]]
        cells[served], holder[candidate[served]] = candidate[served], served
    return cells, holder


def _assign_on_device(candidates: Tensor, rank: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same as `_assign` without a synchronisation: no size depends on a value.

    All slots take part in each round; those that don't ask are directed to a cell beyond the last one.
    """
    count = len(slots)
    cells, holder = torch.full_like(slots, -1), slots.new_full((count + 1,), -1)
    for candidate in candidates.T:
        asking = (cells < 0) & (holder[candidate] < 0)
        best = torch.full_like(holder, count).scatter_reduce_(
            0, torch.where(asking, candidate, count), rank, "amin"
        )
        served = asking & (best[candidate] == rank)
        cells = torch.where(served, candidate, cells)
        holder = holder.scatter(0, torch.where(served, candidate, count), slots)
    return cells, holder[:count]


def gather(plane: Tensor, positions: Tensor, patch: int) -> Tensor:
    """Return patches of a plane (T, H, W) at positions (T, S, 2), as groups (S, T, patch * patch)."""
    frames, height, width = plane.shape
    plane = plane.contiguous()
    view = plane.as_strided(
        (frames, height - patch + 1, width - patch + 1, patch, patch), (height * width, width, 1, width, 1)
    )
    index = torch.arange(frames, device=plane.device)[None]
    return view[index, positions[..., 0].T, positions[..., 1].T].flatten(2)
