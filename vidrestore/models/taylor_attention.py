"""T-MSA++, attention over all pixels at linear cost: a softmax expanded to first order plus a model of the
remainder. And the transformer block with it.

Z. Jin et al., "MB-TaylorFormer V2", Section III-C (Eq. 4-14, Algorithm 1). With q1, k1 the queries and keys
of unit length, phi the focused ones and s the weight of the remainder, pixel i of one head gets

    sum_j v_j + q1_i . K1^T V + s phi(q_i) . phi(K)^T V
    ---------------------------------------------------      (Eq. 11),
    N + q1_i . sum_j k1_j + s phi(q_i) . sum_j phi(k_j)

then a positional term from the values around it (Eq. 12-14).

Keys and values only enter by their sums, so a map is processed in strips: once for the sums, once for the
queries. Tokens (B, N, heads, d) are in the memory order of channels_last maps, so no map is transposed.
Everything is computed in float32 at least, also under autocast. A whole map without gradients, as a compiler
or an exporter sees it, is attended to by means instead of sums, with tokens divided by their largest part
before they are squared: the same quotient, and no number that half precision lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast_maps import (
    depthwise,
    depthwise_rows,
    expanded_strips,
    few_filters,
    in_one_piece,
    maps_of,
    normalised,
    pointwise,
    strip_spans,
    tokens_of,
    weight,
    window,
)

# Heads -> (side of the window, number of heads with it), in order of the heads: the positional term (Eq. 12).
POSITION_WINDOWS = {
    1: ((3, 1),),
    2: ((3, 2),),
    4: ((3, 2), (5, 2)),
    8: ((3, 2), (5, 3), (7, 3)),
}


@dataclass(frozen=True)
class AttentionRule:
    """Differences of the paper and the released code; the defaults are the code's, which its weights need.

    The comments give the paper's value after `paper`. Raises ValueError for values out of range.
    """

    focus_power: int = 8  # p of phi(x) = relu(x)^p, scaled; paper 4
    # the length of phi: 1; paper |relu(x1)| of the unit-length token (Eq. 8)
    focus: Literal["unit", "norm-preserving"] = "unit"
    # s is the sigmoid of a weight that starts at 1; paper the weight, from 0.5
    remainder: Literal["sigmoid", "plain"] = "sigmoid"
    temperature: bool = True  # a learnt factor per head on the quotient; paper none
    # one sigmoid per head and pixel; paper a depthwise convolution without bias; none is Table IX (a)
    position: Literal["gate", "convolution", "none"] = "gate"
    # added to lengths before dividing by them; paper none; 1e-12 avoids a division by 0 for tokens of zeros
    eps_length: float = 1e-8
    eps_sum: float = 1e-8  # added to the denominator; paper 1e-6

    def __post_init__(self) -> None:
        if self.focus_power < 1:
            raise ValueError(f"focus_power must be at least 1, got {self.focus_power}")
        if self.eps_length <= 0 or self.eps_sum < 0:
            raise ValueError(
                f"eps_length must be positive and eps_sum not negative, got {self.eps_length} and "
                f"{self.eps_sum}"
            )


def integer_power(values: Tensor, exponent: int) -> Tensor:
    """Return values^exponent by squaring; the values may be overwritten if they need no gradient."""
    result: Tensor | None = None
    while True:
        if exponent & 1:
            result = values if result is None else result * values
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        values = (
            values * values
            if values.requires_grad or result is values
            else values.mul_(values)
        )


def lengths(tokens: Tensor) -> Tensor:
    """Return the length (..., 1) of tokens (..., d), with a finite gradient for a zero token."""
    squares = (tokens * tokens).sum(-1, keepdim=True)
    return (squares + torch.finfo(tokens.dtype).tiny).sqrt()


class _UnitLength(torch.autograd.Function):
    """x / (|x| + eps) along the last axis, with a gradient in four passes over the tokens instead of nine."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, eps: float) -> Tensor:
        length = lengths(tokens)
        unit = tokens * (1 / (length + eps))
        ctx.save_for_backward(unit, length)
        ctx.eps = eps
        return unit

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        unit, length = ctx.saved_tensors
        return _unit_slope(gradients[0], unit, length, ctx.eps), None


class _Focused(torch.autograd.Function):
    """The unit vector of x^power for x >= 0, with a gradient in few passes, as in `_UnitLength`."""

    @staticmethod
    def forward(ctx: Any, positive: Tensor, power: int, eps: float) -> Tensor:
        powers = integer_power(positive.clone(), power)
        length = lengths(powers)
        unit = powers.mul_(1 / (length + eps))
        ctx.save_for_backward(positive, unit, length)
        ctx.power, ctx.eps = power, eps
        return unit

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        positive, unit, length = ctx.saved_tensors
        slope = (
            integer_power(positive.clone(), ctx.power - 1)
            if ctx.power > 1
            else torch.ones_like(positive)
        )
        return (
            _unit_slope(gradients[0], unit, length, ctx.eps)
            .mul_(slope)
            .mul_(ctx.power),
            None,
            None,
        )


def _unit_slope(gradient: Tensor, unit: Tensor, length: Tensor, eps: float) -> Tensor:
    """Return the gradient for x from the gradient g for u = x / (|x| + eps).

    It is (g - u (u . g) (|x| + eps) / |x|) / (|x| + eps).
    """
    along = (gradient * unit).sum(-1, keepdim=True) * ((length + eps) / length)
    return torch.addcmul(gradient, unit, along, value=-1).mul_(1 / (length + eps))


LEAST_DIVISOR = 1e-4  # least divisor, a number of half precision


def unit_length(tokens: Tensor, eps: float, power: int = 1) -> Tensor:
    """Return x^power / (|x^power| + eps) of tokens x (..., d).

    Tokens are first divided by their largest part, so that half precision holds their powers and squares.
    """
    largest = tokens.abs().amax(-1, keepdim=True).clamp(min=LEAST_DIVISOR)
    parts, eps_part = tokens / largest, eps ** (1 / power) / largest
    if power > 1:
        parts, eps_part = parts**power, eps_part**power
    unit: Tensor = parts / (
        (parts * parts).sum(-1, keepdim=True).sqrt() + eps_part
    ).clamp(min=LEAST_DIVISOR)
    return unit


def linear_features(tokens: Tensor, rule: AttentionRule) -> Tensor:
    """Scale tokens (..., d) to unit length."""
    if in_one_piece() and not torch.is_grad_enabled():
        return unit_length(tokens, rule.eps_length)
    return cast("Tensor", _UnitLength.apply(tokens, rule.eps_length))  # type: ignore[no-untyped-call]


def focused_features(tokens: Tensor, rule: AttentionRule) -> Tensor:
    """Return phi of tokens (..., d) (Eq. 8): positive parts to the power p, of unit length or of the unit
    token's positive part.

    Squares of powers must be finite, so parts are clamped to the largest value for which they are (190 in
    float32).
    """
    if in_one_piece() and not torch.is_grad_enabled():
        focused = unit_length(tokens.relu(), rule.eps_length, rule.focus_power)
        if rule.focus == "norm-preserving":
            focused = focused * lengths(unit_length(tokens, rule.eps_length).relu())
        return focused
    most = 0.99 * (torch.finfo(tokens.dtype).max / tokens.shape[-1]) ** (
        0.5 / rule.focus_power
    )
    positive = tokens.clamp(0, most)
    applied = _Focused.apply(positive, rule.focus_power, rule.eps_length)  # type: ignore[no-untyped-call]
    focused = cast("Tensor", applied)
    if rule.focus == "norm-preserving":
        focused = focused * (lengths(positive) / (lengths(tokens) + rule.eps_length))
    return focused


@dataclass(frozen=True)
class Sums:
    """Sums over the keys of a map, through which its pixels attend to each other: of features, with and
    without values; or means.

    (B, heads, d, d) products and (B, heads, d) features, linear and focused, and (B, heads, d) values. Sums
    of the strips of a map can be added.
    """

    linear_values: Tensor
    linear: Tensor
    focused_values: Tensor
    focused: Tensor
    values: Tensor

    @classmethod
    def of(
        cls, keys: Tensor, values: Tensor, rule: AttentionRule, share: float = 1.0
    ) -> Sums:
        """Return the sums over keys and values (B, N, heads, d) of some pixels, times `share`.

        With 1 / N they are means, for which a part of the share is taken before anything is added.
        """
        with torch.autocast(keys.device.type, enabled=False):
            linear, focused = linear_features(keys, rule), focused_features(keys, rule)
            if share != 1:
                linear, focused, values = (
                    part * share**0.5 for part in (linear, focused, values)
                )
            columns = values.transpose(1, 2)
            linear_values, focused_values = (
                features.permute(0, 2, 3, 1) @ columns for features in (linear, focused)
            )
            totals = [part.sum(1) * share**0.5 for part in (linear, focused, values)]
            return cls(linear_values, totals[0], focused_values, *totals[1:])

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            *(
                getattr(self, field.name) + getattr(other, field.name)
                for field in fields(self)
            )
        )


class Mixer:
    """Applies queries to the sums over a whole map; one product per kind of feature yields numerator and
    denominator.

    `remainder` is s and `temperature` the factor on the quotient, (heads,) each; `count` replaces N, and
    has eps_sum in it.
    """

    def __init__(
        self,
        sums: Sums,
        rule: AttentionRule,
        remainder: Tensor,
        temperature: Tensor,
        count: Tensor,
    ) -> None:
        self.rule, self.temperature = rule, temperature.view(-1, 1, 1)
        # (B, heads, d, d + 1): the denominator comes last
        self.linear = torch.cat((sums.linear_values, sums.linear[..., None]), -1)
        focused = torch.cat((sums.focused_values, sums.focused[..., None]), -1)
        self.focused = focused * remainder.view(-1, 1, 1)
        constants = count.expand(*sums.values.shape[:2], 1)
        # (B, heads, 1, d + 1)
        self.constants = torch.cat((sums.values, constants), -1)[:, :, None]

    def __call__(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Map queries (B, N, heads, d) to numerators (B, heads, N, d) and their factors (B, heads, N, 1) (Eq.
        11).
        """
        mixed = self.constants.expand(-1, -1, queries.shape[1], -1).flatten(0, 1)
        with torch.autocast(queries.device.type, enabled=False):
            for features, sums in (
                (linear_features, self.linear),
                (focused_features, self.focused),
            ):
                of_queries = features(queries, self.rule).transpose(1, 2).flatten(0, 1)
                mixed = torch.baddbmm(mixed, of_queries, sums.flatten(0, 1))
        mixed = mixed.unflatten(0, self.constants.shape[:2])
        return mixed[..., :-1], self.temperature / mixed[..., -1:]


class Position(nn.Module):
    """The positional term of one block: convolutions of the values, wider ones for later heads (Eq. 12, 13).

    Release: one filter with bias per head over all its channels; its sigmoid is added to every channel of the
    head. Paper: one filter per channel, added directly.
    """

    def __init__(
        self, channels: int, heads: int, branches: int, rule: AttentionRule
    ) -> None:
        super().__init__()
        self.per_head, width = rule.position == "gate", channels // heads
        self.windows = POSITION_WINDOWS[heads]
        self.halo = max(side for side, _ in self.windows) // 2
        # a filter takes all channels of a head, or one
        inputs = width if self.per_head else 1
        filters = [
            count if self.per_head else count * width for _, count in self.windows
        ]
        sides = [side for side, _ in self.windows]
        self.weights = nn.ParameterList(
            weight(branches, number, inputs, side, side, fan_in=inputs * side**2)
            for number, side in zip(filters, sides, strict=True)
        )
        if self.per_head:
            self.biases = nn.ParameterList(
                weight(branches, number, fan_in=inputs * side**2)
                for number, side in zip(filters, sides, strict=True)
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
            term: Tensor = (
                few_filters(values, kernels)
                + self.biases[number][branch][:, None, None]
            )
        else:
            term = F.conv2d(values, kernels, padding=side // 2, groups=len(kernels))
        return term[:, :, self.halo : self.halo + rows]


class Attention(nn.Module):
    """x + T-MSA++(norm(x)), with weights per branch (Section III-C)."""

    def __init__(
        self,
        channels: int,
        heads: int,
        branches: int,
        rule: AttentionRule,
        *,
        centred: bool = False,
    ) -> None:
        super().__init__()
        self.rule, self.channels, self.heads, self.centred = (
            rule,
            channels,
            heads,
            centred,
        )
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
        self.position = (
            None
            if rule.position == "none"
            else Position(channels, heads, branches, rule)
        )
        self.halo = self.position.halo if self.position else 0

    def tokens(self, maps: Tensor) -> Tensor:
        """Return (B, C, rows, W) as tokens (B, N, heads, d), at least in float32."""
        wide = (
            tokens_of(maps)
            .to(torch.promote_types(maps.dtype, torch.float32))
            .contiguous()
        )
        return wide.view(*wide.shape[:2], self.heads, -1)

    def mixer(self, sums: Sums, branch: int, pixels: int, share: float = 1.0) -> Mixer:
        """Return the mixer of sums, or means with the `share` of `Sums.of`, over all pixels of a map."""
        remainder = (
            self.remainder[branch].sigmoid()
            if self.rule.remainder == "sigmoid"
            else self.remainder[branch]
        )
        temperature = (
            self.temperature[branch]
            if self.rule.temperature
            else torch.ones_like(remainder)
        )
        wide = sums.values.dtype
        count = pixels * share * self.one.to(wide) + self.rule.eps_sum * share
        return Mixer(sums, self.rule, remainder.to(wide), temperature.to(wide), count)

    def output(
        self, queries: Tensor, values: Tensor, mixer: Mixer, branch: int
    ) -> Tensor:
        """Return the residual (B, C, rows, W) for queries (B, C, rows, W) and a window of values."""
        numerators, scale = mixer(self.tokens(queries))
        if self.position:
            # (B, heads, N, 1 or d)
            position = (
                self.position(values, branch)
                .flatten(2)
                .unflatten(1, (self.heads, -1))
                .transpose(-1, -2)
            )
            mixed = torch.addcmul(position.to(scale.dtype), numerators, scale)
        else:
            mixed = numerators * scale
        return maps_of(
            F.linear(
                mixed.transpose(1, 2).flatten(2).to(queries.dtype), self.project[branch]
            ),
            queries,
        )

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """Map (B, C, H, W) to the same shape, all at once, with gradients."""
        rows = (0, maps.shape[2])
        expanded = pointwise(
            normalised(maps, centred=self.centred), self.qkv[branch] * self.norm[branch]
        )
        queries, keys, values = depthwise(expanded, self.qkv_depthwise[branch]).chunk(
            3, 1
        )
        pixels = maps.shape[2] * maps.shape[3]
        share = 1.0 if torch.is_grad_enabled() else 1 / pixels
        sums = Sums.of(self.tokens(keys), self.tokens(values), self.rule, share)
        mixer = self.mixer(sums, branch, pixels, share)
        return maps + self.output(
            queries, window(values, rows, self.halo), mixer, branch
        )

    def add_in_strips(
        self, maps: Tensor, branch: int, buffers: tuple[Tensor, Tensor]
    ) -> None:
        """Compute the same in place and in strips, without gradients; `buffers`: for queries and values."""
        queries, values = buffers
        strips, matrix = (
            strip_spans(maps, 3 * self.channels),
            self.qkv[branch] * self.norm[branch],
        )
        total: Sums | None = None
        for (start, stop), [expanded] in expanded_strips(
            maps, [matrix], strips, centred=self.centred
        ):
            q, k, v = depthwise_rows(expanded, self.qkv_depthwise[branch]).chunk(3, 1)
            queries[:, :, start:stop], values[:, :, start:stop] = q, v
            sums = Sums.of(
                self.tokens(k), self.tokens(values[:, :, start:stop]), self.rule
            )
            total = total + sums if total else sums
        assert total is not None
        mixer = self.mixer(total, branch, maps[0, 0].numel())
        for start, stop in strips:
            around = window(values, (start, stop), self.halo)
            maps[:, :, start:stop] += self.output(
                queries[:, :, start:stop], around, mixer, branch
            )


class FeedForward(nn.Module):
    """x + W (gelu(a) * b), a and b from norm(x) by 1x1 and depthwise 3x3 convolutions, per branch."""

    def __init__(
        self, channels: int, hidden: int, branches: int, *, centred: bool = False
    ) -> None:
        super().__init__()
        self.hidden, self.spare, self.centred = hidden, -hidden % 8, centred
        self.norm = nn.Parameter(torch.ones(branches, channels))
        # a, then b
        self.expand = weight(branches, 2 * hidden, channels, fan_in=channels)
        self.expand_depthwise = weight(branches, 2 * hidden, 1, 3, 3, fan_in=9)
        self.contract = weight(branches, channels, hidden, fan_in=hidden)

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """Map (B, C, H, W) to the same shape, all at once, with gradients."""
        expanded = pointwise(
            normalised(maps, centred=self.centred),
            self.expand[branch] * self.norm[branch],
        )
        a, b = depthwise(expanded, self.expand_depthwise[branch]).chunk(2, 1)
        return maps + pointwise(F.gelu(a) * b, self.contract[branch])

    def add_in_strips(self, maps: Tensor, branch: int) -> None:
        """Compute the same in place and in strips, without gradients."""
        matrices, kernels, contract = self.padded_weights(branch)
        strips = strip_spans(maps, 2 * self.hidden)
        for (start, stop), expanded in expanded_strips(
            maps, matrices, strips, centred=self.centred
        ):
            a, b = (
                depthwise_rows(part, kernel)
                for part, kernel in zip(expanded, kernels, strict=True)
            )
            maps[:, :, start:stop] += pointwise(F.gelu(a).mul_(b), contract)

    def padded_weights(self, branch: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return the 1x1 matrices of a and b, their 3x3 kernels, and W; `spare` hidden channels are 0."""
        expand = self.expand[branch] * self.norm[branch]
        matrices = [F.pad(part, (0, 0, 0, self.spare)) for part in expand.chunk(2)]
        kernels = [
            F.pad(part, (0, 0, 0, 0, 0, 0, 0, self.spare))
            for part in self.expand_depthwise[branch].chunk(2)
        ]
        return matrices, kernels, F.pad(self.contract[branch], (0, self.spare))


class Block(nn.Module):
    """One transformer block of all branches of a stage: linear attention and a gated feed-forward. It
    processes one branch at a time, so no grouped convolution is needed.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        branches: int,
        hidden: int,
        rule: AttentionRule,
        *,
        centred: bool,
    ) -> None:
        super().__init__()
        self.attention = Attention(channels, heads, branches, rule, centred=centred)
        self.feed_forward = FeedForward(channels, hidden, branches, centred=centred)

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """Map (B, C, H, W) of one branch to the same shape."""
        return cast("Tensor", self.feed_forward(self.attention(maps, branch), branch))

    def add_in_strips(
        self, maps: Tensor, branch: int, buffers: tuple[Tensor, Tensor]
    ) -> None:
        """Compute the same in place and in strips; see `Attention.add_in_strips`."""
        self.attention.add_in_strips(maps, branch, buffers)
        self.feed_forward.add_in_strips(maps, branch)
