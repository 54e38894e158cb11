"""Products that rely on private interfaces of torch equal plain ones, with those interfaces and without."""

from types import SimpleNamespace

import pytest
import torch

from vidrestore.models.fast_linear import PackedLinear, PlainLinear, processor_has


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("rows", [1, 33, 170])
def test_a_packed_product_is_the_plain_one_whatever_torch_offers(
    monkeypatch, rows, private
):
    if not private:
        monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    weight, inputs = torch.randn(24, 16), torch.randn(rows, 16)
    product = PackedLinear(weight, torch.float32)
    assert private or product.product is None
    # Each result is a sum of 16 products of numbers below 6: rounding, in any order, is below 16 * 36 *
    # 2^-23.
    torch.testing.assert_close(
        product(inputs), PlainLinear(weight, torch.float32)(inputs), atol=7e-5, rtol=0
    )


def test_features_of_the_processor_are_queried_by_public_calls(monkeypatch):
    monkeypatch.setattr(
        torch.cpu,
        "get_capabilities",
        lambda: {"avx2": True, "avx512_bf16": False},
        raising=False,
    )
    assert (
        processor_has("avx2"),
        processor_has("avx512_bf16"),
        processor_has("neon"),
    ) == (
        True,
        False,
        False,
    )
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert (processor_has("avx2"), processor_has("avx512_bf16")) == (True, False)
