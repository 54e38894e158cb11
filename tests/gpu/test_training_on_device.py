"""One training step of every family on a device, rehearsed on a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import recovery_systems
import torch
from clip_runs import clip_run
from pair_runs import pair_run
from stand_in import DEVICE, OnDevice, Rehearsal
from training_runs import tiny_run

from vidrestore.training.data.pairs import HeldOutPairs
from vidrestore.training.data.super_resolution import HeldOutClips, HeldOutFrames
from vidrestore.training.loop import Run, on_device, train
from vidrestore.weights import read_card

TASKS = ["dehaze", "derain", "desnow", "deblur", "denoise"]
WAITS = 4  # values read in a step: its loss, the gradient's norm, and what a scaler of fp16 asks


def groups(frames: int = 5) -> tuple[Any, ...]:
    return (255 * torch.rand(16, frames, 16)).round(), 20.0


RUNS: dict[str, tuple[Callable[[Path], Any], Callable[[], tuple[Any, ...]]]] = {
    "dust": (lambda folder: tiny_run(folder), groups),
    "dust, printed": (
        lambda folder: tiny_run(folder, {"model": {"kind": "printed", "degree": None}}),
        groups,
    ),
    "mb-taylorformer": (
        lambda folder: pair_run(folder, model={"tasks": TASKS}),
        lambda: (torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16), torch.tensor([0, 1])),
    ),
    "vsr-transformer": (
        lambda folder: clip_run(folder, "vsr-transformer"),
        lambda: (torch.rand(2, 3, 3, 8, 8), torch.rand(2, 3, 3, 32, 32)),
    ),
    "vsr-transformer, muon": (
        lambda folder: clip_run(folder, "vsr-transformer", training={"optimiser": "muon"}),
        lambda: (torch.rand(2, 3, 3, 8, 8), torch.rand(2, 3, 3, 32, 32)),
    ),
    "spynet": (
        lambda folder: clip_run(folder, "spynet"),
        lambda: (torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16), torch.rand(2, 2, 16, 16)),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_step_changes_the_weights_as_it_does_on_the_cpu(tmp_path: Path, name: str) -> None:
    config, batch = RUNS[name][0](tmp_path), RUNS[name][1]()
    torch.manual_seed(5)  # a flow network's start is drawn
    here = Run(config, tmp_path / "here", torch.device("cpu"))
    expected = [here.update(*batch) for _ in range(2)]
    with Rehearsal() as device:
        torch.manual_seed(5)
        run = Run(config, tmp_path / "there", DEVICE)
        assert all(isinstance(part, OnDevice) for part in run.network.state_dict().values())
        given = on_device(batch, DEVICE)
        device.counts.clear()
        found = [run.update(*given) for _ in range(2)]
        assert device.counts["values read"] <= 2 * WAITS and not device.counts["sized by values"]
        moved = [part.cpu() for part in run.average.parameters()]
    assert found == pytest.approx(expected, rel=1e-4)
    for there, near in zip(moved, here.average.parameters(), strict=True):
        torch.testing.assert_close(there, near, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("family", recovery_systems.LEARNING)
def test_the_systems_to_compare_with_learn_too(tmp_path: Path, family: str) -> None:
    changes = {"": {"family": family}, "model": dict.fromkeys(("kind", "atoms", "blocks", "degree"))}
    changes["model"] |= recovery_systems.config(family)
    config, batch = tiny_run(tmp_path, changes), groups(3)
    expected = Run(config, tmp_path / "here", torch.device("cpu")).update(*batch)
    with Rehearsal():
        found = Run(config, tmp_path / "there", DEVICE).update(*on_device(batch, DEVICE))
    assert found == pytest.approx(expected, rel=1e-4)


def test_a_whole_run_ends_with_weights(tmp_path: Path) -> None:
    config = clip_run(tmp_path, "vsr-transformer", training={"steps": 2})
    expected = read_card(train(config, tmp_path / "here", device="cpu"))
    with Rehearsal() as device:
        found = read_card(train(config, tmp_path / "there", device="cuda"))
        assert device.counts["to device"]
    assert found.training["steps"] == expected.training["steps"]
    assert found.measured.keys() == expected.measured.keys()


HELD_OUT: dict[str, Callable[[], Any]] = {
    "dust": lambda: 255 * torch.rand(3, 5, 16),
    "mb-taylorformer": lambda: HeldOutPairs(
        {"haze": pictures()}, {"haze": pictures()}, {"haze": TASKS.index("dehaze")}
    ),
    "vsr-transformer": lambda: HeldOutClips(
        pictures(8).view(1, 2, 3, 8, 8), pictures(32).view(1, 2, 3, 32, 32)
    ),
    "spynet": lambda: HeldOutFrames(pictures(), pictures()),
}


def pictures(side: int = 16) -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8)


@pytest.mark.parametrize("name", HELD_OUT)
def test_a_network_is_judged_as_it_is_on_the_cpu(tmp_path: Path, name: str) -> None:
    config, held_out = RUNS[name][0](tmp_path), HELD_OUT[name]()
    torch.manual_seed(5)
    here = Run(config, tmp_path / "here", torch.device("cpu"))
    expected = here.objective.metrics(here.network, held_out)
    with Rehearsal():
        torch.manual_seed(5)
        run = Run(config, tmp_path / "there", DEVICE)
        assert run.objective.metrics(run.network, held_out) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_step_in_half_precision(tmp_path: Path, precision: str) -> None:
    with Rehearsal() as device:
        run = Run(pair_run(tmp_path, training={"precision": precision}), tmp_path / "there", DEVICE)
        batch = on_device((torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16)), DEVICE)
        device.counts.clear()
        assert run.update(*batch) > 0
        assert device.counts["values read"] <= WAITS
