"""T-MSA++: attention over all pixels at linear cost, a softmax expanded to first order plus a model of the
remainder.

Z. Jin et al., "MB-TaylorFormer V2", Section III-C (Eq. 4-14, Algorithm 1). With q1, k1 the queries and keys
of unit length, phi the focused ones and s the weight of the remainder, pixel i of one head gets

    sum_j v_j + q1_i . K1^T V + s phi(q_i) . phi(K)^T V
    ---------------------------------------------------      (Eq. 11),
    N + q1_i . sum_j k1_j + s phi(q_i) . sum_j phi(k_j)

then a positional term from the values around it (Eq. 12-14).

Keys and values only enter by their sums, so a map is processed in strips: once for the sums, once for the
queries. Tokens (B, N, heads, d) are in the memory order of channels_last maps, so no map is transposed.
Everything is computed in float32 at least, also under autocast: powers and sums over all pixels exceed half
precision.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, cast

import torch
from torch import Tensor


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
        values = values * values if values.requires_grad or result is values else values.mul_(values)


def lengths(tokens: Tensor) -> Tensor:
    """Return the length (..., 1) of tokens (..., d). The tiny number keeps the gradient of a zero token
    finite.
    """
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
        slope = integer_power(positive.clone(), ctx.power - 1) if ctx.power > 1 else torch.ones_like(positive)
        return _unit_slope(gradients[0], unit, length, ctx.eps).mul_(slope).mul_(ctx.power), None, None


def _unit_slope(gradient: Tensor, unit: Tensor, length: Tensor, eps: float) -> Tensor:
    """Return the gradient for x from the gradient g for u = x / (|x| + eps).

    It is (g - u (u . g) (|x| + eps) / |x|) / (|x| + eps).
    """
    along = (gradient * unit).sum(-1, keepdim=True) * ((length + eps) / length)
    return torch.addcmul(gradient, unit, along, value=-1).mul_(1 / (length + eps))


def linear_features(tokens: Tensor, rule: AttentionRule) -> Tensor:
    """Scale tokens (..., d) to unit length."""
    return cast("Tensor", _UnitLength.apply(tokens, rule.eps_length))  # type: ignore[no-untyped-call]


def focused_features(tokens: Tensor, rule: AttentionRule) -> Tensor:
    """Return phi of tokens (..., d) (Eq. 8): positive parts to the power p, of unit length or of the unit
    token's positive part.

    Squares of powers must be finite, so parts are clamped to the largest value for which they are (190 in
    float32).
    """
    most = 0.99 * (torch.finfo(tokens.dtype).max / tokens.shape[-1]) ** (0.5 / rule.focus_power)
    positive = tokens.clamp(0, most)
    focused = cast("Tensor", _Focused.apply(positive, rule.focus_power, rule.eps_length))  # type: ignore[no-untyped-call]
    if rule.focus == "norm-preserving":
        focused = focused * (lengths(positive) / (lengths(tokens) + rule.eps_length))
    return focused


@dataclass(frozen=True)
class Sums:
    """Sums over the keys of a map, through which its pixels attend to each other: of features, with and
    without values.

    (B, heads, d, d) products and (B, heads, d) features, linear and focused, and (B, heads, d) values. Sums
    of the strips of a map can be added.
    """

    linear_values: Tensor
    linear: Tensor
    focused_values: Tensor
    focused: Tensor
    values: Tensor

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, rule: AttentionRule) -> Sums:
        """Return the sums over keys and values (B, N, heads, d) of some pixels."""
        with torch.autocast(keys.device.type, enabled=False):
            linear, focused, beside = (
                linear_features(keys, rule),
                focused_features(keys, rule),
                values.transpose(1, 2),
            )
            linear_values, focused_values = (
                features.permute(0, 2, 3, 1) @ beside for features in (linear, focused)
            )
            return cls(linear_values, linear.sum(1), focused_values, focused.sum(1), values.sum(1))

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


class Mixer:
    """Applies queries to the sums over a whole map; one product per kind of feature yields numerator and
    denominator.

    `remainder` is s and `temperature` the factor on the quotient, (heads,) each; `count` replaces N.
    """

    def __init__(
        self, sums: Sums, rule: AttentionRule, remainder: Tensor, temperature: Tensor, count: Tensor
    ) -> None:
        self.rule, self.temperature = rule, temperature.view(-1, 1, 1)
        # (B, heads, d, d + 1): the denominator comes last
        self.linear = torch.cat((sums.linear_values, sums.linear[..., None]), -1)
        self.focused = torch.cat((sums.focused_values, sums.focused[..., None]), -1) * remainder.view(
            -1, 1, 1
        )
        constants = (count + rule.eps_sum).expand(*sums.values.shape[:2], 1)
        self.constants = torch.cat((sums.values, constants), -1)[:, :, None]  # (B, heads, 1, d + 1)

    def __call__(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Map queries (B, N, heads, d) to numerators (B, heads, N, d) and their factors (B, heads, N, 1) (Eq.
        11).
        """
        mixed = self.constants.expand(-1, -1, queries.shape[1], -1).flatten(0, 1)
        with torch.autocast(queries.device.type, enabled=False):
            for features, sums in ((linear_features, self.linear), (focused_features, self.focused)):
                of_queries = features(queries, self.rule).transpose(1, 2).flatten(0, 1)
                mixed = torch.baddbmm(mixed, of_queries, sums.flatten(0, 1))
        mixed = mixed.unflatten(0, self.constants.shape[:2])
        return mixed[..., :-1], self.temperature / mixed[..., -1:]
