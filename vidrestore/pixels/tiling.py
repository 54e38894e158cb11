"""Restore frames in overlapping tiles, blended or cut at their centres, and pad frames to a network's
size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.errors import OptionError

Side = tuple[int, int]  # [start, stop) in pixels


def padded(frames: Tensor, multiple: int, least: int = 1) -> Tensor:
    """Pad frames (..., C, H, W) at the right and bottom to multiples of `multiple` and at least `least`.

    The padding is a reflection about the last pixel; if a side is too short for that, a repetition.
    """
    # down, then across
    height, width = frames.shape[-2:]
    below, right = (max(least - side, -side % multiple) for side in (height, width))
    maps = frames.flatten(0, -3)  # `index_select` takes ten times as long as `pad`
    for extra, side, sides in (
        (below, height, (0, 0, 0, below)),
        (right, width, (0, right, 0, 0)),
    ):
        if extra:
            maps = F.pad(maps, sides, mode="reflect" if extra < side else "replicate")
    return maps.view(*frames.shape[:-2], *maps.shape[-2:])


def even_side(length: int, most: int, overlap: int, multiple: int) -> int:
    """Return the smallest side of tiles, a multiple of `multiple`, with the same number of tiles as for a
    side of `most`.

    `length` and `most` must be multiples of `multiple`. Raises ValueError unless overlap is in [0, most).
    """
    # as many tiles as with the largest side, but of equal size
    count = len(tile_spans(length, most, overlap))
    side = -(-(length + (count - 1) * overlap) // count)
    return min(most, -(-side // multiple) * multiple)


def tile_sides(
    height: int,
    width: int,
    *,
    tile: int | None,
    pixels: int,
    overlap: int,
    multiple: int,
) -> tuple[int, int]:
    """Return (height, width) of even tiles for a picture, multiples of `multiple`; no side is above `tile`.

    Without `tile` the whole picture is one tile if it has at most `pixels`; else no side is above that of a
    square of so many. Raises OptionError if tiles of that square would overlap by more than half.
    """
    # all of it if memory allows, else tiles of equal sides
    high, wide = (side + -side % multiple for side in (height, width))
    if tile is None and high * wide <= pixels:
        return high, wide
    most = int(pixels**0.5) // multiple * multiple if tile is None else tile
    if tile is None and overlap > most // 2:
        raise OptionError(
            f"the memory is enough for tiles of {most} pixels, but they share {overlap}, which must be at "
            "most half of that; give `tile`, or a device with more memory"
        )
    rows, columns = (
        side if side <= most else even_side(side, most, overlap, multiple)
        for side in (high, wide)
    )
    return rows, columns


def tile_spans(length: int, tile: int, overlap: int) -> list[tuple[int, int]]:
    """Return [start, stop) of the tiles along one side of `length` pixels; neighbours share `overlap` pixels.

    The last tile reaches back, so that all are `tile` long; a side that is not longer is one tile. Raises
    ValueError if there are several and overlap is not in [0, tile).
    """
    if length <= tile:
        return [(0, length)]
    if not 0 <= overlap < tile:
        raise ValueError(
            f"overlap must be in [0, {tile}) for tiles of {tile} pixels, got {overlap}"
        )
    starts = list(range(0, length - tile, tile - overlap))
    return [(start, start + tile) for start in [*starts, length - tile]]


def blend_window(
    height: int, width: int, overlap: int, device: torch.device | None = None
) -> Tensor:
    """Return weights (height, width) of a tile: falling over `overlap` pixels to each edge, never zero."""
    return _ramps(height, overlap, device)[:, None] * _ramps(width, overlap, device)


def _ramps(length: int, overlap: int, device: torch.device | None) -> Tensor:
    to_edge = torch.arange(1, length + 1, dtype=torch.float32, device=device)
    return (torch.minimum(to_edge, to_edge.flip(0)) / (overlap + 1)).clamp(max=1)


def apply_tiled(
    model: Callable[[Tensor], Tensor],
    clip: Tensor,
    tile: int | Side,
    overlap: int,
    scale: int = 1,
    batch: int = 1,
    most: int | None = None,
) -> Tensor:
    """Run `model` on tiles of `clip` (B, T, C, H, W) and blend its outputs to (B, T', C', scale * H, scale *
    W).

    `tile` is the side, or (height, width). `model` takes (B, T, C, h, w) with h, w <= tile, or `batch` tiles
    joined along B, and returns (B, T', C', scale * h, scale * w); `overlap` is in pixels of the input. Half
    precision is summed in float32. A single tile is returned unweighted. The result is on the clip's device.
    `most` limits the batches that are computed at once (`cores.dealt`). Raises ValueError for an output of
    another size.
    """
    height, width = clip.shape[-2:]
    high, wide = (tile, tile) if isinstance(tile, int) else tile
    # a single tile has nothing to blend
    rows = tile_spans(height, high, overlap)
    columns = tile_spans(width, wide, overlap)
    if len(rows) == len(columns) == 1:
        return _run(model, clip, scale)
    sides = scale * min(high, height), scale * min(wide, width)
    window = blend_window(*sides, scale * overlap, clip.device)
    # weighted tiles add up, and are divided by the weights
    weights = window.new_zeros(scale * height, scale * width)
    total: Tensor | None = None
    for ((top, bottom), (left, right)), piece in _restored_tiles(
        model, clip, rows, columns, scale, batch, most
    ):
        if total is None:
            total = piece.new_zeros((*piece.shape[:-2], *weights.shape))
        place = slice(scale * top, scale * bottom), slice(scale * left, scale * right)
        total[(..., *place)] += piece * window
        weights[place] += window
    assert total is not None  # there is always a tile
    return total.div_(weights)


def apply_by_centres(
    model: Callable[[Tensor], Tensor],
    clip: Tensor,
    tile: int,
    overlap: int,
    scale: int = 1,
    batch: int = 1,
) -> Tensor:
    """Run `model` on batches of tiles of `clip` (T, C, H, W) and join the tiles' centres to (T', C', scale *
    H, scale * W).

    `model` takes (B, T, C, tile, tile) with B <= `batch` and returns (B, T', C', scale * tile, scale * tile).
    The border between two tiles is half the overlap after the later one's start, also for the last tile,
    which reaches back, as in VSR-Transformer's release. Nothing is blended. Sides of the clip must be at
    least `tile`. Raises ValueError for an output of another size.
    """
    # centres tile the picture
    rows, columns = (tile_spans(side, tile, overlap) for side in clip.shape[-2:])
    total: Tensor | None = None
    for ((top, bottom), (left, right)), piece in _restored_tiles(
        model, clip[None], rows, columns, scale, batch
    ):
        if total is None:
            size = (scale * side for side in clip.shape[-2:])
            total = piece.new_empty((*piece.shape[1:-2], *size))
        above, before = (overlap // 2 if first else 0 for first in (top, left))
        # what the next tile has too is overwritten by its centre
        rows_of_centre = slice(scale * (top + above), scale * bottom)
        columns_of_centre = slice(scale * (left + before), scale * right)
        total[..., rows_of_centre, columns_of_centre] = piece[
            0, ..., scale * above :, scale * before :
        ]
    assert total is not None  # there is always a tile
    return total


def _restored_tiles(
    model: Callable[[Tensor], Tensor],
    clip: Tensor,
    rows: Sequence[Side],
    columns: Sequence[Side],
    scale: int,
    batch: int,
    most: int | None = None,
) -> Iterator[tuple[tuple[Side, Side], Tensor]]:
    """Yield the place (rows, columns) of each tile, in reading order, and the output of `model` for it."""
    # tiles of one size, a batch at a time
    tiles = list(product(rows, columns))
    groups = [tiles[start : start + batch] for start in range(0, len(tiles), batch)]

    def restored(group: Sequence[tuple[Side, Side]]) -> Tensor:
        pieces = [clip[..., slice(*down), slice(*across)] for down, across in group]
        return _run(model, pieces[0] if len(pieces) == 1 else torch.cat(pieces), scale)

    for group, outputs in zip(groups, dealt(restored, groups, most), strict=True):
        yield from zip(group, outputs.split(len(clip)), strict=True)


def _run(model: Callable[[Tensor], Tensor], piece: Tensor, scale: int) -> Tensor:
    restored = model(piece)
    expected = tuple(scale * side for side in piece.shape[-2:])
    if restored.shape[-2:] != expected:
        raise ValueError(
            f"the model returned {tuple(restored.shape[-2:])} pixels for a tile of "
            f"{tuple(piece.shape[-2:])}; expected {expected}"
        )
    return restored.to(torch.promote_types(restored.dtype, torch.float32))
