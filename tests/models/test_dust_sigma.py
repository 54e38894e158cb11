"""One network for every noise level: its fast form, its curves, its behaviour outside the trained range."""

import pytest
import torch
from recovery_systems import moved
from torch import Tensor

from vidrestore.models import dust, dust_sigma
from vidrestore.models.dust import soft_threshold
from vidrestore.models.dust_sigma import SigmaDust, SigmaDustConfig, noise_level
from vidrestore.models.fast_linear import PackedLinear, PlainLinear


def trained_a_little(**changes: int) -> SigmaDust:
    """Weights moved off their symmetric start, so that a wrong transpose or a swapped curve shows."""
    torch.manual_seed(1)
    return moved(SigmaDust(SigmaDustConfig(patch=4, atoms=64, **changes)).eval(), 0.05)


def equations(network: SigmaDust, noisy: Tensor, sigma: float) -> Tensor:
    """The network one equation after the other."""

    def value(curve: Tensor) -> Tensor:
        return sum(
            each * noise_level(sigma) ** power for power, each in enumerate(curve)
        )

    unit, dictionary = torch.eye(noisy.shape[-2]), network.dictionary
    heads = network.head_dictionaries if network.config.heads > 1 else dictionary[None]
    mean = noisy.mean((-2, -1), keepdim=True)
    data = (noisy - mean) / sigma @ network.analysis.mT  # V x
    code = soft_threshold(data, value(network.log_threshold[0]).exp())
    for block in range(network.config.blocks - 1):
        maps = []
        for tokens in (code @ head.mT for head in heads):
            apart = (
                (tokens[..., :, None, :] - tokens[..., None, :, :]).square().mean(-1)
            )
            apart = apart + value(network.self_distance[block]) * unit
            maps.append(
                (-apart / value(network.log_temperature[block]).exp()).softmax(-1)
            )
        attention = torch.stack(maps).mean(0)
        mixed = attention @ code
        # U z
        code = (
            value(network.carried[block]) * mixed
            + mixed @ dictionary.mT @ network.correction.mT
        )
        code = (
            code
            + value(network.own[block]) * data
            + value(network.attended[block]) * (attention @ data)
        )
        share = value(network.own_share[block]).sigmoid()
        remaining = (share * unit + (1 - share) * attention).norm(dim=-1, keepdim=True)
        threshold = value(network.log_threshold[block + 1]).exp()
        code = soft_threshold(
            code, remaining ** value(network.noise_power[block]) * threshold
        )
    return code * value(network.log_gain[0]).exp() @ dictionary.mT * sigma + mean


@pytest.mark.parametrize("linear", [PackedLinear, PlainLinear])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 20.0, 75.0, 120.0])
@pytest.mark.parametrize(
    "changes", [{}, {"heads": 3}, {"blocks": 1}, {"blocks": 4}, {"degree": 0}]
)
def test_the_network_at_one_level_equals_the_equations(changes, sigma, linear):
    network, noisy = trained_a_little(**changes), 255 * torch.rand(3, 7, 16)
    with torch.no_grad():
        torch.testing.assert_close(
            network.at(sigma, torch.float32, linear)(noisy),
            equations(network, noisy, sigma),
            atol=1e-3,
            rtol=0,
        )


def test_gradients_reach_every_parameter_through_the_fast_form():
    network = trained_a_little(heads=2)
    network.at(30.0, torch.float32, PlainLinear)(
        255 * torch.rand(2, 5, 16)
    ).square().mean().backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0
        for parameter in network.parameters()
    )


def test_brightness_passes_through_unchanged():
    network, noisy = trained_a_little(), 50 + 100 * torch.rand(2, 6, 16)
    with torch.no_grad():
        torch.testing.assert_close(
            network(noisy + 40, 10.0), network(noisy, 10.0) + 40, atol=1e-3, rtol=0
        )


def test_at_one_level_twice_the_contrast_and_twice_the_noise_is_twice_the_output():
    network, noisy = trained_a_little(degree=0), 100 * torch.rand(2, 6, 16)
    with torch.no_grad():
        torch.testing.assert_close(
            network(2 * noisy, 20.0), 2 * network(noisy, 10.0), atol=1e-3, rtol=0
        )


def test_sigmas_beyond_the_trained_range_use_its_ends():
    assert noise_level(0.2) == noise_level(1.0) < noise_level(15.0) == 0
    assert 0 < noise_level(75.0) == noise_level(200.0)


def test_tokens_of_other_content_have_no_influence():
    """A token far from all others gets what it would get alone: the attention is by distance. All have a mean
    of zero, so the group has that of each.
    """
    network = trained_a_little()
    group = 255 * torch.rand(1, 6, 16)
    group -= group.mean(-1, keepdim=True)
    with torch.no_grad():
        alone = network(group[:, :1], 5.0)
        torch.testing.assert_close(network(group, 5.0)[:, :1], alone, atol=1e-3, rtol=0)
        network.log_temperature[:, 0] = 20.0  # so hot that no distance counts
        assert (network(group, 5.0)[:, :1] - alone).abs().max() > 1


@pytest.mark.parametrize(
    "sizes",
    [{"atoms": 60}, {"atoms": 9}, {"blocks": 0}, {"heads": 0}, {"degree": -1}],
    ids=str,
)
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="must be"):
        SigmaDustConfig(**({"patch": 4, "atoms": 64} | sizes))


def test_the_soft_threshold_of_training_has_the_gradients_of_the_plain_one():
    values, threshold = (
        torch.randn(2, 5, 7, requires_grad=True),
        torch.rand(2, 5, 1, requires_grad=True),
    )
    direction = torch.randn(2, 5, 7)
    quick, plain = (
        dust_sigma._SoftThreshold.apply(values, threshold),
        dust.soft_threshold(values, threshold),
    )
    torch.testing.assert_close(quick, plain)
    for mine, expected in zip(
        *(
            torch.autograd.grad((form * direction).sum(), (values, threshold))
            for form in (quick, plain)
        ),
        strict=True,
    ):
        torch.testing.assert_close(mine, expected)
