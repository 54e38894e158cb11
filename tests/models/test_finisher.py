"""The network that finishes DUST's estimates: packing, what it returns untrained, sizes."""

from __future__ import annotations

import pytest
import torch

from vidrestore.models.finisher import Finisher, FinisherConfig, packed, unpacked

SMALL = FinisherConfig(widths=(8, 12, 16), blocks=(0, 1, 1))


def trained_a_little() -> Finisher:
    torch.manual_seed(0)
    network = Finisher(SMALL).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return network


def test_planes_are_packed_by_blocks_of_two_by_two_and_come_back() -> None:
    y, u, v = torch.rand(2, 6, 8), torch.rand(2, 3, 4), torch.rand(2, 3, 4)
    frames = packed(y, u, v)
    torch.testing.assert_close(frames[1, :4, 2, 3], torch.stack([y[1, 4, 6], y[1, 4, 7], y[1, 5, 6], y[1, 5, 7]]))
    for before, after in zip((y, u, v), unpacked(frames), strict=True):
        torch.testing.assert_close(before, after)


def test_an_untrained_network_returns_the_estimate() -> None:
    source, estimate, before, after = torch.rand(4, 2, 6, 8, 12) * 255
    result = Finisher(SMALL)(source, estimate, [before, after], torch.tensor([[20.0, 5.0]] * 2))
    torch.testing.assert_close(result, estimate)


def test_the_correction_is_in_units_of_each_planes_noise() -> None:
    network = trained_a_little()
    torch.nn.init.zeros_(network.tail.weight)
    estimate = torch.full((1, 6, 8, 8), 100.0)
    with torch.no_grad():
        change = network(estimate, estimate, [estimate, estimate], torch.tensor([[20.0, 4.0]])) - estimate
    expected = [20 * bias if index < 4 else 4 * bias for index, bias in enumerate(network.tail.bias.tolist())]
    assert change[0, :, 0, 0].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_every_parameter_has_a_say() -> None:
    network = trained_a_little()
    source, estimate, before, after = torch.rand(4, 1, 6, 8, 8) * 255
    network(source, estimate, [before, after], torch.tensor([[20.0, 20.0]])).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in network.parameters())


def test_operations_are_counted_as_the_convolutions_do_them() -> None:
    network, counted = Finisher(SMALL), 0.0

    def count(module: torch.nn.Module, given: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        nonlocal counted
        counted += 2 * module.weight.numel() * result.shape[2] * result.shape[3]  # type: ignore[operator, union-attr]

    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(count)  # type: ignore[arg-type]
    frames = torch.rand(4, 1, 6, 16, 16)
    network(frames[0], frames[1], list(frames[2:]), torch.tensor([[20.0, 20.0]]))
    assert network.operations(32 * 32) == counted


@pytest.mark.parametrize("sizes", [{"widths": ()}, {"widths": (8,), "blocks": (1, 1)}, {"neighbours": -1}])
def test_sizes_that_no_network_has_are_refused(sizes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        FinisherConfig(**sizes)  # type: ignore[arg-type]
