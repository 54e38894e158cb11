"""Read the tables of the papers (systems, test sets, published metrics, settings of the protocol), and find
their systems on this machine.

A cell of a TOML file in `tables` is "37.95/0.9766", PSNR and SSIM; "-" if the paper has none; "*" if training
diverged, also after a value that took much tuning; "†" if the output diverged.
"""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from vidrestore.errors import OptionError
from vidrestore.evaluation.results import WITHOUT_WEIGHTS, System, Values, with_unique_labels
from vidrestore.models import mb_taylorformer, vsr_transformer
from vidrestore.models.dust_sigma import SigmaDust
from vidrestore.weights import Model, load_model, read_manifest

FOLDER = Path(__file__).parent / "tables"
AVERAGE = "average"  # a column or a set that is the mean of the others
METRICS = ("psnr", "ssim")


@dataclass(frozen=True)
class TableSet:
    """One test set of a table."""

    name: str
    title: str
    dataset: str  # of `papers.datasets`; empty for the mean of the other sets
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


def table_names() -> tuple[str, ...]:
    """Return the names of all tables, which are also names of suites."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def read_table(name: str) -> Table:
    """Read a table by its name. Raises OptionError for an unknown name."""
    if name not in table_names():
        raise OptionError(f"no suite named {name!r}; there are: {', '.join(table_names())}")
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    required = {key: content.pop(key) for key in ("title", "source", "protocol", "column", "systems")}
    sets = []
    for part in content.pop("sets"):
        published = {system: tuple(map(_cell, cells)) for system, cells in part.pop("published").items()}
        sets.append(TableSet(**part | {"columns": tuple(part["columns"])}, published=published))
    return Table(name, **required, sets=tuple(sets), settings=content)


def _cell(text: str) -> Values:
    """Parse the metrics of a cell; an empty mapping if nothing was published."""
    values = zip(METRICS, text.rstrip("*†").split("/"), strict=False)
    return {metric: float(value) for metric, value in values if value not in ("", "-")}


def find_systems(
    table: Table,
    baselines: Collection[str],
    families: Collection[str],
    task: str,
    sources: Sequence[str],
    device: str,
) -> list[System]:
    """Return the systems in `baselines`, then those of the weights in `sources`.

    A source is a name or a file, with "SET=" before it if it is for one test set only. Without sources, take
    all listed weights of the families and the task. Raises CheckpointError for weights that are missing,
    OptionError for weights of another family.
    """
    systems = [System(name, device=device) for name in WITHOUT_WEIGHTS if name in baselines]
    cards = read_manifest().values()
    names = [card.name for card in cards if card.family in families and card.task == task]
    for source in dict.fromkeys(sources or names):
        test_set, name = _parsed(source, table)
        model = load_model(name, device)
        if model.card.family not in families:
            raise OptionError(
                f"{name}: weights of {model.card.family}, but {table.name} is for "
                f"{', '.join(sorted(families))}"
            )
        systems.append(System(system_of(model), model, name, device, test_set))
    return with_unique_labels(systems)


def _parsed(source: str, table: Table) -> tuple[str, str]:
    """Split "avenue=runs/x.safetensors" into the test set, empty for all, and the weights."""
    test_set, equals, name = source.partition("=")
    sets = [part.name for part in table.sets if part.dataset]
    if not equals or (test_set not in sets and Path(source).exists()):
        return "", source
    if test_set not in sets:
        raise OptionError(f"{source}: no test set {test_set!r} in {table.name}; there are: {', '.join(sets)}")
    return test_set, name


def system_of(model: Model) -> str:
    """Return the name of a network in the tables: DUST's by its heads, the others' by size and by settings
    that differ from the published network.
    """
    family, config = model.card.family, cast("Any", model.network.config)
    if family == "mb-taylorformer":
        shape = config.widths, config.blocks, config.branches
        sizes = mb_taylorformer.SIZES.items()
        names = (name for name, size in sizes if (size.widths, size.blocks, size.branches) == shape)
        return f"{family}-{next(names, 'other')}{_other_than_released(config)}"
    if family == "vsr-transformer":
        if not isinstance(config, vsr_transformer.VsrConfig):
            return f"{family}-n{'-no-boff' * (not config.neighbours)}"
        left_out = "-no-stcsa" * (not config.attention) + "-no-boff" * (not config.alignment)
        return f"{family}{left_out}{'-3-frames' * (config.frames == 3)}"
    name = "mh-dust" if family == "dust" and config.heads > 1 else family
    with_f = "-f" if getattr(config, "correlation", False) else ""
    return name + with_f + ("" if getattr(config, "normalise", True) else "-not-normalised")


def _other_than_released(config: mb_taylorformer.MBTaylorFormerConfig) -> str:
    """Return the settings in which an ablation of MB-TaylorFormer V2 (Tables VIII to XII) differs."""
    published, power = mb_taylorformer.B, config.attention.focus_power
    fixed = config.embedding != published.embedding
    limit = "-any-offset" if not config.offset_limit else f"-offset-{config.offset_limit[1]:g}"
    parts = (
        f"-{config.embedding}" * fixed,
        "-p" * (not config.chain),
        limit * (config.offset_limit != published.offset_limit and not fixed),
        "-no-cpe" * (config.attention.position == "none"),
        f"-p{power}" * (power != published.attention.focus_power),
    )
    return "".join(parts)


def select_systems(systems: Iterable[System], table: Table, names: Sequence[str]) -> list[System]:
    """Return the systems with one of `names`, or all. Raises OptionError for an unknown name, and for none
    left.
    """
    systems = list(systems)
    choices = list(dict.fromkeys([*(system.name for system in systems), *table.systems]))
    if unknown := [name for name in names if name not in choices]:
        raise OptionError(f"{table.name}: no system {', '.join(unknown)}; there are: {', '.join(choices)}")
    selected = [system for system in systems if not names or system.name in names]
    if names and not selected:
        raise OptionError(
            f"{table.name}: no weights for {', '.join(names)} are bundled or named; name some with `weights`"
        )
    return selected


def weights_notes(systems: Iterable[System]) -> list[str]:
    """Return notes on the weights that a reader of the results needs."""
    names = [system.weights for system in systems if system.model and isinstance(system.network, SigmaDust)]
    return [
        f"{weights}: not the paper's network, but its variant for every sigma"
        for weights in dict.fromkeys(names)
    ]


def seed_of(*names: str) -> int:
    """Return a seed that depends only on names such as the test set, the clip and the setting."""
    return zlib.crc32("/".join(names).encode())
