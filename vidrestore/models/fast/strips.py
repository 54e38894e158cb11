"""Process maps in strips of rows, so that a strip's data stays in the processor's cache and bounds the
memory.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# Values per thread in the widest map of a strip (4 MB in float32): the fastest of 2^17 to 2^21 on a core with
# 1 MB of cache.
CPU_STRIP = 2**20
GPU_STRIP = 2**28  # only bounds memory

Span = tuple[int, int]


def spans(height: int, rows: int) -> list[Span]:
    """Return (start, stop) of strips of at most `rows` rows that cover `height`, as even as possible."""
    count = -(-height // max(1, min(rows, height)))
    return [(height * number // count, height * (number + 1) // count) for number in range(count)]


def strip_spans(maps: Tensor, channels: int, least: int = 1) -> list[Span]:
    """Return strips of (B, C, H, W) maps, of at least `least` rows, for computations with `channels`
    channels.
    """
    budget = CPU_STRIP * torch.get_num_threads() if maps.device.type == "cpu" else GPU_STRIP
    return spans(maps.shape[2], max(least, budget // (channels * maps.shape[0] * maps.shape[3])))


def window(maps: Tensor, span: Span, halo: int, columns: tuple[int, int] = (0, 0)) -> Tensor:
    """Return the rows of a span of (B, C, H, W) maps with `halo` more on either side, zero beyond the map.

    `columns` zeros are added left and right.
    """
    (start, stop), height = span, maps.shape[2]
    rows = maps[:, :, max(start - halo, 0) : min(stop + halo, height)]
    margins = (*columns, max(halo - start, 0), max(stop + halo - height, 0))
    return F.pad(rows, margins) if any(margins) else rows
