"""The tables of the papers: systems, test sets, published metrics, and settings of the protocol.

A cell of a TOML file in `tables` is "37.95/0.9766", PSNR and SSIM; "-" if the paper has none; "*" if training
diverged, also after a value that took much tuning; "†" if the output diverged.
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
AVERAGE = "average"  # a column or a set that is the mean of the others
METRICS = ("psnr", "ssim")


@dataclass(frozen=True)
class TableSet:
    """One test set of a table: `columns` (settings or clips) and, by system, the published values of each
    column.

    `dataset` and `split` are those of `papers.finding`, empty for the mean of the other sets. `lines` is the
    height that frames are downscaled to; 0 for no downscaling.
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
    """One table of a paper. `column` says what its columns stand for ("CS rate"); `settings` belong to the
    protocol.
    """

    name: str
    title: str
    source: str
    protocol: str
    column: str
    systems: Mapping[str, str]  # name on the command line -> name in the paper
    sets: tuple[TableSet, ...]
    settings: Mapping[str, Any]


def table_names() -> tuple[str, ...]:
    """Return the names of all tables, which are also names of suites."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def read_table(name: str) -> Table:
    """Read a table by its name. Raises OptionError if there is no such table."""
    if name not in table_names():
        raise OptionError(f"no suite named {name!r}; there are: {', '.join(table_names())}")
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    required = {key: content.pop(key) for key in ("title", "source", "protocol", "column", "systems")}
    sets = tuple(_table_set(part) for part in content.pop("sets"))
    return Table(name, **required, sets=sets, settings=content)


def _table_set(part: dict[str, Any]) -> TableSet:
    published = {system: tuple(map(_cell, cells)) for system, cells in part.pop("published").items()}
    return TableSet(**part | {"columns": tuple(part["columns"])}, published=published)


def _cell(text: str) -> Values:
    """Parse the metrics of a cell; an empty mapping if nothing was published."""
    values = zip(METRICS, text.rstrip("*†").split("/"), strict=False)
    return {metric: float(value) for metric, value in values if value not in ("", "-")}
