"""Ways to train large networks on few or many GPUs compute what the plain way computes."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_runs import RELEASED, SENSING, clip_run, pair_run, tiny_run

from vidrestore.errors import ConfigError
from vidrestore.lab.commands import train_commands
from vidrestore.lab.run_config import RunConfig
from vidrestore.lab.training.data.batches import Share, on_device
from vidrestore.lab.training.loop import Run, train
from vidrestore.lab.training.parallel import ProcessGroup

CPU = torch.device("cpu")


def patch_run(folder: Path, training: dict[str, Any]) -> RunConfig:
    return tiny_run(
        folder,
        SENSING | {"training": SENSING["training"] | {"sigma": [3.0]} | training},
    )


def batch_of(kind: str) -> tuple[Any, ...]:
    torch.manual_seed(1)
    if kind == "groups":
        return 255 * torch.rand(8, 20, 16), 3.0
    if kind == "pairs":
        return torch.rand(8, 3, 16, 16), torch.rand(8, 3, 16, 16)
    return torch.rand(8, 3, 3, 8, 8), torch.rand(8, 3, 3, 32, 32)


def configured(kind: str, folder: Path, **training: Any) -> RunConfig:
    training |= {"batch": 8, "precision": "fp32", "warmup": 0}
    if kind == "groups":
        return patch_run(folder, training)
    return (
        pair_run(folder, training=training)
        if kind == "pairs"
        else clip_run(folder, training=training)
    )


def gradients(network: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: part.grad
        for name, part in network.named_parameters()
        if part.grad is not None
    }


@pytest.mark.parametrize("kind", ["groups", "pairs", "clips"])
def test_a_batch_in_parts_has_the_loss_and_gradients_of_the_whole(tmp_path, kind):
    whole, parts = (
        Run(configured(kind, tmp_path, accumulate=count), tmp_path, CPU)
        for count in (1, 4)
    )
    losses = [part.update(*batch_of(kind)).item() for part in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    expected = gradients(whole.network)
    assert expected.keys() == gradients(parts.network).keys()
    for name, gradient in gradients(parts.network).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-6)


def test_parts_of_a_processes_share_are_the_batch_once(tmp_path):
    run = Run(configured("groups", tmp_path), tmp_path, CPU, ProcessGroup(Share(1, 2)))
    shares = [
        objective.share.of(8)
        for objective, _ in run.learner.objective.parts(batch_of("groups"), 2)
    ]
    assert shares == [slice(4, 6), slice(6, 8)]


def saved_bytes(run: Run, batch: tuple[Any, ...]) -> int:
    """Return the memory that a forward pass keeps for the gradients, but for parameters."""
    kept: dict[int, int] = {}
    weights = {part.untyped_storage().data_ptr() for part in run.network.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run.learner.objective.loss(run.network, batch, 0)
    return sum(kept.values())


@pytest.mark.parametrize(("kind", "share"), [("pairs", 0.6), ("clips", 0.9)])
def test_recomputed_activations_give_the_same_bits_from_less_memory(
    tmp_path, kind, share
):
    model = (
        {}
        if kind == "pairs"
        else {"model": dict.fromkeys(("layers", "shared", "keys", "hidden"), None)}
    )
    if kind == "clips":
        model["model"] |= RELEASED | {"propagation": 2}
        model["data"] = {"crop": 64, "frames": 2}
        runs = [
            Run(
                clip_run(tmp_path, **model, training={"recompute": value}),
                tmp_path,
                CPU,
            )
            for value in (False, True)
        ]
        batch: tuple[Any, ...] = (
            torch.rand(1, 2, 3, 64, 64),
            torch.rand(1, 2, 3, 256, 256),
        )
    else:
        runs = [
            Run(configured(kind, tmp_path, recompute=value), tmp_path, CPU)
            for value in (False, True)
        ]
        batch = batch_of(kind)
    plain, recomputing = runs
    assert saved_bytes(recomputing, batch) < share * saved_bytes(plain, batch)
    for _ in range(2):
        assert torch.equal(plain.update(*batch), recomputing.update(*batch))
    state = recomputing.network.state_dict()
    assert state.keys() == plain.network.state_dict().keys()
    assert all(
        torch.equal(tensor, state[name])
        for name, tensor in plain.network.state_dict().items()
    )


def test_what_a_network_can_not_make_use_of_is_refused(tmp_path):
    for name in ("recompute", "compile"):
        with pytest.raises(
            ConfigError, match=f"training.{name} is not for this .model.; remove it"
        ):
            Run(configured("groups", tmp_path, **{name: True}), tmp_path, CPU)
    with pytest.raises(
        ConfigError, match="compile must be false where recompute is true"
    ):
        configured("pairs", tmp_path, recompute=True, compile=True)
    with pytest.raises(
        ConfigError,
        match=r"divided among 1 processes and 3 parts each .*a multiple of 3",
    ):
        Run(configured("pairs", tmp_path, accumulate=3), tmp_path, CPU)


@pytest.mark.slow
def test_a_network_that_torch_compile_translates_trains_as_the_plain_one(
    tmp_path, monkeypatch
):
    """Traced as for a GPU, but not made into C++, which would take minutes."""
    compiled_forms = []

    def traced(network: nn.Module) -> None:
        compiled_forms.append(network)
        network._compiled_call_impl = torch.compile(
            network._call_impl, backend="aot_eager"
        )

    monkeypatch.setattr(nn.Module, "compile", traced)
    plain, compiled = (
        Run(configured("pairs", tmp_path, compile=value), tmp_path, CPU)
        for value in (False, True)
    )
    for _ in range(2):
        losses = [part.update(*batch_of("pairs")).item() for part in (plain, compiled)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert compiled_forms == [compiled.network]
    assert compiled.network.state_dict().keys() == plain.network.state_dict().keys()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs SIGUSR1")
def test_sigusr1_ends_a_run_after_the_step_with_a_checkpoint(tmp_path, monkeypatch):
    config = tiny_run(tmp_path)
    expected = train(config, tmp_path / "whole", device="cpu")
    update = Run.update

    def signalled(self: Run, *batch: Any) -> torch.Tensor:
        if self.step == 6:
            os.kill(os.getpid(), signal.SIGUSR1)
        return update(self, *batch)

    before = signal.getsignal(signal.SIGUSR1)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "update", signalled)
        stopped = train(config, tmp_path / "runs", device="cpu")
    assert stopped == tmp_path / "runs" / "tiny.checkpoint"
    assert signal.getsignal(signal.SIGUSR1) == before
    assert torch.load(stopped, weights_only=True)["step"] == 7
    resumed = train(config, tmp_path / "runs", resume=True, device="cpu")
    assert resumed.read_bytes() == expected.read_bytes()


def test_all_processes_stop_when_one_asks_to(tmp_path, monkeypatch):
    """The mean of the processes' flags is above 0 in all of them, as soon as it is in one."""
    group = ProcessGroup(Share(1, 2))
    others = [0.0, 0.0, 1.0]  # of the other process, by step

    def average(tensors: list[torch.Tensor]) -> None:
        tensors[1].add_(others.pop(0)).div_(2)

    monkeypatch.setattr(group, "average", average)
    learner = Run(configured("groups", tmp_path), tmp_path, CPU, group).learner
    answers = []
    for step in range(3):
        learner.update(batch_of("groups"), step, 1e-3)
        answers.append(learner.agreed())
    assert answers == [False, False, True]
    learner.stops, others[:] = True, [0.0]
    learner.update(batch_of("groups"), 3, 1e-3)
    assert learner.agreed()


def test_batches_move_to_the_device_unchanged():
    batch = torch.rand(2, 3), 5.0
    moved = on_device(batch, CPU)
    assert torch.equal(moved[0], batch[0]) and moved[1] == 5.0


def test_a_gpu_gets_its_share_of_the_cores_as_workers(monkeypatch):
    monkeypatch.setattr("vidrestore.working.available_cores", lambda: 64)
    assert train_commands.usual_workers("cpu") == 0
    monkeypatch.setattr(
        "vidrestore.restorers.devices.torch_device", lambda name: torch.device("cuda")
    )
    counts = []
    for processes in ("1", "8", "32", "64"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        counts.append(train_commands.usual_workers("auto"))
    assert counts == [8, 7, 1, 1]
