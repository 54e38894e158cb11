"""Pairs of convolutions whose rectifier lets a share of negative values through."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vidrestore.models.mb_taylorformer import ConvolutionPair, MBTaylorFormerConfig


def pair_of(slope: float) -> ConvolutionPair:
    """6 channels with large random filters."""
    torch.manual_seed(3)
    pair = ConvolutionPair(6, slope)
    for parameter in pair.parameters():
        nn.init.normal_(parameter)
    return pair


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5])
def test_negative_values_between_the_convolutions_count_by_the_slope(slope):
    pair = pair_of(slope)
    maps = torch.randn(2, 6, 5, 7)
    between = F.conv2d(maps, pair.first.weight, pair.first.bias, padding=1)
    between = between.clamp(min=0) - slope * (-between).clamp(min=0)
    expected = maps + F.conv2d(between, pair.second.weight, pair.second.bias, padding=1)
    torch.testing.assert_close(pair(maps), expected, rtol=1e-5, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(pair(maps.clone()), expected, rtol=1e-5, atol=1e-4)


def test_a_channel_that_is_never_positive_learns_if_there_is_a_slope():
    learns = []
    for slope in (0.0, 0.01):
        pair = pair_of(slope)
        with torch.no_grad():
            pair.first.bias[2] = -1e4  # type: ignore[index]
        pair(torch.randn(1, 6, 8, 8)).square().sum().backward()
        assert pair.first.weight.grad is not None
        learns.append(pair.first.weight.grad.flatten(1).any(1).tolist())
    assert learns == [[True, True, False, True, True, True], [True] * 6]


@pytest.mark.parametrize("slope", [-0.1, 1.0, float("nan")])
def test_a_slope_out_of_range_is_refused(slope):
    with pytest.raises(ValueError, match="slope must be at least 0 and below 1"):
        MBTaylorFormerConfig(slope=slope)
