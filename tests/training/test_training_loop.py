"""Training as a whole: it learns, it can be stopped and resumed without a trace, and what it writes is the
averaged network.
"""

import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from command_line import run as command
from commands import Command, Commands
from training_runs import SMALL_VALIDATION, RecordedEvents, tiny_run, write_clips, write_config

from vidrestore.errors import CheckpointError, ConfigError, OptionError
from vidrestore.files.stopping import interrupts_held
from vidrestore.restorers.devices import torch_device
from vidrestore.training import loop
from vidrestore.training.config import TrainingConfig, read_config
from vidrestore.training.data.batches import WorkerError
from vidrestore.training.loop import Run, rehearse, train
from vidrestore.training.objective import batch_loss, group_psnr, validation_sigmas
from vidrestore.training.schedule import learning_rate
from vidrestore.training.training_events import Began, Interrupted, Validated
from vidrestore.weights import load_model, read_card

CPU = torch.device("cpu")
PRINTED = {"kind": "printed", "degree": None, "temperature": True}


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return load_model(path).network.state_dict()


def equal(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name]) for name, tensor in one.items()
    )


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the update that begins at `step`."""
    update = Run.update

    def interrupted(self: Run, clean: torch.Tensor, sigma: float) -> float:
        if self.step == step:
            signal.raise_signal(signal.SIGINT)
        return update(self, clean, sigma)

    monkeypatch.setattr(Run, "update", interrupted)


# Learning


def test_the_learning_rate_warms_up_stays_and_falls_to_a_hundredth():
    settings = TrainingConfig(steps=1000, learning_rate=2.0, warmup=100, decay=0.4)
    assert [learning_rate(step, settings) for step in (0, 49, 99, 300, 600)] == pytest.approx(
        [0.02, 1.0, 2.0, 2.0, 2.0]
    )
    # half way down the half cosine
    assert learning_rate(800, settings) == pytest.approx(2 * (0.01 + 0.99 * 0.5))
    assert learning_rate(999, settings) == pytest.approx(0.02, rel=0.01)
    rates = [learning_rate(step, settings) for step in range(600, 1000)]
    assert rates == sorted(rates, reverse=True)


def test_without_warm_up_or_decay_the_learning_rate_is_constant():
    settings = TrainingConfig(steps=10, learning_rate=0.5, warmup=0, decay=0.0)
    assert {learning_rate(step, settings) for step in range(10)} == {0.5}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": PRINTED, "training": {"sigma": [20.0]}},
        {"": {"task": "recover"}, "model": PRINTED | {"measurements": 6}, "training": {"sigma": [0.0]}},
    ],
    ids=["every sigma", "printed, one sigma", "compressed sensing"],
)
def test_a_few_dozen_steps_make_the_network_better(tmp_path, changes):
    training = {"steps": 40, "validate_every": 4} | changes.get("training", {})
    events = RecordedEvents()
    train(tiny_run(tmp_path, changes | {"training": training}), tmp_path / "runs", on_event=events)
    first, last = events[1], events[-1]
    assert last.loss < 0.9 * first.loss
    assert all(last.psnr[sigma] > first.psnr[sigma] for sigma in first.psnr)


def test_a_run_reports_its_beginning_each_validation_and_the_end(tmp_path):
    events = RecordedEvents()
    train(tiny_run(tmp_path), tmp_path / "runs", on_event=events)
    assert events[0] == Began(0, 12, str(torch_device("auto")), None)
    assert [(event.step, list(event.psnr)) for event in events[1:]] == [
        (5, [20.0]),
        (10, [20.0]),
        (12, [20.0]),
    ]
    assert all(isinstance(event, Validated) and math.isfinite(event.loss) for event in events[1:])


def test_validation_is_at_the_usual_levels_that_were_trained():
    assert validation_sigmas((1.0, 75.0)) == (5.0, 20.0, 50.0)
    assert validation_sigmas((10.0, 30.0)) == (20.0,)
    assert validation_sigmas((25.0,)) == (25.0,)


def test_a_range_without_a_usual_level_is_measured_at_its_geometric_middle():
    assert validation_sigmas((25.0, 45.0)) == (33.5,)
    assert validation_sigmas((60.0, 90.0)) == (73.5,)
    assert validation_sigmas((50.001, 50.002)) == (50.001,)


def test_the_loss_is_the_squared_error_after_noise_weighted_by_its_level(tmp_path):
    network = Run(tiny_run(tmp_path), tmp_path, CPU).network
    clean = 255 * torch.rand(4, 20, 16).round_()
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(7))
    noisy = (clean + 20 * noise).round().clamp(0, 255)
    expected = (network(noisy, 20.0) - clean).square().mean() / 20**1.3
    torch.testing.assert_close(batch_loss(network, clean, 20.0, 7, "fp32"), expected, rtol=1e-4, atol=0)


def test_noise_stays_as_drawn_where_it_is_not_to_be_clipped(tmp_path):
    run = Run(tiny_run(tmp_path, {"training": {"clip_noise": False, "sigma": [60.0]}}), tmp_path, CPU)
    clean = 255 * torch.rand(4, 20, 16).round_()
    run.step = 5
    noise = torch.randn(
        clean.shape, generator=torch.Generator().manual_seed((run.config.training.seed << 32) + 5)
    )
    expected = (run.network(clean + 60 * noise, 60.0) - clean).square().mean() / 60**1.3
    torch.testing.assert_close(run.objective.loss(run.network, (clean, 60.0), 5), expected, rtol=1e-4, atol=0)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        error = (run.network(clean + 60 * noise, 60.0).clamp(0, 255) - clean).square().mean()
    assert run.objective.metrics(run.network, clean)[60.0] == pytest.approx(
        10 * math.log10(255**2 / float(error)), abs=1e-3
    )


def test_noise_of_compressed_sensing_is_added_to_the_measurements(tmp_path):
    network = Run(
        tiny_run(tmp_path, {"": {"task": "recover"}, "model": PRINTED | {"measurements": 6}}), tmp_path, CPU
    ).network
    clean = 255 * torch.rand(4, 20, 16)
    noise = torch.randn(4, 20, 6, generator=torch.Generator().manual_seed(7))
    measured = network.measure(clean)  # type: ignore[operator]
    expected = (network(measured + 20 * noise) - clean).square().mean() / 20**1.3
    torch.testing.assert_close(batch_loss(network, clean, 20.0, 7, "fp32"), expected, rtol=1e-4, atol=0)


def test_psnr_is_over_all_groups_together_on_the_scale_of_255(tmp_path):
    network = Run(
        tiny_run(tmp_path, {"": {"task": "recover"}, "model": PRINTED | {"measurements": 6}}), tmp_path, CPU
    ).network
    groups = torch.randint(0, 256, (450, 20, 16), dtype=torch.uint8)
    with torch.no_grad():
        error = network(network.measure(groups.float())).clamp(0, 255) - groups  # type: ignore[operator]
    assert group_psnr(network, groups, 0.0, "fp32") == pytest.approx(
        10 * math.log10(255**2 / float(error.square().mean())), abs=1e-3
    )


def test_training_that_diverges_is_noticed_when_its_loss_is_read(tmp_path):
    run = Run(tiny_run(tmp_path), tmp_path, CPU)
    run.update(255 * torch.rand(2, 20, 16), 20.0)
    run.update(torch.full((2, 20, 16), float("nan")), 20.0)
    with pytest.raises(
        ConfigError, match="tiny: training diverged at step 1 .* try a lower training.learning_rate"
    ):
        run.read()


# What is written


def test_the_weights_are_the_averaged_network_and_say_how_they_came_about(tmp_path):
    run = Run(tiny_run(tmp_path), tmp_path, CPU)
    run.train(lambda event: None)
    path = run.save_weights()
    halves = {name: tensor.half().float() for name, tensor in run.average.state_dict().items()}
    assert equal(tensors(path), halves)
    assert not torch.allclose(run.average.dictionary, run.network.dictionary)  # type: ignore[arg-type]
    card = read_card(path)
    assert (card.name, card.family, card.task, card.parameters) == (
        "tiny",
        "dust",
        "denoise",
        {"sigma": [10.0, 40.0]},
    )
    assert card.config == {"kind": "sigma", "patch": 4, "atoms": 64, "blocks": 2, "heads": 1, "degree": 1}
    assert card.training["command"] == "vidrestore train --config tiny.toml"
    assert card.training["data"] == "clips: clips; held out: held.mkv"
    assert (card.training["steps"], [point["step"] for point in card.training["curve"]]) == (12, [5, 10, 12])
    assert card.measured == {"held-out groups, sigma 20": {"psnr": card.training["curve"][-1]["psnr"]["20"]}}


def test_the_average_follows_the_network_quickly_at_first(tmp_path):
    run = Run(tiny_run(tmp_path), tmp_path, CPU)
    start = run.network.dictionary.detach().clone()  # type: ignore[operator, union-attr]
    run.update(255 * torch.rand(8, 20, 16), 20.0)
    first = run.network.dictionary.detach().clone()  # type: ignore[operator, union-attr]
    torch.testing.assert_close(run.average.dictionary, 0.1 * start + 0.9 * first)


def test_parameters_of_the_configuration_go_onto_the_card(tmp_path):
    run = Run(tiny_run(tmp_path, {"parameters": {"rate": 0.375}}), tmp_path, CPU)
    assert read_card(run.save_weights()).parameters == {"rate": 0.375}


def test_the_same_run_gives_the_same_file_however_long_it_takes(tmp_path, monkeypatch):
    one = train(tiny_run(tmp_path), tmp_path / "one", device="cpu")
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", Mock(monotonic=lambda: 1e5 * time.monotonic()))
        two = train(tiny_run(tmp_path), tmp_path / "two", device="cpu")
    assert two.read_bytes() == one.read_bytes()
    other = tiny_run(tmp_path, {"training": {"seed": 1}})
    assert not equal(tensors(train(other, tmp_path / "three", device="cpu")), tensors(one))


def test_training_leaves_the_callers_random_numbers_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(tiny_run(tmp_path, {"training": {"steps": 2}}), tmp_path / "runs", device="cpu")
    assert torch.equal(torch.rand(3), expected)


# Stopping and going on


@pytest.mark.parametrize("step", [0, 7])
def test_an_interrupted_run_resumed_equals_one_that_was_not_interrupted(tmp_path, monkeypatch, step):
    config, events = tiny_run(tmp_path), RecordedEvents()
    expected = tensors(train(config, tmp_path / "whole", device="cpu"))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        interrupt_at(step, patched)
        train(config, tmp_path / "halves", device="cpu", on_event=events)
    checkpoint = tmp_path / "halves" / "tiny.checkpoint"
    assert events[-1] == Interrupted(step + 1, checkpoint)  # the step that was under way is done
    assert {path.name for path in checkpoint.parent.iterdir()} >= {"tiny.checkpoint", "tiny.log.jsonl"}
    assert not (checkpoint.parent / "tiny.safetensors").exists()
    resumed = train(config, tmp_path / "halves", resume=True, device="cpu", on_event=events)
    assert Began(step + 1, 12, "cpu", checkpoint) in events
    assert equal(tensors(resumed), expected)
    assert [point["step"] for point in read_card(resumed).training["curve"]] == [5, 10, 12]


def test_a_run_that_stops_by_itself_goes_on_to_the_same_weights(tmp_path, capsys, monkeypatch):
    config, events = tiny_run(tmp_path), RecordedEvents()
    expected = tensors(train(config, tmp_path / "whole", device="cpu"))
    moments = iter(range(1000))  # a second for each look at the clock
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", Mock(monotonic=lambda: float(next(moments))))
        stopped = train(config, tmp_path / "parts", device="cpu", stop_after=9.0, on_event=events)
    assert stopped == tmp_path / "parts" / "tiny.checkpoint"
    assert events[-1] == Interrupted(events[-1].step, stopped) and 0 < events[-1].step < 12
    assert not (tmp_path / "parts" / "tiny.safetensors").exists()
    resumed = train(config, tmp_path / "parts", resume=True, device="cpu", stop_after=600.0)
    assert equal(tensors(resumed), expected)
    command = ["--config", config.path, "-o", tmp_path / "command", "--device", "cpu", "--stop-after", "0"]
    assert run_command(*command) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "command" / "tiny.checkpoint")
    assert "stopped: step 0 is in" in said.err


def test_a_checkpoint_holds_the_step_and_the_state_of_the_optimiser(tmp_path):
    run = Run(tiny_run(tmp_path), tmp_path, CPU)
    run.update(255 * torch.rand(8, 20, 16), 20.0)
    run.seconds = 5.0
    run.save_checkpoint()
    again = Run(run.config, tmp_path, CPU)
    again.load_checkpoint()
    assert (again.step, again.seconds, again.curve) == (1, 5.0, [])
    assert equal(again.network.state_dict(), run.network.state_dict())
    assert equal(again.average.state_dict(), run.average.state_dict())
    moments, expected = again.optimiser.state_dict()["state"], run.optimiser.state_dict()["state"]
    assert moments.keys() == expected.keys()
    assert all(equal(moments[number], expected[number]) for number in moments)


def test_a_finished_run_resumed_only_writes_its_weights_again(tmp_path, monkeypatch):
    config = tiny_run(tmp_path)
    expected = tensors(train(config, tmp_path / "runs", device="cpu"))
    (tmp_path / "runs" / "tiny.safetensors").unlink()
    monkeypatch.setattr(loop, "make_data", lambda *given: pytest.fail("nothing is left to train"))
    assert equal(tensors(train(config, tmp_path / "runs", resume=True, device="cpu")), expected)


def test_two_processes_do_not_train_into_the_same_files(tmp_path):
    config = tiny_run(tmp_path)
    refused: list[str] = []

    def second(event: object) -> None:
        if isinstance(event, Began):
            for resume in (False, True):
                with pytest.raises(ConfigError) as raised:
                    train(config, tmp_path / "runs", resume=resume, device="cpu")
                refused.append(str(raised.value))
            train(replace(config, name="other"), tmp_path / "runs", device="cpu")

    train(config, tmp_path / "runs", device="cpu", on_event=second)
    assert len(refused) == 2 and all(
        f"tiny.checkpoint in {tmp_path / 'runs'}: process {os.getpid()} on " in said for said in refused
    )
    assert "choose another `output`" in refused[0]
    assert not list((tmp_path / "runs").glob("*.claim"))


def test_weights_without_a_checkpoint_are_not_overwritten_by_a_new_run(tmp_path):
    config = tiny_run(tmp_path)
    weights = train(config, tmp_path / "runs", device="cpu")
    (tmp_path / "runs" / "tiny.checkpoint").unlink()
    content = weights.read_bytes()
    for resume in (False, True):
        with pytest.raises(
            ConfigError, match="tiny.safetensors: already exists, without the checkpoint of its run"
        ):
            train(config, tmp_path / "runs", device="cpu", resume=resume, init=weights)
    assert weights.read_bytes() == content


def test_a_checkpoint_is_not_overwritten_by_a_new_run(tmp_path):
    config = tiny_run(tmp_path)
    Run(config, tmp_path / "runs", CPU).save_checkpoint()
    with pytest.raises(
        ConfigError, match="tiny.checkpoint: belongs to an earlier run; continue it with `resume`"
    ):
        train(config, tmp_path / "runs")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"blocks": 3}}, r"\[model\] blocks was 2 and is 3"),
        ({"model": {"heads": 2}}, r"\[model\] heads was 1 and is 2"),
        ({"data": {"chroma_share": 0.5}}, r"\[data\] chroma_share was 0.2 and is 0.5"),
        ({"training": {"sigma": [20.0]}}, r"\[training\] sigma was \(10.0, 40.0\) and is \(20.0,\)"),
        ({"training": {"batch": 8}}, r"\[training\] batch was 16 and is 8"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_the_difference_named(tmp_path, changes, message):
    Run(tiny_run(tmp_path), tmp_path / "runs", CPU).save_checkpoint()
    with pytest.raises(
        ConfigError, match=f"tiny.checkpoint: belongs to another run: {message}; change them back"
    ):
        train(tiny_run(tmp_path, changes), tmp_path / "runs", resume=True)


def test_a_run_may_be_made_longer_and_slower(tmp_path):
    train(tiny_run(tmp_path), tmp_path / "runs", device="cpu")
    config = tiny_run(tmp_path, {"training": {"steps": 15, "learning_rate": 0.001}})
    assert read_card(train(config, tmp_path / "runs", resume=True, device="cpu")).training["steps"] == 15


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_wait_for_the_end_of_a_block_and_then_do_what_they_would_have_done(number):
    done = []
    usual = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_held():
            signal.raise_signal(number)
            done.append("the block")
    finally:
        signal.signal(number, usual)
    assert done == ["the block"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)  # ignored before, ignored after
    finally:
        signal.signal(signal.SIGINT, before)


# Starting from other weights


def test_init_starts_from_given_weights(tmp_path):
    given = train(tiny_run(tmp_path), tmp_path / "given", device="cpu")
    run = Run(tiny_run(tmp_path, {"training": {"seed": 9}}), tmp_path, CPU)
    run.initialise_from(given)
    assert equal(run.network.state_dict(), tensors(given))
    assert equal(run.average.state_dict(), tensors(given))
    assert run.step == 0


def test_the_command_on_the_card_names_the_weights_that_a_run_started_from_and_a_resumed_one_too(tmp_path):
    given = train(tiny_run(tmp_path), tmp_path / "given", device="cpu")
    for settings, resume in (({}, False), ({"training": {"steps": 14}}, True)):
        path = train(
            tiny_run(tmp_path, settings),
            tmp_path / "tuned",
            init=None if resume else given,
            resume=resume,
            device="cpu",
        )
        assert read_card(path).training["command"] == f"vidrestore train --config tiny.toml --init {given}"


def test_init_of_another_network_is_refused(tmp_path):
    given = train(tiny_run(tmp_path, {"training": {"steps": 1}}), tmp_path / "given", device="cpu")
    for model in ({"blocks": 3}, PRINTED):
        with pytest.raises(
            CheckpointError, match="tiny.safetensors: weights of dust .*, but the configuration asks for dust"
        ):
            train(tiny_run(tmp_path, {"model": model}), tmp_path / "runs", init=given)


# Wrong configurations, devices, the command


def test_wrong_data_is_an_error_before_training(tmp_path):
    config = tiny_run(tmp_path)
    for data, message in (
        (replace(config.data, clips="nowhere"), "nowhere: no such folder"),
        (replace(config.data, stills="nowhere"), "nowhere: no such folder"),
        (
            replace(config.data, validation=("gone.mkv",)),
            "clips: no file gone.mkv, which data.validation names",
        ),
        (
            replace(config.data, strides=(4, 5)),
            r"tiny.toml, \[data\]: strides must be at most the patch's 4 pixels, found \[4, 5\]",
        ),
        (
            replace(config.data, validation=("one.mkv", "two.mkv", "held.mkv")),
            "no clips and no photos to train on",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            train(replace(config, data=data), tmp_path / "runs", device="cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"": {"family": "dusk"}}, "dusk"), ({"model": {"atoms": 60}}, "atoms must be a square")],
)
def test_a_model_that_can_not_be_is_an_error_of_the_configuration(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=f"tiny.toml: .*{message}"):
        train(tiny_run(tmp_path, changes), tmp_path / "runs")


@pytest.mark.parametrize("value", ["[2]", "[3, -3]", "7"])
def test_a_limit_of_offsets_that_is_no_range_is_an_error_of_the_configuration(repository, value, capsys):
    config = repository / "examples" / "train" / "mb-taylorformer-h-derain.toml"
    assert run_command("--config", config, "--print-config", "--set", f"model.offset_limit={value}") == 1
    assert "offset_limit" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["inf", "nan"])
def test_a_cache_has_a_size(tmp_path, size, capsys):
    assert run_command("--config", write_config(tmp_path), "--cache-gb", size) == 2
    assert "--cache-gb" in capsys.readouterr().err


def test_a_dry_run_is_done_where_the_system_does_not_say_its_memory(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    monkeypatch.delitem(sys.modules, "vidrestore.training.loop", raising=False)
    assert import_module("vidrestore.training.loop").memory_used().startswith("unknown memory")


def test_a_dry_run_whose_worker_ends_is_an_error(tmp_path, monkeypatch):
    def killed(self: Run, *batch: object) -> float:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    monkeypatch.setattr(Run, "update", killed)
    with pytest.raises(
        WorkerError, match="a process that makes batches has ended .*fewer `workers` if memory ran out"
    ):
        list(rehearse(tiny_run(tmp_path), device="cpu"))


def test_an_output_that_can_not_be_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file: can't create this folder"):
        train(tiny_run(tmp_path), tmp_path / "file")


def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert torch_device("auto") == torch_device("cpu") == CPU
    with pytest.raises(OptionError, match="torch sees .* CUDA devices; use `device=cpu`"):
        torch_device("cuda")
    with pytest.raises(OptionError, match="device 'tpu' is unknown"):
        train(tiny_run(tmp_path), tmp_path / "runs", device="tpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_on_a_gpu_can_be_resumed_on_a_cpu(tmp_path):
    train(tiny_run(tmp_path), tmp_path / "runs", device="cuda")
    config = tiny_run(tmp_path, {"training": {"steps": 20}})
    assert read_card(train(config, tmp_path / "runs", resume=True, device="cpu")).training["steps"] == 20


run_command = partial(command, "train")


def test_the_command_prints_progress_on_stderr_and_the_path_on_stdout(tmp_path, capsys):
    write_clips(tmp_path)
    config = write_config(tmp_path)
    assert run_command("--config", config, "-o", tmp_path / "runs", "--device", "cpu") == 0
    written = capsys.readouterr()
    assert written.out == f"{tmp_path / 'runs' / 'tiny.safetensors'}\n"
    lines = written.err.splitlines()
    assert lines[:2] == ["loading", "step 0 of 12, on cpu, from the beginning: no checkpoint yet"]
    stages = ["reading data", "making the first batches", "training", "validating"]
    assert [line.split("  ")[0] for line in lines[2:]] == [*stages, "step 5", "step 10", "step 12", "saving"]
    assert "sigma 20: " in lines[-2]
    assert run_command("--config", config, "-o", tmp_path / "runs", "--resume", "--device", "cpu") == 0
    assert f"step 12 of 12, on cpu, from {tmp_path / 'runs' / 'tiny.checkpoint'}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"data": {"clips": "nowhere"}}, "nowhere: no such folder"), ({"data": {"clip": "a"}}, "unknown: clip")],
)
def test_a_wrong_configuration_is_one_line_and_exit_code_1(tmp_path, capsys, changes, message):
    assert run_command("--config", write_config(tmp_path, changes), "-o", tmp_path / "runs") == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("vidrestore: ")]
    assert len(errors) == 1
    assert message in errors[0]


@pytest.mark.skipif(os.name == "nt", reason="needs a signal that can be sent to one process")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_sigterm_saves_a_checkpoint_and_ends_with_130(commands, tmp_path, number):
    with endless_run(commands, tmp_path) as command:
        command.send(number)
        assert command.wait() == 130
    assert command.read("output") == ""
    assert "stopped: step " in command.said
    assert "Traceback" not in command.said
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


@contextmanager
def endless_run(commands: Commands, folder: Path, *options: object) -> Iterator[Command]:
    """A training that is past its second step."""
    write_clips(folder)
    config = write_config(folder, {"training": {"steps": 1_000_000, "validate_every": 1}})
    train = ["--config", config, "-o", folder / "runs", "--threads", "1", "--device", "cpu", *options]
    command = commands.start("train", *train, before=SMALL_VALIDATION)
    try:
        yield command.until(lambda: "\nstep 2 " in command.said)
    finally:
        command.kill()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs to find the processes of another one")
@pytest.mark.slow
def test_a_run_whose_worker_is_killed_saves_a_checkpoint_with_a_warning(commands, tmp_path):
    with endless_run(commands, tmp_path, "--workers", "1") as command:
        workers = [
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit()
            and is_worker(folder, command.pid)  # multiprocessing's tracker of resources is no worker
        ]
        os.kill(workers[0], signal.SIGKILL)
        assert command.wait() == 1
    said = command.said
    assert "vidrestore: a process that makes batches has ended" in said and "go on with --resume" in said
    assert "Traceback" not in said
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


def is_worker(folder: Path, parent: int) -> bool:
    try:
        status, command = (folder / "status").read_text(), (folder / "cmdline").read_bytes()
    except OSError:  # it has just ended
        return False
    return f"PPid:\t{parent}\n" in status and b"spawn_main" in command


@pytest.mark.skipif(os.name == "nt", reason="needs groups of processes")
@pytest.mark.slow
def test_what_stops_all_processes_of_a_run_at_once_saves_a_checkpoint_too(commands, tmp_path):
    with endless_run(commands, tmp_path, "--workers", "1") as command:
        os.killpg(command.pid, signal.SIGTERM)
        assert command.wait() == 130
    assert "stopped: step " in command.said and "Traceback" not in command.said
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


def test_memory_that_ran_out_is_an_error_that_names_the_batch(tmp_path, monkeypatch):
    for raised in (
        MemoryError("Unable to allocate 3 TiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"),
    ):
        with (
            monkeypatch.context() as patched,
            pytest.raises(ConfigError, match=r"tiny.toml: memory ran out \(.*training.batch than 16$"),
        ):
            patched.setattr(Run, "update", lambda self, *batch, error=raised: throw(error))
            train(tiny_run(tmp_path), tmp_path / "runs", device="cpu")
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="^another$"):
        patched.setattr(Run, "update", lambda self, *batch: throw(RuntimeError("another")))
        train(tiny_run(tmp_path), tmp_path / "runs", device="cpu")


def throw(error: BaseException) -> None:
    raise error


def test_settings_of_the_command_stand_in_place_of_the_files(tmp_path, capsys):
    config = write_config(tmp_path)
    assert (
        run_command(
            "--config", config, "--set", "training.steps=3", "--set", "model.atoms=256", "--print-config"
        )
        == 0
    )
    (tmp_path / "tiny.toml").write_text(capsys.readouterr().out)
    again = read_config(tmp_path / "tiny.toml")
    assert (again.training.steps, again.training.clip_norm, again.model["atoms"], again.model["heads"]) == (
        3,
        1.0,
        256,
        1,
    )
    assert run_command("--config", config, "--set", "training.step=3", "-o", tmp_path / "runs") == 1
    assert "unknown: step; there are: steps, " in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_does_one_step_of_everything_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    write_clips(tmp_path)
    (tmp_path / "temporary").mkdir()
    # what torch makes at its first optimiser is not ours
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    updates: list[int] = []
    update = Run.update
    monkeypatch.setattr(Run, "update", lambda self, *batch: updates.append(self.step) or update(self, *batch))  # type: ignore[func-returns-value]
    command = ["--config", write_config(tmp_path), "-o", tmp_path / "runs", "--device", "cpu", "--dry-run"]
    assert run_command(*command) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    done = [line.split(" s  ")[1].split(":")[0] for line in lines]
    checked = (
        "held-out data, first batch, update, second batch, validation, checkpoint written, checkpoint read"
    )
    assert done[1:] == [*checked.split(", "), "weights written", "weights loaded"]
    assert done[0].startswith("dust with ") and last.startswith("at most ")
    assert updates == [0]
    assert not (tmp_path / "runs").exists() and not list((tmp_path / "temporary").iterdir())
    assert run_command(*command, "--set", "data.clips=nowhere") == 1
