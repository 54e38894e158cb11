"""DUST as printed: counts, equality with the algorithm it unfolds, the fast form."""

import math

import pytest
import torch
from recovery_systems import moved

from vidrestore.lab.papers.recovery import recover, weighted_attention
from vidrestore.models.dust import Dust, DustConfig, dct_dictionary, soft_threshold
from vidrestore.models.dust_sigma import config_of
from vidrestore.models.fast_linear import PackedLinear
from vidrestore.weights import load_model
from vidrestore.weights.checkpoint import save_model


def small(**changes: object) -> DustConfig:
    return DustConfig(**{"patch": 4, "atoms": 64, **changes})


def trained_a_little(config: DustConfig) -> Dust:
    """Weights moved off their symmetric start, so that a wrong transpose shows."""
    torch.manual_seed(3)
    return moved(Dust(config).eval(), 0.01)


@pytest.mark.parametrize(
    "config, count",
    [
        (DustConfig(measurements=51), 1_376_003),
        (DustConfig(measurements=51, heads=4), 2_424_579),
        (DustConfig(), 1_572_867),
        (DustConfig(heads=4), 2_621_443),
    ],
)
def test_parameter_counts_are_those_of_the_paper(config, count):
    assert sum(parameter.numel() for parameter in Dust(config).parameters()) == count


@pytest.mark.parametrize("patch, atoms", [(4, 16), (4, 64), (16, 1024)])
def test_the_dictionary_is_a_tight_frame_with_equal_columns(patch, atoms):
    dictionary = dct_dictionary(patch, atoms).double()
    torch.testing.assert_close(
        dictionary @ dictionary.mT, torch.eye(patch**2).double(), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        dictionary.norm(dim=0),
        torch.full((atoms,), patch / atoms**0.5).double(),
        atol=1e-4,
        rtol=0,
    )


def test_an_untrained_denoiser_with_threshold_zero_returns_its_input():
    network = Dust(small())
    network.raw_threshold.data.fill_(-100.0)
    patches = 255 * torch.rand(2, 5, 16)
    torch.testing.assert_close(network(patches), patches, atol=1e-3, rtol=0)


@pytest.mark.parametrize("measurements", [None, 6])
@pytest.mark.parametrize(("blocks", "c"), [(1, 1.0), (2, 1.0), (3, 2.5), (5, 1.0)])
def test_dust_at_initialisation_is_the_first_iterations_of_algorithm_1(
    measurements, blocks, c
):
    torch.manual_seed(0)
    network = Dust(
        small(measurements=measurements, blocks=blocks, c=c, lambda1=0.7)
    ).double()
    patches = 255 * torch.rand(7, 16, dtype=torch.float64)
    sensing = (
        torch.eye(16, dtype=torch.float64)
        if measurements is None
        else network.sensing.detach()
    )
    dictionary = network.dictionary.detach()
    expected = recover(
        patches @ sensing.mT,
        sensing,
        dictionary,
        iterations=blocks,
        lambda1=0.7,
        c=c,
        normalise=True,
    )
    torch.testing.assert_close(
        network(network.measure(patches)[None])[0], expected, atol=1e-4, rtol=0
    )


def test_lambda1_and_c_act_by_their_quotient_as_in_equation_15():
    torch.manual_seed(2)
    network = Dust(small(measurements=6, lambda1=8.0)).double()
    measured = network.measure(255 * torch.rand(3, 5, 16, dtype=torch.float64))
    before = network(measured)
    network.step.data.fill_(4.0)  # a fourth of the threshold
    changed = network(measured)
    network.step.data.fill_(1.0)
    network.raw_threshold.data.fill_(math.log(math.expm1(2.0)))
    torch.testing.assert_close(changed, network(measured), rtol=0, atol=1e-5)
    assert (changed - before).abs().max() > 0.5
    loss = network(measured).square().mean()
    gradients = torch.autograd.grad(loss, [network.step, network.raw_threshold])
    # d/dc of lambda1 / c at c = 1 is -lambda1, d/draw of softplus is the logistic function
    expected = -gradients[1] * 2.0 / torch.sigmoid(network.raw_threshold)
    torch.testing.assert_close(gradients[0], expected)


def test_a_file_of_an_earlier_version_restores_as_it_did(tmp_path):
    torch.manual_seed(2)
    network = Dust(small(measurements=6, lambda1=3.0, temperature=True))
    network.step.data.fill_(0.4)
    config = {name: value for name, value in config_of(network).items() if name != "c"}
    save_model(
        tmp_path / "earlier.safetensors",
        network,
        family="dust",
        config=config,
        task="recover",
    )
    loaded = load_model(tmp_path / "earlier.safetensors").network
    measured = network.measure(255 * torch.rand(3, 5, 16))
    # there, V x was divided by c and the threshold was not
    network.analysis.data /= 0.4
    network.step.data.fill_(1.0)
    torch.testing.assert_close(loaded(measured), network(measured))


def test_attention_of_algorithm_1_is_the_printed_weighted_softmax():
    signals = 0.3 * torch.randn(5, 16, dtype=torch.float64)
    beta = torch.exp(-0.5 * signals.square().sum(-1))
    printed = beta * torch.exp(signals @ signals.mT)
    torch.testing.assert_close(
        weighted_attention(signals), printed / printed.sum(-1, keepdim=True)
    )


def test_soft_threshold_minimises_its_proximal_problem():
    grid = torch.linspace(-4, 4, 80_001, dtype=torch.float64)
    for value in (-2.3, -0.4, 0.0, 0.7, 3.1):
        best = grid[(0.5 * (grid - value) ** 2 + 0.7 * grid.abs()).argmin()]
        assert float(
            soft_threshold(torch.tensor(value), torch.tensor(0.7))
        ) == pytest.approx(float(best), abs=2e-4)


@pytest.mark.parametrize(
    "changes",
    [{}, {"measurements": 6}, {"heads": 3}, {"temperature": True}, {"blocks": 1}],
)
def test_the_fast_form_equals_the_plain_one_to_a_thousandth_of_a_grey_level(changes):
    network = trained_a_little(small(**changes))
    measurements = network.measure(255 * torch.rand(6, 20, 16))
    with torch.no_grad():
        fast = network.at(20.0, torch.float32, PackedLinear)
        torch.testing.assert_close(
            fast(measurements), network(measurements), atol=1e-3, rtol=0
        )


def test_tokens_are_a_set_whose_order_does_not_matter():
    network = trained_a_little(small(temperature=True))
    patches, order = 255 * torch.rand(1, 9, 16), torch.randperm(9)
    torch.testing.assert_close(
        network(patches)[:, order], network(patches[:, order]), atol=1e-3, rtol=0
    )


def test_atoms_that_are_not_a_square_are_refused():
    with pytest.raises(ValueError, match="atoms must be a square"):
        DustConfig(atoms=1000)
