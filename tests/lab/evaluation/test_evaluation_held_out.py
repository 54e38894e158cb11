"""Metrics on a card are measured again: of every kind of training, on its held-out clips and on others."""

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import run as command
from sample_videos import write_video
from set_runs import configured
from training_runs import SENSING, clip_run, pair_run, tiny_run

from vidrestore.errors import CheckpointError, ConfigError, DatasetError, OptionError
from vidrestore.lab.evaluation import evaluate
from vidrestore.lab.evaluation.held_out import agree, held_out_rows, recipe_of
from vidrestore.lab.run_config import RunConfig, read_config
from vidrestore.lab.training.data import sources
from vidrestore.lab.training.loop import train
from vidrestore.weights import build_network, load_model, read_card, write_manifest
from vidrestore.weights import manifest as manifests


@pytest.fixture(autouse=True, scope="module")
def small_validation() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name, count in (
            ("VALIDATION_GROUPS", 40),
            ("VALIDATION_PAIRS", 4),
            ("VALIDATION_SIDE", 16),
        ):
            patch.setattr(sources, name, count)
        yield patch


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path]:
    """A recipe and the weights that it makes."""
    folder = tmp_path_factory.mktemp("trained")
    config = tiny_run(folder)
    return config, train(config, folder / "runs", device="cpu")


run = partial(command, "eval")


@pytest.mark.parametrize(
    "make",
    [
        tiny_run,
        lambda folder: tiny_run(folder, SENSING),
        lambda folder: pair_run(folder, training={"steps": 2, "validate_every": 2}),
        lambda folder: clip_run(folder, training={"steps": 2, "validate_every": 2}),
    ],
    ids=["denoise", "recover", "pictures", "sr"],
)
def test_metrics_of_training_are_measured_again(tmp_path, make):
    config = make(tmp_path)
    path = train(config, tmp_path / "runs", device="cpu")
    rows = list(held_out_rows(config, load_model(path)))
    card = read_card(path)
    assert {row.on for row in rows} == set(card.measured) and rows
    for row in rows:
        assert row.verdict == "agrees"
        assert row.reference == card.measured[row.on]
        assert row.measured == pytest.approx(card.measured[row.on], abs=0.02)


def test_a_figure_that_is_off_by_more_than_a_fiftieth_of_a_decibel_differs():
    assert agree({"psnr": 30.019}, {"psnr": 30.0})
    assert not agree({"psnr": 30.03}, {"psnr": 30.0})
    assert not agree({"psnr": 30.0}, {"psnr": 30.0, "psnr_before": 20.0})
    assert agree({"psnr": 30.0, "psnr_before": 20.0}, {"psnr": 30.0})


def bundle(
    folder: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> None:
    """A manifest of one file, which eval then takes for what ships."""
    shutil.copy(weights, folder / weights.name)
    write_manifest([replace(read_card(weights), licence="CC0", **changes)], folder)
    monkeypatch.setattr(manifests, "weights_folder", lambda: folder)


def test_the_suite_measures_all_that_ships_and_fails_where_a_figure_differs(
    trained, tmp_path, monkeypatch, capsys
):
    config, weights = trained
    # that the paths of the configuration are relative to
    monkeypatch.chdir(config.path.parent)
    bundle(tmp_path, weights, monkeypatch)
    assert (
        run(
            "--suite",
            "bundled",
            "--json",
            tmp_path / "found.json",
            "--csv",
            tmp_path / "found.csv",
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "agrees" in printed and "differs" not in printed

    result = json.loads((tmp_path / "found.json").read_text())
    assert (result["version"], result["suite"], result["against"]) == (
        1,
        "bundled",
        "manifest",
    )
    (row,) = result["rows"]
    assert row["on"] == "held-out groups, sigma 20" and row["weights"] == "tiny"
    assert f"{row['measured']['psnr']:.2f}" in printed
    (line,) = csv.DictReader((tmp_path / "found.csv").read_text().splitlines())
    assert float(line["psnr"]) == row["measured"]["psnr"]
    assert float(line["psnr_manifest"]) == row["reference"]["psnr"]

    better = {
        name: {"psnr": value["psnr"] + 0.05}
        for name, value in read_card(weights).measured.items()
    }
    bundle(tmp_path, weights, monkeypatch, measured=better)
    assert run("--suite", "bundled", "--weights", "tiny") == 1
    said = capsys.readouterr()
    assert (
        "differs" in said.out
        and "1 of 1 metrics differ from the manifest's" in said.err
    )


def test_a_recipe_takes_weights_of_its_own_name_unless_others_are_named(
    trained, tmp_path, monkeypatch
):
    config, weights = trained
    with pytest.raises(
        ConfigError,
        match="no weights named 'tiny' are bundled; name some with `weights`",
    ):
        evaluate(config=config.path)
    named = evaluate(config=config.path, weights=[str(weights)])
    bundle(tmp_path, weights, monkeypatch)
    assert evaluate(config=config.path).rows == named.rows
    assert [row.verdict for row in named.rows] == ["agrees"]


def test_clips_of_another_folder_are_compared_only_where_they_are_the_recipes_own(
    trained, tmp_path
):
    config, weights = trained
    shutil.copytree(config.path.parent / "clips", tmp_path / "copied")
    (tmp_path / "others").mkdir()
    write_video(tmp_path / "others" / "one.mkv", frames=20, size=(80, 48))
    inside = replace(config, path=tmp_path / "elsewhere" / "tiny.toml")
    (same,) = held_out_rows(inside, load_model(weights), tmp_path / "copied")
    assert same.verdict == "agrees"
    (other,) = held_out_rows(inside, load_model(weights), tmp_path / "others")
    assert (other.verdict, other.reference) == ("", {}) and other.measured[
        "psnr"
    ] != same.measured["psnr"]
    with pytest.raises(
        ConfigError, match="elsewhere/clips: no such folder; name that of your videos"
    ):
        list(held_out_rows(inside, load_model(weights)))


def test_clips_that_were_not_held_out_are_not_compared_and_a_folder_without_clips_is_refused(
    trained, tmp_path
):
    config, weights = trained
    for name in ("others", "none"):
        (tmp_path / name).mkdir()
    write_video(tmp_path / "others" / "any.mkv", frames=20)
    result = evaluate(
        config=config.path, weights=[str(weights)], data=tmp_path / "others"
    )
    assert any("not compared" in note for note in result.notes)
    with pytest.raises(ConfigError, match="no clips in this folder"):
        evaluate(config=config.path, weights=[str(weights)], data=tmp_path / "none")


def test_a_recipe_on_a_dataset_is_measured_there_or_in_the_folder_that_is_named(
    tmp_path,
):
    config = read_config(configured(tmp_path, "pairs"))
    path = train(config, tmp_path / "runs", device="cpu")
    (tmp_path / "sets").rename(tmp_path / "moved")
    with pytest.raises(DatasetError):
        list(held_out_rows(config, load_model(path)))
    rows = list(held_out_rows(config, load_model(path), tmp_path / "moved"))
    assert rows and {row.verdict for row in rows} == {"agrees"}


def test_weights_of_another_family_or_task_are_refused(trained):
    config, weights = trained
    recovery = replace(config, task="recover", model=config.model | {"measurements": 6})
    with pytest.raises(
        CheckpointError, match="weights of the task 'denoise', but .* is for 'recover'"
    ):
        list(held_out_rows(recovery, load_model(weights)))
    with pytest.raises(
        CheckpointError, match="weights of the family 'dust', but .* is for 'vit'"
    ):
        list(held_out_rows(replace(config, family="vit"), load_model(weights)))


def test_a_card_without_a_configuration_is_an_error_and_every_bundled_one_has_it(
    trained,
):
    card = read_card(trained[1])
    with pytest.raises(
        ConfigError, match="tiny: its card has no training configuration; give one with"
    ):
        recipe_of(
            replace(
                card,
                training={"command": "vidrestore train --config dust-denoise.toml"},
            )
        )
    for name, bundled in manifests.read_manifest().items():
        recipe = recipe_of(bundled)
        assert (recipe.name, recipe.task, recipe.family) == (
            name,
            bundled.task,
            bundled.family,
        )


def test_weights_hold_the_configuration_of_their_training_in_full(
    tmp_path, monkeypatch
):
    written = tiny_run(tmp_path)
    config = read_config(
        written.path, ["data.still_share=0.5", "training.steps=2", "training.warmup=1"]
    )
    path = train(config, tmp_path / "set", device="cpu")
    written.path.unlink()
    monkeypatch.chdir(tmp_path)  # that its paths are relative to
    own = recipe_of(read_card(path))
    assert (own.data, own.training, own.folder) == (
        config.data,
        config.training,
        tmp_path.resolve(),
    )
    assert (
        build_network(own.family, own.model).config == load_model(path).network.config
    )
    assert {row.verdict for row in held_out_rows(own, load_model(path))} == {"agrees"}
    # another recipe: nothing is held against it
    assert {row.verdict for row in held_out_rows(written, load_model(path))} == {""}


def test_exactly_one_of_suite_and_recipe_must_be_given():
    for inputs in ({}, {"suite": "bundled", "config": "any.toml"}):
        with pytest.raises(OptionError, match="give `reference`"):
            evaluate(**inputs)
    with pytest.raises(
        OptionError,
        match=r"no suite named 'bundle' \(did you mean bundled\?\); `vidrestore",
    ):
        evaluate("bundle")


@pytest.mark.data
def test_a_bundled_network_comes_to_the_figure_in_the_manifest(
    shared_data, small_validation
):
    small_validation.undo()
    result = evaluate("bundled", weights=["dust-cs10"], device="cpu")
    assert [row.verdict for row in result.rows] == ["agrees"]
    assert result.rows[0].measured["psnr"] == pytest.approx(29.457, abs=0.02)
