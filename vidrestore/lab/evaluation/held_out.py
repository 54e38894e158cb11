"""Measure weights on the held-out data of their training configuration, beside the values of their card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.lab.run_config import (
    RunConfig,
    SetConfig,
    parse_config,
    read_config,
)
from vidrestore.lab.training.data.footage import CLIP_SUFFIXES, find_footage
from vidrestore.lab.training.data.sources import make_data
from vidrestore.lab.training.objective import objective_of
from vidrestore.lab.training_events import rounded_metrics
from vidrestore.pages.results import Result, Row, Values, Verdict
from vidrestore.restorers.task_weights import ANY_TASK
from vidrestore.weights import Model, load_model, read_manifest, weights_folder
from vidrestore.weights.manifest import Card

# dB; more than half-precision files and another processor change a value
CARD_TOLERANCE = 0.02
HELD_OUT = "held-out"  # prefix of these values' names on a card
OnProgress = Callable[[str], None]
# settings that the cards of some weights have, at what is now the only value
FORMER_SETTINGS = {'final = "last"', "resident = false"}


def recipe_of(card: Card) -> RunConfig:
    """Return the configuration that the weights were trained with, from their card. Its folders are relative
    to the working folder, or to `examples/train` if only that has them. Raises ConfigError without one.
    """
    # the recipe on the card, of which former versions had more settings
    text = card.training.get("configuration")
    if not isinstance(text, str):
        raise ConfigError(
            f"{card.name}: its card has no training configuration; give one with `config`"
        )
    text = "\n".join(line for line in text.splitlines() if line not in FORMER_SETTINGS)
    name = f"{card.name}.toml"
    local_config, bundled_config = (
        parse_config(text, folder / name)
        for folder in (Path(), weights_folder().parent / "examples" / "train")
    )
    return (
        bundled_config
        if _has_data(bundled_config) and not _has_data(local_config)
        else local_config
    )


def _has_data(config: RunConfig) -> bool:
    data = config.data
    folders = (data.folder,) if isinstance(data, SetConfig) else data.clip_folders
    return all((config.folder / name).is_dir() for name in folders)


def held_out_rows(
    config: RunConfig, model: Model, data: Path | None = None
) -> Iterator[Row]:
    """Yield the metrics of one network on the held-out data of a configuration, or on the clips in the folder
    `data`.

    They are compared with the card's only if the weights were trained with this configuration and the clips
    are its own. Raises ConfigError if the clips are missing, CheckpointError for weights of another family or
    task.
    """
    # the weights must be for what is measured
    card = model.card
    tasks = (config.task, ANY_TASK)
    for part, value, choices in (
        ("family", card.family, (config.family,)),
        ("task", card.task, tasks),
    ):
        if value not in choices:
            raise CheckpointError(
                f"{card.name}: weights of the {part} {value!r}, but {config.path} is for {choices[0]!r}; "
                "name others with `weights`"
            )
    local_config, own_clips = with_clips(config, data)
    # values on the card hold for the card's own recipe and clips
    entries = None
    if own_clips and "configuration" in card.training:
        recipe = recipe_of(card)
        if (recipe.data, recipe.training) == (config.data, config.training):
            entries = {
                name: values
                for name, values in card.measured.items()
                if name.startswith(HELD_OUT)
            }
    metrics = measured_metrics(local_config, model)
    for name in dict.fromkeys((*metrics, *(entries or ()))):
        measured = metrics.get(name, {})
        expected = (entries or {}).get(name, {})
        verdict: Verdict = "" if entries is None else "not listed"
        if expected:
            verdict = "agrees" if agree(measured, expected) else "differs"
        yield Row(config.family, name, measured, expected, card.name, verdict)


def with_clips(config: RunConfig, data: Path | None) -> tuple[RunConfig, bool]:
    """Return the configuration with the clips, or the paper's dataset, of the folder `data`, and True if its
    held-out clips are among them; if not, all clips are held out.
    """
    # a dataset has its splits, a folder of clips its names
    if isinstance(config.data, SetConfig):
        dataset = (
            config.data
            if data is None
            else replace(config.data, folder=str(data.resolve()))
        )
        return replace(config, data=dataset), True
    if data is None:
        return config, True
    names = {path.name for path in find_footage(data, (), CLIP_SUFFIXES)}
    if not names:
        raise ConfigError(
            f"{data}: no clips in this folder; expected files named {', '.join(CLIP_SUFFIXES)}"
        )
    held_out = config.data.validation
    present = bool(held_out) and names >= set(held_out)
    validation = held_out if present else ()
    changed = replace(
        config.data, clips=str(data.resolve()), stills="", validation=validation
    )
    return replace(config, data=changed), present


def measured_metrics(config: RunConfig, model: Model) -> dict[str, Values]:
    """Return the values of each held-out measurement by name, as the card of trained weights lists them."""
    objective = objective_of(config)
    _, held_out = make_data(config, model.network)
    try:
        after, before = objective.measure(model.network, held_out)
    except ValueError as error:  # the network can't take frames of this size
        raise ConfigError(
            f"{model.card.name}: can't be measured on the data of {config.path}: {error}"
        ) from error
    return objective.card_metrics(
        {"psnr": rounded_metrics(after), "before": rounded_metrics(before)}
    )


def agree(measured: Values, expected: Values) -> bool:
    """Return True if every expected metric was measured and differs by at most `CARD_TOLERANCE`."""
    is_measured = expected.keys() <= measured.keys()
    return is_measured and all(
        abs(measured[name] - expected[name]) <= CARD_TOLERANCE for name in expected
    )


HELD_OUT_PROTOCOL = (
    "held-out clips, degradations with fixed seeds and PSNR as in the weights' training configuration",
    f"agreement: within {CARD_TOLERANCE} dB of the value in the weights' manifest card",
)
OTHER_CLIPS = (
    "other clips than those of the manifest's values, so the two are not compared"
)


def evaluate_held_out(
    config: Path | None,
    weights: Sequence[str],
    data: Path | None,
    device: str,
    on_progress: OnProgress,
) -> Result:
    """Measure weights on the held-out data of a training configuration, by default those of its name;
    without a configuration, each on that of its own, by default all of the manifest.
    """
    # the recipe that is asked for, or each one's own
    recipe = None
    suite = "bundled"
    title = "Held-out metrics of bundled weights"
    if config is not None:
        recipe = read_config(config)
        if not weights and recipe.name not in read_manifest():
            raise ConfigError(
                f"{config}: no weights named {recipe.name!r} are bundled; name some with `weights`"
            )
        weights = weights or [recipe.name]
        has_held_out = data is not None or recipe.data.validation
        metrics = (
            "Held-out metrics by"
            if has_held_out
            else "Metrics on the training data (it holds none out) of"
        )
        suite = f"config {config.name}"
        title = f"{metrics} {config}"
    # all weights, one after the other
    weights = weights or [*read_manifest()]
    rows: list[Row] = []
    for name in weights:
        on_progress(f"{name}: reading clips, measuring")
        model = load_model(name, device)
        rows += held_out_rows(recipe or recipe_of(model.card), model, data)
    # say what could not be compared
    unlisted = dict.fromkeys(row.weights for row in rows if row.verdict == "not listed")
    notes = [
        f"{name}: its manifest card has no values for these clips" for name in unlisted
    ]
    notes += [OTHER_CLIPS] * any(not row.verdict for row in rows if data is not None)
    return Result(
        suite, title, "manifest", tuple(rows), HELD_OUT_PROTOCOL, tuple(notes)
    )
