"""Training as a whole: it learns, and what it writes is the averaged network; wrong input is refused."""

import math
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from unittest.mock import Mock

import pytest
import torch
from command_line import run as command
from training_runs import (
    PRINTED,
    SENSING,
    RecordedEvents,
    equal,
    tensors,
    tiny_run,
    write_clips,
    write_config,
)

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.lab.run_config import TrainingConfig, read_config
from vidrestore.lab.training import loop
from vidrestore.lab.training.data.batches import WorkerError
from vidrestore.lab.training.dry_run import rehearse
from vidrestore.lab.training.learner import learning_rate
from vidrestore.lab.training.loop import Run, train
from vidrestore.lab.training.objective import (
    batch_loss,
    group_psnr,
    principal_components,
    validation_sigmas,
)
from vidrestore.weights import read_card

CPU = torch.device("cpu")
EXACT = TrainingConfig(steps=1, precision="fp32")


# Learning


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": PRINTED, "training": {"sigma": [20.0]}},
        SENSING,
    ],
    ids=["every sigma", "printed, one sigma", "compressed sensing"],
)
def test_a_few_dozen_steps_make_the_network_better(tmp_path, changes):
    training = {"steps": 40, "validate_every": 4} | changes.get("training", {})
    events = RecordedEvents()
    train(
        tiny_run(tmp_path, changes | {"training": training}),
        tmp_path / "runs",
        on_event=events,
    )
    first, last = events[1], events[-1]
    assert last.loss < 0.9 * first.loss
    assert all(last.psnr[sigma] > first.psnr[sigma] for sigma in first.psnr)


@pytest.mark.parametrize(
    ("trained_levels", "expected"),
    [
        ((1.0, 75.0), (5.0, 20.0, 50.0)),
        ((10.0, 30.0), (20.0,)),
        ((25.0,), (25.0,)),
        # without a usual level, the geometric mean
        ((25.0, 45.0), (33.5,)),
        ((60.0, 90.0), (73.5,)),
        ((50.001, 50.002), (50.001,)),
    ],
)
def test_validation_is_at_the_usual_levels_that_were_trained(trained_levels, expected):
    assert validation_sigmas(trained_levels) == expected


def test_the_loss_is_the_squared_error_after_noise_weighted_by_its_level(tmp_path):
    network = Run(tiny_run(tmp_path), tmp_path, CPU).network
    clean = 255 * torch.rand(4, 20, 16).round_()
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(7))
    noisy = (clean + 20 * noise).round().clamp(0, 255)
    expected = (network(noisy, 20.0) - clean).square().mean() / 20**1.3
    torch.testing.assert_close(
        batch_loss(network, clean, 20.0, 7, EXACT), expected, rtol=1e-4, atol=0
    )


def test_noise_stays_as_drawn_where_it_is_not_to_be_clipped(tmp_path):
    run = Run(
        tiny_run(tmp_path, {"training": {"clip_noise": False, "sigma": [60.0]}}),
        tmp_path,
        CPU,
    )
    clean = 255 * torch.rand(4, 20, 16).round_()
    run.step = 5
    noise = torch.randn(
        clean.shape,
        generator=torch.Generator().manual_seed((run.config.training.seed << 32) + 5),
    )
    expected = (run.network(clean + 60 * noise, 60.0) - clean).square().mean() / 60**1.3
    torch.testing.assert_close(
        run.learner.objective.loss(run.network, (clean, 60.0), 5),
        expected,
        rtol=1e-4,
        atol=0,
    )
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        error = (
            (run.network(clean + 60 * noise, 60.0).clamp(0, 255) - clean)
            .square()
            .mean()
        )
    assert run.learner.objective.metrics(run.network, clean)[60.0] == pytest.approx(
        10 * math.log10(255**2 / float(error)), abs=1e-3
    )


def test_noise_of_compressed_sensing_is_added_to_the_measurements(tmp_path):
    network = Run(tiny_run(tmp_path, SENSING), tmp_path, CPU).network
    clean = 255 * torch.rand(4, 20, 16)
    noise = torch.randn(4, 20, 6, generator=torch.Generator().manual_seed(7))
    measured = network.measure(clean)
    expected = (network(measured + 20 * noise) - clean).square().mean() / 20**1.3
    torch.testing.assert_close(
        batch_loss(network, clean, 20.0, 7, EXACT), expected, rtol=1e-4, atol=0
    )


def test_principal_components_recover_patches_of_as_few_dimensions_without_training(
    tmp_path,
):
    basis = torch.randn(6, 16)
    source = Mock(batch=lambda step, size: (40 * torch.randn(size, 20, 6) @ basis, 0.0))
    principal = {"training": {"sigma": [0.0], "sensing": "principal"}}
    run = Run(tiny_run(tmp_path, SENSING | principal), tmp_path, CPU)
    networks = [run.network, run.learner.average]
    run.learner.objective.start(networks, source)
    patches, _ = source.batch(0, 4)
    for network in networks:
        network.raw_threshold.data.fill_(-100.0)  # a threshold of 0
        torch.testing.assert_close(
            network(network.measure(patches)), patches, atol=0.01, rtol=0
        )


@pytest.mark.parametrize("loss", ["squared", "psnr"])
def test_no_rows_near_principal_components_have_a_smaller_loss(loss):
    torch.manual_seed(1)
    strengths = torch.tensor([[30.0], [1.0]]).double().repeat(20, 1)
    groups = (
        torch.randn(40, 5, 16).double() * (strengths ** torch.rand(40, 16))[:, None]
    )

    def loss_of(rows):
        squares = (groups - groups @ rows.mT @ rows).square().mean((1, 2))
        return float((squares + 3).log().mean() if loss == "psnr" else squares.mean())

    best = principal_components(groups, 6, replace(EXACT, loss=loss))
    torch.testing.assert_close(best @ best.mT, torch.eye(6).double())
    turned = (
        torch.linalg.qr(best.mT + 0.03 * torch.randn(16, 6)).Q.mT for _ in range(50)
    )
    assert all(loss_of(rows) > loss_of(best) for rows in turned)


def test_the_loss_psnr_counts_groups_by_the_logarithm_of_their_error(tmp_path):
    network = Run(tiny_run(tmp_path, SENSING), tmp_path, CPU).network
    clean = 255 * torch.rand(3, 20, 16)
    squares = (network(network.measure(clean)) - clean).detach().double().numpy() ** 2
    expected = sum(math.log(group.mean() + 3) for group in squares) / 3
    loss = batch_loss(network, clean, 0.0, 0, replace(EXACT, loss="psnr")).detach()
    assert float(loss) == pytest.approx(expected, abs=1e-4)


def test_only_a_new_run_without_initial_weights_starts_from_principal_components(
    tmp_path,
):
    config = tiny_run(tmp_path, SENSING)
    glorot = replace(config, training=replace(config.training, steps=1, warmup=None))
    principal = replace(config, training=replace(glorot.training, sensing="principal"))
    first = tensors(train(principal, tmp_path / "principal"))["sensing"]
    torch.testing.assert_close(first @ first.mT, torch.eye(6), atol=0.05, rtol=0)
    weights = train(glorot, tmp_path / "glorot")
    before = tensors(weights)["sensing"]
    after = tensors(train(principal, tmp_path / "again", init=[weights]))["sensing"]
    torch.testing.assert_close(after, before, atol=0.02, rtol=0)
    assert not torch.allclose(after, first, atol=0.05)


def test_psnr_is_over_all_groups_together_on_the_scale_of_255(tmp_path):
    network = Run(tiny_run(tmp_path, SENSING), tmp_path, CPU).network
    groups = torch.randint(0, 256, (450, 20, 16), dtype=torch.uint8)
    with torch.no_grad():
        error = network(network.measure(groups.float())).clamp(0, 255) - groups
    assert group_psnr(network, groups, 0.0, EXACT) == pytest.approx(
        10 * math.log10(255**2 / float(error.square().mean())), abs=1e-3
    )


# What is written


def test_the_weights_are_the_averaged_network_and_say_how_they_came_about(trained):
    path, run = trained.weights, Run(trained.config, trained.folder, CPU)
    run.load_checkpoint()
    halves = {
        name: tensor.half().float()
        for name, tensor in run.learner.average.state_dict().items()
    }
    assert equal(tensors(path), halves)
    assert not torch.allclose(run.learner.average.dictionary, run.network.dictionary)
    card = read_card(path)
    assert (card.name, card.family, card.task, card.parameters) == (
        "tiny",
        "dust",
        "denoise",
        {"sigma": [10.0, 40.0]},
    )
    assert card.config == {
        "kind": "sigma",
        "patch": 4,
        "atoms": 64,
        "blocks": 2,
        "heads": 1,
        "degree": 1,
    }
    assert card.training["command"] == "vidrestore train --config tiny.toml"
    assert card.training["data"] == "clips: clips; held out: held.mkv"
    assert (
        card.training["steps"],
        [point["step"] for point in card.training["curve"]],
    ) == (12, [5, 10, 12])
    assert card.measured == {
        "held-out groups, sigma 20": {"psnr": card.training["curve"][-1]["psnr"]["20"]}
    }


def test_the_learning_rate_warms_up_stays_and_falls_to_a_hundredth():
    settings = TrainingConfig(steps=1000, learning_rate=2.0, warmup=100, decay=0.4)
    rates = [learning_rate(step, settings) for step in range(1000)]
    assert [rates[step] for step in (0, 49, 99, 300, 600)] == pytest.approx(
        [0.02, 1.0, 2.0, 2.0, 2.0]
    )
    # half way down the half cosine
    assert rates[800] == pytest.approx(2 * (0.01 + 0.99 * 0.5))
    assert rates[999] == pytest.approx(0.02, rel=0.01)
    assert rates[600:] == sorted(rates[600:], reverse=True)
    level = TrainingConfig(steps=10, learning_rate=0.5, warmup=0, decay=0.0)
    assert {learning_rate(step, level) for step in range(10)} == {0.5}


def test_the_average_follows_the_network_quickly_at_first(tmp_path):
    run = Run(tiny_run(tmp_path), tmp_path, CPU)
    start = run.network.dictionary.detach().clone()
    run.update(255 * torch.rand(8, 20, 16), 20.0)
    first = run.network.dictionary.detach().clone()
    torch.testing.assert_close(
        run.learner.average.dictionary, 0.1 * start + 0.9 * first
    )


def test_the_same_run_gives_the_same_file_however_long_it_takes(
    trained, tmp_path, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", Mock(monotonic=lambda: 1e5 * time.monotonic()))
        two = train(tiny_run(tmp_path), tmp_path / "two", device="cpu")
    assert two.read_bytes() == trained.weights.read_bytes()
    other = tiny_run(tmp_path, {"training": {"seed": 1}})
    assert not equal(
        tensors(train(other, tmp_path / "three", device="cpu")), tensors(two)
    )


def test_training_leaves_the_callers_random_numbers_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(
        tiny_run(tmp_path, {"training": {"steps": 2, "warmup": 1}}),
        tmp_path / "runs",
        device="cpu",
    )
    assert torch.equal(torch.rand(3), expected)


# Starting from other weights


def test_init_starts_from_given_weights(trained, tmp_path):
    inputs = trained.weights
    run = Run(tiny_run(tmp_path, {"training": {"seed": 9}}), tmp_path, CPU)
    run.initialise_from(inputs)
    assert equal(run.network.state_dict(), tensors(inputs))
    assert equal(run.learner.average.state_dict(), tensors(inputs))
    assert run.step == 0


def test_the_command_on_the_card_names_initial_weights_in_a_resumed_run_too(
    trained, tmp_path
):
    given = trained.weights
    first, second = ({"training": {"steps": steps, "warmup": 0}} for steps in (1, 2))
    for settings, resume in ((first, False), (second, True)):
        path = train(
            tiny_run(tmp_path, settings),
            tmp_path / "tuned",
            init=() if resume else [given],
            resume=resume,
            device="cpu",
        )
        assert (
            read_card(path).training["command"]
            == f"vidrestore train --config tiny.toml --init {given}"
        )


def test_settings_and_parameters_of_the_configuration_go_onto_the_card(
    trained, tmp_path
):
    settings = ("training.steps=3", "data.clips=my videos")
    config = replace(trained.config, settings=settings, parameters={"rate": 0.375})
    card = read_card(Run(config, tmp_path, CPU).save_weights())
    command = "vidrestore train --config tiny.toml --set training.steps=3 --set 'data.clips=my videos'"
    assert (card.training["command"], card.parameters) == (command, {"rate": 0.375})


def test_init_of_another_network_is_refused(trained, tmp_path):
    for model in ({"blocks": 3}, PRINTED):
        with pytest.raises(
            CheckpointError,
            match="tiny.safetensors: weights of dust .*, but the configuration asks for dust",
        ):
            train(
                tiny_run(tmp_path, {"model": model}),
                tmp_path / "runs",
                init=[trained.weights],
            )


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
    [
        ({"": {"family": "dusk"}}, "dusk"),
        ({"model": {"atoms": 60}}, "atoms must be a square"),
        (
            {"training": {"sensing": "principal"}},
            'training.sensing = "principal" is for DUST with',
        ),
    ],
)
def test_a_model_that_can_not_be_is_an_error_of_the_configuration(
    tmp_path, changes, message
):
    with pytest.raises(ConfigError, match=f"tiny.toml: .*{message}"):
        train(tiny_run(tmp_path, changes), tmp_path / "runs")


@pytest.mark.parametrize("size", ["inf", "nan"])
def test_a_cache_has_a_size(tmp_path, size, capsys):
    assert run_command("--config", write_config(tmp_path), "--cache-gb", size) == 2
    assert "--cache-gb" in capsys.readouterr().err


def test_a_dry_run_is_done_where_the_system_does_not_say_its_memory(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    monkeypatch.delitem(sys.modules, "vidrestore.lab.training.dry_run", raising=False)
    assert (
        import_module("vidrestore.lab.training.dry_run")
        .memory_used()
        .startswith("unknown memory")
    )


def test_a_dry_run_whose_worker_ends_is_an_error(tmp_path, monkeypatch):
    def killed(self: Run, *batch: object) -> float:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    monkeypatch.setattr(Run, "update", killed)
    with pytest.raises(
        WorkerError,
        match="a process that makes batches has ended .*fewer `workers` if memory ran out",
    ):
        list(rehearse(tiny_run(tmp_path), device="cpu"))


def test_an_output_that_can_not_be_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file: can't create this folder"):
        train(tiny_run(tmp_path), tmp_path / "file")


run_command = partial(command, "train")


def test_the_command_prints_progress_on_stderr_and_the_path_on_stdout(tmp_path, capsys):
    write_clips(tmp_path)
    config = write_config(tmp_path)
    assert (
        run_command("--config", config, "-o", tmp_path / "runs", "--device", "cpu") == 0
    )
    written = capsys.readouterr()
    assert written.out == f"{tmp_path / 'runs' / 'tiny.safetensors'}\n"
    lines = written.err.splitlines()
    assert lines[:2] == [
        "loading",
        "step 0 of 12, on cpu, from the beginning: no checkpoint yet",
    ]
    stages = ["reading data", "making the first batches", "training", "validating"]
    assert [line.split("  ")[0] for line in lines[2:]] == [
        *stages,
        "step 5",
        "step 10",
        "step 12",
        "saving",
    ]
    assert "sigma 20: " in lines[-2]
    assert (
        run_command(
            "--config", config, "-o", tmp_path / "runs", "--resume", "--device", "cpu"
        )
        == 0
    )
    assert (
        f"step 12 of 12, on cpu, from {tmp_path / 'runs' / 'tiny.checkpoint'}\n"
        in capsys.readouterr().err
    )


def test_memory_that_ran_out_is_an_error_that_names_the_batch(tmp_path, monkeypatch):
    for raised in (
        MemoryError("Unable to allocate 3 TiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"),
    ):
        with (
            monkeypatch.context() as patched,
            pytest.raises(
                ConfigError,
                match=r"tiny.toml: memory ran out \(.*training.batch than 16$",
            ),
        ):
            patched.setattr(
                Run, "update", lambda self, *batch, error=raised: throw(error)
            )
            train(tiny_run(tmp_path), tmp_path / "runs", device="cpu")
    with (
        monkeypatch.context() as patched,
        pytest.raises(RuntimeError, match="^another$"),
    ):
        patched.setattr(
            Run, "update", lambda self, *batch: throw(RuntimeError("another"))
        )
        train(tiny_run(tmp_path), tmp_path / "runs", device="cpu")


def throw(error: BaseException) -> None:
    raise error


def test_settings_of_the_command_stand_in_place_of_the_files(tmp_path, capsys):
    config = write_config(tmp_path)
    assert (
        run_command(
            "--config",
            config,
            "--set",
            "training.steps=6",
            "--set",
            "model.atoms=256",
            "--print-config",
        )
        == 0
    )
    (tmp_path / "tiny.toml").write_text(capsys.readouterr().out)
    again = read_config(tmp_path / "tiny.toml")
    assert (
        again.training.steps,
        again.training.clip_norm,
        again.model["atoms"],
        again.model["heads"],
    ) == (
        6,
        1.0,
        256,
        1,
    )
    assert (
        run_command(
            "--config", config, "--set", "training.step=3", "-o", tmp_path / "runs"
        )
        == 1
    )
    assert "unknown: step; there are: steps, " in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_does_one_step_of_everything_and_leaves_nothing(
    tmp_path, capsys, monkeypatch
):
    write_clips(tmp_path)
    (tmp_path / "temporary").mkdir()
    # what torch makes at its first optimiser is not ours
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    updates: list[int] = []
    update = Run.update
    monkeypatch.setattr(
        Run,
        "update",
        lambda self, *batch: updates.append(self.step) or update(self, *batch),
    )
    command = [
        "--config",
        write_config(tmp_path),
        "-o",
        tmp_path / "runs",
        "--device",
        "cpu",
        "--dry-run",
    ]
    assert run_command(*command) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    done = [line.split(" s  ")[1].split(":")[0] for line in lines]
    checked = "held-out data, first batch, update, second batch, validation, "
    checked += "checkpoint written, checkpoint read"
    assert done[1:] == [*checked.split(", "), "weights written", "weights loaded"]
    assert done[0].startswith("dust with ") and last.startswith("at most ")
    assert updates == [0]
    assert not (tmp_path / "runs").exists() and not list(
        (tmp_path / "temporary").iterdir()
    )
    assert run_command(*command, "--set", "data.clips=nowhere") == 1
