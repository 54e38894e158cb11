"""The papers' tables: which systems on which test sets, the figures published of them, and the settings of
the protocol.

A cell of a TOML file in `tables` is "37.95/0.9766", PSNR and SSIM; "-" where the paper has none; "*" where
training diverged, also behind a figure that took much tuning; "†" where the output diverged.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vidrestore.errors import OptionError
from vidrestore.evaluation.results import Values

FOLDER = Path(__file__).parent / "tables"
AVERAGE = "average"  # a column, or a set, that is the mean of the others
METRICS = ("psnr", "ssim")


@dataclass(frozen=True)
class TableSet:
    """One test set of a table: `columns` (settings or clips) and, by system, what is published in each of
    them.

    `dataset` and `split` are those of `vidrestore.datasets`, empty for the mean of the other sets. `lines`
    are the lines that frames are made smaller to; 0: they stay as they are.
    """

    name: str
    title: str
    dataset: str
    split: str
    columns: tuple[str, ...]
    published: Mapping[str, tuple[Values, ...]]
    lines: int = 0


@dataclass(frozen=True)
class Table:
    """One table of a paper. `column` says what its columns are ("CS rate"), `settings` are the protocol's."""

    name: str
    title: str
    source: str
    protocol: str
    column: str
    systems: Mapping[str, str]  # name on the command line -> name in the paper
    sets: tuple[TableSet, ...]
    settings: Mapping[str, Any]


def table_names() -> tuple[str, ...]:
    """Of all tables, as `--suite` takes them."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def read_table(name: str) -> Table:
    """A table by its name. Raises OptionError for one that there is not."""
    if name not in table_names():
        raise OptionError(f"no suite named {name!r}; there are: {', '.join(table_names())}")
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    known = {key: content.pop(key) for key in ("title", "source", "protocol", "column", "systems")}
    sets = tuple(_table_set(part) for part in content.pop("sets"))
    return Table(name, **known, sets=sets, settings=content)


def _table_set(part: dict[str, Any]) -> TableSet:
    published = {system: tuple(map(_cell, cells)) for system, cells in part.pop("published").items()}
    return TableSet(**part | {"columns": tuple(part["columns"])}, published=published)


def _cell(text: str) -> Values:
    """The figures of a cell; no values where nothing was published."""
    figures = zip(METRICS, text.rstrip("*†").split("/"), strict=False)
    return {metric: float(figure) for metric, figure in figures if figure not in ("", "-")}
