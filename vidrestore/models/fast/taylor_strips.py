"""Transformer blocks of MB-TaylorFormer V2 in place, in strips of rows that stay in the cache; without
gradients.

Branches are processed one after the other, so only one branch's queries and values are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models.fast.strips import Span, strip_spans, window
from vidrestore.models.pixel_maps import depthwise_rows, normalised, pointwise, tokens_of
from vidrestore.models.taylor_attention import Sums
from vidrestore.models.taylor_blocks import Attention, Block, FeedForward


def transform(blocks: Iterable[Block], branches: list[Tensor]) -> None:
    """Apply every block to every branch's maps (B, C, H, W), in place."""
    blocks = list(blocks)
    buffers = torch.empty_like(branches[0]), torch.empty_like(branches[0])
    for number, branch in enumerate(branches):
        for block in blocks:
            add_attention(block.attention, branch, number, buffers)
            add_feed_forward(block.feed_forward, branch, number)


def add_attention(block: Attention, maps: Tensor, branch: int, buffers: tuple[Tensor, Tensor]) -> None:
    """Compute `Attention` in place and in strips; `buffers` are two maps for queries and values."""
    queries, values = buffers
    strips, matrix = strip_spans(maps, 3 * block.channels), block.qkv[branch] * block.norm[branch]
    total: Sums | None = None
    for (start, stop), [expanded] in expanded_strips(maps, [matrix], strips, centred=block.centred):
        q, k, v = depthwise_rows(expanded, block.qkv_depthwise[branch]).chunk(3, 1)
        queries[:, :, start:stop], values[:, :, start:stop] = q, v
        sums = Sums.of(block.tokens(k), block.tokens(values[:, :, start:stop]), block.rule)
        total = total + sums if total else sums
    assert total is not None
    mixer = block.mixer(total, branch, maps[0, 0].numel())
    for start, stop in strips:
        around = window(values, (start, stop), block.halo)
        maps[:, :, start:stop] += block.output(queries[:, :, start:stop], around, mixer, branch)


def add_feed_forward(block: FeedForward, maps: Tensor, branch: int) -> None:
    """Compute `FeedForward` in place and in strips."""
    matrices, kernels, contract = block.padded_weights(branch)
    strips = strip_spans(maps, 2 * block.hidden)
    for (start, stop), expanded in expanded_strips(maps, matrices, strips, centred=block.centred):
        a, b = (depthwise_rows(part, kernel) for part, kernel in zip(expanded, kernels, strict=True))
        maps[:, :, start:stop] += pointwise(F.gelu(a).mul_(b), contract)


def expanded_strips(
    maps: Tensor, matrices: list[Tensor], strips: list[Span], *, centred: bool
) -> Iterator[tuple[Span, list[Tensor]]]:
    """Yield strips and the products of their normalised maps with (O, C) matrices, as windows (B, O, rows +
    2, W).

    A window has one row more on either side of the strip. Every row is computed once, and before the strip
    above it is yielded, so the caller may overwrite a strip. The windows are overwritten by the next step.
    Without gradients.
    """
    batch, _, height, width = maps.shape
    rows, done = max(stop - start for start, stop in strips) + 2, 0
    # row r of the map is at r - start + 1
    buffers = [maps.new_zeros(batch, rows, width, len(matrix)) for matrix in matrices]
    for start, stop in strips:
        upto, shift = min(stop + 1, height), 1 - start
        if upto > done:
            fresh = tokens_of(normalised(maps[:, :, done:upto], centred=centred))
            for matrix, buffer in zip(matrices, buffers, strict=True):
                torch.bmm(
                    fresh,
                    matrix.mT.to(fresh.dtype).expand(batch, -1, -1),
                    out=buffer[:, done + shift : upto + shift].flatten(1, 2),
                )
        if stop == height:
            for buffer in buffers:
                buffer[:, stop + shift] = 0
        yield (start, stop), [buffer[:, : stop + shift + 1].permute(0, 3, 1, 2) for buffer in buffers]
        for buffer in buffers:
            buffer[:, :2] = buffer[:, stop + shift - 1 : stop + shift + 1].clone()
        done = upto
