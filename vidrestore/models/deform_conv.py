"""Deformable convolution, depthwise, 3x3, stride 1: every tap of every output pixel samples its channel at an
offset; and the embeddings of MB-TaylorFormer that convolve so, or with fixed taps.

J. Dai et al., "Deformable Convolutional Networks", ICCV 2017 (without the mask of version 2). The rule is
that of torchvision.ops.deform_conv2d with padding 1: offset channel 2k moves tap k (taps in reading order)
down, channel 2k + 1 to the right, in pixels, the same for all channels of the image; samples are bilinear,
and the image is zero outside.

    output(c, i, j) = sum over taps k of weight(c, k) * sample(
        c, i + k // 3 - 1 + offset(2k, i, j), j + k % 3 - 1 + offset(2k + 1, i, j))
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast_maps import (
    Span,
    depthwise_rows,
    in_one_piece,
    pointwise,
    strip_spans,
    weight,
    window,
)

TAPS = 9
LEAST_ROWS = 16  # least rows of a strip, since taps read up to five rows beyond it


def deformable_depthwise(
    maps: Tensor,
    offsets: Tensor,
    weight: Tensor,
    span: Span | None = None,
    reach: float | None = None,
) -> Tensor:
    """Convolve maps (B, C, H, W) by offsets (B, 18, rows, W) in pixels and a weight (C, 1, 3, 3) to (B, C,
    rows, W).

    All three get gradients. `span` is the rows of the map that the offsets belong to, by default all. `reach`
    is an upper bound of the offsets, so that a span needs few rows around it. Half precision is sampled in
    float32.
    """
    span = span or (0, maps.shape[2])
    computed = torch.promote_types(maps.dtype, torch.float32)
    if span == (0, maps.shape[2]) and in_one_piece():
        return _sampled_at_once(
            maps.to(computed), offsets.to(computed), weight.to(computed)
        ).to(maps.dtype)
    table, indices, weights = _samples(
        maps.to(computed), offsets.to(computed), span, reach
    )
    taps = weight.to(computed).flatten(1).transpose(-1, -2)  # (9, C)
    output = _bag(indices[0], weights[0], table) * taps[0]
    for tap in range(1, TAPS):
        output = output.addcmul_(_bag(indices[tap], weights[tap], table), taps[tap])
    return (
        output.to(maps.dtype)
        .view(len(maps), -1, maps.shape[3], maps.shape[1])
        .permute(0, 3, 1, 2)
    )


def _sampled_at_once(maps: Tensor, offsets: Tensor, weight: Tensor) -> Tensor:
    """Convolve a whole map in nine times its memory; gradients take a third of the time of samples'."""
    height, width = maps.shape[2:]
    y, x = _sample_positions(offsets, (0, height))  # (9, B, H, W) each
    across, down = (2 * x + 1) / width - 1, (2 * y + 1) / height - 1
    positions = torch.stack((across, down), -1)
    samples = F.grid_sample(
        maps.contiguous(), positions.transpose(0, 1).flatten(1, 2), align_corners=False
    )
    # (B, C, 1, H W)
    mixed = weight.flatten(2) @ samples.view(*samples.shape[:2], TAPS, -1)
    return mixed.view(maps.shape).contiguous(memory_format=torch.channels_last)


def _bag(indices: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    """Return (M, C) weighted sums of four rows of the table each: bilinear samples of all channels."""
    return F.embedding_bag(indices, table, mode="sum", per_sample_weights=weights)


def _samples(
    maps: Tensor, offsets: Tensor, span: Span, reach: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pixels that a span may read as rows (M, C) of a table, and the (9, B rows W, 4) indices and
    weights of rows to mix.

    The table has margins of zeros: a position is first clamped to between -1 and the size, where the sample
    is zero as well.
    """
    batch, channels, height, width = maps.shape
    source, halo = (span, int(reach) + 2) if reach is not None else ((0, height), 2)
    padded = window(maps, source, halo, columns=(1, 2))
    table = padded.permute(0, 2, 3, 1).reshape(-1, channels)
    top, pitch = source[0] - halo, width + 3
    y, x = _sample_positions(offsets, span)  # (9, B, rows, W) each
    y, x = y.clamp(-1, height).sub_(top), x.clamp(-1, width).add_(1)
    row, column = y.detach().floor(), x.detach().floor()
    # the table's rows of the four pixels around each position
    picture = torch.arange(batch, dtype=torch.int32, device=maps.device).view(-1, 1, 1)
    first = row.int().mul_(pitch).add_(column.int())
    first += picture * (padded.shape[2] * pitch)
    indices = torch.stack((first, first + 1, first + pitch, first + (pitch + 1)), -1)
    # their bilinear weights
    down, right = y - row, x - column
    product = down * right
    weights = torch.stack(
        (1 - down - right + product, right - product, down - product, product), -1
    )
    return table, indices.view(TAPS, -1, 4), weights.view(TAPS, -1, 4)


def _sample_positions(offsets: Tensor, span: Span) -> tuple[Tensor, Tensor]:
    """Return the row and column, (9, B, rows, W) each, that a tap reads; rows count from the map's top."""
    batch, _, rows, width = offsets.shape
    moved = offsets.contiguous().view(batch, TAPS, 2, rows, width)
    taps = torch.arange(TAPS, device=offsets.device).view(-1, 1, 1, 1)
    y = torch.arange(*span, device=offsets.device).view(-1, 1) + (taps // 3 - 1)
    x = torch.arange(width, device=offsets.device) + (taps % 3 - 1)
    return moved[:, :, 0].transpose(0, 1) + y, moved[:, :, 1].transpose(0, 1) + x


def _normal_weight(*shape: int, fan_out: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * math.sqrt(2 / fan_out))


class DeformableEmbedding(nn.Module):
    """A 3x3 depthwise convolution with computed offsets, a 1x1 and a Hardswish (Section III-B, Fig. 3)."""

    def __init__(self, channels: int, limit: tuple[float, ...]) -> None:
        super().__init__()
        self.limit = limit
        self.offset_depthwise = _normal_weight(channels, 1, 3, 3, fan_out=9 * channels)
        self.offset_pointwise = _normal_weight(18, channels, fan_out=18)
        self.depthwise = weight(channels, 1, 3, 3, fan_in=9)
        self.pointwise = _normal_weight(channels, channels, fan_out=channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape; in strips without gradients."""
        if in_one_piece():
            return self.rows(maps, (0, maps.shape[2]))
        embedded = torch.empty_like(maps)
        for start, stop in strip_spans(maps, 4 * maps.shape[1], least=LEAST_ROWS):
            embedded[:, :, start:stop] = self.rows(maps, (start, stop))
        return embedded

    def rows(self, maps: Tensor, span: Span) -> Tensor:
        offsets = pointwise(
            depthwise_rows(window(maps, span, 1), self.offset_depthwise),
            self.offset_pointwise,
        )
        reach = None
        if self.limit:
            offsets, reach = offsets.clamp(*self.limit), max(map(abs, self.limit))
        return F.hardswish(
            pointwise(
                deformable_depthwise(maps, offsets, self.depthwise, span, reach),
                self.pointwise,
            )
        )


class FixedEmbedding(nn.Module):
    """The same with fixed taps, `dilation` pixels apart: the convolutions of Table VIII."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.depthwise = weight(channels, 1, 3, 3, fan_in=9)
        self.pointwise = _normal_weight(channels, channels, fan_out=channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        convolved = F.conv2d(
            maps,
            self.depthwise,
            padding=self.dilation,
            dilation=self.dilation,
            groups=len(self.depthwise),
        )
        return F.hardswish(pointwise(convolved, self.pointwise))
