"""Who takes part in a table: weights by what their cards say, and what needs no weights."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from vidrestore.errors import OptionError
from vidrestore.evaluation.papers.published import Table
from vidrestore.models import mb_taylorformer, vsr_transformer_family
from vidrestore.models.dust_sigma import SigmaDust
from vidrestore.options import Quality
from vidrestore.weights import Model, load_model, locate, read_manifest

GIVEN = "given"  # the system that gives back what it is given
BICUBIC = "bicubic"
FREE = (GIVEN, BICUBIC)  # systems without weights
NAMES = {  # of systems that a table does not name
    GIVEN: "as given",
    BICUBIC: "Bicubic",
    "dust": "DUST",
    "mh-dust": "MH-DUST",
    "dust-fast": "DUST, fast",
    "dust-best": "DUST, best",
    "mh-dust-fast": "MH-DUST, fast",
    "mh-dust-best": "MH-DUST, best",
    "mb-taylorformer-t": "MB-TaylorFormer-T V2",
    "vsr-transformer-t": "VSR-Transformer-T",
    "vsr-transformer-s": "VSR-Transformer-S",
}


@dataclass(frozen=True)
class Contestant:
    """A system, and the weights it runs with, loaded from `source`; `only` is the one test set that these are
    for, empty for all.

    `label` is what the weights are called where others on the same test set have their name, too. `quality`
    is that of `RestoreOptions`.
    """

    system: str
    model: Model | None = None
    source: str = ""
    device: str = "cpu"
    only: str = ""
    label: str = ""
    quality: Quality = "default"

    @property
    def weights(self) -> str:
        return self.label or (self.model.card.name if self.model else "")

    @cached_property
    def network(self) -> Any:
        """Of the weights."""
        assert self.model is not None
        return self.model.network


def contestants(
    table: Table,
    free: Collection[str],
    families: Collection[str],
    task: str,
    sources: Sequence[str],
    device: str,
) -> list[Contestant]:
    """The systems in `free`, and those of the weights in `sources`: names or files, with "SET=" before those
    for one test set.

    Without sources, all listed weights of the families and the task that are on this machine. Raises
    CheckpointError for weights that aren't there, OptionError for some of another family.
    """
    taking = [Contestant(system, device=device) for system in FREE if system in free]
    cards = read_manifest().values()
    listed = [
        card.name
        for card in cards
        if card.family in families and card.task == task and locate(card) is not None
    ]
    for source in dict.fromkeys(sources or listed):
        only, name = _parsed(source, table)
        model = load_model(name, device)
        if model.card.family not in families:
            raise OptionError(
                f"{name}: weights of {model.card.family}, but {table.name} is for "
                f"{', '.join(sorted(families))}"
            )
        taking.append(Contestant(system_of(model), model, name, device, only))
    return told_apart(taking)


def in_all_qualities(contestant: Contestant) -> tuple[Contestant, ...]:
    """DUST at its three speeds, as systems of their own; others as they are."""
    if contestant.model is None or contestant.model.card.family != "dust":
        return (contestant,)
    system = contestant.system
    return (
        contestant,
        replace(contestant, system=f"{system}-fast", quality="fast"),
        replace(contestant, system=f"{system}-best", quality="best"),
    )


def told_apart(taking: Sequence[Contestant]) -> list[Contestant]:
    """The same with a label, their source, for weights whose name others on a test set have:
    a/dust.safetensors and b/dust.safetensors.
    """

    def is_another(one: Contestant, other: Contestant) -> bool:
        meet = one.only == other.only or not (one.only and other.only)
        return one.weights == other.weights and one.source != other.source and meet

    return [
        replace(one, label=one.source) if any(is_another(one, other) for other in taking) else one
        for one in taking
    ]


def _parsed(source: str, table: Table) -> tuple[str, str]:
    """ "avenue=runs/x.safetensors" -> the set and the weights."""
    only, equals, name = source.partition("=")
    names = [part.name for part in table.sets if part.dataset]
    if not equals or (only not in names and Path(source).exists()):
        return "", source
    if only not in names:
        raise OptionError(f"{source}: {only!r} is no test set of {table.name}; there are: {', '.join(names)}")
    return only, name


def system_of(model: Model) -> str:
    """The name of a network in the tables: DUST by its heads, others by their size and what is left out or
    another than usual.
    """
    family, config = model.card.family, cast("Any", model.network.config)
    if family == "mb-taylorformer":
        return _sized(
            family, mb_taylorformer.SIZES, config, ("widths", "blocks", "branches")
        ) + _other_than_released(config)
    if family == "vsr-transformer":
        size = (
            _sized(family, vsr_transformer_family.SIZES, config, ("features", "blocks"))
            if config.local
            else family
        )
        left_out = "-no-stcsa" * (not config.attention) + "-no-boff" * (not config.alignment)
        return f"{size}{left_out}{'-3-frames' * (config.frames == 3)}"
    name = "mh-dust" if family == "dust" and config.heads > 1 else family
    with_f = "-f" if getattr(config, "correlation", False) else ""
    return name + with_f + ("" if getattr(config, "normalise", True) else "-not-normalised")


def _other_than_released(config: mb_taylorformer.MBTaylorFormerConfig) -> str:
    """Return the settings in which an ablation of MB-TaylorFormer V2 (Tables VIII to XII) differs."""
    usual = mb_taylorformer.B
    fixed = config.embedding != usual.embedding
    limit = "-any-offset" if not config.offset_limit else f"-offset-{config.offset_limit[1]:g}"
    return "".join(
        (
            f"-{config.embedding}" * fixed,
            "-p" * (not config.chain),
            limit * (config.offset_limit != usual.offset_limit and not fixed),
            "-no-cpe" * (config.attention.position == "none"),
            f"-p{config.attention.focus_power}"
            * (config.attention.focus_power != usual.attention.focus_power),
        )
    )


def _sized(family: str, sizes: Mapping[str, Any], config: Any, told_by: Sequence[str]) -> str:
    """The family with the name of the size whose fields `told_by` are the config's, "other" where there is
    none.
    """
    same = (
        name
        for name, size in sizes.items()
        if all(getattr(size, field) == getattr(config, field) for field in told_by)
    )
    return f"{family}-{next(same, 'other')}"


def chosen(taking: Iterable[Contestant], table: Table, systems: Sequence[str]) -> list[Contestant]:
    """Those among the systems asked for; all of them where none is. OptionError where a name is unknown, or
    nobody is left.
    """
    taking = list(taking)
    known = list(dict.fromkeys([*(contestant.system for contestant in taking), *table.systems]))
    if unknown := [name for name in systems if name not in known]:
        raise OptionError(f"{table.name}: no system {', '.join(unknown)}; there are: {', '.join(known)}")
    left = [contestant for contestant in taking if not systems or contestant.system in systems]
    if systems and not left:
        raise OptionError(
            f"{table.name}: no weights for {', '.join(systems)} are bundled or named; give some with "
            "`weights`"
        )
    return left


def remarks(taking: Iterable[Contestant]) -> list[str]:
    """What a reader must know of the weights."""
    relatives = [each.weights for each in taking if each.model and isinstance(each.network, SigmaDust)]
    return [
        f"{weights}: not the printed network, but its relative for every sigma"
        for weights in dict.fromkeys(relatives)
    ]


def seed_of(*names: str) -> int:
    """A seed that follows from the test set, the clip and the setting, whatever is measured besides."""
    return zlib.crc32("/".join(names).encode())
