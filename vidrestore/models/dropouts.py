"""Find the dropouts of a tape in its fields, and fill them along the motion.

Where the head of a recorder reads nothing, a dash of one or two lines is white, black or noise, for one field
only. A dash is an outlier to three sides at once, in the mean over a piece of its row: to the lines above and
below in its own field; to the fields of the same lines before and after, with and without the motion; and to
those of the other lines half a frame before and after. What is there and moves, thin lines and fine texture
too, is seen by one of them. What moves too far for the motion to be found, such as a reflector beside a road,
lies elsewhere in one of these fields, with the lines beside it, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.alignment import dense_motion
from vidrestore.models.spynet import warp


@dataclass(frozen=True)
class DropoutSearch:
    """Constants of the search, chosen on training clips with drawn dropouts, and without. Levels are grey
    levels of 255, lengths are pixels along a row, lines are those of a field.

    row: length over which the excess of an outlier is averaged
    most: excess of a sample, over what a dropout stands out by, above which it counts as this: short, bright
        things that move, as reflectors beside a road, are no dashes
    least: levels that a dropout stands out by
    doubt: levels added for each level that the fields before and after differ, the larger of the means over
        `row` and over a square of `square`
    around, distance, length: levels added for each level of excess in the lines around, as the mean from the
        second to the `distance`-th line above and below, over `length`; moving texture has outliers there
    columns, lines: of the other field, on either side, that must lie outside, too
    softness: levels added for each level by which the lines above and below stand out in time in the same
        direction; a dash has sharp edges, what moves is blurred
    reach, lines_reach: columns and lines by which a dash is looked for in the other fields, where it may have
        moved to
    margin, most_half: columns added to a half of a dash, and most columns of it, for the same
    moved: share of its difference to the fields beside, by which a dash may differ where it is found
    many, share: dashes of a field from which on others are likely; these stand out by this share of what
        they would have to otherwise, and none is looked for elsewhere, since many are alike
    grown, times: length by which a dropout is grown, and how often, where its excess in time, averaged over
        `grown_row`, is the share `growth` of what a dropout stands out by
    """

    row: int = 17
    most: float = 3.0
    least: float = 14.0
    doubt: float = 0.8
    square: int = 15
    around: float = 8.0
    distance: int = 5
    length: int = 31
    columns: int = 2
    lines: int = 2
    softness: float = 3.0
    reach: int = 96
    lines_reach: int = 8
    margin: int = 4
    most_half: int = 40
    moved: float = 0.5
    many: int = 6
    share: float = 0.4
    grown: int = 6
    times: int = 3
    grown_row: int = 3
    growth: float = 0.35


DROPOUT_SEARCH = DropoutSearch()
LEVELS = 255.0  # grey levels of a picture in [0, 1]


class FieldView(NamedTuple):
    """A field and those around it, luma (1, 1, h, w) in grey levels.

    field: the one that may have dropouts
    parity: 0 if it has the even rows of the picture, 1 for the odd ones
    neighbours: two other fields (2, 1, h, w) with the same rows
    offsets: how many frames later than the field these are, negative if earlier
    opposites: the two fields (1, 1, h', w) of the other rows nearest in time
    times: how many frames later these are, in halves
    """

    field: Tensor
    parity: int
    neighbours: Tensor
    offsets: tuple[int, int]
    opposites: Sequence[Tensor]
    times: Sequence[float]


class Dropouts(NamedTuple):
    """The dropouts of a field: their pixels (1, 1, h, w), 1 or 0, and the motion (2, 2, h, w), x then y in
    pixels, to its two neighbours.
    """

    pixels: Tensor
    motion: Tensor

    @property
    def dashes(self) -> int:
        """The number of dashes; pieces of a line near each other are one, and two in adjoining lines."""
        reach = DROPOUT_SEARCH.grown // 2
        grown = _combined(
            F.pad(self.pixels, (2 * reach, 2 * reach, 0, 0)),
            2 * reach + 1,
            3,
            torch.maximum,
        )
        lines = np.pad(grown[0, 0].bool().numpy(), ((1, 0), (1, 1)))
        changes = np.diff(lines.astype(np.int8), axis=1)
        rows, starts = np.nonzero(changes == 1)
        _, stops = np.nonzero(changes == -1)
        # of a line, up to a place; the line above has the index of the row before
        above = lines.cumsum(1)
        return int((above[rows - 1, stops] == above[rows - 1, starts]).sum())

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """Yield the line of each piece of a dash, its first column, and the one after its last."""
        lines = np.pad(self.pixels[0, 0].bool().numpy(), ((0, 0), (1, 1)))
        changes = np.diff(lines.astype(np.int8), axis=1)
        rows, starts = np.nonzero(changes == 1)
        _, stops = np.nonzero(changes == -1)
        yield from zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True)


def found_dropouts(view: FieldView) -> Dropouts | None:
    """Return the dropouts of a field; None if it has none."""
    field, lines = _signed(view.field), view.field.shape[-2]
    ceilings = [
        _others_ceiling(opposite, view.parity, lines) for opposite in view.opposites
    ]

    # Most fields have nothing that stands out even without motion, which takes the most time to find.
    unmoved = torch.cat((_lines_ceiling(field), _signed(view.neighbours))).amax(
        0, keepdim=True
    )
    still = torch.cat((unmoved, *ceilings)).amax(0, keepdim=True)
    outliers = (field - still).clamp(max=DROPOUT_SEARCH.most * DROPOUT_SEARCH.least)
    if not bool(
        (_row_means(outliers, DROPOUT_SEARCH.row) > DROPOUT_SEARCH.least).any()
    ):
        return None

    motion = field_motion(view.field, view.neighbours)
    aligned = warp(view.neighbours, motion, border="border", mode="bicubic")
    moved = [
        warp(other, _motion_at(time, motion, view.offsets), border="border")
        for other, time in zip(ceilings, view.times, strict=True)
    ]
    in_time = _signed(aligned).amax(0, keepdim=True)
    excess = field - torch.cat((unmoved, in_time, *moved)).amax(0, keepdim=True)

    difference = (aligned[:1] - aligned[1:]).abs()
    square = (
        _row_means(
            _column_sums(difference, DROPOUT_SEARCH.square), DROPOUT_SEARCH.square
        )
        / DROPOUT_SEARCH.square
    )
    doubt = DROPOUT_SEARCH.doubt * torch.maximum(
        _row_means(difference, DROPOUT_SEARCH.row), square
    )
    limit = (
        DROPOUT_SEARCH.least
        + doubt
        + DROPOUT_SEARCH.around
        * _means_beyond(excess.amax(1, keepdim=True).clamp(min=0))
    )
    soft = _lines_ceiling(_row_means(field - in_time, DROPOUT_SEARCH.row)).clamp(min=0)
    least = limit + DROPOUT_SEARCH.softness * soft
    means = _row_means(
        torch.minimum(excess, DROPOUT_SEARCH.most * least), DROPOUT_SEARCH.row
    )
    pixels = (means > least).amax(1, keepdim=True).float()
    if not bool(pixels.any()):
        return None
    if Dropouts(pixels, motion).dashes >= DROPOUT_SEARCH.many:
        is_likely = means > DROPOUT_SEARCH.share * least
        pixels = is_likely.amax(1, keepdim=True).float()

    # The ends of a dash fade.
    beyond = _row_means(
        (field - in_time).amax(1, keepdim=True), DROPOUT_SEARCH.grown_row
    )
    is_like = (beyond > DROPOUT_SEARCH.growth * limit).float()
    for _ in range(DROPOUT_SEARCH.times):
        padded = F.pad(pixels, (DROPOUT_SEARCH.grown, DROPOUT_SEARCH.grown, 0, 0))
        grown = _combined(padded, 2 * DROPOUT_SEARCH.grown + 1, 3, torch.maximum)
        pixels = torch.maximum(pixels, grown * is_like)
    return without_moved(Dropouts(pixels, motion), view, aligned)


def without_moved(
    dropouts: Dropouts, view: FieldView, aligned: Tensor
) -> Dropouts | None:
    """Return the dropouts without those that are found elsewhere in another field; None if none are left.

    aligned: the neighbours of the view along the motion
    """
    if dropouts.dashes >= DROPOUT_SEARCH.many:
        return dropouts
    beyond = [DROPOUT_SEARCH.reach] * 2 + [DROPOUT_SEARCH.lines_reach] * 2
    fields = *view.neighbours.split(1), *view.opposites
    areas = [F.pad(field, beyond, mode="replicate")[0, 0] for field in fields]
    pixels = dropouts.pixels.clone()
    for row, start, stop in dropouts.pieces():
        block = _block_around(row, start, stop, view.field.shape[-2:])
        if _is_elsewhere(view.field[0, 0], aligned[:, 0], areas, block):
            pixels[..., row, start:stop] = 0
    return dropouts._replace(pixels=pixels) if bool(pixels.any()) else None


def _block_around(
    row: int, start: int, stop: int, size: Sequence[int]
) -> tuple[slice, slice]:
    """Return the lines and columns of a piece of a dash and what is beside it, in a field of a size."""
    margin = DROPOUT_SEARCH.margin
    half = max((stop - start) // 2 + margin, 2 * margin)
    half, middle = min(half, DROPOUT_SEARCH.most_half), (start + stop) // 2
    lines = slice(max(0, row - 1), min(size[0], row + 2))
    return lines, slice(max(0, middle - half), min(size[1], middle + half + 1))


def _is_elsewhere(
    field: Tensor, aligned: Tensor, areas: Sequence[Tensor], block: tuple[slice, slice]
) -> bool:
    """Return whether a block of a field (h, w) is found in one of the areas, other fields with `reach` more
    columns and `lines_reach` more lines on each side, far better than in those `aligned` with it, (2, h, w).
    """
    samples = field[block]
    along_motion = (aligned[(slice(None), *block)] - samples).abs().mean((1, 2)).min()
    lines, columns = block
    for padded in areas:
        area = padded[
            lines.start : lines.stop + 2 * DROPOUT_SEARCH.lines_reach,
            columns.start : columns.stop + 2 * DROPOUT_SEARCH.reach,
        ]
        places = area.unfold(0, samples.shape[0], 1).unfold(1, samples.shape[1], 1)
        differences = (places - samples).abs().mean((2, 3))
        if bool((differences < DROPOUT_SEARCH.moved * along_motion).any()):
            return True
    return False


def field_motion(field: Tensor, neighbours: Tensor) -> Tensor:
    """Return the motion (2, 2, h, w) from a field to its neighbours, found at half size."""
    halves = [
        F.avg_pool2d(picture / LEVELS, 2, ceil_mode=True)
        for picture in (field, neighbours)
    ]
    motion = 2 * dense_motion(halves[0].expand_as(halves[1]), halves[1])
    return F.interpolate(motion, field.shape[-2:], mode="bilinear", align_corners=False)


def filled(neighbours: Tensor, dropouts: Dropouts) -> tuple[Tensor, Tensor]:
    """Return what a plane of a field (h', w') has behind its dropouts, by that of its two neighbours
    (2, 1, h', w'), and where these lie: True or False, (h', w'). Chroma has dropouts where luma has some.
    """
    lines, columns = neighbours.shape[-2:]
    pixels, motion = dropouts
    if pixels.shape[-2:] != neighbours.shape[-2:]:
        ratio = motion.new_tensor(
            (columns / pixels.shape[-1], lines / pixels.shape[-2])
        )
        motion = (
            F.interpolate(motion, (lines, columns), mode="area") * ratio[:, None, None]
        )
        pixels = F.adaptive_max_pool2d(pixels, (lines, columns))
    aligned = warp(neighbours, motion, border="border", mode="bicubic")
    return aligned.mean((0, 1)), pixels[0, 0] > 0


def _signed(picture: Tensor) -> Tensor:
    """Return (B, 2, h, w): a picture (B, 1, h, w) and its negative, in which dark dashes are bright."""
    return torch.cat((picture, -picture), 1)


def _lines_ceiling(field: Tensor) -> Tensor:
    """Return the larger of the lines above and below each line of a field (1, 2, h, w); where a dash has two
    lines, of those above and below both.
    """
    lines = field.shape[-2]
    padded = F.pad(field, (0, 0, 2, 2), mode="replicate")
    above, over, under, below = (
        padded[..., top : top + lines, :] for top in (0, 1, 3, 4)
    )
    ceilings = (
        torch.maximum(over, under),
        torch.maximum(above, under),
        torch.maximum(over, below),
    )
    return torch.minimum(torch.minimum(ceilings[0], ceilings[1]), ceilings[2])


def _others_ceiling(other: Tensor, parity: int, lines: int) -> Tensor:
    """Return the largest sample (1, 2, lines, w) of a field of the other rows around each of this one."""
    top = DROPOUT_SEARCH.lines - parity
    bottom = lines + 2 * DROPOUT_SEARCH.lines - 1 - other.shape[-2] - top
    padded = F.pad(
        _signed(other),
        (DROPOUT_SEARCH.columns, DROPOUT_SEARCH.columns, top, bottom),
        mode="replicate",
    )
    columns = _combined(padded, 2 * DROPOUT_SEARCH.lines, 2, torch.maximum)
    return _combined(columns, 2 * DROPOUT_SEARCH.columns + 1, 3, torch.maximum)


def _motion_at(time: float, motion: Tensor, offsets: Sequence[int]) -> Tensor:
    """Return the motion (1, 2, h, w) to a time, in frames, by that to the neighbour nearest to it."""
    nearest = min(range(len(offsets)), key=lambda index: abs(offsets[index] - time))
    return motion[nearest : nearest + 1] * (time / offsets[nearest])


def _row_means(maps: Tensor, length: int) -> Tensor:
    """Return the means over an odd length along the rows, with 0 beyond the picture, whose edges jitter."""
    padded = F.pad(maps, (length // 2, length // 2, 0, 0))
    return _combined(padded, length, 3, torch.add) / length


def _column_sums(maps: Tensor, length: int) -> Tensor:
    padded = F.pad(maps, (0, 0, length // 2, length // 2), mode="replicate")
    return _combined(padded, length, 2, torch.add)


def _combined(
    maps: Tensor, length: int, axis: int, combine: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return the sums or the largest of `length` samples that follow each other along an axis, computed from
    those of half as many; torch's own pooling takes ten times as long.
    """
    if length == 1:
        return maps
    half, count = (
        _combined(maps, length // 2, axis, combine),
        maps.shape[axis] - length + 1,
    )
    results = combine(
        half.narrow(axis, 0, count), half.narrow(axis, length // 2, count)
    )
    return (
        combine(results, maps.narrow(axis, length - 1, count))
        if length % 2
        else results
    )


def _means_beyond(excess: Tensor) -> Tensor:
    """Return the mean of (1, 1, h, w) over the lines around each, without its own and the next ones."""
    rows = _row_means(excess, DROPOUT_SEARCH.length)
    size, inner_size = 2 * DROPOUT_SEARCH.distance + 1, 3
    sums = _column_sums(rows, size) - _column_sums(rows, inner_size)
    return sums.clamp(min=0) / (size - inner_size)
