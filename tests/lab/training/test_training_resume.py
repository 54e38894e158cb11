"""Runs that are interrupted, run out of disk, or diverge, and resumed runs, which end the same."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from command_line import run as command
from training_runs import RecordedEvents, equal, pair_run, tensors, tiny_run

from vidrestore.errors import CheckpointError, ConfigError, VidRestoreError
from vidrestore.files.stopping import STOPS, delayed_signals
from vidrestore.lab.training import loop
from vidrestore.lab.training.loop import Run, train
from vidrestore.lab.training_events import Began, Event, Interrupted, Validated
from vidrestore.weights import load_model, read_card

CPU = torch.device("cpu")


def batch(value: float = 100.0) -> tuple[torch.Tensor, float]:
    return torch.full((8, 20, 16), value), 20.0


@pytest.fixture
def runs(trained, tmp_path) -> Path:
    """A copy of the folder of a finished run."""
    return Path(shutil.copytree(trained.folder, tmp_path / "runs"))


# Interrupted


@pytest.mark.parametrize("step", [0, 7])
def test_an_interrupted_run_resumed_equals_one_that_was_not_interrupted(
    trained, tmp_path, monkeypatch, step
):
    config, events = trained.config, RecordedEvents()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Run, "update", interrupted_at(step))
        train(config, tmp_path / "halves", device="cpu", on_event=events)
    checkpoint = tmp_path / "halves" / "tiny.checkpoint"
    # the step that was under way is done
    assert events[-1] == Interrupted(step + 1, checkpoint)
    assert {path.name for path in checkpoint.parent.iterdir()} >= {
        "tiny.checkpoint",
        "tiny.log.jsonl",
    }
    assert not (checkpoint.parent / "tiny.safetensors").exists()
    resumed = train(
        config, tmp_path / "halves", resume=True, device="cpu", on_event=events
    )
    assert Began(step + 1, 12, "cpu", checkpoint) in events
    assert equal(tensors(resumed), tensors(trained.weights))
    assert [point["step"] for point in read_card(resumed).training["curve"]] == [
        5,
        10,
        12,
    ]


SCHEDULES = {
    "cosine": {"decay": 0.7, "floor": 1e-4},
    "restarts": {"restarts": [1.0, 0.5, 0.25], "floor": 1e-4},
    # too high a rate, so that validations are no better
    "plateau": {
        "patience": 1,
        "factor": 0.3,
        "floor": 1e-3,
        "validate_every": 2,
        "learning_rate": 0.3,
    },
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_of_any_schedule_resumed_takes_the_same_steps_at_the_same_rates(
    tmp_path, schedule
):
    training = {"steps": 10, "schedule": schedule, "warmup": 2} | SCHEDULES[schedule]
    config = tiny_run(tmp_path, {"training": training})

    def records(folder: Path) -> list[tuple[int, float, float]]:
        lines = map(json.loads, (folder / "tiny.log.jsonl").read_text().splitlines())
        return [
            (line["step"], line["loss"], line["learning_rate"])
            for line in lines
            if "loss" in line
        ]

    whole = train(config, tmp_path / "whole", device="cpu")
    for stop in (3, 4, 7):  # within a cosine, before a validation, after a reduction
        with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "update", interrupted_at(stop))
            train(config, tmp_path / "parts", device="cpu", resume=True)
    resumed = train(config, tmp_path / "parts", device="cpu", resume=True)
    assert equal(tensors(resumed), tensors(whole))
    expected = records(tmp_path / "whole")
    assert records(tmp_path / "parts") == expected
    assert len({rate for _, _, rate in expected[2:]}) > 2


def interrupted_at(step: int) -> Callable[..., torch.Tensor]:
    """`Run.update`, and Ctrl-C in the step of this number."""
    update = Run.update

    def interrupted(self: Run, *batch: Any) -> torch.Tensor:
        if self.step == step:
            signal.raise_signal(signal.SIGINT)
        return update(self, *batch)

    return interrupted


def test_a_run_that_stops_by_itself_resumes_to_the_same_weights(tmp_path, monkeypatch):
    config, events = tiny_run(tmp_path), RecordedEvents()
    expected = tensors(train(config, tmp_path / "whole", device="cpu"))
    moments = iter(range(1000))  # a second for each look at the clock
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", Mock(monotonic=lambda: float(next(moments))))
        stopped = train(
            config, tmp_path / "parts", device="cpu", stop_after=9.0, on_event=events
        )
    assert stopped == tmp_path / "parts" / "tiny.checkpoint"
    assert (
        events[-1] == Interrupted(events[-1].step, stopped) and 0 < events[-1].step < 12
    )
    assert not (tmp_path / "parts" / "tiny.safetensors").exists()
    resumed = train(
        config, tmp_path / "parts", resume=True, device="cpu", stop_after=600.0
    )
    assert equal(tensors(resumed), expected)


def test_the_command_stops_by_itself_and_prints_the_checkpoint(
    trained, tmp_path, capsys
):
    given = [
        "--config",
        trained.config.path,
        "-o",
        tmp_path,
        "--device",
        "cpu",
        "--stop-after",
        "0",
    ]
    assert command("train", *given) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "tiny.checkpoint")
    assert "stopped: step 0 is in" in said.err


def test_a_run_that_is_interrupted_while_it_is_measured_is_measured_when_resumed(
    tmp_path, monkeypatch
):
    config = tiny_run(tmp_path, {"training": {"schedule": "plateau", "patience": 1}})
    told: list[Event] = []
    expected = train(config, tmp_path / "whole", device="cpu", on_event=told.append)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(
            Run, "validate", lambda self, held_out: signal.raise_signal(signal.SIGINT)
        )
        train(config, tmp_path / "halves", device="cpu")
    events: list[Event] = []
    resumed = train(
        config, tmp_path / "halves", resume=True, device="cpu", on_event=events.append
    )
    assert equal(tensors(resumed), tensors(expected))
    losses = [event.loss for event in events if isinstance(event, Validated)]
    assert losses == [event.loss for event in told if isinstance(event, Validated)], (
        "the first is not 0"
    )
    assert [point["step"] for point in read_card(resumed).training["curve"]] == [
        5,
        10,
        12,
    ]


@pytest.mark.parametrize("number", STOPS)
def test_interrupts_are_delayed_to_the_end_of_a_block(number):
    done = []
    usual = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), delayed_signals():
            signal.raise_signal(number)
            done.append("the block")
    finally:
        signal.signal(number, usual)
    assert done == ["the block"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with delayed_signals():
            signal.raise_signal(signal.SIGINT)  # ignored before, ignored after
    finally:
        signal.signal(signal.SIGINT, before)


# Resumed


def test_a_finished_run_resumed_only_writes_its_weights_again(
    trained, runs, monkeypatch
):
    (runs / "tiny.safetensors").unlink()
    monkeypatch.setattr(
        loop, "make_data", lambda *given: pytest.fail("nothing is left to train")
    )
    again = train(trained.config, runs, resume=True, device="cpu")
    assert equal(tensors(again), tensors(trained.weights))


def test_a_run_may_be_made_longer_and_slower(runs, tmp_path):
    config = tiny_run(tmp_path, {"training": {"steps": 15, "learning_rate": 0.001}})
    assert (
        read_card(train(config, runs, resume=True, device="cpu")).training["steps"]
        == 15
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_on_a_gpu_can_be_resumed_on_a_cpu(tmp_path):
    train(tiny_run(tmp_path), tmp_path / "runs", device="cuda")
    config = tiny_run(tmp_path, {"training": {"steps": 20}})
    assert (
        read_card(train(config, tmp_path / "runs", resume=True, device="cpu")).training[
            "steps"
        ]
        == 20
    )


def test_two_processes_do_not_train_into_the_same_files(trained, tmp_path):
    refused: list[str] = []

    def second(event: object) -> None:
        if isinstance(event, Began):
            for resume in (False, True):
                with pytest.raises(ConfigError) as raised:
                    train(trained.config, tmp_path, resume=resume, device="cpu")
                refused.append(str(raised.value))
            train(
                replace(trained.config, name="other"),
                tmp_path,
                device="cpu",
                stop_after=0,
            )

    train(trained.config, tmp_path, device="cpu", on_event=second)
    said = f"tiny.checkpoint in {tmp_path}: another process works on this already"
    assert len(refused) == 2 and all(said in each for each in refused)
    assert "choose another `output`" in refused[0]
    assert not list(tmp_path.glob("*.lock"))


def test_a_new_run_overwrites_neither_a_checkpoint_nor_weights(trained, runs):
    with pytest.raises(
        ConfigError,
        match="checkpoint: belongs to an earlier run; continue it with `resume`",
    ):
        train(trained.config, runs)
    (runs / "tiny.checkpoint").unlink()
    content = (runs / "tiny.safetensors").read_bytes()
    for resume in (False, True):
        with pytest.raises(
            ConfigError,
            match="tiny.safetensors: already exists, without the checkpoint",
        ):
            train(
                trained.config,
                runs,
                device="cpu",
                resume=resume,
                init=[trained.weights],
            )
    assert (runs / "tiny.safetensors").read_bytes() == content


def test_a_run_that_was_cut_before_its_first_checkpoint_begins_again(trained, runs):
    (runs / "tiny.checkpoint").unlink()
    (runs / "tiny.safetensors").unlink()
    (runs / "tiny.best.safetensors").write_bytes(b"of the run that was cut")
    assert (
        train(trained.config, runs, device="cpu", resume=True)
        == runs / "tiny.safetensors"
    )
    assert {
        read_card(runs / f"tiny{best}.safetensors").name for best in ("", ".best")
    } == {
        "tiny",
        "tiny.best",
    }


def test_the_best_weights_of_a_run_without_a_checkpoint_are_not_replaced(trained, runs):
    (runs / "tiny.checkpoint").unlink()
    (runs / "tiny.safetensors").unlink()
    best = runs / "tiny.best.safetensors"
    before = best.read_bytes()
    for init in ((), [best]):
        with pytest.raises(
            ConfigError, match="tiny.best.safetensors: already exists, without"
        ):
            train(trained.config, runs, device="cpu", init=init)
    assert best.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"blocks": 3}}, r"\[model\] blocks was 2 and is 3"),
        ({"model": {"heads": 2}}, r"\[model\] heads was 1 and is 2"),
        ({"data": {"chroma_share": 0.5}}, r"\[data\] chroma_share was 0.2 and is 0.5"),
        (
            {"training": {"sigma": [20.0]}},
            r"\[training\] sigma was \(10.0, 40.0\) and is \(20.0,\)",
        ),
        ({"training": {"batch": 8}}, r"\[training\] batch was 16 and is 8"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_the_difference_named(
    trained, tmp_path, changes, message
):
    with pytest.raises(
        ConfigError, match=f"belongs to another run: {message}; change them back"
    ):
        train(tiny_run(tmp_path, changes), trained.folder, resume=True)


def test_a_checkpoint_of_a_version_without_a_setting_says_what_to_do(trained, runs):
    checkpoint = runs / "tiny.checkpoint"
    state = torch.load(checkpoint, weights_only=True)
    del state["identity"]["[data] frames"]  # as before 28 November
    torch.save(state, checkpoint)
    with pytest.raises(
        ConfigError,
        match=r"another version of vidrestore.* \[data\] frames; .* `init` = its",
    ):
        train(trained.config, runs, resume=True, device="cpu")


def test_the_weight_decay_may_be_another_in_a_resumed_run(tmp_path):
    first = Run(
        pair_run(tmp_path, training={"weight_decay": 0.1}), tmp_path / "runs", CPU
    )
    first.save_checkpoint()
    resumed = Run(
        pair_run(tmp_path, training={"weight_decay": 0.01}), tmp_path / "runs", CPU
    )
    resumed.load_checkpoint()
    assert [
        group["weight_decay"] for group in resumed.learner.optimiser.param_groups
    ] == [0.01]


# Checkpoints that are no good, disks that are full


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_checkpoint_is_refused_and_left_alone(trained, runs, share):
    checkpoint = runs / "tiny.checkpoint"
    content = checkpoint.read_bytes()[: int(share * checkpoint.stat().st_size)]
    checkpoint.write_bytes(content)
    with pytest.raises(
        CheckpointError,
        match="tiny.checkpoint: can't be read as a checkpoint; remove it",
    ):
        train(trained.config, runs, resume=True, device="cpu")
    assert checkpoint.read_bytes() == content


def test_a_checkpoint_with_other_bytes_in_its_middle_is_refused(trained, runs):
    run = Run(trained.config, runs, CPU)
    run.load_checkpoint()
    content = bytearray(run.checkpoint.read_bytes())
    content[
        content.index(
            next(iter(run.network.state_dict().values())).numpy().tobytes()[:64]
        )
        + 8
    ] ^= 1
    run.checkpoint.write_bytes(content)
    with pytest.raises(CheckpointError, match="can't be read as a checkpoint"):
        run.load_checkpoint()


BEST = {"step": 1, "psnr": 30.0, "weights": {}}


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize(
    "change",
    [
        {"best": 3},
        {"best": BEST},
        {"best": BEST | {"step": "x"}},
        {"network": [1]},
        {"network": {"other": torch.zeros(1)}},
        {"optimiser": None},
        {"optimiser": {"state": {}, "param_groups": torch.zeros(1)}},
        {"identity": [1]},
        {"identity": {"task": torch.zeros(2)}},
        {"plateau": "x"},
        {"plateau": {"waited": 0, "share": "x"}},
        {"step": "1"},
        {"step": -1},
        {"seconds": None},
        {"curve": [1]},
    ],
    ids=str,
)
def test_a_checkpoint_of_wrong_types_is_one_line_that_names_it(trained, runs, change):
    run = Run(trained.config, runs, CPU)
    torch.save(torch.load(run.checkpoint, weights_only=True) | change, run.checkpoint)
    with pytest.raises(
        VidRestoreError,
        match="tiny.checkpoint: (is of another network|can't be read as a checkpoint)",
    ):
        run.load_checkpoint()


def test_a_checkpoint_that_can_not_be_written_leaves_the_one_before(
    trained, tmp_path, monkeypatch
):
    run, full = (
        Run(trained.config, tmp_path, CPU),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    )

    def fail(descriptor: int) -> None:
        raise full

    for step, remains in (
        (0, "there is no earlier one"),
        (2, "the earlier one is unchanged"),
    ):
        with (
            monkeypatch.context() as patched,
            pytest.raises(
                CheckpointError,
                match=f"step {step} can't be written .No space.*; {remains}",
            ),
        ):
            patched.setattr(os, "fsync", fail)
            run.save_checkpoint()
        run.update(*batch())
        if step == 0:
            run.save_checkpoint()
            run.update(*batch())
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.checkpoint"]
    run.load_checkpoint()
    assert run.step == 1


# Divergence


def test_divergence_stops_the_run_and_names_the_last_good_checkpoint(
    tmp_path, monkeypatch
):
    config = tiny_run(tmp_path, {"training": {"checkpoint_minutes": 0.0}})
    update = Run.update

    def spoiled(self: Run, clean: torch.Tensor, sigma: float) -> torch.Tensor:
        return update(self, clean * float("nan") if self.step == 7 else clean, sigma)

    monkeypatch.setattr(Run, "update", spoiled)
    with pytest.raises(ConfigError) as error:
        train(config, tmp_path / "runs", device="cpu")
    message = str(error.value)
    assert (
        "training diverged at step 7 (loss nan" in message
        and "lower training.learning_rate" in message
    )
    assert (
        f"{tmp_path / 'runs' / 'tiny.checkpoint'} holds the last step that was saved"
        in message
    )
    assert "tiny.best.safetensors the best weights, of step 5" in message
    run = Run(config, tmp_path / "runs", CPU)
    run.load_checkpoint()
    assert run.step == 7
    assert all(tensor.isfinite().all() for tensor in run.network.state_dict().values())
    monkeypatch.setattr(Run, "update", update)
    assert (
        read_card(train(config, tmp_path / "runs", resume=True, device="cpu")).training[
            "steps"
        ]
        == 12
    )


# Best and last, average, precision


def measured(run: Run, monkeypatch: pytest.MonkeyPatch, *figures: float) -> list[bool]:
    """Train a step before each validation, which comes to the given PSNR."""
    found, objective = [], run.learner.objective
    for psnr in figures:
        run.update(*batch(float(100 + run.step)))
        monkeypatch.setattr(
            objective, "metrics", lambda network, held_out, psnr=psnr: {20.0: psnr}
        )
        found.append(run.validate(None).best)
    return found


def test_the_best_weights_are_kept_beside_those_of_the_last_step(tmp_path, monkeypatch):
    run = Run(tiny_run(tmp_path), tmp_path / "runs", CPU)
    assert measured(run, monkeypatch, 30.0, 32.0) == [True, True]
    kept = {
        name: tensor.half() for name, tensor in run.learner.average.state_dict().items()
    }
    assert measured(run, monkeypatch, float("nan"), 31.0) == [False, False]
    best = load_model(run.best_path)
    assert all(
        torch.equal(tensor.half(), kept[name])
        for name, tensor in best.network.state_dict().items()
    )
    assert best.card.training["steps"] == 2
    assert best.card.measured == {"held-out groups, sigma 20": {"psnr": 32.0}}
    run.save_checkpoint()
    again = Run(run.config, tmp_path / "runs", CPU)
    again.load_checkpoint()
    card = read_card(again.save_weights())
    assert card.training["steps"] == 4
    assert card.measured["held-out groups, sigma 20"]["psnr"] == 31.0
    assert measured(again, monkeypatch, 31.9) == [False]


def test_the_rate_falls_on_a_plateau_and_stays_there_when_resumed(
    tmp_path, monkeypatch
):
    settings = {"schedule": "plateau", "patience": 2, "factor": 0.5, "warmup": 0}
    run = Run(tiny_run(tmp_path, {"training": settings}), tmp_path / "runs", CPU)
    measured(run, monkeypatch, 30.0, 29.0, 30.0)
    run.save_checkpoint()
    resumed = Run(run.config, tmp_path / "runs", CPU)
    resumed.load_checkpoint()
    rates = [part.validations.learning_rate(part.step) for part in (run, resumed)]
    assert rates == [0.0015, 0.0015]


def test_without_an_average_the_network_itself_is_kept(tmp_path):
    run = Run(tiny_run(tmp_path, {"training": {"average": 0.0}}), tmp_path, CPU)
    for _ in range(3):
        run.update(*batch())
    assert equal(run.learner.average.state_dict(), run.network.state_dict())
