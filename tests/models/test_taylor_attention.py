"""Attention at linear cost against the same attention written out, every pixel with every other."""

from dataclasses import asdict, replace

import pytest
import torch
import torch.nn.functional as F
from taylor_networks import PRINTED
from torch import Tensor

from vidrestore.models.taylor_attention import (
    POSITION_WINDOWS,
    Attention,
    AttentionRule,
    focused_features,
    integer_power,
)

RELEASED = AttentionRule()
RULES = {"released": RELEASED, "printed": PRINTED} | {
    f"released, {name} as printed": replace(RELEASED, **{name: value})
    for name, value in asdict(PRINTED).items()
    if not isinstance(value, float)
}


def unit(vector: Tensor, eps: float) -> Tensor:
    return vector / (vector.norm() + eps)


def phi(vector: Tensor, rule: AttentionRule) -> Tensor:
    """Eq. 8 of one token; the release leaves out the length."""
    focused = unit(F.relu(vector) ** rule.focus_power, rule.eps_length)
    return (
        focused * F.relu(unit(vector, rule.eps_length)).norm()
        if rule.focus == "norm-preserving"
        else focused
    )


def written_out(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rule: AttentionRule,
    s: float,
    temperature: float,
) -> Tensor:
    """(N, d) of one head: weights of all pairs, divided by their sum."""
    weights = torch.ones(len(queries), len(keys), dtype=queries.dtype)
    for i, query in enumerate(queries):
        for j, key in enumerate(keys):
            weights[i, j] += unit(query, rule.eps_length) @ unit(
                key, rule.eps_length
            ) + s * phi(query, rule) @ phi(key, rule)
    return (
        temperature * (weights @ values) / (weights.sum(1, keepdim=True) + rule.eps_sum)
    )


def position(attention: Attention, values: Tensor, branch: int) -> Tensor:
    """(C, H, W) from values (C, H, W), head by head."""
    width, done, terms = attention.channels // attention.heads, 0, []
    for number, (side, count) in enumerate(POSITION_WINDOWS[attention.heads]):
        for head in range(count):
            part = values[None, (done + head) * width : (done + head + 1) * width]
            kernels = attention.position.weights[number][branch]
            if attention.rule.position == "gate":
                bias = attention.position.biases[number][branch][head][None]
                gate = F.conv2d(part, kernels[head][None], bias, padding=side // 2)
                terms.append(gate[0].sigmoid().expand(width, -1, -1))
            else:
                own = kernels[head * width : (head + 1) * width]
                terms.append(F.conv2d(part, own, padding=side // 2, groups=width)[0])
        done += count
    return torch.cat(terms)


def by_definition(attention: Attention, maps: Tensor, branch: int) -> Tensor:
    """x + T-MSA++(norm(x)) of one picture (C, H, W)."""
    rule, (channels, height, width) = attention.rule, maps.shape
    normed = (
        maps
        / (maps.var(0, unbiased=False) + 1e-5).sqrt()
        * attention.norm[branch][:, None, None]
    )
    expanded = torch.einsum("oc,chw->ohw", attention.qkv[branch], normed)[None]
    queries, keys, values = F.conv2d(
        expanded, attention.qkv_depthwise[branch], padding=1, groups=3 * channels
    )[0].chunk(3)
    heads = []
    for head, parts in enumerate(
        zip(
            *(
                plane.flatten(1).chunk(attention.heads)
                for plane in (queries, keys, values)
            ),
            strict=True,
        )
    ):
        raw = attention.remainder[branch, head]
        s = raw.sigmoid() if rule.remainder == "sigmoid" else raw
        temperature = attention.temperature[branch, head] if rule.temperature else 1.0
        heads.append(written_out(*(part.mT for part in parts), rule, s, temperature).mT)
    mixed = torch.cat(heads).view(channels, height, width) + position(
        attention, values, branch
    )
    return maps + torch.einsum("oc,chw->ohw", attention.project[branch], mixed)


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
@pytest.mark.parametrize("rule", RULES)
def test_the_linear_form_is_the_attention_of_every_pixel_with_every_other(rule, heads):
    torch.manual_seed(heads)
    attention = Attention(16, heads, 2, RULES[rule]).double()
    with torch.no_grad():
        for name, parameter in attention.named_parameters():
            parameter += 0.3 * torch.randn_like(parameter) * (name != "one")
        attention.qkv *= 3  # far enough from zero that powers matter
        maps = torch.randn(1, 16, 4, 5, dtype=torch.float64)
        expected = by_definition(attention, maps[0], 1)[None]
        torch.testing.assert_close(attention(maps, 1), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("exponent", range(1, 10))
def test_powers_by_squaring_are_powers(exponent):
    values = torch.tensor([-1.5, 0.0, 0.25, 2.0], dtype=torch.float64)
    torch.testing.assert_close(
        integer_power(values.clone(), exponent), values**exponent
    )


def test_focused_tokens_are_finite_however_large_or_small_and_so_are_their_gradients():
    tokens = torch.tensor(
        [
            [0.0, 0.0],
            [-1.0, -2.0],
            [1e-20, 1e-30],
            [1e-3, 2e-3],
            [150.0, 150.0],
            [1e10, 2.0],
            [3e38, 3e38],
        ]
    )
    tokens.requires_grad_()
    for rule in (RELEASED, PRINTED):
        features = focused_features(tokens, rule)
        features.sum().backward()
        assert torch.isfinite(features).all()
        assert torch.isfinite(tokens.grad).all()
    torch.testing.assert_close(
        focused_features(tokens, RELEASED)[4:].norm(dim=-1), torch.ones(3)
    )


def test_short_tokens_are_weighed_by_the_released_eps():
    """0.05^8 is 4e-11, far below the eps of 1e-8 that is added to the length."""
    tokens = torch.tensor([[0.05, 0.0]])
    torch.testing.assert_close(
        focused_features(tokens, RELEASED),
        tokens**8 / (tokens**8 + 1e-8) * (tokens > 0),
    )


def test_the_keys_of_figure_6a_are_mapped_as_printed_with_p_3_and_features_of_unit_length():
    """The paper's own value is p = 4, by which its K2 would be mapped to (0.9993, 0.0363)."""
    tokens = torch.tensor(
        [[0.2, 0.9798], [0.1, 0.995], [0.9165, 0.4], [-0.9798, -0.2], [0.995, -0.1]]
    )
    printed = torch.tensor(
        [[0.0083, 0.9999], [0.0, 1.0], [0.9966, 0.0828], [0.0, 0.0], [1.0, 0.0]]
    )
    mapped = focused_features(tokens, replace(RELEASED, focus_power=3))
    torch.testing.assert_close(mapped[2], printed[2], atol=1e-4, rtol=0)
    torch.testing.assert_close(mapped, printed, atol=1.1e-3, rtol=0)
    assert (
        focused_features(tokens, replace(RELEASED, focus_power=4))[2] - printed[2]
    ).abs().max() > 0.04
