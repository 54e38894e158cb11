"""Multi-scale patch embedding of MB-TaylorFormer V2: convolutions in series, one per branch (Section
III-B).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.deform_conv import deformable_depthwise
from vidrestore.models.fast.compiled import in_one_piece
from vidrestore.models.fast.strips import Span, strip_spans, window
from vidrestore.models.pixel_maps import depthwise_rows, pointwise, weight

LEAST_ROWS = 16  # of a strip, since taps read up to five rows beyond it


class DeformableEmbedding(nn.Module):
    """A 3x3 depthwise convolution with offsets computed from the map, then a 1x1 and a Hardswish (Section
    III-B, Fig. 3).
    """

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
            depthwise_rows(window(maps, span, 1), self.offset_depthwise), self.offset_pointwise
        )
        reach = None
        if self.limit:
            offsets, reach = offsets.clamp(*self.limit), max(map(abs, self.limit))
        return F.hardswish(
            pointwise(deformable_depthwise(maps, offsets, self.depthwise, span, reach), self.pointwise)
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
            maps, self.depthwise, padding=self.dilation, dilation=self.dilation, groups=len(self.depthwise)
        )
        return F.hardswish(pointwise(convolved, self.pointwise))


def _normal_weight(*shape: int, fan_out: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * math.sqrt(2 / fan_out))
