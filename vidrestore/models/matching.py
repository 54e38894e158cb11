"""Patches that follow the motion: the places that DUST's tokens are taken from.

The attention of DUST has no positions, so the tokens of a group may come from anywhere (paper, Section III-A:
"the most similar patches"). Here every frame of a clip is covered by one patch per cell of a regular grid,
and patches of different frames that show the same thing share a *slot*: a column of the table `places` (T, S,
2). A slot follows its patch from frame to frame by block matching, coarse to fine, on a pre-smoothed guide.
Where two patches end in one cell the better match keeps it; the slot of the other, and every cell that
nothing moved into (new scenery, occlusions), begin anew. So each frame holds exactly one patch per cell,
whatever moves, and the work per frame is constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.pyramid import blurred, halved

# search radius at a quarter, a half and the full size: up to 16 + 4 + 1 pixels of change in motion per frame
RADIUS = (4, 2, 1)
RELUCTANCE = 1.0  # how much of the median cost a slot's own motion must save to leave its neighbours'
# how many strides away a slot may hold a cell; with 1 twice as many tracks break, with 0.5 four times
REACH = 2
MEMORY = 4  # a template is the mean of about so many frames of its patch


@dataclass(frozen=True)
class Grid:
    """Cells that cover a plane: rows x columns of patch corners, `stride` apart, the last ones moved in so
    that none leaves it.
    """

    height: int
    width: int
    patch: int
    stride: int

    def __post_init__(self) -> None:
        if min(self.height, self.width) < self.patch:
            raise ValueError(
                f"a plane of {self.height}x{self.width} holds no patch of {self.patch}x{self.patch}; pad it "
                "first"
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
        """(S, 2) rows and columns of the upper left corners, cell by cell in reading order."""
        y = (torch.arange(self.rows, device=device) * self.stride).clamp(max=self.height - self.patch)
        x = (torch.arange(self.columns, device=device) * self.stride).clamp(max=self.width - self.patch)
        return torch.cartesian_prod(y, x)

    def nearby_cells(self, places: Tensor) -> Tensor:
        """(S, 16) the cells whose corners stand within two strides of (S, 2) places, nearest first; at the
        rim some are the same.
        """
        exact = places / self.stride
        reach = torch.arange(1 - REACH, 1 + REACH, device=places.device)
        around = torch.cartesian_prod(reach, reach)
        cells = exact.floor().long()[:, None] + around
        order = (cells - exact[:, None]).square().sum(-1).sort(dim=1, stable=True).indices
        rows, columns = cells[..., 0].clamp(0, self.rows - 1), cells[..., 1].clamp(0, self.columns - 1)
        return (rows * self.columns + columns).gather(1, order)


def pair_of(like: Tensor, first: float, second: float) -> Tensor:
    """(2,) numbers of a tensor's type, made where it is: a GPU would be waited for until they are copied."""
    made = like.new_full((2,), first)
    made[1:].fill_(second)
    return made


def fixed_places(frames: int, grid: Grid, device: torch.device | None = None) -> Tensor:
    """The paper's form: every slot stays at its cell. (T, S, 2)."""
    return grid.corners(device).expand(frames, -1, -1)


def matched_places(guide: Tensor, grid: Grid) -> Tensor:
    """Follow the patches of `grid` through a clip.

    guide: (T, H, W) float, the noisy luma at the plane's size. Returns (T, S, 2) int64 corners; in each frame
    every cell holds one slot.
    """
    corners = grid.corners(guide.device)
    slots = _begin(_levels(guide[0], grid.patch), grid, corners)
    places = [corners]
    for frame in guide[1:]:
        levels = _levels(frame, grid.patch)
        _follow(slots, levels, grid)
        _settle(slots, levels, grid, corners)
        places.append(slots.places.clone())
    return torch.stack(places)


@dataclass
class _Level:
    """One size of a guide frame, ready to be searched with blocks of `side`."""

    scale: int  # pixels of the plane per pixel of the level
    side: int
    radius: int
    picture: Tensor  # (h + 2 radius, w + 2 radius)
    energy: Tensor  # mean square of the block at each place of `picture`
    margin: int  # by which a block reaches out over its patch, in pixels of the plane

    def origins(self, places: Tensor) -> Tensor:
        """Corners of the compared blocks of patches at `places`; a block that is larger than its patch is
        centred on it.
        """
        return (places - self.margin).div(self.scale, rounding_mode="floor")

    def inside(self, origins: Tensor) -> Tensor:
        height, width = self.picture.shape
        beyond = 2 * self.radius + self.side
        limits = pair_of(origins, height - beyond, width - beyond)
        return torch.minimum(origins.clamp(min=0), limits)


@dataclass
class _Slots:
    places: Tensor  # (S, 2) corners in the frame at hand
    motion: Tensor  # (S, 2) last step, the prediction of the next
    templates: list[Tensor]  # per level (S, side, side): running mean of the patch
    age: Tensor  # (S,) frames since the slot began
    cell: Tensor  # (S,) the cell that each slot holds
    holder: Tensor  # (S,) the slot that holds each cell
    cost: Tensor  # (S,) mean squared difference of the last match


def _levels(guide: Tensor, patch: int) -> list[_Level]:
    """Smoothed guides at a quarter, a half and the full size: blurring first keeps noise out of the matching.

    Blocks are as large as the patch, but twice that at the quarter, where few pixels would be left.
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


def _padded(picture: Tensor, side: int, radius: int) -> Tensor:
    """Continued by `radius` on each side, and to hold at least one block."""
    height, width = picture.shape
    below, right = max(0, side - height), max(0, side - width)
    return F.pad(picture[None], (radius, radius + right, radius, radius + below), mode="replicate")[0]


def _box_mean(picture: Tensor, side: int) -> Tensor:
    """Mean over side x side blocks at every position."""
    return _line_sums(_line_sums(picture, side, 0), side, 1).div_(side**2)


def _line_sums(picture: Tensor, side: int, dim: int) -> Tensor:
    """Sums of `side` neighbours along a dimension, from those of half as many."""
    if side == 1:
        return picture
    half = _line_sums(picture, side // 2, dim)
    length = picture.shape[dim] - side + 1
    sums = half.narrow(dim, 0, length) + half.narrow(dim, side // 2, length)
    return sums.add_(picture.narrow(dim, side - 1, length)) if side % 2 else sums


def _windows(picture: Tensor, origins: Tensor, size: int) -> Tensor:
    """(S, size, size) parts of a picture at (S, 2) corners."""
    height, width = picture.shape
    last = height * width - (size - 1) * (width + 1)
    view = picture.as_strided((last, size, size), (1, width, 1))
    return view.index_select(0, origins[:, 0] * width + origins[:, 1])  # three times as fast as two indices


def _blocks(level: _Level, places: Tensor) -> Tensor:
    """(S, side, side) what a level shows at the patches' places."""
    return _windows(level.picture, level.inside(level.origins(places)) + level.radius, level.side)


def _costs(level: _Level, template: Tensor, origins: Tensor) -> Tensor:
    """(S, span, span) mean squared differences between templates and the blocks around (S, 2) origins."""
    window = _windows(level.picture, origins, level.side + 2 * level.radius)
    cross = F.conv2d(window[None], template[:, None], groups=len(template))[0]
    energy = _windows(level.energy, origins, 2 * level.radius + 1)
    return energy.add_(cross, alpha=-2 / level.side**2).add_(template.square().mean((1, 2))[:, None, None])


# Compare-and-swap steps after which the middle one of nine values is their median (Paeth, Graphics Gems,
# 1990).
_SWAPS = [(1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3)]
_SWAPS += [(5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2)]


def _median_of_nine(values: Tensor) -> Tensor:
    """Median over axis 1 of (A, 9, S): whole rows at a time, six times as fast as `torch.median` of short
    axes.
    """
    rows = list(values.unbind(1))
    for low, high in _SWAPS:
        rows[low], rows[high] = torch.minimum(rows[low], rows[high]), torch.maximum(rows[low], rows[high])
    return rows[4]


def _median_motion(motion: Tensor, slots: _Slots, grid: Grid) -> Tensor:
    """Component-wise median of the (S, 2) motions over the 3 x 3 cells around each slot."""
    field = motion[slots.holder].float().view(1, grid.rows, grid.columns, 2).permute(3, 0, 1, 2)
    around = F.unfold(F.pad(field, (1, 1, 1, 1), mode="replicate"), 3)
    return _median_of_nine(around).T.long()[slots.cell]


def _search(
    costs: Tensor, origins: Tensor, start: Tensor, slots: _Slots, grid: Grid
) -> tuple[Tensor, Tensor]:
    """Best (S, 2) origins in the cost volumes, and their costs: the neighbourhood's motion unless the slot's
    own is clearly better.
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


def _begin(levels: list[_Level], grid: Grid, corners: Tensor) -> _Slots:
    order, zeros = (
        torch.arange(len(corners), device=corners.device),
        torch.zeros(len(corners), device=corners.device),
    )
    return _Slots(
        corners,
        torch.zeros_like(corners),
        [_blocks(level, corners) for level in levels],
        zeros,
        order,
        order,
        zeros,
    )


def _follow(slots: _Slots, levels: list[_Level], grid: Grid) -> None:
    """Move every slot to where its templates are found."""
    before = slots.places
    guess = before + slots.motion
    for level, template in zip(levels, slots.templates, strict=True):
        # where the template was last seen: at borders not quite around its patch
        start = level.inside(level.origins(before))
        wanted = start + level.origins(guess) - level.origins(before)
        origins = level.inside(wanted)
        found, slots.cost = _search(_costs(level, template, origins), origins, start, slots, grid)
        guess = guess + (found - wanted) * level.scale
    limits = pair_of(guess, grid.height - grid.patch, grid.width - grid.patch)
    slots.places = torch.minimum(guess.clamp(min=0), limits)
    slots.motion = slots.places - before


def _settle(slots: _Slots, levels: list[_Level], grid: Grid, corners: Tensor) -> None:
    """One slot per cell; slots that find no free cell nearby begin anew in cells that are left empty.
    Templates learn from the frame.
    """
    cells, holder = _assigned(grid.nearby_cells(slots.places), slots.cost)
    lost = cells < 0
    if cells.device.type == "cpu":
        empty = torch.nonzero(holder < 0)[:, 0]
        slots.places[lost], cells[lost] = corners[empty], empty
    else:
        empty = torch.argsort((holder >= 0).int(), stable=True)  # those, in order, are the first ones
        given = empty[(lost.cumsum(0) - 1).clamp(min=0)]
        slots.places = torch.where(lost[:, None], corners[given], slots.places)
        cells = torch.where(lost, given, cells)
    slots.cell, slots.holder = cells, torch.argsort(cells)
    slots.motion = torch.where(lost[:, None], _median_motion(slots.motion, slots, grid), slots.motion)
    slots.age = torch.where(lost, torch.zeros_like(slots.age), slots.age + 1)
    share = 1 / (slots.age + 1).clamp(max=MEMORY)
    for level, template in zip(levels, slots.templates, strict=True):
        template += (_blocks(level, slots.places) - template) * share[:, None, None]


def _assigned(wishes: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
    """Give every cell to at most one slot: (S,) the cell of each slot and the slot of each cell, -1 for none.

    `wishes` (S, W) are each slot's cells, dearest first: round by round, slots without a cell ask for their
    next wish if it is free, and of several the best match gets it.
    """
    slots = torch.arange(len(cost), device=cost.device)
    cells, holder = torch.full_like(slots, -1), torch.full_like(slots, -1)
    rank = torch.empty_like(slots).scatter_(0, torch.argsort(cost, stable=True), slots)  # 0 is the best match
    if cost.device.type != "cpu":
        return _assigned_without_waiting(wishes, rank, slots)
    for wish in wishes.T:
        asking = slots[(cells < 0) & (holder[wish] < 0)]
        best = torch.full_like(slots, len(slots)).scatter_reduce_(0, wish[asking], rank[asking], "amin")
        served = asking[best[wish[asking]] == rank[asking]]
        cells[served], holder[wish[served]] = wish[served], served
    return cells, holder


def _assigned_without_waiting(wishes: Tensor, rank: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """The same for a device: no size depends on a value, for which the host would wait.

    All slots take part in each round; those that don't ask are led to a cell beyond the last one.
    """
    count = len(slots)
    cells, holder = torch.full_like(slots, -1), slots.new_full((count + 1,), -1)
    for wish in wishes.T:
        asking = (cells < 0) & (holder[wish] < 0)
        best = torch.full_like(holder, count).scatter_reduce_(
            0, torch.where(asking, wish, count), rank, "amin"
        )
        served = asking & (best[wish] == rank)
        cells = torch.where(served, wish, cells)
        holder = holder.scatter(0, torch.where(served, wish, count), slots)
    return cells, holder[:count]


def gather(plane: Tensor, places: Tensor, patch: int) -> Tensor:
    """Patches of a plane (T, H, W) at places (T, S, 2), as groups (S, T, patch * patch)."""
    frames, height, width = plane.shape
    plane = plane.contiguous()
    view = plane.as_strided(
        (frames, height - patch + 1, width - patch + 1, patch, patch), (height * width, width, 1, width, 1)
    )
    index = torch.arange(frames, device=plane.device)[None]
    return view[index, places[..., 0].T, places[..., 1].T].flatten(2)
