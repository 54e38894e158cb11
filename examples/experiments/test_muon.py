"""Muon: how large its steps are, and which parameters it takes."""

import pytest
import torch
from muon import Muon, orthogonal
from torch import nn


@pytest.mark.parametrize("shape", [(3, 16, 40), (2, 40, 16)])
def test_directions_become_nearly_orthogonal(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = torch.linalg.svdvals(
        torch.stack([u @ v for u, _, v in (torch.linalg.svd(m, full_matrices=False) for m in matrices)])
    )
    torch.testing.assert_close(torch.linalg.svdvals(orthogonal(matrices)), expected, atol=0.35, rtol=0)


@pytest.mark.parametrize("size", [1e-18, 3.9e-23, 1e-38, 0.0])
def test_a_direction_that_has_vanished_becomes_no_step(size):
    matrices = size * torch.randn(2, 64, 576, generator=torch.Generator().manual_seed(0))
    assert orthogonal(matrices).abs().max() < 1e-2


def test_a_step_of_a_matrix_is_as_large_as_the_rate_and_does_not_grow_with_the_gradient():
    conv = nn.Conv2d(16, 32, 3, bias=False)
    for scale in (1e-3, 1e3):
        before = conv.weight.detach().clone()
        conv.weight.grad = scale * torch.randn(conv.weight.shape, generator=torch.Generator().manual_seed(2))
        Muon(conv, lr=0.01).step()
        assert float((conv.weight - before).detach().square().mean().sqrt()) == pytest.approx(
            0.0085, rel=0.15
        )


def test_small_and_named_parameters_move_as_by_adam():
    torch.manual_seed(0)
    network, same = (nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3)) for _ in range(2))
    same.load_state_dict(network.state_dict())
    ours, adam = (
        Muon(network, 0.01, apart=network[1].parameters()),
        torch.optim.Adam(same.parameters(), 0.01, betas=(0.9, 0.99)),
    )
    for step in range(4):
        for parameter, other in zip(network.parameters(), same.parameters(), strict=True):
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(step))
            other.grad = parameter.grad.clone()
        ours.step()
        adam.step()
    for parameter, other in zip(network.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, atol=1e-5, rtol=1e-4)


def test_it_resumes_from_its_state():
    torch.manual_seed(0)
    network = nn.Conv2d(16, 16, 3)
    first = Muon(network, 0.01)
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter)
    first.step()
    again = Muon(network, 0.01)
    again.load_state_dict(first.state_dict())
    assert again.state.keys() == first.state.keys()
    assert torch.equal(again.state[network.weight]["momentum"], first.state[network.weight]["momentum"])
