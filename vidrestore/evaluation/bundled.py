"""The suite `bundled`: the held-out figures of all that ships."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vidrestore.errors import ConfigError
from vidrestore.evaluation.held_out import AGREEMENT, held_out_rows, recipe_of
from vidrestore.evaluation.results import Result, Row
from vidrestore.training.config import RunConfig, read_config
from vidrestore.weights import load_model, locate, read_manifest

Tell = Callable[[str], None]

PROTOCOL = (
    "the recipe's held-out clips, its degradations with fixed seeds, its objective's own PSNR",
    f"agreement: within {AGREEMENT} dB of the figure that the weights' card holds",
)
OTHER_CLIPS = "clips of your own: the manifest's figures are of other clips, so nothing is held against them"


def evaluate_bundled(weights: Sequence[str], data: Path | None, device: str, tell: Tell) -> Result:
    """Measure all listed weights that are on this machine, or those named, each on the held-out data of its
    recipe.
    """
    absent = [] if weights else [name for name, card in read_manifest().items() if locate(card) is None]
    names = weights or [name for name in read_manifest() if name not in absent]
    rows = tuple(row for name in names for row in _rows(name, None, data, device, tell))
    notes = [f"{name}: not pulled, left out" for name in absent]
    return _result("bundled", "Held-out figures of bundled weights", rows, notes, data)


def evaluate_recipe(
    config: Path, weights: Sequence[str], data: Path | None, device: str, tell: Tell
) -> Result:
    """Measure weights (those of the recipe's name in the manifest unless some are named) on the held-out data
    of one recipe.
    """
    recipe = read_config(config)
    if not weights and recipe.name not in read_manifest():
        raise ConfigError(f"{config}: no weights named {recipe.name!r} are bundled; name some with `weights`")
    rows = tuple(row for name in weights or [recipe.name] for row in _rows(name, recipe, data, device, tell))
    return _result(f"config {config.name}", f"Held-out figures as {config} says", rows, [], data)


def _rows(name: str, recipe: RunConfig | None, data: Path | None, device: str, tell: Tell) -> Iterator[Row]:
    tell(f"{name}: reading clips, measuring")
    model = load_model(name, device)
    yield from held_out_rows(recipe or recipe_of(model.card), model, data)


def _result(suite: str, title: str, rows: tuple[Row, ...], notes: list[str], data: Path | None) -> Result:
    unlisted = dict.fromkeys(row.weights for row in rows if row.verdict == "not listed")
    notes += [f"{name}: its card holds no such figures" for name in unlisted]
    notes += [OTHER_CLIPS] * any(not row.verdict for row in rows if data is not None)
    return Result(suite, title, "manifest", rows, PROTOCOL, tuple(notes))
