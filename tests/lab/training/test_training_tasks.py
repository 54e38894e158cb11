"""Training one network for several tasks: every crop comes with the task of its degradation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from training_runs import SIDE, RecordedEvents, pair_run

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.lab.degrade import BATCHED, DEGRADATIONS
from vidrestore.lab.run_config import PairDataConfig, PairTrainingConfig
from vidrestore.lab.training.data.footage import shot_of
from vidrestore.lab.training.data.pairs import HeldOutPairs, PairSource, held_out_pairs
from vidrestore.lab.training.loop import Run, train
from vidrestore.lab.training.objective import MOST_COUNTED_PSNR, PairObjective
from vidrestore.models.mb_taylorformer import TaskVectors
from vidrestore.pixels.frames import ColourTags, PixelFormat
from vidrestore.weights import load_model, read_card

TASKS = ["deblur", "derain", "desnow"]
BRIGHTER = {"rain": 0.2, "snow": -0.2}  # what these degradations are for this test
RUN: dict[str, dict[str, Any]] = {
    "model": {"tasks": TASKS},
    "data": {"degradations": ["rain", "snow"]},
}


@pytest.fixture(autouse=True)
def simple_degradations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Degradations that only the task distinguishes."""
    for name, change in BRIGHTER.items():
        for degradations in (DEGRADATIONS, BATCHED):
            changed = lambda clip, draw, change=change: (clip + change).clamp(0, 1)  # noqa: E731
            monkeypatch.setitem(degradations, name, changed)


class Greys:
    """Stands for footage: half grey, so that nothing is clamped."""

    still_share = 0.0

    def rgb_crop(
        self,
        rng: np.random.Generator,
        side: int,
        frames: int,
        widest: int | None = None,
    ) -> Tensor:
        return torch.from_numpy(rng.uniform(0.4, 0.6, (frames, 3, side, side))).float()

    def shots(self) -> Any:
        yield self.shot(0)

    def shot(self, number: int) -> Any:
        greys = torch.randint(
            120, 140, (3, 1, 40, 40), generator=torch.Generator().manual_seed(1)
        )
        coding = PixelFormat("gbrp", "rgb", 8, 0, 0), ColourTags(matrix=0, range=2)
        return shot_of(Path("grey"), False, tuple(greys.to(torch.uint8)), coding)


def source(tasks: list[str], **shares: float) -> PairSource:
    settings = {"untouched": 0.0, "combined": 0.0, "recompressed": 0.0} | shares
    config = PairDataConfig(
        "clips", degradations=("rain", "snow"), crop=SIDE, **settings
    )
    return PairSource(Greys(), config, 3, tasks)


def test_a_crop_comes_with_the_task_of_its_degradation():
    degraded, clean, tasks = source(TASKS).batch(0, 12)
    changes = (degraded - clean).mean((1, 2, 3))
    assert set(tasks.tolist()) == {1, 2} and tasks.dtype == torch.long
    torch.testing.assert_close(
        changes, torch.where(tasks == 1, 0.2, -0.2), atol=0.01, rtol=0
    )


def test_a_crop_that_is_left_as_it_is_keeps_the_task_that_was_drawn():
    degraded, clean, tasks = source(TASKS, untouched=1.0).batch(0, 12)
    assert torch.equal(degraded, clean) and torch.equal(
        tasks, source(TASKS).batch(0, 12)[2]
    )


def test_without_tasks_the_same_crops_come_alone():
    plain, tasked = source([]).batch(1, 4), source(TASKS).batch(1, 4)
    assert len(plain) == 2 and all(
        torch.equal(*parts) for parts in zip(plain, tasked[:2], strict=True)
    )


class Undoing(nn.Module):
    """Takes away what rain adds if asked to derain, and leaves all else."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor, tasks: Tensor) -> Tensor:
        return images - torch.tensor([9.0, 0.2, 0.0])[tasks][:, None, None, None]


def test_held_out_crops_are_measured_by_the_task_of_their_degradation():
    config = PairDataConfig("clips", degradations=("rain", "snow"), crop=SIDE)
    held_out: HeldOutPairs = held_out_pairs(Greys(), config, SIDE, 2, TASKS)
    metrics = PairObjective(PairTrainingConfig(1)).metrics(Undoing(), held_out)
    assert metrics["rain"] == MOST_COUNTED_PSNR and metrics["snow"] == pytest.approx(
        -20 * np.log10(0.2), abs=0.1
    )


def test_a_network_that_knows_its_task_learns_opposite_ones(tmp_path):
    events = RecordedEvents()
    config = pair_run(
        tmp_path,
        **RUN,
        training={
            "steps": 20,
            "validate_every": 20,
            "loss": "psnr",
            "learning_rate": 0.01,
        },
    )
    path = train(config, tmp_path / "runs", device="cpu", on_event=events)
    last = events[-1]
    assert all(last.psnr[name] > last.before[name] + 1 for name in BRIGHTER)
    assert read_card(path).config["tasks"] == TASKS
    vectors = [
        part.vectors
        for part in load_model(path).network.modules()
        if isinstance(part, TaskVectors)
    ]
    # no crop was blurred
    assert all(not part[0].any() and part[1:].any() for part in vectors)


def test_a_network_with_tasks_starts_from_one_without_but_not_the_other_way(tmp_path):
    plain = pair_run(tmp_path)
    given = train(plain, tmp_path / "plain", device="cpu")
    run = Run(pair_run(tmp_path, **RUN), tmp_path / "tasked", torch.device("cpu"))
    run.initialise_from(given)
    expected = load_model(given).network.state_dict()
    for network in (run.network, run.learner.average):
        state = network.state_dict()
        assert all(
            torch.equal(state[name], tensor) for name, tensor in expected.items()
        )
        assert not any(
            tensor.any() for name, tensor in state.items() if name not in expected
        )
    tasked = run.save_weights()
    with pytest.raises(CheckpointError, match="but the configuration asks for"):
        Run(plain, tmp_path, torch.device("cpu")).initialise_from(tasked)


def test_a_degradation_whose_task_is_missing_is_named(tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"tiny.toml: \[model\] tasks lacks dehaze, for data.degradations",
    ):
        Run(
            pair_run(
                tmp_path, model=RUN["model"], data={"degradations": ["rain", "haze"]}
            ),
            tmp_path,
            torch.device("cpu"),
        )
