"""The roofline on paper counts the operations that there are."""

from __future__ import annotations

import pytest
import torch
from roofline import GPUS, Cost, Gpu, Products

from vidrestore.models.dust_sigma import SigmaDust, SigmaDustConfig
from vidrestore.models.fast.linear import PackedLinear


def test_a_product_reads_two_matrices_and_writes_one() -> None:
    with Products() as products:
        torch.ones(3, 5) @ torch.ones(5, 7)
    assert products.cost == Cost(2 * 3 * 5 * 7, 2 * (3 * 5 + 5 * 7 + 3 * 7))


@torch.inference_mode()
def test_products_in_layers_and_by_packed_weights_are_counted() -> None:
    with Products() as products:
        torch.nn.Conv2d(2, 4, 3, padding=1)(torch.ones(1, 2, 6, 8))
    assert products.operations == 2 * (6 * 8) * (2 * 4 * 9)
    network = SigmaDust(SigmaDustConfig(4, 36))
    with Products() as products:
        network.at(20.0, torch.float32, PackedLinear)(torch.zeros(16, 20, 16))
    assert products.operations == pytest.approx(16 * 20 * network.operations(20), rel=0.01)


def test_the_slower_of_products_and_memory_sets_the_ceiling() -> None:
    gpu = Gpu("made up", operations=100.0, bandwidth=10.0)
    assert Cost(50, 1).ceiling(gpu) == 2 and Cost(50, 20).ceiling(gpu) == 0.5
    assert [each.name for each in GPUS] == ["H100", "A100", "RTX 4090"]
