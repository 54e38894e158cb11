"""Residual blocks whose rectifier lets a share of negative values through."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vidrestore.models.mb_taylorformer import ConvolutionPair, MBTaylorFormerConfig
from vidrestore.models.vsr_transformer import ResidualBlock, VsrConfig

BLOCKS = {"pictures": (ConvolutionPair, "first", "second"), "clips": (ResidualBlock, "conv1", "conv2")}


def block_of(kind: str, slope: float) -> tuple[nn.Module, nn.Conv2d, nn.Conv2d]:
    """Return a block of 6 channels with large random filters, and its two convolutions."""
    torch.manual_seed(3)
    build, first, second = BLOCKS[kind]
    block = build(6, slope)
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    return block, block.get_submodule(first), block.get_submodule(second)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5])
def test_negative_values_between_the_convolutions_count_by_the_slope(kind, slope):
    block, first, second = block_of(kind, slope)
    maps = torch.randn(2, 6, 5, 7)
    between = F.conv2d(maps, first.weight, first.bias, padding=1)
    between = between.clamp(min=0) - slope * (-between).clamp(min=0)
    expected = maps + F.conv2d(between, second.weight, second.bias, padding=1)
    torch.testing.assert_close(block(maps), expected, rtol=1e-5, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(block(maps.clone()), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_channel_that_is_never_positive_learns_if_there_is_a_slope(kind):
    learns = []
    for slope in (0.0, 0.01):
        block, first, _ = block_of(kind, slope)
        with torch.no_grad():
            first.bias[2] = -1e4  # type: ignore[index]
        block(torch.randn(1, 6, 8, 8)).square().sum().backward()
        assert first.weight.grad is not None
        learns.append(first.weight.grad.flatten(1).any(1).tolist())
    assert learns == [[True, True, False, True, True, True], [True] * 6]


@pytest.mark.parametrize("slope", [-0.1, 1.0, float("nan")])
@pytest.mark.parametrize("config", [MBTaylorFormerConfig, VsrConfig])
def test_a_slope_out_of_range_is_refused(config, slope):
    with pytest.raises(ValueError, match="slope must be at least 0 and below 1"):
        config(slope=slope)
