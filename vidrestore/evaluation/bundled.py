"""The suite `bundled`: measure the bundled weights on their held-out data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vidrestore.errors import ConfigError
from vidrestore.evaluation.held_out import AGREEMENT, held_out_rows, recipe_of
from vidrestore.evaluation.results import Result, Row
from vidrestore.training.config import RunConfig, read_config
from vidrestore.weights import load_model, locate, read_manifest

OnProgress = Callable[[str], None]

PROTOCOL = (
    "held-out clips, degradations with fixed seeds and PSNR as in the weights' training configuration",
    f"agreement: within {AGREEMENT} dB of the value in the weights' manifest card",
)
OTHER_CLIPS = "other clips than those of the manifest's values, so the two are not compared"


def evaluate_bundled(
    weights: Sequence[str], data: Path | None, device: str, on_progress: OnProgress
) -> Result:
    """Measure the weights named, each on the held-out data of its training configuration.

    Without names, measure all weights of the manifest that are on this machine.
    """
    absent = [] if weights else [name for name, card in read_manifest().items() if locate(card) is None]
    names = weights or [name for name in read_manifest() if name not in absent]
    rows = tuple(row for name in names for row in _rows(name, None, data, device, on_progress))
    notes = [f"{name}: not on this machine, not measured" for name in absent]
    return _result("bundled", "Held-out metrics of bundled weights", rows, notes, data)


def evaluate_recipe(
    config: Path, weights: Sequence[str], data: Path | None, device: str, on_progress: OnProgress
) -> Result:
    """Measure weights on the held-out data of one training configuration.

    Without names, measure the manifest's weights that bear the configuration's name.
    """
    recipe = read_config(config)
    if not weights and recipe.name not in read_manifest():
        raise ConfigError(f"{config}: no weights named {recipe.name!r} are bundled; name some with `weights`")
    rows = tuple(
        row for name in weights or [recipe.name] for row in _rows(name, recipe, data, device, on_progress)
    )
    return _result(f"config {config.name}", f"Held-out metrics by {config}", rows, [], data)


def _rows(
    name: str, recipe: RunConfig | None, data: Path | None, device: str, on_progress: OnProgress
) -> Iterator[Row]:
    on_progress(f"{name}: reading clips, measuring")
    model = load_model(name, device)
    yield from held_out_rows(recipe or recipe_of(model.card), model, data)


def _result(suite: str, title: str, rows: tuple[Row, ...], notes: list[str], data: Path | None) -> Result:
    unlisted = dict.fromkeys(row.weights for row in rows if row.verdict == "not listed")
    notes += [f"{name}: its manifest card has no values for these clips" for name in unlisted]
    notes += [OTHER_CLIPS] * any(not row.verdict for row in rows if data is not None)
    return Result(suite, title, "manifest", rows, PROTOCOL, tuple(notes))
