"""Operations on maps (B, C, H, W) of image networks, whole or in strips of rows: products and norms at every
pixel, depthwise convolutions, pixels as tokens; their weights.

Maps are channels_last: the channels of a pixel are contiguous, so tokens are a view. A strip's data stays in
the processor's cache, and bounds the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.cores import dealt, idle_workers

LAYER_NORM_EPS = 1e-5
# Values in the widest map of a strip (4 MB in float32): the fastest of 2^17 to 2^21 on a core with
# 1 MB of cache.
CPU_STRIP = 2**20
LEAST_SHARED = 32  # rows of a strip for another worker
GPU_STRIP = 2**28  # only bounds memory

Span = tuple[int, int]


def in_one_piece() -> bool:
    """Return True if maps must be computed whole and out of place: for gradients, and for a compiler or an
    exporter, which see one graph that way.
    """
    return torch.is_grad_enabled() or torch.compiler.is_compiling() or is_traced()


def is_traced() -> bool:
    """Return True while an exporter traces the operations, for which sizes are tensors."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def weight(*shape: int, fan_in: int) -> nn.Parameter:
    """Return a parameter with PyTorch's default initialisation: uniform within 1 / sqrt(fan_in) of 0."""
    return nn.Parameter(torch.empty(shape).uniform_(-1, 1) / math.sqrt(fan_in))


def tokens_of(maps: Tensor) -> Tensor:
    """Return (B, C, H, W) as tokens (B, H W, C), a view if the maps are channels_last."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


def maps_of(tokens: Tensor, like: Tensor) -> Tensor:
    """Return tokens (B, H W, C) as maps (B, C, H, W) with the height and width of `like`."""
    return tokens.view(len(tokens), like.shape[2], like.shape[3], -1).permute(
        0, 3, 1, 2
    )


def pointwise(maps: Tensor, matrix: Tensor) -> Tensor:
    """Multiply (B, C, H, W) by an (O, C) matrix at every pixel, faster than PyTorch's 1x1 convolution."""
    return maps_of(F.linear(tokens_of(maps), matrix), maps)


def depthwise(maps: Tensor, kernels: Tensor) -> Tensor:
    """Convolve (B, C, H, W) by (C, 1, 3, 3) kernels, padded with zeros."""
    return F.conv2d(maps, kernels, padding=1, groups=len(kernels))


def depthwise_rows(maps: Tensor, kernels: Tensor) -> Tensor:
    """Convolve a window with a halo of one row as `depthwise` does; the result has no halo."""
    return F.conv2d(maps, kernels, padding=(0, 1), groups=len(kernels))


def few_filters(maps: Tensor, kernels: Tensor) -> Tensor:
    """Convolve (B, n d, H, W) by (n, d, side, side) kernels, each over its own d channels, to (B, n, H, W),
    padded with zeros.

    A convolution with so few outputs leaves a processor's vectors nearly empty. Here one product computes the
    contribution of every pixel to each position around it, and `fold` adds them up.
    """
    count, width, side, _ = map(int, kernels.shape)
    if is_traced():  # an exporter has no `fold`
        return F.conv2d(maps, kernels, padding=side // 2, groups=count)
    taps = kernels.flip(2, 3).flatten(2).transpose(-1, -2)  # (n, side^2, d)
    contributions = taps @ maps.flatten(2).unflatten(1, (count, width))
    return F.fold(contributions.flatten(1, 2), maps.shape[2:], side, padding=side // 2)


def normalised(maps: Tensor, *, centred: bool = False) -> Tensor:
    """Divide every pixel by the standard deviation of its channels.

    Their mean stays, as in Restormer's "bias-free" norm, unless `centred`: then it is a layer norm without
    parameters, for which PyTorch has a kernel that is several times faster.
    """
    if centred:
        tokens = tokens_of(maps)
        with torch.autocast(
            maps.device.type, enabled=False
        ):  # autocast would return float32, a copy, on CUDA
            return maps_of(
                F.layer_norm(tokens, [int(tokens.shape[-1])], eps=LAYER_NORM_EPS), maps
            )
    wide = maps.to(torch.promote_types(maps.dtype, torch.float32))
    deviations = wide - wide.mean(1, keepdim=True)
    return maps * deviations.square_().mean(1, keepdim=True).add_(
        LAYER_NORM_EPS
    ).rsqrt_().to(maps.dtype)


def spans(height: int, rows: int) -> list[Span]:
    """Return (start, stop) of strips of at most `rows` rows that cover `height`, as even as possible."""
    count = -(-height // max(1, min(rows, height)))
    return [
        (height * number // count, height * (number + 1) // count)
        for number in range(count)
    ]


def strip_spans(maps: Tensor, channels: int, least: int = 1) -> list[Span]:
    """Return strips of (B, C, H, W) maps, of at least `least` rows, to compute `channels` channels."""
    budget = CPU_STRIP if maps.device.type == "cpu" else GPU_STRIP
    return spans(
        maps.shape[2], max(least, budget // (channels * maps.shape[0] * maps.shape[3]))
    )


def shared_rows(
    function: Callable[[Tensor], Tensor], maps: Tensor, halo: int
) -> Tensor:
    """Return `function(maps)` for maps (B, C, H, W) of the same shape; if workers are idle, they compute
    strips of it, to the same bits. A row depends on `halo` rows on either side; zeros are beyond the map.
    """
    height, idle = maps.shape[2], 0 if in_one_piece() else idle_workers()
    rows = max(LEAST_SHARED, -(-height // (2 * idle + 2)))
    if not idle or height <= rows:
        return function(maps)

    def strip(span: Span) -> Tensor:
        start, stop = span
        first = max(0, start - halo)
        return function(maps[:, :, first : stop + halo])[
            :, :, start - first : stop - first
        ]

    return torch.cat([*dealt(strip, spans(height, rows))], 2)


def window(
    maps: Tensor, span: Span, halo: int, columns: tuple[int, int] = (0, 0)
) -> Tensor:
    """Return the rows of a span of (B, C, H, W) maps with `halo` more on either side, zero beyond the map.

    `columns` zeros are added left and right.
    """
    (start, stop), height = span, maps.shape[2]
    rows = maps[:, :, max(start - halo, 0) : min(stop + halo, height)]
    margins = (*columns, max(halo - start, 0), max(stop + halo - height, 0))
    return F.pad(rows, margins) if any(margins) else rows


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
    rows, computed = max(stop - start for start, stop in strips) + 2, 0
    # row r of the map is at r - start + 1
    buffers = [maps.new_zeros(batch, rows, width, len(matrix)) for matrix in matrices]
    for start, stop in strips:
        upto, shift = min(stop + 1, height), 1 - start
        if upto > computed:
            tokens = tokens_of(normalised(maps[:, :, computed:upto], centred=centred))
            for matrix, buffer in zip(matrices, buffers, strict=True):
                expanding = matrix.mT.to(tokens.dtype).expand(batch, -1, -1)
                place = buffer[:, computed + shift : upto + shift].flatten(1, 2)
                torch.bmm(tokens, expanding, out=place)
        if stop == height:
            for buffer in buffers:
                buffer[:, stop + shift] = 0
        yield (
            (start, stop),
            [buffer[:, : stop + shift + 1].permute(0, 3, 1, 2) for buffer in buffers],
        )
        for buffer in buffers:
            buffer[:, :2] = buffer[:, stop + shift - 1 : stop + shift + 1].clone()
        computed = upto
