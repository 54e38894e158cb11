"""Read the tables of the papers (systems, test sets, published metrics, settings of the protocol), and find
their systems on this machine.

A cell of a TOML file in `tables` is "37.95/0.9766", PSNR and SSIM, or the table's `metrics`; in `overhead`
it is millions of parameters and billions of multiply-adds; "-" if the paper has none; "*" if training
diverged, also after a value that took much tuning; "†" if the output diverged.
"""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vidrestore.errors import OptionError
from vidrestore.lab.papers.printed_forms import printed_form
from vidrestore.pages.results import (
    SYSTEM_TITLES,
    WITHOUT_WEIGHTS,
    System,
    Values,
    with_unique_labels,
)
from vidrestore.weights import load_model, read_manifest

FOLDER = Path(__file__).parent / "tables"
AVERAGE = "average"  # a column or a set that is the mean of the others
METRICS = ("psnr", "ssim")
# millions of learned parameters, billions of multiply-adds of a picture of 256x256
OVERHEAD = ("parameters", "multiply_adds")


@dataclass(frozen=True)
class TableSet:
    """One test set of a table."""

    name: str
    title: str
    dataset: str  # of `lab.papers.datasets`; empty for the mean of the other sets
    split: str
    columns: tuple[str, ...]  # settings or clips
    published: Mapping[str, tuple[Values, ...]]  # by system, the values of each column
    lines: int = 0  # height that frames are downscaled to; 0 for no downscaling


@dataclass(frozen=True)
class Table:
    """One table of a paper."""

    name: str
    title: str
    source: str
    protocol: str
    column: str  # meaning of its columns: "CS rate"
    systems: Mapping[str, str]  # name on the command line -> name in the paper
    sets: tuple[TableSet, ...]
    settings: Mapping[str, Any]  # of the protocol
    # by system, what it costs
    overhead: Mapping[str, Values] = field(default_factory=dict)
    # on differences of our measurement that a reader needs to know
    remarks: tuple[str, ...] = ()


def table_names() -> tuple[str, ...]:
    """Return the names of all tables, which are also names of suites."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def read_table(name: str) -> Table:
    """Read a table by its name. Raises OptionError for an unknown name."""
    if name not in table_names():
        raise OptionError(
            f"no suite named {name!r}; there are: {', '.join(table_names())}"
        )
    # what every table has, then what only some have
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    required = {
        key: content.pop(key)
        for key in ("title", "source", "protocol", "column", "systems")
    }
    metrics = tuple(content.pop("metrics", METRICS))
    remarks = tuple(content.pop("remarks", ()))
    overhead = {
        system: _cell(cell, OVERHEAD)
        for system, cell in content.pop("overhead", {}).items()
    }
    # the published values of each test set
    sets = []
    for part in content.pop("sets", []):
        published = {}
        for system, cells in part.pop("published").items():
            published[system] = tuple(_cell(cell, metrics) for cell in cells)
        sets.append(
            TableSet(**part | {"columns": tuple(part["columns"])}, published=published)
        )
    return Table(
        name,
        **required,
        sets=tuple(sets),
        settings=content,
        overhead=overhead,
        remarks=remarks,
    )


def _cell(text: str, metrics: Sequence[str]) -> Values:
    """Parse the metrics of a cell; an empty mapping if nothing was published."""
    values = zip(metrics, text.rstrip("*†").split("/"), strict=False)
    return {metric: float(value) for metric, value in values if value not in ("", "-")}


def title_of(table: Table, system: str) -> str:
    """Return the name of a system as the paper writes it."""
    return table.systems.get(system, SYSTEM_TITLES.get(system, system))


def find_systems(
    table: Table,
    baselines: Collection[str],
    families: Collection[str],
    tasks: Collection[str],
    sources: Sequence[str],
    device: str,
) -> list[System]:
    """Return the systems in `baselines`, then those of the weights in `sources`.

    A source is a name or a file, with "SET=" before it if it is for one test set only. Without sources, take
    all listed weights of the families and the tasks. Raises CheckpointError for weights that are missing,
    OptionError for weights of another family.
    """
    # baselines need no weights
    systems = [
        System(name, device=device) for name in WITHOUT_WEIGHTS if name in baselines
    ]
    cards = read_manifest().values()
    names = [
        card.name for card in cards if card.family in families and card.task in tasks
    ]
    for source in dict.fromkeys(sources or names):
        test_set, name = _parsed(source, table)
        model = load_model(name, device)
        if model.card.family not in families:
            raise OptionError(
                f"{name}: weights of {model.card.family}, but {table.name} is for "
                f"{', '.join(sorted(families))}"
            )
        form = printed_form(model, table.systems, table.column)
        systems.append(System(form.system, model, name, device, test_set))
    return with_unique_labels(systems)


def _parsed(source: str, table: Table) -> tuple[str, str]:
    """Split "avenue=runs/x.safetensors" into the test set, empty for all, and the weights."""
    # a file may have an equals sign in its name
    test_set, equals, name = source.partition("=")
    sets = [part.name for part in table.sets if part.dataset]
    if not equals or (test_set not in sets and Path(source).exists()):
        return "", source
    if test_set not in sets:
        raise OptionError(
            f"{source}: no test set {test_set!r} in {table.name}; there are: {', '.join(sets)}"
        )
    return test_set, name


def select_systems(
    systems: Iterable[System], table: Table, names: Sequence[str]
) -> list[System]:
    """Return the systems with one of `names`, or all. Raises OptionError for an unknown name, and for none
    left.
    """
    systems = list(systems)
    # a name that no system has is a mistake
    choices = list(
        dict.fromkeys([*(system.name for system in systems), *table.systems])
    )
    if unknown := [name for name in names if name not in choices]:
        raise OptionError(
            f"{table.name}: no system {', '.join(unknown)}; there are: {', '.join(choices)}"
        )
    selected = [system for system in systems if not names or system.name in names]
    if names and not selected:
        raise OptionError(
            f"{table.name}: no weights for {', '.join(names)} are bundled or named; name some with `weights`"
        )
    return selected


def weights_notes(systems: Iterable[System], table: Table) -> list[str]:
    """Return a note on each of the weights that are not a network as a paper prints it."""
    models = {system.weights: system.model for system in systems if system.model}
    notes = {
        name: printed_form(model, table.systems, table.column).note
        for name, model in models.items()
    }
    return [f"{name}: {note}" for name, note in notes.items() if note]


def seed_of(*names: str) -> int:
    """Return a seed that depends only on names such as the test set, the clip and the setting."""
    return zlib.crc32("/".join(names).encode())
