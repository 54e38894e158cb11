"""Several processes train as one does."""

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import Commands
from pair_runs import pair_run
from torch import distributed
from training_runs import SMALL_VALIDATION, tiny_run

from vidrestore.errors import ConfigError
from vidrestore.training.data.batches import Share
from vidrestore.training.loop import Run, train
from vidrestore.training.objective import batch_loss
from vidrestore.training.parallel import LostError, ProcessGroup
from vidrestore.weights import load_model

SCRIPT = f"""{SMALL_VALIDATION}
from vidrestore.cli import main
main()
"""


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "tiny.log.jsonl").read_text().splitlines()]


def by_torchrun(commands: Commands, folder: Path, arguments: list[str]) -> str:
    """Train in two processes as the documents say; returns what they wrote to stderr."""
    (folder / "two.py").write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    surroundings = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [*torchrun, str(folder / "two.py"), *arguments],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def by_hand(commands: Commands, folder: Path, arguments: list[str]) -> str:
    """Train in two processes with the variables that torchrun sets; returns what they wrote to stderr."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = []
    for rank in "01":
        surroundings = common | {"RANK": rank, "LOCAL_RANK": rank}
        before = f"{SMALL_VALIDATION}\nos.environ.update({surroundings})"
        started.append(commands.start(*arguments, before=before))
    for command in started:
        assert command.wait() == 0, command.said
    return "".join(command.read("errors") for command in started)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "in_two"), [("groups", by_torchrun), ("pairs", by_hand)])
def test_two_processes_have_the_losses_of_one_with_the_batch_of_both(commands, tmp_path, kind, in_two):
    settings = {"training": {"schedule": "plateau", "patience": 1}}
    config = tiny_run(tmp_path, settings) if kind == "groups" else pair_run(tmp_path, **settings)
    said = in_two(
        commands,
        tmp_path,
        ["train", "--config", f"{tmp_path}/tiny.toml", "-o", f"{tmp_path}/two", "--device", "cpu"],
    )
    assert len(re.findall(r"^step 0 of ", said, re.MULTILINE)) == 1  # the second process is quiet
    one = train(config, tmp_path / "one", device="cpu")
    assert losses(one.parent) == pytest.approx(losses(tmp_path / "two"), rel=1e-4)
    weights, expected = (
        load_model(tmp_path / run / "tiny.safetensors").network.state_dict() for run in ("two", "one")
    )
    for part, tensor in expected.items():
        torch.testing.assert_close(weights[part], tensor, rtol=2e-2, atol=2e-3)
    assert (tmp_path / "two" / "tiny.checkpoint").exists()


def test_the_losses_of_all_shares_mean_that_of_the_whole(tmp_path):
    network = Run(tiny_run(tmp_path), tmp_path, torch.device("cpu")).network
    clean = 255 * torch.rand(6, 20, 16)
    parts = [batch_loss(network, clean, 20.0, 7, "fp32", Share(rank, 3)) for rank in range(3)]
    torch.testing.assert_close(torch.stack(parts).mean(), batch_loss(network, clean, 20.0, 7, "fp32"))
    assert len({float(part.detach()) for part in parts}) == 3


def test_a_batch_that_can_not_be_shared_is_refused(tmp_path):
    config = tiny_run(tmp_path)
    with pytest.raises(
        ConfigError,
        match="a batch of 16 can't be divided among 3 processes; set training.batch to a multiple",
    ):
        Run(config, tmp_path, torch.device("cpu"), ProcessGroup(Share(1, 3)))


def test_only_the_first_process_writes(tmp_path):
    config = replace(tiny_run(tmp_path), name="quiet")
    run = Run(config, tmp_path / "runs", torch.device("cpu"), ProcessGroup(Share(1, 2)))
    run.save_checkpoint()
    run.save_weights()
    assert not list((tmp_path / "runs").iterdir())


def test_a_process_whose_first_one_has_ended_before_the_data_was_there_is_an_error(tmp_path, monkeypatch):
    def barrier() -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(distributed, "barrier", barrier)
    run = Run(tiny_run(tmp_path), tmp_path / "runs", torch.device("cpu"), ProcessGroup(Share(1, 2)))
    with pytest.raises(LostError, match="see its error message"):
        run.train(lambda event: None)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_process_saves_what_there_is_when_another_one_ends(tmp_path, monkeypatch, rank):
    calls: list[torch.Tensor] = []

    def all_reduce(tensor: torch.Tensor) -> None:
        calls.append(tensor)
        if len(calls) == 4:
            raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(distributed, "barrier", lambda: None)
    run = Run(tiny_run(tmp_path), tmp_path / "runs", torch.device("cpu"), ProcessGroup(Share(rank, 2)))
    with pytest.raises(
        LostError, match=r"another process of this training has ended \(Connection closed by peer\)"
    ):
        run.train(lambda event: None)
    assert run.checkpoint.exists() == (rank == 0)
    if rank == 0:
        saved = Run(tiny_run(tmp_path), tmp_path / "runs", torch.device("cpu"))
        saved.load_checkpoint()
        assert saved.step == 3
        for part, tensor in saved.network.state_dict().items():
            torch.testing.assert_close(tensor, run.network.state_dict()[part], rtol=0, atol=0)
