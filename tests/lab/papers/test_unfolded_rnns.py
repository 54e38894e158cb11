"""SISTA, SISTA-RNN, l1-l1-RNN and reweighted-RNN against their equations, a group and a frame at a time."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from recovery_systems import ATOMS, MEASUREMENTS, PIXELS, patches, system
from torch import Tensor

from vidrestore.lab.papers.unfolded_rnns import double_plateau
from vidrestore.weights.checkpoint import build_network

EYE, SMALL_EYE = (
    torch.eye(ATOMS, dtype=torch.float64),
    torch.eye(PIXELS, dtype=torch.float64),
)
BOTH = pytest.mark.parametrize(
    "measurements", [None, MEASUREMENTS], ids=["denoising", "sensing"]
)


def soft(values: Tensor, threshold: Tensor | float) -> Tensor:
    return values.sign() * (values.abs() - threshold).clamp(min=0)


def weights(network: Any) -> tuple[Tensor, Tensor, float, float, float]:
    """A, D, lambda1, lambda2 and c of an RNN."""
    dictionary = network.dictionary.detach()
    sensing = SMALL_EYE if network.sensing is None else network.sensing.detach()
    return (
        sensing,
        dictionary,
        *(
            float(value.detach().exp())
            for value in (network.log_lambda1, network.log_lambda2, network.log_step)
        ),
    )


def of_frames(network: Any, group: Tensor, step: Any, start: Tensor) -> Tensor:
    """Return the signals of a group; `step` makes a frame's code from measurements and the last code."""
    code, signals = start, []
    for measurement in network.measure(group).detach():
        code = step(measurement, code)
        signals.append(network.dictionary.detach() @ code)
    return torch.stack(signals)


def sista_step(
    A: Tensor, D: Tensor, F: Tensor, l1: float, l2: float, c: float, layers: int
) -> Any:
    """With the matrices W_1, S, P and V of the unfolded network; its first layer includes the prediction."""
    S = EYE - D.T @ (A.T @ A + l2 * SMALL_EYE) @ D / c
    P, V = D.T @ F @ D, D.T @ A.T / c
    W1 = (c + l2) / c * P - D.T @ (A.T @ A + l2 * SMALL_EYE) @ D @ P / c

    def step(x: Tensor, before: Tensor) -> Tensor:
        code = soft(W1 @ before + V @ x, l1 / c)
        for _ in range(layers - 1):
            code = soft(S @ code + V @ x + l2 / c * P @ before, l1 / c)
        return code

    return step


@BOTH
@pytest.mark.parametrize("layers", [1, 3])
def test_sista_rnn_equals_its_equations(measurements, layers):
    network, groups = system("sista-rnn", measurements, layers=layers), patches()
    A, D, l1, l2, c = weights(network)
    step = sista_step(A, D, network.correlation.detach(), l1, l2, c, layers)
    expected = torch.stack(
        [of_frames(network, group, step, network.start.detach()) for group in groups]
    )
    torch.testing.assert_close(network(network.measure(groups)), expected)


@BOTH
def test_sista_equals_its_equations_with_the_step_that_is_sure_to_converge(
    measurements,
):
    network, groups = system("sista", measurements), patches()
    D = network.dictionary
    A = SMALL_EYE if measurements is None else network.sensing
    bound = float(torch.linalg.eigvalsh((A @ D).T @ (A @ D)).max()) + 0.3 * float(
        torch.linalg.eigvalsh(D.T @ D).max()
    )
    step = sista_step(A, D, SMALL_EYE, 2.0, 0.3, bound, layers=4)
    expected = torch.stack(
        [
            of_frames(network, group, step, torch.zeros(ATOMS, dtype=torch.float64))
            for group in groups
        ]
    )
    torch.testing.assert_close(network(network.measure(groups)), expected)


def plateaus(values: Tensor, centre: Tensor, w0: Tensor, w1: Tensor) -> Tensor:
    """argmin of 1/2 (u - v)^2 + w0 |u| + w1 |u - a|, among the points of zero or jumping slope."""
    result = torch.stack(
        [
            torch.zeros_like(values),
            centre,
            *(values + i * w0 + j * w1 for i in (-1, 1) for j in (-1, 1)),
        ]
    )
    cost = (
        0.5 * (result - values) ** 2 + w0 * result.abs() + w1 * (result - centre).abs()
    )
    return result.gather(0, cost.argmin(0)[None])[0]


def l1_l1_step(
    A: Tensor,
    D: Tensor,
    G: Tensor,
    Z: Tensor,
    g: Tensor,
    numbers: tuple[float, float, float],
    layers: int,
) -> Any:
    """Z the identity and g ones make it the l1-l1-RNN."""
    l1, l2, c = numbers
    V = Z @ D.T @ A.T / c
    W = Z - V @ A @ D @ Z

    def step(x: Tensor, before: Tensor) -> Tensor:
        centre = code = G @ before
        for _ in range(layers):
            code = plateaus(W @ code + V @ x, centre, l1 * g / c, l2 * g / c)
        return code

    return step


@BOTH
@pytest.mark.parametrize("layers", [1, 3])
def test_l1_l1_rnn_equals_its_equations(measurements, layers):
    network, groups = system("l1-l1-rnn", measurements, layers=layers), patches()
    A, D, *numbers = weights(network)
    step = l1_l1_step(
        A, D, network.correlation.detach(), EYE, EYE.diagonal(), tuple(numbers), layers
    )
    expected = torch.stack(
        [of_frames(network, group, step, network.start.detach()) for group in groups]
    )
    torch.testing.assert_close(network(network.measure(groups)), expected)


@BOTH
def test_reweighted_rnn_equals_its_equations(measurements):
    network, groups = system("reweighted-rnn", measurements), patches()
    A, D, *numbers = weights(network)
    mixing, weight = network.mixing.detach(), network.log_weights.detach().exp()
    step = l1_l1_step(
        A, D, network.correlation.detach(), mixing, weight, tuple(numbers), 3
    )
    expected = torch.stack(
        [of_frames(network, group, step, network.start.detach()) for group in groups]
    )
    torch.testing.assert_close(network(network.measure(groups)), expected)


@pytest.mark.parametrize("ratio", [0.2, 1.0, 3.0])
def test_the_double_plateau_minimises_its_proximal_problem(ratio):
    grid = torch.linspace(-6, 6, 24_001, dtype=torch.float64)
    values, centre = (
        axis.flatten()
        for axis in torch.meshgrid(
            torch.linspace(-4.9, 4.9, 23), torch.linspace(-2, 2, 9), indexing="xy"
        )
    )
    values, centre = values.double(), centre.double()
    cost = (
        0.5 * (grid - values[:, None]) ** 2
        + grid.abs()
        + ratio * (grid - centre[:, None]).abs()
    )
    result = double_plateau(values, centre, torch.tensor(ratio, dtype=torch.float64))
    torch.testing.assert_close(result, grid[cost.argmin(1)], atol=1e-3, rtol=0)
    assert (
        (centre == 0).any()
        and (result == 0).any()
        and ((result - centre).abs() < 1e-12).any()
    )


def objective(network: Any, codes: Tensor, measured: Tensor, before: Tensor) -> Tensor:
    """SISTA's, of a frame's codes (B, K), measurements (B, M) and the last signals (B, N)."""
    signals = codes @ network.dictionary.mT
    known = 0.5 * (measured - signals @ network.sensing.mT).square().sum(
        -1
    ) + network.config.lambda1 * codes.abs().sum(-1)
    return known + 0.5 * network.config.lambda2 * (signals - before).square().sum(-1)


def complete(layers: int) -> Any:
    """SISTA with as many atoms as pixels: the code is then the signal times D^T."""
    return system(
        "sista", MEASUREMENTS, atoms=PIXELS, layers=layers, lambda1=8.0, lambda2=0.05
    )


def test_the_objective_of_sista_falls_with_every_iteration_to_its_minimum():
    first = patches(frames=1)
    values = []
    for layers in (1, 2, 3, 5, 8, 13, 50, 400, 3000):
        network = complete(layers)
        codes = network(network.measure(first))[:, 0] @ network.dictionary
        values.append(
            objective(
                network,
                codes,
                network.measure(first)[:, 0],
                torch.zeros_like(first[:, 0]),
            )
        )
    assert all((later <= earlier).all() for earlier, later in pairwise(values))
    assert (values[0] > 1.05 * values[-1]).all()
    codes = codes.requires_grad_()
    (slope,) = torch.autograd.grad(
        objective(
            network, codes, network.measure(first)[:, 0], torch.zeros_like(first[:, 0])
        ).sum(),
        codes,
    )
    used = codes.abs() > 1e-2  # D^T D is the identity in single precision only
    assert used.any() and not used.all()
    assert slope[used].abs().max() < 1e-3
    # where |u| has no derivative the slope is anything within lambda1 of what it would be at 0
    assert slope[~used].abs().max() < 2 * 8


def test_sista_starts_from_the_frame_before():
    both, network = patches(frames=2), complete(3000)
    recovered = network(network.measure(both))
    codes, before = recovered[:, 1] @ network.dictionary, recovered[:, 0]
    least = objective(network, codes, network.measure(both)[:, 1], before)
    for _ in range(20):
        near = codes + 0.1 * torch.randn_like(codes)
        assert (
            objective(network, near, network.measure(both)[:, 1], before) > least
        ).all()


def test_an_l1_l1_rnn_without_coupling_is_a_sista_rnn_without_coupling():
    l1_l1, sista = system("l1-l1-rnn", MEASUREMENTS), system("sista-rnn", MEASUREMENTS)
    with torch.no_grad():
        for network in (l1_l1, sista):
            network.log_lambda2.fill_(-60.0)
        for name in ("sensing", "dictionary", "log_lambda1", "log_step", "start"):
            getattr(l1_l1, name).copy_(getattr(sista, name))
        l1_l1.correlation.copy_(
            sista.dictionary.mT @ sista.correlation @ sista.dictionary
        )
    measured = sista.measure(patches())
    torch.testing.assert_close(l1_l1(measured), sista(measured))


def test_an_untrained_reweighted_rnn_is_an_untrained_l1_l1_rnn():
    one, other = (
        build_network(family, {"patch": 4, "atoms": ATOMS}).double()
        for family in ("l1-l1-rnn", "reweighted-rnn")
    )
    torch.testing.assert_close(one(patches()), other(patches()))


@pytest.mark.parametrize(
    "family", ["sista", "sista-rnn", "l1-l1-rnn", "reweighted-rnn"]
)
def test_later_frames_have_no_influence(family):
    network, groups = system(family), patches(frames=6)
    changed = groups.clone()
    changed[:, 4:] += 30
    torch.testing.assert_close(network(groups)[:, :4], network(changed)[:, :4])
    assert (network(groups)[:, 4:] - network(changed)[:, 4:]).abs().max() > 1


@pytest.mark.parametrize("measurements", [26, 51, 77, 102, 128])
@pytest.mark.parametrize("family", ["sista-rnn", "l1-l1-rnn"])
def test_codes_carried_through_an_untrained_rnn_stay_bounded(family, measurements):
    """A drawn by Glorot's rule in full would let them grow by a factor of ten from frame to frame."""
    network = build_network(family, {"measurements": measurements})
    group = (255 * torch.rand(1, 1, 256)).expand(-1, 60, -1)
    with torch.no_grad():
        recovered = network(network.measure(group))
    assert recovered[:, -1].norm() < 1.1 * group[:, -1].norm()
