"""Signals, kills and full disks leave a run that resumes; several processes train as one does."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import Command, Commands, wait_for
from torch import distributed
from training_runs import SMALL_VALIDATION, tiny_run, write_clips, write_config

from vidrestore.errors import ConfigError
from vidrestore.lab.run_config import TrainingConfig
from vidrestore.lab.training.data.batches import Share
from vidrestore.lab.training.loop import Run, train
from vidrestore.lab.training.objective import batch_loss
from vidrestore.lab.training.parallel import LostError, ProcessGroup
from vidrestore.weights import load_model

CPU = torch.device("cpu")
EXACT = TrainingConfig(steps=1, precision="fp32")


# Signals


@contextmanager
def endless_run(
    commands: Commands, folder: Path, *options: object
) -> Iterator[Command]:
    """A training that is past its second step."""
    write_clips(folder)
    config = write_config(
        folder, {"training": {"steps": 1_000_000, "validate_every": 1}}
    )
    train = [
        "--config",
        config,
        "-o",
        folder / "runs",
        "--threads",
        "1",
        "--device",
        "cpu",
        *options,
    ]
    command = commands.start("train", *train, before=SMALL_VALIDATION)
    try:
        yield command.until(lambda: "\nstep 2 " in command.said)
    finally:
        command.kill()


def tracebacks_of(command: Command) -> list[str]:
    """What a command said of exceptions, but for those of Python's own tracker of resources, which complains
    when a signal reaches it in the middle of its work.
    """
    tracebacks = command.said.split("Traceback")[1:]
    return [
        traceback for traceback in tracebacks if "resource_tracker.py" not in traceback
    ]


@pytest.mark.skipif(
    os.name == "nt", reason="needs a signal that can be sent to one process"
)
def test_ctrl_c_saves_a_checkpoint_and_ends_with_130(commands, tmp_path):
    with endless_run(commands, tmp_path) as command:
        command.send(signal.SIGINT)
        assert command.wait() == 130
    assert command.read("output") == ""
    assert "stopped: step " in command.said and not tracebacks_of(command)
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


@pytest.mark.skipif(os.name == "nt", reason="needs groups of processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.slow
def test_a_signal_to_all_processes_of_a_run_saves_a_checkpoint_too(
    commands, tmp_path, number
):
    with endless_run(commands, tmp_path, "--workers", "1") as command:
        os.killpg(command.pid, number)
        assert command.wait() == 130
    assert "stopped: step " in command.said and not tracebacks_of(command)
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs to find the processes of another one"
)
@pytest.mark.slow
def test_a_run_whose_worker_is_killed_saves_a_checkpoint_with_a_warning(
    commands, tmp_path
):
    with endless_run(commands, tmp_path, "--workers", "1") as command:
        os.kill(int(worker_of(command).name), signal.SIGKILL)
        assert command.wait() == 1
    printed = command.said
    assert (
        "vidrestore: a process that makes batches has ended" in printed
        and "go on with --resume" in printed
    )
    assert "Traceback" not in printed
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs to find the processes of another one"
)
@pytest.mark.slow
def test_the_workers_of_a_run_that_is_killed_end_with_it(commands, tmp_path):
    with endless_run(commands, tmp_path, "--workers", "1") as command:
        worker = worker_of(command)
        assert "VmRSS" in (worker / "status").read_text()
    wait_for(lambda: "VmRSS" not in status_of(worker))


def worker_of(command: Command) -> Path:
    folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return next(folder for folder in folders if is_worker(folder, command.pid))


def status_of(process: Path) -> str:
    """What the system says about a process; nothing if it has ended."""
    try:
        return (process / "status").read_text()
    except OSError:
        return ""


def is_worker(folder: Path, parent: int) -> bool:
    """Multiprocessing's tracker of resources is no worker."""
    is_child = f"PPid:\t{parent}\n" in status_of(folder)
    return is_child and "spawn_main" in (folder / "cmdline").read_text()


@pytest.mark.skipif(os.name == "nt", reason="needs a signal that can't be caught")
@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_weights(
    commands, tmp_path
):
    settings = {
        "steps": 24,
        "checkpoint_minutes": 0.0,
        "schedule": "plateau",
        "patience": 1,
    }
    config = tiny_run(tmp_path, {"training": settings})
    expected = train(config, tmp_path / "whole", device="cpu")
    # other tests change the number of threads, and sums over parts are other sums
    threads = ["--threads", torch.get_num_threads(), "--device", "cpu"]
    command = commands.start(
        "train",
        "--config",
        config.path,
        "-o",
        tmp_path / "killed",
        *threads,
        before=SMALL_VALIDATION,
    )
    log = tmp_path / "killed" / "tiny.log.jsonl"
    command.until(
        lambda: log.exists() and len(log.read_text().splitlines()) >= 9
    ).kill()
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
    assert 8 <= begins[0] < 24
    for name in ("tiny.safetensors", "tiny.best.safetensors"):
        one, other = (
            load_model(path.parent / name).network.state_dict()
            for path in (resumed, expected)
        )
        assert all(torch.equal(tensor, other[part]) for part, tensor in one.items())
    both = [
        [
            line.split('"seconds"')[0]
            for line in (tmp_path / run / "tiny.log.jsonl").read_text().splitlines()
        ]
        for run in ("whole", "killed")
    ]
    assert both[0] == both[1] and len(both[0]) == 24


FULL_DISK = """
import errno, os, sys
from pathlib import Path
from vidrestore.errors import CheckpointError, VidRestoreError
from vidrestore.lab.training.data import sources
from vidrestore.lab.run_config import read_config
from vidrestore.lab.training.loop import Run, train
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
        subprocess.run([*alone, mounted], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("needs a disk of its own: unshare and a tmpfs")
    command = [
        sys.executable,
        "-c",
        FULL_DISK,
        str(tmp_path / "tiny.toml"),
        str(tmp_path / "runs"),
    ]
    done = subprocess.run(
        [*alone, f"{mounted} && {shlex.join(command)}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout and "went on" in done.stdout


# Several processes


SCRIPT = f"""{SMALL_VALIDATION}
from vidrestore.cli import main
main()
"""


def losses(folder: Path) -> list[float]:
    return [
        json.loads(line)["loss"]
        for line in (folder / "tiny.log.jsonl").read_text().splitlines()
    ]


def by_torchrun(folder: Path, arguments: list[str]) -> str:
    """Train in two processes as the documents say; returns what they wrote to stderr."""
    (folder / "two.py").write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    surroundings = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, *torchrun, str(folder / "two.py"), *arguments]
    with (folder / "said").open("w+") as said:
        started = subprocess.Popen(
            command, env=surroundings, stderr=said, start_new_session=True
        )
        try:
            started.wait(300)
        # the processes of the run, too, which may wait for each other for hours
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()
        said.seek(0)
        text = said.read()
    assert started.returncode == 0, text
    return text


@pytest.mark.slow
def test_two_processes_stop_after_the_same_step_and_resume_to_the_weights_of_one(
    tmp_path,
):
    config = tiny_run(tmp_path, {"training": {"schedule": "plateau", "patience": 1}})
    files = ["--config", f"{tmp_path}/tiny.toml", "-o", f"{tmp_path}/two"]
    options = ["train", *files, "--device", "cpu"]
    stopped = by_torchrun(tmp_path, [*options, "--stop-after", "0"])
    assert re.findall(r"stopped: step (\d+) is in", stopped) == ["1"]
    # the second process is quiet
    assert len(re.findall(r"^step 0 of ", stopped, re.MULTILINE)) == 1
    by_torchrun(tmp_path, [*options, "--resume"])
    # each takes half of every batch, one process the whole
    one = train(config, tmp_path / "one", device="cpu")
    assert losses(one.parent) == pytest.approx(losses(tmp_path / "two"), rel=1e-4)
    weights, expected = (
        load_model(tmp_path / run / "tiny.safetensors").network.state_dict()
        for run in ("two", "one")
    )
    for part, tensor in expected.items():
        torch.testing.assert_close(weights[part], tensor, rtol=2e-2, atol=2e-3)
    assert (tmp_path / "two" / "tiny.checkpoint").exists()


def test_the_mean_loss_of_the_shares_is_the_loss_of_the_batch(tmp_path):
    network = Run(tiny_run(tmp_path), tmp_path, CPU).network
    clean = 255 * torch.rand(6, 20, 16)
    parts = [
        batch_loss(network, clean, 20.0, 7, EXACT, Share(rank, 3)) for rank in range(3)
    ]
    torch.testing.assert_close(
        torch.stack(parts).mean(), batch_loss(network, clean, 20.0, 7, EXACT)
    )
    assert len({float(part.detach()) for part in parts}) == 3


def test_a_batch_that_can_not_be_shared_is_refused(tmp_path):
    config = tiny_run(tmp_path)
    with pytest.raises(
        ConfigError,
        match="a batch of 16 can't be divided among 3 processes; set training.batch to a multiple",
    ):
        Run(config, tmp_path, CPU, ProcessGroup(Share(1, 3)))


def test_only_the_first_process_writes(tmp_path):
    config = replace(tiny_run(tmp_path), name="quiet")
    run = Run(config, tmp_path / "runs", CPU, ProcessGroup(Share(1, 2)))
    run.save_checkpoint()
    run.save_weights()
    assert not list((tmp_path / "runs").iterdir())


def test_a_process_whose_first_one_has_ended_before_the_data_was_there_is_an_error(
    tmp_path, monkeypatch
):
    def barrier() -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(distributed, "barrier", barrier)
    run = Run(tiny_run(tmp_path), tmp_path / "runs", CPU, ProcessGroup(Share(1, 2)))
    with pytest.raises(LostError, match="see its error message"):
        run.train(lambda event: None)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_process_saves_a_checkpoint_when_another_one_ends(
    tmp_path, monkeypatch, rank
):
    calls: list[torch.Tensor] = []

    def all_reduce(tensor: torch.Tensor) -> None:
        calls.append(tensor)
        if len(calls) == 4:
            raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(distributed, "barrier", lambda: None)
    run = Run(tiny_run(tmp_path), tmp_path / "runs", CPU, ProcessGroup(Share(rank, 2)))
    with pytest.raises(
        LostError,
        match=r"another process of this training has ended \(Connection closed by peer\)",
    ):
        run.train(lambda event: None)
    assert run.checkpoint.exists() == (rank == 0)
    if rank == 0:
        saved = Run(tiny_run(tmp_path), tmp_path / "runs", CPU)
        saved.load_checkpoint()
        assert saved.step == 3
        for part, tensor in saved.network.state_dict().items():
            torch.testing.assert_close(
                tensor, run.network.state_dict()[part], rtol=0, atol=0
            )
