"""The page of the papers' items names settings, recipes, suites, files and tests that exist."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from vidrestore.lab import run_config
from vidrestore.lab.papers.tables import table_names
from vidrestore.models.dust import DustConfig
from vidrestore.models.mb_taylorformer import MBTaylorFormerConfig
from vidrestore.models.vsr_transformer import VsrConfig
from vidrestore.weights import read_manifest

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "examples" / "train" / "papers.md"
ROWS = re.findall(
    r"^\| (\d+) \| (.*?) \| (.*?) \| (.*?) \|$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE,
)
RECIPES = {path.stem for path in PAGE.parent.rglob("*.toml")}
DATA = (
    run_config.DataConfig,
    run_config.PairSetConfig,
    run_config.ClipSetConfig,
    run_config.GroupSetConfig,
)
TRAINING = (
    run_config.TrainingConfig,
    run_config.PairTrainingConfig,
    run_config.ClipTrainingConfig,
)
SETTINGS = {
    "model": (DustConfig, MBTaylorFormerConfig, VsrConfig),
    "data": DATA,
    "training": TRAINING,
}
SHORT_NAMES = {"model.size"}  # stands for several settings


def setting_names() -> set[str]:
    """The settings of networks, data and training, as `--set` takes them."""
    classes: list[tuple[str, Any]] = [
        (part, cls) for part, owners in SETTINGS.items() for cls in owners
    ]
    return {
        f"{part}.{setting.name}" for part, cls in classes for setting in fields(cls)
    } | SHORT_NAMES


def missing(text: str) -> list[str]:
    """The names between backquotes that stand for nothing."""
    names = re.findall(r"`([^`]+)`", text)
    return [name for name in names if not exists(name)]


def exists(name: str) -> bool:
    if name.split(".")[0] in SETTINGS and "/" not in name:
        return name in setting_names()
    path, _, test = name.partition("::")
    if "/" in path:
        file = REPOSITORY / path
        return file.is_file() and (
            not test or f"def {test}(" in file.read_text(encoding="utf-8")
        )
    return name in RECIPES or name in table_names()


def test_all_49_items_are_there_in_order_and_each_says_whether_it_is_exact():
    assert [int(row[0]) for row in ROWS] == [*range(1, 50)]
    for _, item, _, state in ROWS:
        assert re.match(
            r"exact|different|parameters exact|as released|counted|all are read|proofs",
            state,
        ), item


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_an_item_names_exists(row):
    number, _, where, _ = row
    assert missing(where) == []
    assert "`" in where or number == "49"


def test_every_suite_and_every_recipe_for_the_papers_data_has_an_item():
    named = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])}
    assert set(table_names()) <= named
    on_sets = {
        path.stem
        for path in PAGE.parent.glob("*.toml")
        if "\ndataset = " in path.read_text("utf-8")
    }
    assert on_sets <= named


def test_a_name_that_stands_for_nothing_is_found():
    text = "`model.c`, `model.rate`, suite `dust-table40`, `vidrestore/models/dust.py`, `tests/a.py::test_b`"
    assert missing(text) == ["model.rate", "dust-table40", "tests/a.py::test_b"]


def test_the_cards_of_the_bundled_sensing_networks_say_how_they_differ_from_the_paper():
    cards = [card for card in read_manifest().values() if card.task == "recover"]
    assert len(cards) == 5
    for card in cards:
        said = card.training["differences"]
        assert card.config["temperature"] == ("temperature" in said)
        assert "lambda1 (Eq. 15) is learnt through a softplus" in said
