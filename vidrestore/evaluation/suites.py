"""The papers' tables, measured: each system on each test set by the table's protocol, beside the published
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from vidrestore import datasets
from vidrestore.errors import DatasetError, OptionError
from vidrestore.evaluation.contestants import (
    BICUBIC,
    GIVEN,
    NAMES,
    Contestant,
    chosen,
    contestants,
    in_all_qualities,
    remarks,
)
from vidrestore.evaluation.further_metrics import VMAF, check_metrics, lines_of
from vidrestore.evaluation.papers import awgn, enlarged, sensed_patches, whole_pictures
from vidrestore.evaluation.papers.published import AVERAGE, Table, TableSet, read_table
from vidrestore.evaluation.results import ClipFigures, Result, Row, Values, rounded

Tell = Callable[[str], None]
# families on patches
UNFOLDING = (
    "dust",
    "algorithm1",
    "sista",
    "sista-rnn",
    "l1-l1-rnn",
    "reweighted-rnn",
    "unfolded-transformer",
    "vit",
)
LOOKED_AT = 3  # clips or pictures of each set that are kept to be seen


@dataclass(frozen=True)
class Protocol:
    """How tables of one kind are measured. `pooled`: the mean is over all frames of a set, not over its
    clips' means. `pictures`: there is no motion.

    `lines` describe it, for the test sets that are taken; `fits` says whether a contestant takes part in a
    column, which is for networks of the kind that `asks` names; `variants` of each are measured.
    """

    judge: Callable[..., Iterator[ClipFigures]]
    families: tuple[str, ...]
    free: Callable[[Table], tuple[str, ...]]
    task: Callable[[Table], str]
    lines: Callable[[Table, Collection[Any]], tuple[str, ...]]
    pooled: bool = False
    pictures: bool = False
    fits: Callable[[Contestant, Table, str], bool] = lambda contestant, table, column: True
    asks: str = ""
    variants: Callable[[Contestant], tuple[Contestant, ...]] = lambda contestant: (contestant,)


def _of_patches(table: Table, sets: Collection[Any]) -> tuple[str, ...]:
    clip = "the column's number of" if table.column == "clip length" else str(sensed_patches.CLIP)
    return tuple(line.format(stride=table.settings["stride"], clip=clip) for line in sensed_patches.PROTOCOL)


def _of_enlarging(table: Table, sets: Collection[Any]) -> tuple[str, ...]:
    small = (
        "made here as MATLAB's imresize makes them"
        if table.settings.get("made")
        else "of the release, else made here bicubically"
    )
    judged = sorted({index + 1 for sequences in sets for index in sequences.judged})
    restored = (
        f"of each clip only frame {', '.join(map(str, judged))} is restored and judged"
        if judged
        else "all frames are restored"
    )
    channels = ", ".join(table.settings["channels"])
    return tuple(line.format(small=small, restored=restored, channels=channels) for line in enlarged.PROTOCOL)


PROTOCOLS = {
    "patches": Protocol(
        sensed_patches.judge,
        UNFOLDING,
        lambda table: () if table.column != "sigma" or "rate" in table.settings else (GIVEN,),
        lambda table: "denoise" if table.column == "sigma" and "rate" not in table.settings else "recover",
        _of_patches,
        pooled=True,
        fits=sensed_patches.fits,
        asks=f"patches of {sensed_patches.PATCH}x{sensed_patches.PATCH}",
    ),
    "images": Protocol(
        whole_pictures.judge,
        ("mb-taylorformer",),
        lambda table: (GIVEN,),
        lambda table: str(table.settings["task"]),
        lambda table, sets: tuple(
            line.format(task=whole_pictures.PROTOCOLS[table.settings["task"]])
            for line in whole_pictures.PROTOCOL
        ),
        pictures=True,
    ),
    "super-resolution": Protocol(
        enlarged.judge, ("vsr-transformer",), lambda table: (BICUBIC,), lambda table: "sr", _of_enlarging
    ),
    "rgb-denoising": Protocol(
        awgn.judge,
        ("dust", "mb-taylorformer"),
        lambda table: (GIVEN,),
        lambda table: "denoise",
        lambda table, sets: awgn.PROTOCOL,
        fits=awgn.fits,
        asks="one network for every sigma",
        variants=in_all_qualities,
    ),
}


def evaluate_table(
    name: str,
    data: Path | None,
    weights: Sequence[str],
    systems: Sequence[str],
    sets: Sequence[str],
    metrics: Sequence[str],
    device: str,
    tell: Tell,
) -> Result:
    """Measure the systems of a table on its test sets below `data`, by `metrics` besides those of the paper.

    `systems` and `sets` choose, all of them unless given. Raises OptionError for names that the table doesn't
    have and for named weights that fit none of its columns, for metrics whose library isn't there,
    DatasetError where a test set isn't there or is too small.
    """
    table = read_table(name)
    protocol = PROTOCOLS[table.protocol]
    check_metrics(metrics)
    parts = _chosen_sets(table, sets)
    _check_metrics_fit(table, protocol.pictures, metrics)
    found = {part.name: _found(table, part, data) for part in parts if part.dataset}
    _check_told_apart(found)
    _check_metrics_fit(table, any(getattr(sequences, "judged", ()) for sequences in found.values()), metrics)
    taking = contestants(
        table, protocol.free(table), protocol.families, protocol.task(table), weights, device
    )
    taking = [variant for contestant in taking for variant in protocol.variants(contestant)]
    taking = chosen(taking, table, systems)
    if weights:
        _check_all_fit(taking, table, protocol, [part for part in parts if part.dataset])
    clips: list[ClipFigures] = []
    for part in parts:
        if part.dataset:
            clips += _measured(table, part, found[part.name], taking, protocol, metrics, tell)
    rows = tuple(_rows(table, parts, clips, systems, protocol.pooled))
    names = {clip.system: _name(table, clip.system) for clip in clips}
    lines = protocol.lines(table, found.values()) + lines_of(metrics)
    return Result(
        name,
        table.title,
        "published",
        rows,
        lines,
        tuple(remarks(taking)),
        table.source,
        tuple(clips),
        names,
        table.column,
    )


def _chosen_sets(table: Table, sets: Sequence[str]) -> list[TableSet]:
    names = [part.name for part in table.sets if part.dataset]
    if unknown := [name for name in sets if name not in names]:
        raise OptionError(f"{table.name}: no test set {', '.join(unknown)}; there are: {', '.join(names)}")
    whole = not sets or set(sets) == set(names)
    return [part for part in table.sets if (whole if not part.dataset else not sets or part.name in sets)]


def _check_metrics_fit(table: Table, pictures: bool, metrics: Sequence[str]) -> None:
    """Raise OptionError for a metric of videos on `pictures`."""
    if VMAF in metrics and pictures:
        raise OptionError(
            f"{VMAF} is for videos, but {table.name} judges single pictures; leave it out of `metrics`"
        )


def _check_all_fit(
    taking: Sequence[Contestant], table: Table, protocol: Protocol, parts: Sequence[TableSet]
) -> None:
    """OptionError names weights that would be measured in no column of the test sets."""
    for contestant in taking:
        on = [part for part in parts if contestant.only in ("", part.name)]
        if not any(protocol.fits(contestant, table, column) for part in on for column in part.columns):
            asks = f", {protocol.asks}" if protocol.asks else ""
            columns = ", ".join(dict.fromkeys(column for part in parts for column in part.columns))
            why = f" ({table.column} {columns}{asks})" if on else f", but is named for {contestant.only}"
            raise OptionError(
                f"{contestant.source}: fits nothing of {table.name} on "
                f"{', '.join(part.name for part in parts)}{why}; name others with `weights`"
            )


def _found(table: Table, part: TableSet, data: Path | None) -> Any:
    """The pictures of a test set. Raises DatasetError with the layout that is expected."""
    if data is None:
        raise DatasetError(f"{table.name}: needs its test sets; name their folder with `data`")
    try:
        return datasets.find(part.dataset, data, part.split)
    except DatasetError as error:
        others = [other.name for other in table.sets if other.dataset and other.name != part.name]
        way_out = f"; to leave it out, choose others with `sets={','.join(others)}`" if others else ""
        raise DatasetError(f"{table.name}: {error}{way_out}") from error


def _check_told_apart(found: Mapping[str, Any]) -> None:
    """Raises DatasetError where one folder would pass for several test sets: those that any pictures in a
    folder can be.
    """
    names: dict[tuple[Any, ...], str] = {}
    for name, pictures in found.items():
        files = (str(pictures[0].clean), str(pictures[-1].clean), len(pictures))
        if (other := names.setdefault(files, name)) != name:
            raise DatasetError(
                f"{pictures.root}: taken for {other} and for {name}; say which it is with `sets`, or name "
                "the folder of all"
            )


def _measured(
    table: Table,
    part: TableSet,
    found: Any,
    taking: Sequence[Contestant],
    protocol: Protocol,
    metrics: Sequence[str],
    tell: Tell,
) -> Iterator[ClipFigures]:
    here = [contestant for contestant in taking if contestant.only in ("", part.name)]
    more = {"judged": found.judged} if getattr(found, "judged", ()) else {}
    more |= {"metrics": metrics} if metrics else {}
    total, last = len(found), ""
    names: dict[str, None] = {}
    for figures in protocol.judge(table, part, found, here, LOOKED_AT, **more):
        names[figures.clip] = None
        if figures.clip != last:
            tell(f"{part.title}: {figures.clip} ({len(names)} of {total})")
            last = figures.clip
        yield figures


def _rows(
    table: Table,
    parts: Sequence[TableSet],
    clips: Sequence[ClipFigures],
    systems: Sequence[str],
    pooled: bool,
) -> Iterator[Row]:
    """One per set, column and system: measured ones first, each with what the paper says of it, then those of
    the paper alone.
    """
    for part in parts:
        for index, column in enumerate(part.columns):
            on = part.title if len(part.columns) == 1 else f"{part.title}, {table.column} {column}"
            values_of = (
                partial(_measured_values, table, part)
                if part.dataset
                else partial(_means_of_sets, table, parts)
            )
            mine = list(values_of(column, clips, pooled))
            for system, weights, values, count in mine:
                published = part.published.get(system, ({},) * len(part.columns))[index]
                yield Row(_name(table, system), on, rounded(values), published, weights, "", count)
            for system, cells in part.published.items():
                if (
                    cells[index]
                    and system not in {entry[0] for entry in mine}
                    and (not systems or system in systems)
                ):
                    yield Row(table.systems[system], on, {}, cells[index])


def _name(table: Table, system: str) -> str:
    return table.systems.get(system, NAMES.get(system, system))


Entry = tuple[str, str, Values, int]  # system, weights, values, how many pictures they are means of


def _measured_values(
    table: Table, part: TableSet, column: str, clips: Sequence[ClipFigures], pooled: bool
) -> Iterator[Entry]:
    """Return the results of each system in one column: a setting, a clip's name, or the mean of all clips."""
    here = [clip for clip in clips if clip.test_set == part.name and belongs(table, column, clip)]
    for system, weights in dict.fromkeys((clip.system, clip.weights) for clip in here):
        own = [clip for clip in here if (clip.system, clip.weights) == (system, weights)]
        yield system, weights, mean_of(own, pooled), sum(_count(clip) for clip in own)


def belongs(table: Table, column: str, clip: ClipFigures) -> bool:
    """Return True if a column belongs to a measurement: by its clip, in a table by clips, or else of its
    setting; the average is of all.
    """
    return column in (AVERAGE, clip.clip if table.column == "clip" else clip.column)


def mean_of(clips: Sequence[ClipFigures], pooled: bool) -> Values:
    """The mean over all frames together, or over each clip's and then over the clips."""
    metrics = clips[0].frames
    if pooled:
        return {metric: fmean(value for clip in clips for value in clip.frames[metric]) for metric in metrics}
    return {metric: fmean(clip.means[metric] for clip in clips) for metric in metrics}


def _means_of_sets(
    table: Table, parts: Sequence[TableSet], column: str, clips: Sequence[ClipFigures], pooled: bool
) -> Iterator[Entry]:
    """The mean over the sets of what each system came to there; of those that were measured on all."""
    per_set = [
        {entry[:2]: entry for entry in _measured_values(table, part, column, clips, pooled)}
        for part in parts
        if part.dataset
    ]
    for key in per_set[0]:
        entries = [found[key] for found in per_set if key in found]
        if len(entries) == len(per_set):
            means = {metric: fmean(entry[2][metric] for entry in entries) for metric in entries[0][2]}
            yield *key, means, sum(entry[3] for entry in entries)


def _count(clip: ClipFigures) -> int:
    return len(next(iter(clip.frames.values())))
