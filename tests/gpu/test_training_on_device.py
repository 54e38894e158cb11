"""One training step of every family on a device, rehearsed on a stand-in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from stand_in import DEVICE, OnDevice, Rehearsal
from training_runs import clip_run, pair_run, tiny_run

from vidrestore.lab.training.loop import Run, on_device

TASKS = ["dehaze", "derain", "desnow", "deblur", "denoise"]


def groups(frames: int = 5) -> tuple[Any, ...]:
    return (255 * torch.rand(16, frames, 16)).round(), 20.0


RUNS: dict[str, tuple[Callable[[Path], Any], Callable[[], tuple[Any, ...]]]] = {
    "dust": (lambda folder: tiny_run(folder), groups),
    "mb-taylorformer": (
        lambda folder: pair_run(folder, model={"tasks": TASKS}),
        lambda: (
            torch.rand(2, 3, 16, 16),
            torch.rand(2, 3, 16, 16),
            torch.tensor([0, 1]),
        ),
    ),
    "vsr-transformer": (
        lambda folder: clip_run(folder),
        lambda: (torch.rand(2, 3, 3, 8, 8), torch.rand(2, 3, 3, 32, 32)),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_step_changes_the_weights_as_it_does_on_the_cpu(tmp_path, name):
    config, batch = RUNS[name][0](tmp_path), RUNS[name][1]()
    here = Run(config, tmp_path / "here", torch.device("cpu"))
    expected = [float(here.update(*batch)) for _ in range(2)]
    with Rehearsal() as device:
        run = Run(config, tmp_path / "there", DEVICE)
        assert all(
            isinstance(part, OnDevice) for part in run.network.state_dict().values()
        )
        given = on_device(batch, DEVICE)
        device.counts.clear()
        found = [run.update(*given) for _ in range(2)]
        assert not device.counts["values read"] and not device.counts["sized by values"]
        found = [step.loss for step in run.read()]
        assert device.counts["values read"] <= 1
        moved = [part.cpu() for part in run.learner.average.parameters()]
    assert found == pytest.approx(expected, rel=1e-4)
    for there, near in zip(moved, here.learner.average.parameters(), strict=True):
        torch.testing.assert_close(there, near, atol=1e-4, rtol=1e-3)


def test_a_step_in_half_precision(tmp_path):
    with Rehearsal() as device:
        run = Run(
            pair_run(tmp_path, training={"precision": "bf16"}),
            tmp_path / "there",
            DEVICE,
        )
        batch = on_device((torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16)), DEVICE)
        device.counts.clear()
        assert run.update(*batch) > 0
        assert device.counts["values read"] <= 1
