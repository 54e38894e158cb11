"""The networks that correct the last estimates: what they see, and how their corrections are added."""

import math

import pytest
import torch
from torch import Tensor

from vidrestore.models import finisher as module
from vidrestore.models.fast.linear import processor_has
from vidrestore.models.finisher import COLOUR, LUMA, Finisher, features, finish, finisher

CPU = torch.device("cpu")


def planes(frames: int = 2, height: int = 40, width: int = 36) -> tuple[Tensor, Tensor]:
    """A source and an estimate of it."""
    generator = torch.Generator().manual_seed(3)
    estimate = 40 + 170 * torch.rand(frames, height, width, generator=generator)
    return estimate + 20 * torch.randn(frames, height, width, generator=generator), estimate


def drawn(seen: int = LUMA) -> Finisher:
    """A network with random weights."""
    torch.manual_seed(5)
    network = Finisher(seen, width=4, depth=3)
    with torch.no_grad():
        network.last.weight.normal_()
        network.last.bias.fill_(0.25)
    return network.requires_grad_(False)


def test_before_training_nothing_is_corrected():
    noisy, estimate = planes()
    with torch.no_grad():
        assert torch.equal(finish(Finisher(LUMA), noisy, estimate, 20.0), estimate)


def test_the_network_sees_contrast_difference_and_noise_level_in_units_of_the_noise():
    noisy, estimate = planes(1, 16, 16)  # a single block
    contrast, difference, level = features(noisy, estimate, torch.tensor([20.0]))[0]
    torch.testing.assert_close(contrast, (estimate[0] - estimate.mean()) / 30)
    torch.testing.assert_close(difference, (noisy[0] - estimate[0]) / 20)
    assert torch.unique(level).tolist() == pytest.approx([math.log(20) - 3], abs=1e-6)


def test_the_network_for_colour_sees_luma_in_the_same_units():
    noisy, estimate = planes(1, 16, 16)
    luma = estimate.flip(1)
    seen = features(noisy, estimate, torch.tensor([20.0]), luma)[0]
    torch.testing.assert_close(seen[:3], features(noisy, estimate, torch.tensor([20.0]))[0])
    torch.testing.assert_close(seen[3], (luma[0] - luma.mean()) / 30)


def test_how_bright_a_picture_is_makes_no_difference():
    noisy, estimate = planes()
    network, more = drawn(), 17.0
    brighter = finish(network, noisy + more, estimate + more, 20.0)
    torch.testing.assert_close(brighter, finish(network, noisy, estimate, 20.0) + more, atol=1e-3, rtol=0)


def test_corrections_are_multiples_of_sigma():
    noisy, estimate = planes()
    network = drawn()
    network.last.weight.zero_()
    for sigma in (4.0, 30.0):
        torch.testing.assert_close(finish(network, noisy, estimate, sigma), estimate + 0.25 * sigma)


@pytest.mark.parametrize("seen", [LUMA, COLOUR])
@pytest.mark.parametrize("rows", [1, 7, 39, 40, 96])
def test_rows_are_corrected_alike_however_many_at_once(rows, seen, monkeypatch):
    noisy, estimate = planes()
    luma = noisy.flip(2) if seen == COLOUR else None
    network, sigma = drawn(seen), 20.0
    whole = estimate + sigma * network(features(noisy, estimate, torch.tensor([sigma, sigma]), luma))[:, 0]
    monkeypatch.setattr(module, "ROWS", rows)
    torch.testing.assert_close(finish(network, noisy, estimate, sigma, luma), whole, atol=1e-3, rtol=0)


def test_sizes_below_a_block_are_corrected_too():
    noisy, estimate = planes(1, 5, 3)
    assert finish(drawn(), noisy, estimate, 20.0).shape == (1, 5, 3)


def test_every_parameter_learns():
    noisy, estimate = planes()
    network = drawn().requires_grad_(True)
    network(features(noisy, estimate, torch.tensor([20.0, 5.0]))).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


@pytest.mark.parametrize("sigma", [8.0, 20.0, 40.0])
def test_the_trained_network_gives_back_detail_that_an_estimate_lost(sigma):
    # a fine pattern of half the noise's strength, of which the estimate has half
    pattern = torch.sin(torch.arange(64) * 1.1) * torch.sin(torch.arange(64)[:, None] * 0.9)
    clean = (120 + sigma * pattern)[None].repeat(2, 1, 1)
    noisy = clean + sigma * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    estimate = 120 + 0.5 * (clean - 120)
    found = finish(finisher(LUMA, torch.float32, CPU), noisy, estimate, sigma)
    assert (found - clean).square().mean() < 0.95 * (estimate - clean).square().mean()


def test_the_trained_network_for_colour_sharpens_edges_that_luma_has_too():
    step = torch.where(torch.arange(64) < 32, 100.0, 140.0).expand(2, 64, 64)
    blurred = torch.nn.functional.avg_pool2d(step, (1, 5), 1, (0, 2), count_include_pad=False)
    noisy = step + 20 * torch.randn(step.shape, generator=torch.Generator().manual_seed(0))
    network = finisher(COLOUR, torch.float32, CPU)
    with_edge, without = (
        finish(network, noisy, blurred, 20.0, luma)
        for luma in (40 + 2 * step - 100, torch.full_like(step, 90.0))
    )
    before = (blurred - step).square().mean()
    assert (with_edge - step).square().mean() < 0.8 * before
    assert (with_edge - step).square().mean() < (without - step).square().mean()


def test_the_trained_network_leaves_a_flat_estimate_almost_as_it_is():
    estimate = torch.full((2, 64, 64), 90.0)
    noisy = estimate + 20 * torch.randn(estimate.shape, generator=torch.Generator().manual_seed(0))
    found = finish(finisher(LUMA, torch.float32, CPU), noisy, estimate, 20.0)
    assert float((found - estimate).square().mean().sqrt()) < 0.6


@pytest.mark.skipif(not processor_has("avx512_bf16"), reason="the processor has no bf16")
def test_layers_and_slopes_in_one_operation_correct_as_those_in_turn():
    network = finisher(LUMA, torch.bfloat16, CPU)
    seen = features(*planes(), torch.tensor([20.0])).bfloat16()
    correct = network.for_inference()
    assert correct is not network
    torch.testing.assert_close(correct(seen), network(seen), atol=0.02, rtol=0.02)


def test_bf16_corrects_almost_as_fp32():
    noisy, estimate = planes()
    exact, rounded = (
        finish(finisher(LUMA, kind, CPU), noisy, estimate, 20.0) for kind in (torch.float32, torch.bfloat16)
    )
    assert float((exact - rounded).abs().max()) < 0.05 * float((exact - estimate).abs().max()) + 0.5
