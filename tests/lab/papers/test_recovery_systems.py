"""The systems of the DUST paper: sizes, gradients, number formats, files, training, sensing."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recovery_systems import (
    LEARNING,
    MEASUREMENTS,
    PIXELS,
    SIZES,
    config,
    patches,
    system,
)
from sample_videos import write_video
from training_runs import RecordedEvents, tiny_run

import vidrestore
from vidrestore.errors import ConfigError
from vidrestore.lab.run_config import read_config
from vidrestore.lab.training import loop
from vidrestore.lab.training.data import sources
from vidrestore.lab.training.loop import train
from vidrestore.lab.training.objective import objective_of
from vidrestore.models.fast_linear import PackedLinear, PlainLinear
from vidrestore.weights import load_model, save_model
from vidrestore.weights.checkpoint import build_network

FAMILY = pytest.mark.parametrize("family", sorted(SIZES))
TABLE_VIII = {  # millions of parameters, at a rate of 0.2
    "sista-rnn": 0.34,
    "l1-l1-rnn": 1.32,
    "reweighted-rnn": 2.37,
    "vit": 2.46,
    "unfolded-transformer": 0.49,
    "printed-dust": 1.38,
    "printed-mh-dust": 2.42,
}
COUNTS: list[tuple[str, dict[str, Any], int]] = [
    ("sista-rnn", {}, 341_763),
    ("l1-l1-rnn", {}, 1_324_803),
    ("reweighted-rnn", {}, 2_374_403),
    ("vit", {}, 2_459_648),
    ("unfolded-transformer", {}, 485_376),
    ("unfolded-transformer", {"normalise": False}, 485_376),
    *(
        ("dust", {"heads": heads}, 1_376_003 + (262_144 * heads if heads > 1 else 0))
        for heads in range(1, 9)
    ),
    ("dust", {"normalise": False}, 1_376_003),
    ("dust", {"correlation": True}, 1_376_003 + 65_536),
    ("sista", {}, 0),
    ("algorithm1", {}, 0),
]


def learned(network: torch.nn.Module) -> int:
    return sum(
        parameter.numel()
        for parameter in network.parameters()
        if parameter.requires_grad
    )


@pytest.mark.parametrize(
    ("family", "changes", "count"),
    COUNTS,
    ids=[f"{family}{changes or ''}" for family, changes, _ in COUNTS],
)
def test_parameters_are_as_many_as_in_table_viii(family, changes, count):
    assert learned(build_network(family, {"measurements": 51} | changes)) == count


@pytest.mark.parametrize("measurements", [None, MEASUREMENTS])
@pytest.mark.parametrize("family", LEARNING)
def test_every_parameter_has_a_finite_gradient(family, measurements):
    network = system(family, measurements).float()
    groups = patches(frames=6).float()
    network.at(20.0, torch.float32, PlainLinear)(
        network.measure(groups)
    ).square().mean().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert all(
        gradient is not None and gradient.isfinite().all() and gradient.any()
        for gradient in gradients.values()
    ), gradients


@FAMILY
@pytest.mark.parametrize("measurements", [None, MEASUREMENTS])
def test_packed_products_change_nothing_and_16_bits_little(family, measurements):
    network, groups = system(family, measurements).float(), patches(2, 6).float()
    measured = network.measure(groups)
    with torch.no_grad():
        expected, scale = network(measured), float(network(measured).norm())
        torch.testing.assert_close(
            network.at(20.0, torch.float32, PackedLinear)(measured),
            expected,
            atol=1e-3 + 1e-5 * scale,
            rtol=0,
        )
        rounded = network.at(20.0, torch.bfloat16, PlainLinear)(measured)
    assert rounded.dtype == torch.float32
    assert float((rounded - expected).norm()) < 0.05 * scale


@FAMILY
@pytest.mark.parametrize("task", ["recover", "denoise"])
def test_every_system_can_be_trained(family, task, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "VALIDATION_GROUPS", 20)
    model = config(family, MEASUREMENTS if task == "recover" else None)
    changes = {
        "": {"family": family, "task": task},
        "model": {"kind": None, "degree": None, "blocks": None, "atoms": None} | model,
        "training": {
            "steps": 2,
            "warmup": 0,
            "validate_every": 1,
            "sigma": [0.0 if task == "recover" else 20.0],
        },
    }
    run = tiny_run(tmp_path, changes)
    events = RecordedEvents()
    trained = load_model(train(run, tmp_path / "runs", on_event=events))
    assert [event.step for event in events[1:]] == [1, 2]
    assert all(
        torch.isfinite(torch.tensor([event.loss, *event.psnr.values()])).all()
        for event in events[1:]
    )
    fresh = loop.Run(run, tmp_path / "fresh", torch.device("cpu")).network.state_dict()
    unchanged = all(
        torch.equal(tensor.half().float(), fresh[name].half().float())
        for name, tensor in trained.network.state_dict().items()
    )
    assert unchanged == (family not in LEARNING)


@FAMILY
def test_videos_are_measured_and_recovered_by_every_system(family, tmp_path):
    network = system(family, PIXELS).float()
    save_model(
        tmp_path / "system.safetensors",
        network,
        family=family,
        config=network.config,
        task="recover",
    )
    write_video(tmp_path / "video.mkv", 3, size=(22, 18))
    measured, recovered = tmp_path / "measured.safetensors", tmp_path / "recovered.mkv"
    model = str(tmp_path / "system.safetensors")
    vidrestore.sense(tmp_path / "video.mkv", measured, model=model)
    assert vidrestore.recover(measured, recovered, model=model).frames == 3


SYSTEMS = Path(__file__).parents[3] / "examples" / "train" / "systems"


@pytest.mark.parametrize(
    "path", sorted(SYSTEMS.glob("*.toml")), ids=lambda path: path.stem
)
def test_every_system_has_a_recipe_named_as_its_file(path):
    recipe = read_config(path)
    assert recipe.name == path.stem
    name, _, task = path.stem.rpartition("-")
    network: Any = build_network(recipe.family, recipe.model)
    assert (recipe.task, network.config.measurements) == (
        ("recover", 51) if task == "cs20" else ("denoise", None)
    )
    if task == "cs20":
        assert round(learned(network) / 1e6, 2) == TABLE_VIII.get(name, 0.0)


def test_the_rate_of_a_card_follows_the_measurements_and_a_contrary_one_is_refused():
    recipe = read_config(SYSTEMS / "printed-dust-cs20.toml")
    for measurements, rate in (
        (51, 0.2),
        (26, 0.1),
        (77, 0.3),
        (100, 0.39),
        (128, 0.5),
    ):
        network = build_network("dust", {"measurements": measurements})
        assert objective_of(recipe).parameters(network) == {"rate": rate}
        objective_of(recipe).check(replace(recipe, parameters={"rate": rate}), network)
    contrary = replace(recipe, parameters={"rate": 0.2})
    with pytest.raises(
        ConfigError,
        match=r"\[parameters\] rate is 0.2, but model.measurements is a rate of 0.5",
    ):
        objective_of(recipe).check(contrary, network)


def trained(output: Path, *arguments: str) -> list[str]:
    """Return the names that examples/train_systems.sh trains, with a command that only makes files."""
    fake = output.parent / "fake.sh"
    fake.write_text('touch "${2%.toml}.safetensors"; basename "$2" .toml\n')
    script = SYSTEMS.parents[1] / "train_systems.sh"
    environment = os.environ | {"TRAIN": f"sh {fake}"}
    command = ["bash", str(script), str(output), *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=120,
    ).stdout.split()


def test_the_script_trains_table_iv_by_the_recipes_of_the_papers_sets(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("DATA", "sets")
    monkeypatch.setenv("SET", "ucsd")
    rates = range(10, 60, 10)
    assert trained(tmp_path / "out", "table4", "vit", "sista") == [
        f"vit-ucsd-cs{rate}" for rate in rates
    ]
    half = read_config(tmp_path / "out" / "vit-ucsd-cs50.toml")
    vit = read_config(SYSTEMS / "vit-cs20.toml")
    paper = read_config(SYSTEMS.parent / "dust-ucsd-cs20.toml")
    assert (half.family, half.model) == ("vit", vit.model | {"measurements": 128})
    assert half.data == paper.data
    assert half.training == replace(paper.training, learning_rate=3e-4)


def test_the_script_makes_the_changes_that_it_prints(tmp_path):
    assert trained(tmp_path / "out", "sensing", "sista-rnn") == [
        f"sista-rnn-cs{rate}0" for rate in range(1, 6)
    ]
    half = read_config(tmp_path / "out" / "sista-rnn-cs50.toml")
    assert half.model["measurements"] == 128
    assert (
        trained(tmp_path / "out", "denoising", "l1-l1-rnn")[-1]
        == "l1-l1-rnn-denoise100"
    )
    noisy = read_config(tmp_path / "out" / "l1-l1-rnn-denoise100.toml")
    assert (noisy.training.sigma, noisy.model) == (
        (100.0,),
        {"lambda1": 60.0, "lambda2": 20.0},
    )
    assert "vit-cs20-noise50" in trained(tmp_path / "out", "noisy-sensing", "vit")
    both = read_config(tmp_path / "out" / "vit-cs20-noise50.toml")
    assert (both.task, both.model, both.training.sigma) == (
        "recover",
        {"measurements": 51},
        (50.0,),
    )
    assert trained(tmp_path / "plateau", "plateau", "l1-l1-rnn") == ["l1-l1-rnn-cs20"]
    fair = read_config(tmp_path / "plateau" / "l1-l1-rnn-cs20.toml").training
    paper = read_config(SYSTEMS.parent / "dust-avenue-cs20.toml").training
    assert fair == replace(paper, learning_rate=1e-4)
    ablations = trained(tmp_path / "out", "ablations", "sista")
    assert len(ablations) == len(set(ablations))
    for name, model in (
        (
            "printed-dust-6-layers-cs20",
            {"kind": "printed", "measurements": 51, "blocks": 6},
        ),
        ("sista-500-cs20", {"measurements": 51, "layers": 500}),
        ("printed-dust-c-1-5-cs20", {"kind": "printed", "measurements": 51, "c": 1.5}),
    ):
        recipe = read_config(tmp_path / "out" / f"{name}.toml")
        assert name in ablations and recipe.model.items() >= model.items()
        build_network(recipe.family, recipe.model)
    network = build_network(both.family, both.model)
    assert objective_of(both).parameters(network) == {"rate": 0.2, "sigma": [50.0]}
