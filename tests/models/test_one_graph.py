"""Networks as compilers and exporters see them: one graph, and numbers that half precision holds."""

from dataclasses import replace

import pytest
import torch
from narrow_networks import NARROW, SMALL_VSR, fewer_steps  # noqa: F401  (a fixture of all tests here)

from vidrestore.models.mb_taylorformer import H, MBTaylorFormer, MBTaylorFormerConfig, T
from vidrestore.models.taylor_attention import (
    AttentionRule,
    Mixer,
    Sums,
    focused_features,
    linear_features,
)
from vidrestore.models.vsr_recurrent import VsrRecurrent


def image_network(config: MBTaylorFormerConfig) -> MBTaylorFormer:
    """A network whose attention and head aren't zero, with the same weights each time."""
    torch.manual_seed(5)
    return MBTaylorFormer(config).eval()


def networks():
    yield (
        "h with alignment",
        lambda: image_network(replace(H, aligned=True, **NARROW)),
        (1, 3, 3, 32, 48),
    )
    yield "t", lambda: image_network(replace(T, **NARROW)), (1, 3, 32, 48)
    yield "vsr", lambda: VsrRecurrent(SMALL_VSR).eval(), (1, 2, 3, 12, 16)


@pytest.mark.parametrize(
    ("build", "shape"), [pytest.param(*rest, id=name) for name, *rest in networks()]
)
def test_a_compiler_sees_each_network_as_one_graph(build, shape):
    torch._dynamo.reset()
    with torch.no_grad():
        explanation = torch._dynamo.explain(build())(torch.rand(shape))
    assert (explanation.graph_count, explanation.graph_break_count) == (1, 0)


@pytest.mark.parametrize("rule", [AttentionRule(), H.attention], ids=["release", "h"])
def test_half_precision_holds_attention_over_32400_pixels(rule):
    pixels, heads, width = 32_400, 2, 16
    torch.manual_seed(3)
    keys, values, queries = (
        48 * torch.rand(1, pixels, heads, width) - offset for offset in (0.0, 8.0, 20.0)
    )
    remainder = temperature = torch.ones(heads)

    def attended(dtype: torch.dtype, share: float) -> torch.Tensor:
        sums = Sums.of(keys.to(dtype), values.to(dtype), rule, share)
        count = torch.tensor([pixels * share], dtype=dtype)
        numerators, factors = Mixer(
            sums, rule, remainder.to(dtype), temperature.to(dtype), count
        )(queries[:, :64].to(dtype))
        return (numerators * factors).float()

    with torch.no_grad():
        exact = attended(torch.float32, 1.0)
    with torch.inference_mode(), as_traced():
        means = attended(torch.float32, 1 / pixels)
        halved = attended(torch.float16, 1 / pixels)
    torch.testing.assert_close(means, exact, rtol=2e-5, atol=1e-4)
    assert halved.isfinite().all()
    assert (halved - exact).abs().max() < 0.02 * exact.abs().max()


def test_features_in_parts_equal_those_with_gradients_for_small_and_zero_tokens():
    tokens = (
        torch.randn(200, 8, dtype=torch.float64)
        * torch.logspace(-6, 1, 200, dtype=torch.float64)[:, None]
    )
    tokens[0] = 0
    for rule in (
        AttentionRule(),
        AttentionRule(focus_power=4, focus="norm-preserving"),
    ):
        for features in (linear_features, focused_features):
            plain = features(tokens.requires_grad_(), rule).detach()
            with torch.no_grad(), as_traced():
                in_parts = features(tokens, rule)
            torch.testing.assert_close(in_parts, plain, rtol=2e-3, atol=2e-3)


class as_traced:
    """While it lasts, functions take the form that exporters see."""

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(torch.jit, "is_tracing", lambda: True)

    def __exit__(self, *_):
        self.patch.undo()
