"""Trained weights become bundled ones: the file beside the manifest, its entry complete, and nothing replaced
unasked.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import run
from tiny_family import Tiny, TinyConfig

from vidrestore.errors import CheckpointError
from vidrestore.families import FAMILIES, Family
from vidrestore.weights import add_weights, load_model, read_card, read_manifest, save_model, write_manifest

TRAINING = {
    "data": "clips: train",
    "command": "vidrestore train --config tiny.toml",
    "steps": 12,
    "curve": [{"step": 12}],
}


@pytest.fixture(autouse=True)
def tiny_is_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "tiny", Family("tiny_family:build"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty manifest."""
    (tmp_path / "weights").mkdir()
    write_manifest([], tmp_path / "weights")
    return tmp_path / "weights"


def trained(folder: Path, name: str = "tiny-denoise", seed: int = 0, width: int = 4, **extra: Any) -> Path:
    """A file as a training run writes it."""
    torch.manual_seed(seed)
    path = folder / f"{name}.safetensors"
    settings = {
        "training": TRAINING,
        "measured": {"held out": {"psnr": 30.0}},
        "licence": "Apache-2.0",
    } | extra
    save_model(
        path,
        Tiny(TinyConfig(width)),
        family="tiny",
        config=TinyConfig(width),
        task="denoise",
        parameters={"sigma": [1, 75]},
        extra=settings,
    )
    return path


def add(*arguments: str | Path) -> int:
    return run("weights", "add", *arguments)


def test_added_weights_load_by_name_with_a_complete_entry(tmp_path, folder):
    source = trained(tmp_path)
    content = source.read_bytes()
    card = add_weights(source, folder)
    assert read_manifest(folder) == {"tiny-denoise": card}
    assert card.to_entry() == {
        "name": "tiny-denoise",
        "family": "tiny",
        "config": {"width": 4},
        "task": "denoise",
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "parameters": {"sigma": [1, 75]},
        "licence": "Apache-2.0",
        "training": {key: value for key, value in TRAINING.items() if key != "curve"},
        "measured": {"held out": {"psnr": 30.0}},
        "file": "tiny-denoise.safetensors",
    }
    assert (folder / "tiny-denoise.safetensors").read_bytes() == content
    assert load_model("tiny-denoise", folder=folder).card == card


def test_what_is_given_goes_before_what_the_file_says(tmp_path, folder):
    given = {"licence": "MIT", "parameters": {"rate": 0.2}, "training": {"command": "other"}, "measured": {}}
    card = add_weights(trained(tmp_path), folder, name="tiny-cs20", **given)  # type: ignore[arg-type]
    assert (card.name, card.file, card.licence) == ("tiny-cs20", "tiny-cs20.safetensors", "MIT")
    assert (card.parameters, card.measured) == ({"rate": 0.2}, {})
    assert card.training == {"data": "clips: train", "command": "other", "steps": 12}


def test_a_licence_that_the_file_states_stays_and_none_is_assumed(tmp_path, folder):
    assert add_weights(trained(tmp_path, licence="CC-BY-NC-4.0"), folder).licence == "CC-BY-NC-4.0"
    with pytest.raises(CheckpointError, match="another.safetensors: states no licence; give `licence`"):
        add_weights(trained(tmp_path, "another", licence=""), folder)


# The user's own folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder of weights, which isn't there yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "vidrestore" / "weights"


def test_weights_are_added_to_the_users_own_and_found_by_name(tmp_path, own, capsys):
    bundled = list(read_manifest())
    source = trained(tmp_path, training={}, licence="")
    assert add(source) == 1
    assert "states no licence; give --licence" in capsys.readouterr().err and not (own / source.name).exists()
    assert add(source, "--licence", "MIT") == 0
    assert list(read_manifest()) == [*bundled, "tiny-denoise"]
    assert (own / "tiny-denoise.safetensors").read_bytes() == source.read_bytes()
    assert load_model("tiny-denoise").card.licence == "MIT"
    assert run("weights", "verify", "tiny-denoise") == 0
    capsys.readouterr()
    assert run("weights", "list") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "tiny-denoise" in line]
    assert line.endswith("yours")


def test_the_users_own_weights_never_stand_in_for_bundled_ones(tmp_path, own, capsys):
    assert add(trained(tmp_path), "--name", "dust-denoise") == 1
    assert "'dust-denoise' is the name of bundled weights; choose another --name" in capsys.readouterr().err
    own.mkdir(parents=True)
    source = trained(own, "dust-denoise")
    write_manifest([replace(read_card(source), licence="MIT")], own)
    assert read_manifest()["dust-denoise"].family == "dust"


def test_a_card_is_markdown_with_the_metadata_of_the_hub(tmp_path, own, capsys):
    assert add(trained(tmp_path), "--licence", "MIT") == 0
    capsys.readouterr()
    assert run("weights", "card", "tiny-denoise") == 0
    _, head, body = capsys.readouterr().out.split("---\n", 2)
    assert head.splitlines()[:3] == [
        "license: mit",
        "library_name: vidrestore",
        "pipeline_tag: video-to-video",
    ]
    assert head.splitlines()[-2:] == ["- denoise", "- tiny"]
    assert "# tiny-denoise\n" in body and "- held out: psnr 30.0\n" in body


def test_the_card_of_a_file_has_its_configuration_as_code_and_nothing_that_is_not_known(tmp_path, capsys):
    configuration, curve = 'name = "tiny"\n\n[model]\n', [{"psnr": {"20": 24.5}, "step": 6}]
    training = TRAINING | {"configuration": configuration, "curve": curve}
    file = trained(tmp_path, training=training, licence="")
    assert run("weights", "card", str(file)) == 0
    text = capsys.readouterr().out
    assert "SHA-256" not in text
    assert f"```toml\n{configuration}```\n" in text
    assert "- curve: psnr 20 24.5, step 6\n" in text
    assert "license: unknown\n" in text


def test_weights_of_a_name_are_replaced_only_when_asked_and_keep_their_place(tmp_path, folder):
    first = add_weights(trained(tmp_path), folder)
    add_weights(trained(tmp_path), folder, name="other")
    better = trained(tmp_path, seed=1)
    with pytest.raises(
        CheckpointError, match="manifest.json: has 'tiny-denoise' already; set `overwrite` if"
    ):
        add_weights(better, folder)
    assert load_model("tiny-denoise", folder=folder).card == first
    assert add_weights(better, folder, overwrite=True).sha256 != first.sha256
    assert list(read_manifest(folder)) == ["tiny-denoise", "other"]
    load_model("tiny-denoise", folder=folder)


def test_a_file_that_lies_beside_the_manifest_is_only_entered(folder):
    source = trained(folder)
    content = source.read_bytes()
    add_weights(source, folder)
    assert source.read_bytes() == content
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "tiny-denoise.safetensors"]


@pytest.mark.parametrize(
    ("extra", "settings", "message"),
    [
        ({"training": {}}, {}, "has no record of its training; give `data` and `command`"),
        ({"training": {"data": "clips"}}, {}, "has no record of its training; give `command`"),
        ({}, {"name": "Not A Name"}, "name must have the form .*, found 'Not A Name'"),
    ],
)
def test_an_entry_that_would_not_be_whole_is_refused_and_nothing_written(
    tmp_path, folder, extra, settings, message
):
    with pytest.raises(CheckpointError, match=message):
        add_weights(trained(tmp_path, **extra), folder, **settings)
    assert read_manifest(folder) == {}
    assert [path.name for path in folder.iterdir()] == ["manifest.json"]


def test_a_file_whose_tensors_are_not_those_of_its_config_is_not_added(tmp_path, folder):
    path = tmp_path / "tiny.safetensors"
    save_model(
        path,
        Tiny(TinyConfig(4)),
        family="tiny",
        config=TinyConfig(5),
        task="denoise",
        extra={"training": TRAINING},
    )
    with pytest.raises(CheckpointError, match="but the config asks for"):
        add_weights(path, folder)


def test_a_manifest_that_there_is_no_room_for_stays_as_it_was(folder, monkeypatch):
    before = (folder / "manifest.json").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vidrestore.files.atomic.os.fsync", full)
    with pytest.raises(CheckpointError, match=r"manifest.json: can't be written \(No space left on device\)"):
        write_manifest([], folder)
    assert (folder / "manifest.json").read_bytes() == before and not list(folder.glob(".*"))


def test_the_command_adds_and_says_what(tmp_path, folder, capsys):
    source = trained(tmp_path, training={})
    measured = {"clips": {"psnr": 31.5}}
    how = ("--data", "clips", "--command", "a command", "--measured", json.dumps(measured))
    assert add(source, "--folder", folder, "--name", "tiny-two", *how) == 0
    card = read_manifest(folder)["tiny-two"]
    assert capsys.readouterr().out == f"{source} -> tiny-two: tiny, 0.0 MB, sha256 {card.sha256}\n"
    assert (card.training, card.measured, card.parameters) == (
        {"data": "clips", "command": "a command"},
        measured,
        {"sigma": [1, 75]},
    )
    assert add(source, "--folder", folder, "--name", "tiny-two", *how) == 1
    assert add(source, "--folder", folder, "--measured", "31.5") == 2


def test_matrices_in_eight_bits_are_off_by_half_a_step_and_the_rest_is_in_sixteen(tmp_path, folder, capsys):
    source = trained(tmp_path, width=64)
    assert add(source, "--folder", folder, "--name", "whole") == 0
    assert add(source, "--folder", folder, "--name", "small", "--eight-bit-from", 4096) == 0
    sizes = {name: card.bytes for name, card in read_manifest(folder).items()}
    assert sizes["small"] < 0.35 * sizes["whole"]
    assert read_card(folder / "small.safetensors").training == TRAINING
    whole, small = (load_model(name, folder=folder).network.state_dict() for name in ("whole", "small"))
    assert torch.equal(small["linear.bias"], whole["linear.bias"].half().float())
    blocks = whole["linear.weight"].view(-1, 32)
    steps = blocks.abs().amax(1, keepdim=True) / 127
    error = (small["linear.weight"].view(-1, 32) - blocks).abs()
    assert 0.4 < (error / steps).max() < 0.6  # scales are rounded, too


def test_matrices_smaller_than_asked_for_are_not_stored_in_eight_bits(tmp_path, folder):
    card = add_weights(trained(tmp_path, width=64), folder, eight_bit_from=4097)
    loaded = load_model(card.name, folder=folder).network.state_dict()["linear.weight"]
    assert torch.equal(loaded, loaded.half().float())
    assert card.bytes > 2 * 64 * 64


def test_a_bundled_file_that_is_stored_again_keeps_what_its_entry_says(tmp_path, folder):
    add_weights(
        trained(tmp_path, width=64), folder, parameters={"sigma": 5}, measured={"clips": {"psnr": 9.0}}
    )
    bundled = folder / "tiny-denoise.safetensors"
    again = add_weights(bundled, folder, overwrite=True, eight_bit_from=4096)
    assert (again.parameters, again.measured) == ({"sigma": 5}, {"clips": {"psnr": 9.0}})
    trained(folder, seed=1, width=64)  # other weights in its place have a card of their own
    assert add_weights(bundled, folder, overwrite=True).measured == {"held out": {"psnr": 30.0}}
