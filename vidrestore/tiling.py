"""Frames restored in overlapping tiles, blended so that no seam shows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def tile_spans(length: int, tile: int, overlap: int) -> list[tuple[int, int]]:
    """[start, stop) of the tiles along one side of `length` pixels; neighbours share `overlap` pixels.

    The last tile reaches back, so that all are `tile` long; a side no longer than that is one tile. Raises ValueError where overlap is not
    in [0, tile).
    """
    if not 0 <= overlap < tile:
        raise ValueError(f"overlap must be in [0, {tile}) for tiles of {tile} pixels, got {overlap}")
    if length <= tile:
        return [(0, length)]
    starts = list(range(0, length - tile, tile - overlap))
    return [(start, start + tile) for start in [*starts, length - tile]]


def blend_window(height: int, width: int, overlap: int) -> Tensor:
    """Weights (height, width) of a tile: one inside, falling linearly over `overlap` pixels to each edge, never to zero."""
    return _ramps(height, overlap)[:, None] * _ramps(width, overlap)


def _ramps(length: int, overlap: int) -> Tensor:
    to_edge = torch.arange(1, length + 1, dtype=torch.float32)
    return (torch.minimum(to_edge, to_edge.flip(0)) / (overlap + 1)).clamp(max=1)


def apply_tiled(model: Callable[[Tensor], Tensor], clip: Tensor, tile: int, overlap: int, scale: int = 1) -> Tensor:
    """Run `model` on tiles of `clip` (B, T, C, H, W) and blend its outputs to (B, T', C', scale * H, scale * W), on the clip's device.

    `model` takes (B, T, C, h, w) with h, w <= tile and returns (B, T', C', scale * h, scale * w); `overlap` counts pixels of the input.
    Half precision is summed in single. A clip that is one tile passes through unweighted. Raises ValueError for an output of another size.
    """
    height, width = clip.shape[-2:]
    rows, columns = tile_spans(height, tile, overlap), tile_spans(width, tile, overlap)
    if len(rows) == len(columns) == 1:
        return _run(model, clip, scale)
    window = blend_window(scale * min(tile, height), scale * min(tile, width), scale * overlap).to(clip.device)
    weights = window.new_zeros(scale * height, scale * width)
    total: Tensor | None = None
    for top, bottom in rows:
        for left, right in columns:
            restored = _run(model, clip[..., top:bottom, left:right], scale)
            if total is None:
                total = restored.new_zeros((*restored.shape[:-2], *weights.shape))
            place = slice(scale * top, scale * bottom), slice(scale * left, scale * right)
            total[(..., *place)] += restored * window
            weights[place] += window
    assert total is not None  # there is always a tile
    return total.div_(weights)


def _run(model: Callable[[Tensor], Tensor], piece: Tensor, scale: int) -> Tensor:
    restored = model(piece)
    expected = tuple(scale * side for side in piece.shape[-2:])
    if restored.shape[-2:] != expected:
        raise ValueError(f"the model made {tuple(restored.shape[-2:])} pixels of a tile of {tuple(piece.shape[-2:])}; expected {expected}")
    return restored.to(torch.promote_types(restored.dtype, torch.float32))
