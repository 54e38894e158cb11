"""Transformer blocks of MB-TaylorFormer V2: linear attention and a gated feed-forward, with weights per
branch (Section III-C).

A block processes one branch at a time, so no grouped convolution is needed. `fast.taylor_strips` computes the
same in place.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast.strips import window
from vidrestore.models.pixel_maps import (
    depthwise,
    few_filters,
    maps_of,
    normalised,
    pointwise,
    tokens_of,
    weight,
)
from vidrestore.models.taylor_attention import AttentionRule, Mixer, Sums

# Heads -> (side of the window, number of heads with it), in order of the heads: the positional term (Eq. 12).
POSITION_WINDOWS = {1: ((3, 1),), 2: ((3, 2),), 4: ((3, 2), (5, 2)), 8: ((3, 2), (5, 3), (7, 3))}


class Position(nn.Module):
    """The positional term of one block: convolutions of the values, wider ones for later heads (Eq. 12, 13).

    Release: one filter with bias per head over all its channels; its sigmoid is added to every channel of the
    head. Paper: one filter per channel, added directly.
    """

    def __init__(self, channels: int, heads: int, branches: int, rule: AttentionRule) -> None:
        super().__init__()
        self.per_head, width = rule.position == "gate", channels // heads
        self.windows = POSITION_WINDOWS[heads]
        self.halo = max(side for side, _ in self.windows) // 2
        shapes = [
            (count, width, side) if self.per_head else (count * width, 1, side)
            for side, count in self.windows
        ]
        self.weights = nn.ParameterList(
            weight(branches, *shape, shape[-1], fan_in=shape[1] * shape[2] ** 2) for shape in shapes
        )
        if self.per_head:
            fan_ins = (shape[1] * shape[2] ** 2 for shape in shapes)
            self.biases = nn.ParameterList(
                weight(branches, shape[0], fan_in=fan) for shape, fan in zip(shapes, fan_ins, strict=True)
            )
        self.widths = [count * width for _, count in self.windows]

    def forward(self, values: Tensor, branch: int) -> Tensor:
        """Map a window (B, C, rows + 2 halo, W) of values to (B, heads or C, rows, W)."""
        parts = values.split(self.widths, 1)
        terms = [self._term(part, number, branch) for number, part in enumerate(parts)]
        return torch.cat(terms, 1).sigmoid() if self.per_head else torch.cat(terms, 1)

    def _term(self, values: Tensor, number: int, branch: int) -> Tensor:
        kernels: Tensor = self.weights[number][branch]
        rows, side = values.shape[2] - 2 * self.halo, kernels.shape[-1]
        if self.per_head:
            term: Tensor = few_filters(values, kernels) + self.biases[number][branch][:, None, None]
        else:
            term = F.conv2d(values, kernels, padding=side // 2, groups=len(kernels))
        return term[:, :, self.halo : self.halo + rows]


class Attention(nn.Module):
    """x + T-MSA++(norm(x)), with weights per branch (Section III-C); sums and products are in
    `taylor_attention`.
    """

    def __init__(
        self, channels: int, heads: int, branches: int, rule: AttentionRule, *, centred: bool = False
    ) -> None:
        super().__init__()
        self.rule, self.channels, self.heads, self.centred = rule, channels, heads, centred
        self.norm = nn.Parameter(torch.ones(branches, channels))
        self.qkv = weight(branches, 3 * channels, channels, fan_in=channels)
        self.qkv_depthwise = weight(branches, 3 * channels, 1, 3, 3, fan_in=9)
        self.project = weight(branches, channels, channels, fan_in=channels)
        self.remainder = nn.Parameter(
            torch.full((branches, heads), 1.0 if rule.remainder == "sigmoid" else 0.5)
        )
        if rule.temperature:
            self.temperature = nn.Parameter(torch.ones(branches, heads))
        # factor of N in the denominator; a frozen parameter because released files have it
        self.one = nn.Parameter(torch.ones(1), requires_grad=False)
        self.position = None if rule.position == "none" else Position(channels, heads, branches, rule)
        self.halo = self.position.halo if self.position else 0

    def tokens(self, maps: Tensor) -> Tensor:
        """Return (B, C, rows, W) as tokens (B, N, heads, d), at least in float32."""
        wide = tokens_of(maps).to(torch.promote_types(maps.dtype, torch.float32)).contiguous()
        return wide.view(*wide.shape[:2], self.heads, -1)

    def mixer(self, sums: Sums, branch: int, pixels: int) -> Mixer:
        remainder = (
            self.remainder[branch].sigmoid() if self.rule.remainder == "sigmoid" else self.remainder[branch]
        )
        temperature = self.temperature[branch] if self.rule.temperature else torch.ones_like(remainder)
        wide = sums.values.dtype
        return Mixer(sums, self.rule, remainder.to(wide), temperature.to(wide), pixels * self.one.to(wide))

    def output(self, queries: Tensor, values: Tensor, mixer: Mixer, branch: int) -> Tensor:
        """Return the residual (B, C, rows, W) for queries (B, C, rows, W) and a window of values."""
        numerators, scale = mixer(self.tokens(queries))
        if self.position:
            # (B, heads, N, 1 or d)
            position = self.position(values, branch).flatten(2).unflatten(1, (self.heads, -1)).mT
            mixed = torch.addcmul(position.to(scale.dtype), numerators, scale)
        else:
            mixed = numerators * scale
        return maps_of(
            F.linear(mixed.transpose(1, 2).flatten(2).to(queries.dtype), self.project[branch]), queries
        )

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """Map (B, C, H, W) to the same shape, all at once, with gradients."""
        whole = (0, maps.shape[2])
        expanded = pointwise(normalised(maps, centred=self.centred), self.qkv[branch] * self.norm[branch])
        queries, keys, values = depthwise(expanded, self.qkv_depthwise[branch]).chunk(3, 1)
        mixer = self.mixer(
            Sums.of(self.tokens(keys), self.tokens(values), self.rule), branch, maps[0, 0].numel()
        )
        return maps + self.output(queries, window(values, whole, self.halo), mixer, branch)


class FeedForward(nn.Module):
    """x + W (gelu(a) * b) with a and b from norm(x) by 1x1 and depthwise 3x3 convolutions, with weights per
    branch.
    """

    def __init__(self, channels: int, hidden: int, branches: int, *, centred: bool = False) -> None:
        super().__init__()
        self.hidden, self.spare, self.centred = hidden, -hidden % 8, centred
        self.norm = nn.Parameter(torch.ones(branches, channels))
        self.expand = weight(branches, 2 * hidden, channels, fan_in=channels)  # a, then b
        self.expand_depthwise = weight(branches, 2 * hidden, 1, 3, 3, fan_in=9)
        self.contract = weight(branches, channels, hidden, fan_in=hidden)

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """Map (B, C, H, W) to the same shape, all at once, with gradients."""
        stream, (matrices, kernels, contract) = (
            normalised(maps, centred=self.centred),
            self.padded_weights(branch),
        )
        a, b = (
            depthwise(pointwise(stream, matrix), kernel)
            for matrix, kernel in zip(matrices, kernels, strict=True)
        )
        return maps + pointwise(F.gelu(a) * b, contract)

    def padded_weights(self, branch: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return the matrices for a and b, the kernels for both, and the matrix back, padded with zeros to
        full vectors.
        """
        matrices = [
            F.pad(part, (0, 0, 0, self.spare)) for part in (self.expand[branch] * self.norm[branch]).chunk(2)
        ]
        kernels = [
            F.pad(part, (0, 0, 0, 0, 0, 0, 0, self.spare)) for part in self.expand_depthwise[branch].chunk(2)
        ]
        return matrices, kernels, F.pad(self.contract[branch], (0, self.spare))


class Block(nn.Module):
    """One transformer block of all branches of a stage."""

    def __init__(
        self, channels: int, heads: int, branches: int, hidden: int, rule: AttentionRule, *, centred: bool
    ) -> None:
        super().__init__()
        self.attention = Attention(channels, heads, branches, rule, centred=centred)
        self.feed_forward = FeedForward(channels, hidden, branches, centred=centred)

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """Map (B, C, H, W) of one branch to the same shape."""
        return cast("Tensor", self.feed_forward(self.attention(maps, branch), branch))
