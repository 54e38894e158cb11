"""Runs that are killed, run out of disk, or diverge: what was reached stays, and going on ends as if nothing
had been.
"""

import errno
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pair_runs import pair_run
from training_runs import SMALL_VALIDATION, tiny_run, write_config

from vidrestore.errors import CheckpointError, ConfigError, VidRestoreError
from vidrestore.training import checkpoints
from vidrestore.training.checkpoints import write_checkpoint
from vidrestore.training.config import RunConfig
from vidrestore.training.loop import Run, train
from vidrestore.training.training_events import Stepped
from vidrestore.weights import load_model, read_card

CPU = torch.device("cpu")


def equal(one: Path, other: Path) -> bool:
    first, second = (load_model(path).network.state_dict() for path in (one, other))
    return first.keys() == second.keys() and all(
        torch.equal(tensor, second[name]) for name, tensor in first.items()
    )


def batch(value: float = 100.0) -> tuple[torch.Tensor, float]:
    return torch.full((8, 20, 16), value), 20.0


# Killed


@pytest.mark.skipif(os.name == "nt", reason="needs a signal that can't be caught")
@pytest.mark.slow
def test_a_run_that_is_killed_twice_and_resumed_ends_with_the_same_weights(commands, tmp_path):
    changes = {
        "training": {
            "steps": 24,
            "checkpoint_minutes": 0.0,
            "schedule": "plateau",
            "patience": 1,
            "final": "best",
        }
    }
    config = tiny_run(tmp_path, changes)
    expected = train(config, tmp_path / "whole", device="cpu")
    arguments = ["--config", write_config(tmp_path, changes), "-o", tmp_path / "killed", "--resume"]
    # other tests change it, and sums over parts are other sums
    arguments += ["--threads", torch.get_num_threads(), "--device", "cpu"]
    log = tmp_path / "killed" / "tiny.log.jsonl"
    for steps in (5, 13):
        command = commands.start("train", *arguments, before=SMALL_VALIDATION)
        command.until(lambda steps=steps: log.exists() and len(log.read_text().splitlines()) >= steps).kill()
        assert command.code == -signal.SIGKILL
        assert not (tmp_path / "killed" / "tiny.safetensors").exists()
    begins: list[int] = []
    resumed = train(
        config,
        tmp_path / "killed",
        resume=True,
        device="cpu",
        on_event=lambda event: begins.append(getattr(event, "step", -1)),
    )
    assert 12 <= begins[0] < 24
    assert equal(resumed, expected)
    names = ("tiny.best.safetensors", "tiny.log.jsonl")
    assert equal(tmp_path / "killed" / names[0], tmp_path / "whole" / names[0])
    both = [
        [line.split('"seconds"')[0] for line in (tmp_path / run / names[1]).read_text().splitlines()]
        for run in ("whole", "killed")
    ]
    assert both[0] == both[1] and len(both[0]) == 24


# Checkpoints that are no good, disks that are full


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_checkpoint_is_refused_and_left_alone(tmp_path, share):
    run = Run(tiny_run(tmp_path), tmp_path / "runs", CPU)
    run.update(*batch())
    run.save_checkpoint()
    content = run.checkpoint.read_bytes()[: int(share * run.checkpoint.stat().st_size)]
    run.checkpoint.write_bytes(content)
    with pytest.raises(CheckpointError, match="tiny.checkpoint: can't be read as a checkpoint; remove it"):
        train(run.config, tmp_path / "runs", resume=True, device="cpu")
    assert run.checkpoint.read_bytes() == content


def test_a_checkpoint_with_other_bytes_in_its_middle_is_refused(tmp_path):
    run = Run(tiny_run(tmp_path), tmp_path / "runs", CPU)
    run.save_checkpoint()
    content = bytearray(run.checkpoint.read_bytes())
    content[content.index(next(iter(run.network.state_dict().values())).numpy().tobytes()[:64]) + 8] ^= 1
    run.checkpoint.write_bytes(content)
    with pytest.raises(CheckpointError, match="can't be read as a checkpoint"):
        run.load_checkpoint()


def test_a_checkpoint_that_can_not_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    run = Run(tiny_run(tmp_path), tmp_path / "runs", CPU)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(descriptor: int) -> None:
        raise full

    with (
        monkeypatch.context() as patched,
        pytest.raises(CheckpointError, match="step 0 can't be written .No space.*; there is no earlier one"),
    ):
        patched.setattr(os, "fsync", fail)
        run.save_checkpoint()
    run.update(*batch())
    run.save_checkpoint()
    run.update(*batch())
    with (
        monkeypatch.context() as patched,
        pytest.raises(CheckpointError, match="tiny.checkpoint: step 2 .* the earlier one is unchanged"),
    ):
        patched.setattr(os, "fsync", fail)
        run.save_checkpoint()
    assert [path.name for path in run.checkpoint.parent.iterdir()] == ["tiny.checkpoint"]
    run.load_checkpoint()
    assert run.step == 1


class FullDisk(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 2000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_disk_that_is_full_within_a_checkpoint_is_said_in_words_and_with_its_space(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "replacing", lambda path: FullDisk())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Mock(free=1_500_000))
    match = "a.checkpoint: step 3 can't be written .No space left on device; 1.5 MB are free.; there is no"
    with pytest.raises(CheckpointError, match=match):
        write_checkpoint(tmp_path / "a.checkpoint", {"step": 3, "tensor": torch.rand(2000)})


FULL_DISK = """
import errno, os, sys
from pathlib import Path
from vidrestore.errors import CheckpointError, VidRestoreError
from vidrestore.training.data import sources
from vidrestore.training.config import read_config
from vidrestore.training.loop import Run, train
import torch

sources.VALIDATION_GROUPS = 40
config, output = read_config(Path(sys.argv[1])), Path(sys.argv[2])
run = Run(config, output, torch.device("cpu"))
run.save_checkpoint()
before = run.checkpoint.read_bytes()
size = 2 << 20
with (output / "filler").open("wb", buffering=0) as filler:
    while size:
        try:
            filler.write(bytes(size))
        except OSError as error:
            assert error.errno == errno.ENOSPC
            size //= 2
    filler.truncate(filler.tell() - (16 << 10))  # room for small things
try:
    train(config, output, resume=True, device="cpu")
except CheckpointError as error:
    assert "No space left on device" in str(error), error
    print(error)
else:
    sys.exit("nothing was noticed")
assert run.checkpoint.read_bytes() == before
(output / "filler").unlink()
train(config, output, resume=True, device="cpu")
print("went on")
"""


@pytest.mark.slow
def test_a_disk_that_is_full_stops_a_run_which_resumes_when_there_is_room(tmp_path):
    tiny_run(tmp_path)
    (tmp_path / "runs").mkdir()
    mounted = f"mount -t tmpfs -o size=8m none '{tmp_path}/runs'"
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        subprocess.run([*alone, mounted], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a disk of its own: unshare and a tmpfs")
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "tiny.toml"), str(tmp_path / "runs")]
    done = subprocess.run(
        [*alone, f"{mounted} && {shlex.join(command)}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout and "went on" in done.stdout


# Divergence


def test_divergence_stops_at_the_last_good_checkpoint_and_says_where(tmp_path, monkeypatch):
    config = tiny_run(tmp_path, {"training": {"checkpoint_minutes": 0.0}})
    update = Run.update

    def spoiled(self: Run, clean: torch.Tensor, sigma: float) -> float:
        return update(self, clean * float("nan") if self.step == 7 else clean, sigma)

    monkeypatch.setattr(Run, "update", spoiled)
    with pytest.raises(ConfigError) as error:
        train(config, tmp_path / "runs", device="cpu")
    message = str(error.value)
    assert "training diverged at step 7 (loss nan" in message
    assert f"{tmp_path / 'runs' / 'tiny.checkpoint'} holds the last step that was saved" in message
    assert "tiny.best.safetensors the best weights, of step 5" in message
    run = Run(config, tmp_path / "runs", CPU)
    run.load_checkpoint()
    assert run.step == 7
    assert all(tensor.isfinite().all() for tensor in run.network.state_dict().values())
    monkeypatch.setattr(Run, "update", update)
    assert read_card(train(config, tmp_path / "runs", resume=True, device="cpu")).training["steps"] == 12


# Best and last, average, precision


def measured(run: Run, monkeypatch: pytest.MonkeyPatch, *figures: float) -> list[bool]:
    """Train a step before each validation, which comes to the given PSNR."""
    found = []
    for psnr in figures:
        run.update(*batch(float(100 + run.step)))
        monkeypatch.setattr(run.objective, "metrics", lambda network, held_out, psnr=psnr: {20.0: psnr})
        found.append(run.validate(None, [1.0]).best)
    return found


@pytest.mark.parametrize(("final", "step"), [("last", 4), ("best", 2)])
def test_the_best_weights_are_kept_and_are_the_final_ones_where_asked_for(tmp_path, monkeypatch, final, step):
    run = Run(tiny_run(tmp_path, {"training": {"final": final}}), tmp_path / "runs", CPU)
    assert measured(run, monkeypatch, 30.0, 32.0) == [True, True]
    kept = {name: tensor.half() for name, tensor in run.average.state_dict().items()}
    assert measured(run, monkeypatch, float("nan"), 31.0) == [False, False]
    best = load_model(run.best_path)
    assert all(torch.equal(tensor.half(), kept[name]) for name, tensor in best.network.state_dict().items())
    assert best.card.training["steps"] == 2 and best.card.measured == {
        "held-out groups, sigma 20": {"psnr": 32.0}
    }
    run.save_checkpoint()
    again = Run(run.config, tmp_path / "runs", CPU)
    again.load_checkpoint()
    card = read_card(again.save_weights())
    assert card.training["steps"] == step
    assert card.measured["held-out groups, sigma 20"]["psnr"] == {4: 31.0, 2: 32.0}[step]
    assert equal(again.output / "tiny.safetensors", run.best_path) == (final == "best")
    assert measured(again, monkeypatch, 31.9) == [False]


def test_the_rate_falls_on_a_plateau_and_stays_there_when_resumed(tmp_path, monkeypatch):
    settings = {"schedule": "plateau", "patience": 2, "factor": 0.5, "warmup": 0}
    run = Run(tiny_run(tmp_path, {"training": settings}), tmp_path / "runs", CPU)
    measured(run, monkeypatch, 30.0, 29.0, 30.0)
    assert run.learning_rate == 0.0015
    run.save_checkpoint()
    again = Run(run.config, tmp_path / "runs", CPU)
    again.load_checkpoint()
    assert again.learning_rate == 0.0015


def test_without_an_average_the_network_itself_is_kept(tmp_path):
    run = Run(tiny_run(tmp_path, {"training": {"average": 0.0}}), tmp_path, CPU)
    for _ in range(3):
        run.update(*batch())
    assert all(
        torch.equal(tensor, run.network.state_dict()[name])
        for name, tensor in run.average.state_dict().items()
    )


def test_half_precision_with_a_scaler_learns_and_resumes(tmp_path):
    config = tiny_run(tmp_path, {"training": {"precision": "fp16"}})
    losses: dict[str, list[float]] = {"fp16": [], "fp32": []}
    for name, recipe in (("fp16", config), ("fp32", tiny_run(tmp_path))):
        values = losses[name]
        train(
            recipe,
            tmp_path / name,
            device="cpu",
            on_event=lambda event, values=values: isinstance(event, Stepped) and values.append(event.loss),
        )  # type: ignore[func-returns-value]
    assert losses["fp16"] != losses["fp32"]
    assert losses["fp16"][-1] == pytest.approx(losses["fp32"][-1], rel=0.1)
    run = Run(config, tmp_path / "fp16", CPU)
    run.load_checkpoint()
    assert run.scaler.state_dict()["_growth_tracker"] > 0


def test_a_step_that_overflows_in_half_precision_is_left_out_and_the_scale_reduced(tmp_path):
    run = Run(tiny_run(tmp_path, {"training": {"precision": "fp16"}}), tmp_path, CPU)
    run.scaler.load_state_dict(run.scaler.state_dict() | {"scale": 2.0**120})
    before = {name: tensor.clone() for name, tensor in run.network.state_dict().items()}
    run.update(*batch())
    assert run.step == 1 and run.scaler.get_scale() == 2.0**119
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.network.state_dict().items())


@pytest.mark.parametrize("later", [("best", "plateau", "scaler"), ("identity",)])
def test_checkpoints_of_before_a_value_was_saved_still_load(tmp_path, later):
    run = Run(tiny_run(tmp_path), tmp_path, CPU)
    run.update(*batch())
    run.save_checkpoint()
    state: dict[str, Any] = torch.load(run.checkpoint, weights_only=True)
    torch.save({name: value for name, value in state.items() if name not in later}, run.checkpoint)
    again = Run(run.config, tmp_path, CPU)
    again.load_checkpoint()
    assert (again.step, again.best, again.plateau.share) == (1, None, 1.0)


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
def test_a_checkpoint_of_wrong_types_is_one_line_that_names_it(tmp_path, change):
    run = Run(tiny_run(tmp_path), tmp_path, CPU)
    run.save_checkpoint()
    torch.save(torch.load(run.checkpoint, weights_only=True) | change, run.checkpoint)
    with pytest.raises(
        VidRestoreError, match="tiny.checkpoint: (is of another network|can't be read as a checkpoint)"
    ):
        run.load_checkpoint()


def test_the_command_on_the_card_has_the_settings_that_were_given(tmp_path):
    config: RunConfig = tiny_run(tmp_path)
    with_settings = type(config)(**{**vars(config), "settings": ("training.steps=3", "data.clips=my videos")})
    run = Run(with_settings, tmp_path, CPU)
    command = read_card(run.save_weights()).training["command"]
    assert (
        command == "vidrestore train --config tiny.toml --set training.steps=3 --set 'data.clips=my videos'"
    )


def test_a_run_that_is_interrupted_while_it_is_measured_is_measured_when_resumed(tmp_path, monkeypatch):
    config = tiny_run(tmp_path, {"training": {"schedule": "plateau", "patience": 1}})
    expected = train(config, tmp_path / "whole", device="cpu")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Run, "validate", lambda self, held_out, losses: signal.raise_signal(signal.SIGINT))
        train(config, tmp_path / "halves", device="cpu")
    resumed = train(config, tmp_path / "halves", resume=True, device="cpu")
    assert equal(resumed, expected)
    assert [point["step"] for point in read_card(resumed).training["curve"]] == [5, 10, 12]


def test_the_weight_decay_may_be_another_in_a_resumed_run(tmp_path):
    first = Run(pair_run(tmp_path, training={"weight_decay": 0.1}), tmp_path / "runs", CPU)
    first.save_checkpoint()
    resumed = Run(pair_run(tmp_path, training={"weight_decay": 0.01}), tmp_path / "runs", CPU)
    resumed.load_checkpoint()
    assert [group["weight_decay"] for group in resumed.optimiser.param_groups] == [0.01]


def test_a_value_that_came_later_is_no_difference_as_long_as_it_is_the_default(tmp_path):
    run = Run(tiny_run(tmp_path), tmp_path / "runs", CPU)
    run.save_checkpoint()
    state: dict[str, Any] = torch.load(run.checkpoint, weights_only=True)
    for name in ("[model] heads", "[data] chroma_share", "[training] clip_noise"):
        del state["identity"][name]
    torch.save(state, run.checkpoint)
    Run(run.config, tmp_path / "runs", CPU).load_checkpoint()
    for changes in (
        {"model": {"heads": 2}},
        {"data": {"chroma_share": 0.5}},
        {"training": {"clip_noise": False}},
    ):
        with pytest.raises(
            ConfigError,
            match="belongs to another run: .(model|data|training). (heads|chroma_share|clip_noise) was None",
        ):
            Run(tiny_run(tmp_path, changes), tmp_path / "runs", CPU).load_checkpoint()
