"""What is promised about processes: signals, kills and full disks leave a run that resumes to the same
weights.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from commands import Command, Commands
from training_runs import SMALL_VALIDATION, tiny_run, write_clips, write_config

from vidrestore.training.loop import train
from vidrestore.weights import load_model

# Signals


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


@pytest.mark.skipif(os.name == "nt", reason="needs a signal that can be sent to one process")
def test_ctrl_c_saves_a_checkpoint_and_ends_with_130(commands, tmp_path):
    with endless_run(commands, tmp_path) as command:
        command.send(signal.SIGINT)
        assert command.wait() == 130
    assert command.read("output") == ""
    assert "stopped: step " in command.said and "Traceback" not in command.said
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


@pytest.mark.skipif(os.name == "nt", reason="needs groups of processes")
@pytest.mark.slow
def test_sigterm_to_all_processes_of_a_run_saves_a_checkpoint_too(commands, tmp_path):
    with endless_run(commands, tmp_path, "--workers", "1") as command:
        os.killpg(command.pid, signal.SIGTERM)
        assert command.wait() == 130
    assert "stopped: step " in command.said and "Traceback" not in command.said
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs to find the processes of another one")
@pytest.mark.slow
def test_a_run_whose_worker_is_killed_saves_a_checkpoint_with_a_warning(commands, tmp_path):
    with endless_run(commands, tmp_path, "--workers", "1") as command:
        folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        worker = next(folder for folder in folders if is_worker(folder, command.pid))
        os.kill(int(worker.name), signal.SIGKILL)
        assert command.wait() == 1
    said = command.said
    assert "vidrestore: a process that makes batches has ended" in said and "go on with --resume" in said
    assert "Traceback" not in said
    assert (tmp_path / "runs" / "tiny.checkpoint").exists()


def is_worker(folder: Path, parent: int) -> bool:
    """Multiprocessing's tracker of resources is no worker."""
    try:
        status, command = (folder / "status").read_text(), (folder / "cmdline").read_bytes()
    except OSError:  # it has just ended
        return False
    return f"PPid:\t{parent}\n" in status and b"spawn_main" in command


@pytest.mark.skipif(os.name == "nt", reason="needs a signal that can't be caught")
@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_weights(commands, tmp_path):
    config = tiny_run(tmp_path, {"training": {"steps": 24, "checkpoint_minutes": 0.0}})
    expected = train(config, tmp_path / "whole", device="cpu")
    # other tests change the number of threads, and sums over parts are other sums
    threads = ["--threads", torch.get_num_threads(), "--device", "cpu"]
    command = commands.start(
        "train", "--config", config.path, "-o", tmp_path / "killed", *threads, before=SMALL_VALIDATION
    )
    log = tmp_path / "killed" / "tiny.log.jsonl"
    command.until(lambda: log.exists() and len(log.read_text().splitlines()) >= 9).kill()
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
        one, other = (load_model(path.parent / name).network.state_dict() for path in (resumed, expected))
        assert all(torch.equal(tensor, other[part]) for part, tensor in one.items())
    both = [
        [line.split('"seconds"')[0] for line in (tmp_path / run / "tiny.log.jsonl").read_text().splitlines()]
        for run in ("whole", "killed")
    ]
    assert both[0] == both[1] and len(both[0]) == 24


FULL_DISK = """
import errno, os, sys
from pathlib import Path
from vidrestore.errors import CheckpointError, VidRestoreError
from vidrestore.training.data import sources
from vidrestore.training.config import read_config
from vidrestore.training.loop import train
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
