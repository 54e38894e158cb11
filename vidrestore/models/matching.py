"""Patches that follow the motion: the places that DUST's tokens are taken from.

The attention of DUST has no positions, so the tokens of a group may come from anywhere (paper, Section III-A: "the most similar patches"). Here
every frame of a clip is covered by one patch per cell of a regular grid, and patches of different frames that show the same thing share a
*slot*: a column of the table `places` (T, S, 2). A slot follows its patch from frame to frame by block matching, coarse to fine, on a
pre-smoothed guide. Where two patches end in one cell the better match keeps it; the slot of the other, and every cell that nothing moved into
(new scenery, occlusions), begin anew. So each frame holds exactly one patch per cell, whatever moves, and the work per frame is constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 3  # guide pyramid: quarter, half and full size
RADIUS = (4, 2, 1)  # search radius at each level, coarse to fine, in that level's pixels: up to 16 + 4 + 1 pixels of change in motion per frame
KAPPA = 0.25  # how much of the median cost a slot's own motion must save to leave its neighbours'
MEMORY = 4  # a template is the mean of about so many frames of its patch


@dataclass(frozen=True)
class Grid:
    """Cells that cover a plane: rows x columns of patch corners, `stride` apart, the last ones moved in so that no patch leaves the plane."""

    height: int
    width: int
    patch: int
    stride: int

    def __post_init__(self) -> None:
        if min(self.height, self.width) < self.patch:
            raise ValueError(f"a plane of {self.height}x{self.width} holds no patch of {self.patch}x{self.patch}; pad it first")
        if not 0 < self.stride <= self.patch:
            raise ValueError(f"stride must be in [1, {self.patch}], got {self.stride}")

    @property
    def rows(self) -> int:
        return -(-(self.height - self.patch) // self.stride) + 1

    @property
    def columns(self) -> int:
        return -(-(self.width - self.patch) // self.stride) + 1

    def corners(self) -> Tensor:
        """(S, 2) rows and columns of the upper left corners, cell by cell in reading order."""
        y = (torch.arange(self.rows) * self.stride).clamp(max=self.height - self.patch)
        x = (torch.arange(self.columns) * self.stride).clamp(max=self.width - self.patch)
        return torch.cartesian_prod(y, x)

    def cell(self, places: Tensor) -> Tensor:
        """Index of the cell whose corner is nearest to each of (S, 2) places."""
        half = self.stride // 2
        row = ((places[:, 0] + half) // self.stride).clamp(max=self.rows - 1)
        column = ((places[:, 1] + half) // self.stride).clamp(max=self.columns - 1)
        return row * self.columns + column


def fixed_places(frames: int, grid: Grid) -> Tensor:
    """The paper's form: every slot stays at its cell. (T, S, 2)."""
    return grid.corners().expand(frames, -1, -1)


def matched_places(guide: Tensor, grid: Grid) -> Tensor:
    """Follow the patches of `grid` through a clip.

    guide: (T, H, W) float, the noisy luma at the plane's size. Returns (T, S, 2) int64 corners; in each frame every cell holds one slot.
    """
    pyramid = [_padded(level, radius) for level, radius in zip(guide_pyramid(guide), RADIUS, strict=True)]
    corners = grid.corners()
    templates = [_patches(level, 0, corners, grid.patch, index) for index, level in enumerate(pyramid)]
    order, zeros = torch.arange(len(corners)), torch.zeros(len(corners))
    slots = _Slots(corners, torch.zeros_like(corners), templates, zeros, order, order, zeros)
    places = [corners]
    for frame in range(1, len(guide)):
        _follow(slots, pyramid, frame, grid)
        _settle(slots, pyramid, frame, grid, corners)
        places.append(slots.places.clone())
    return torch.stack(places)


@dataclass
class _Slots:
    places: Tensor  # (S, 2) corners in the frame at hand
    motion: Tensor  # (S, 2) last step, the prediction of the next
    templates: list[Tensor]  # per level (S, side, side): running mean of the patch
    age: Tensor  # (S,) frames since the slot began
    cell: Tensor  # (S,) the cell that each slot holds
    holder: Tensor  # (S,) the slot that holds each cell
    cost: Tensor  # (S,) mean squared difference of the last match


def guide_pyramid(guide: Tensor) -> list[Tensor]:
    """Smoothed (T, h, w) guides at a quarter, a half and the full size: blurring first keeps noise out of the matching."""
    full = _blur(guide)
    half = F.avg_pool2d(full, 2, ceil_mode=True)
    half = _blur(half)
    return [F.avg_pool2d(half, 2, ceil_mode=True), half, full]


def _blur(frames: Tensor) -> Tensor:
    """Binomial [1 2 1] in both directions."""
    padded = F.pad(frames[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    rows = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    return (rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) / 16


def _padded(level: Tensor, radius: int) -> Tensor:
    return F.pad(level[:, None], (radius,) * 4, mode="replicate")[:, 0].contiguous()


def _side(patch: int, level: int) -> int:
    """Side of the compared block in that level's pixels: the patch itself, but twice its size at the coarsest, where few pixels would be left."""
    return (patch // 2, patch // 2, patch)[level]


def _origin(places: Tensor, patch: int, level: int) -> Tensor:
    """Corner of the compared block at a level; at the coarsest it is centred on the patch."""
    return ((places - patch // 2).div(4, rounding_mode="floor"), places // 2, places)[level]


def _windows(level: Tensor, frame: int, origins: Tensor, side: int, radius: int) -> Tensor:
    """(S, side + 2 radius, side + 2 radius) around blocks at (S, 2) origins, of a level padded by `radius`."""
    _, height, width = level.shape
    size = side + 2 * radius
    view = level[frame].as_strided((height - size + 1, width - size + 1, size, size), (width, 1, width, 1), level[frame].storage_offset())
    return view[origins[:, 0], origins[:, 1]]


def _inside(origins: Tensor, level: Tensor, side: int, radius: int) -> Tensor:
    limits = torch.tensor([level.shape[1] - 2 * radius - side, level.shape[2] - 2 * radius - side])
    return torch.minimum(origins.clamp(min=0), limits)


def _patches(level: Tensor, frame: int, places: Tensor, patch: int, index: int) -> Tensor:
    side, radius = _side(patch, index), RADIUS[index]
    origins = _inside(_origin(places, patch, index), level, side, radius)
    return _windows(level, frame, origins, side, radius)[:, radius : radius + side, radius : radius + side].contiguous()


def _costs(level: Tensor, frame: int, template: Tensor, origins: Tensor, radius: int) -> Tensor:
    """(S, span, span) mean squared differences between templates and the blocks around (S, 2) origins."""
    count, side, _ = template.shape
    window = _windows(level, frame, origins, side, radius)
    cross = F.conv2d(window[None], template[:, None], groups=count)[0]
    energy = F.avg_pool2d(window[:, None].square(), side, stride=1)[:, 0]
    return energy - (2 / side**2) * cross + template.square().mean((1, 2))[:, None, None]


def _median_motion(motion: Tensor, slots: _Slots, grid: Grid) -> Tensor:
    """Component-wise median of the (S, 2) motions over the 3 x 3 cells around each slot."""
    field = motion[slots.holder].float().view(1, grid.rows, grid.columns, 2).permute(3, 0, 1, 2)
    around = F.unfold(F.pad(field, (1, 1, 1, 1), mode="replicate"), 3)
    return around.median(1).values.T.long()[slots.cell]


def _search(costs: Tensor, origins: Tensor, start: Tensor, slots: _Slots, grid: Grid) -> tuple[Tensor, Tensor]:
    """Best (S, 2) origins in the cost volumes, and their costs: the neighbourhood's motion unless the slot's own is clearly better."""
    span = costs.shape[-1]
    radius = span // 2
    flat = costs.flatten(1)
    least, best = flat.min(1)
    own = torch.stack([best // span - radius, best % span - radius], 1)
    common = (_median_motion(origins + own - start, slots, grid) + start - origins).clamp(-radius, radius)
    at_common = flat.gather(1, ((common[:, 0] + radius) * span + common[:, 1] + radius)[:, None])[:, 0]
    follows = at_common <= least + KAPPA * least.median()
    return origins + torch.where(follows[:, None], common, own), torch.where(follows, at_common, least)


def _follow(slots: _Slots, pyramid: list[Tensor], frame: int, grid: Grid) -> None:
    """Move every slot to where its template is found in `frame`."""
    before = slots.places
    guess = before + slots.motion
    for index, (level, radius) in enumerate(zip(pyramid, RADIUS, strict=True)):
        start = _origin(before, grid.patch, index)
        wanted = _origin(guess, grid.patch, index)
        origins = _inside(wanted, level, _side(grid.patch, index), radius)
        costs = _costs(level, frame, slots.templates[index], origins, radius)
        found, slots.cost = _search(costs, origins, start, slots, grid)
        guess = guess + (found - wanted) * (4, 2, 1)[index]
    limits = torch.tensor([grid.height - grid.patch, grid.width - grid.patch])
    slots.places = torch.minimum(guess.clamp(min=0), limits)
    slots.motion = slots.places - before


def _settle(slots: _Slots, pyramid: list[Tensor], frame: int, grid: Grid, corners: Tensor) -> None:
    """One slot per cell: the best match keeps the cell, the others begin anew in cells that are empty; templates learn from the frame."""
    cells = grid.cell(slots.places)
    order = torch.argsort(slots.cost, descending=True, stable=True)  # the best is written last
    holder = torch.full((len(corners),), -1)
    holder[cells[order]] = order
    kept = holder[cells] == torch.arange(len(cells))
    empty = torch.nonzero(holder < 0)[:, 0]
    slots.places[~kept] = corners[empty]
    cells[~kept] = empty
    slots.cell, slots.holder = cells, torch.argsort(cells)
    slots.motion = torch.where(kept[:, None], slots.motion, _median_motion(slots.motion, slots, grid))
    slots.age = torch.where(kept, slots.age + 1, torch.zeros_like(slots.age))
    share = 1 / (slots.age + 1).clamp(max=MEMORY)
    for index, level in enumerate(pyramid):
        fresh = _patches(level, frame, slots.places, grid.patch, index)
        slots.templates[index] += (fresh - slots.templates[index]) * share[:, None, None]


def gather(plane: Tensor, places: Tensor, patch: int) -> Tensor:
    """Patches of a plane (T, H, W) at places (T, S, 2), as groups (S, T, patch * patch)."""
    frames, height, width = plane.shape
    plane = plane.contiguous()
    view = plane.as_strided((frames, height - patch + 1, width - patch + 1, patch, patch), (height * width, width, 1, width, 1))
    index = torch.arange(frames)[None]
    return view[index, places[..., 0].T, places[..., 1].T].flatten(2)
