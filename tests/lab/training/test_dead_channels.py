"""The script that finds channels which have stopped learning and lets them begin again."""

import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training_runs import pair_run

from vidrestore.lab.training.loop import Run
from vidrestore.models.mb_taylorformer import ConvolutionPair, MBTaylorFormer
from vidrestore.weights import load_model

DEAD = (1, 3)  # channels of the refinement's first pair


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Weights of a tiny network with dead channels, beside its recipe, tiny.toml."""
    run = Run(
        pair_run(tmp_path, model={"convolutional": 1}),
        tmp_path / "runs",
        torch.device("cpu"),
    )
    network = run.learner.average
    pair = first_pair(network)
    with torch.no_grad():
        network.head.normal_()
        pair.first.bias.fill_(0.5)
        pair.first.bias[list(DEAD)] = -1e3
    return run.save_weights()


def first_pair(network: MBTaylorFormer) -> ConvolutionPair:
    return network.refinement.pairs[0]


def test_dead_channels_are_counted_and_begin_again_without_a_change_of_the_result(
    weights, repository, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(repository / "examples" / "experiments")
    new = weights.with_name("new.safetensors")
    arguments = [weights.parents[1] / "tiny.toml", weights, "--revived", new]
    monkeypatch.setattr(sys, "argv", ["dead_channels.py", *map(str, arguments)])
    import_module("dead_channels").main()
    counted = {
        line.split()[0]: line.split()[1:]
        for line in capsys.readouterr().out.splitlines()
    }
    assert counted["refinement.pairs.0"] == ["2", "of", "8"]
    before, after = (load_model(path).network for path in (weights, new))
    pictures = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(after(pictures), before(pictures))
    assert [
        learning(network, pictures)[list(DEAD)].tolist() for network in (before, after)
    ] == [
        [False, False],
        [True, True],
    ]


def learning(network: MBTaylorFormer, pictures: Tensor) -> Tensor:
    """Which channels of the first pair's second convolution get gradients."""
    network.train().requires_grad_(True)
    network(pictures).square().sum().backward()
    gradient = first_pair(network).second.weight.grad
    return gradient.abs().sum((0, 2, 3)) > 0
