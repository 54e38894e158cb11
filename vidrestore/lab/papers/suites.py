"""Measure the systems of a paper's table on its test sets by its protocol, beside the published values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from vidrestore.errors import DatasetError, OptionError
from vidrestore.lab.papers import costs, figures, rgb_protocols, sensed_patches
from vidrestore.lab.papers.datasets import find
from vidrestore.lab.papers.tables import (
    AVERAGE,
    Table,
    TableSet,
    find_systems,
    read_table,
    select_systems,
    table_names,
    title_of,
    weights_notes,
)
from vidrestore.pages.results import (
    BICUBIC,
    GIVEN,
    ClipMetrics,
    Result,
    Row,
    System,
    Values,
    mean_of_frames,
    rounded,
)
from vidrestore.settings.families import FAMILIES

# what `vidrestore.lab.evaluation` uses
__all__ = ["evaluate_table", "read_table", "table_names"]

OnProgress = Callable[[str], None]
# families that work on patches of gray frames
PATCH_FAMILIES = tuple(
    name for name, family in FAMILIES.items() if "recover" in family.tasks
)
SHOWN_COUNT = 3  # clips or pictures of each set that the page shows


@dataclass(frozen=True)
class Protocol:
    """The measurement of the tables of one kind."""

    measure: Callable[..., Iterator[ClipMetrics]]  # yields the metrics of each clip
    families: tuple[str, ...]  # networks that take part
    baselines: Callable[[Table], tuple[str, ...]]  # systems without weights
    tasks: Callable[[Table], tuple[str, ...]]  # those of the weights
    # describe the protocol for some test sets
    lines: Callable[[Table, Collection[Any]], tuple[str, ...]]
    pooled: bool = False  # mean over all frames of a set, not over its clips' means
    # takes part in a column
    fits: Callable[[System, Table, str], bool] = lambda system, table, column: True
    requires: str = ""  # the condition of `fits` in words


def _patches_lines(table: Table, sets: Collection[Any]) -> tuple[str, ...]:
    columns = [column for part in table.sets for column in part.columns]
    settings = [sensed_patches.setting_of(table, column) for column in columns]
    strides = {setting.stride for setting in settings}
    clips = {setting.clip for setting in settings}
    stride, clip = (
        " or ".join(map(str, sorted(values))) for values in (strides, clips)
    )
    return tuple(
        line.format(stride=stride, clip=clip) for line in sensed_patches.PATCH_PROTOCOL
    )


def _enlarging_lines(table: Table, sets: Collection[Any]) -> tuple[str, ...]:
    low_resolution = (
        "made here as MATLAB's imresize does"
        if table.settings.get("made")
        else "of the release, else made here bicubically"
    )
    measured = sorted(
        {index + 1 for sequences in sets for index in sequences.measured_frames}
    )
    restored = (
        f"of each clip only frame {', '.join(map(str, measured))} is restored and measured"
        if measured
        else "all frames are restored"
    )
    channels = ", ".join(table.settings["channels"])
    words = {"small": low_resolution, "restored": restored, "channels": channels}
    return tuple(line.format(**words) for line in rgb_protocols.ENLARGING_PROTOCOL)


TABLE_PROTOCOLS = {
    "patches": Protocol(
        sensed_patches.measure,
        PATCH_FAMILIES,
        lambda table: (GIVEN,) if "denoise" in sensed_patches.tasks(table) else (),
        sensed_patches.tasks,
        _patches_lines,
        pooled=True,
        fits=sensed_patches.fits,
        requires=f"patches of {sensed_patches.PATCH_SIDE}x{sensed_patches.PATCH_SIDE}",
    ),
    "images": Protocol(
        rgb_protocols.measure_pictures,
        ("mb-taylorformer",),
        lambda table: (GIVEN,),
        lambda table: (str(table.settings["task"]),),
        lambda table, sets: tuple(
            line.format(task=rgb_protocols.RULES[table.settings["task"]][2])
            for line in rgb_protocols.PICTURE_PROTOCOL
        ),
    ),
    "super-resolution": Protocol(
        rgb_protocols.measure_enlarging,
        ("vsr-transformer",),
        lambda table: (BICUBIC,),
        lambda table: ("sr",),
        _enlarging_lines,
    ),
}


def evaluate_table(
    name: str,
    data: Path | None,
    weights: Sequence[str],
    system_names: Sequence[str],
    sets: Sequence[str],
    device: str,
    on_progress: OnProgress,
) -> Result:
    """Measure the systems of a table on its test sets in the folder `data`, by the paper's metrics.

    `system_names` and `sets` choose rows; all of them if empty. Raises OptionError for names that the table
    doesn't have and for named weights that fit none of its columns, DatasetError if a test set is missing or
    too small.
    """
    table = read_table(name)
    # tables of costs need no test set
    if table.protocol in costs.COST_PROTOCOLS:
        if sets:
            raise OptionError(f"{name}: has no test sets to choose; remove `sets`")
        return costs.evaluate_costs(
            table, data, weights, system_names, device, on_progress
        )
    # the test sets and the systems to measure
    protocol = TABLE_PROTOCOLS[table.protocol]
    parts = _select_sets(table, sets)
    measured = [part for part in parts if part.dataset]
    test_sets = {part.name: _find_set(table, part, data) for part in measured}
    _check_distinct(test_sets)
    found_systems = find_systems(
        table,
        protocol.baselines(table),
        protocol.families,
        protocol.tasks(table),
        weights,
        device,
    )
    systems = select_systems(found_systems, table, system_names)
    if weights:
        _check_all_fit(systems, table, protocol, measured)
    # measure, and lay the table out
    clips: list[ClipMetrics] = []
    for part in measured:
        clips += _measured(
            table, part, test_sets[part.name], systems, protocol, on_progress
        )
    plots = tuple(figures.plots(table, parts, clips))
    rows = [
        *_rows(table, parts, clips, system_names, protocol.pooled),
        *figures.frame_rows(table, plots),
    ]
    rows += costs.overhead_rows(table, systems, system_names)
    titles = {clip.system: title_of(table, clip.system) for clip in clips}
    return Result(
        name,
        table.title,
        "published",
        tuple(rows),
        (*protocol.lines(table, test_sets.values()), *costs.overhead_protocol(table)),
        (*weights_notes(systems, table), *table.remarks),
        table.source,
        tuple(clips),
        titles,
        table.column,
        plots,
    )


def _select_sets(table: Table, sets: Sequence[str]) -> list[TableSet]:
    names = [part.name for part in table.sets if part.dataset]
    if unknown := [name for name in sets if name not in names]:
        raise OptionError(
            f"{table.name}: no test set {', '.join(unknown)}; there are: {', '.join(names)}"
        )
    complete = not sets or set(sets) == set(names)
    return [
        part
        for part in table.sets
        if (complete if not part.dataset else not sets or part.name in sets)
    ]


def _check_all_fit(
    systems: Sequence[System],
    table: Table,
    protocol: Protocol,
    parts: Sequence[TableSet],
) -> None:
    """Raise OptionError for weights that would be measured in no column of the test sets."""
    for system in systems:
        # a test set named with the weights is the only one that they are for
        on = [part for part in parts if system.test_set in ("", part.name)]
        if not any(
            protocol.fits(system, table, column)
            for part in on
            for column in part.columns
        ):
            requires = f", {protocol.requires}" if protocol.requires else ""
            columns = ", ".join(
                dict.fromkeys(column for part in parts for column in part.columns)
            )
            hint = (
                f" ({table.column} {columns}{requires})"
                if on
                else f", but is named for {system.test_set}"
            )
            raise OptionError(
                f"{system.source}: fits no column of {table.name} on "
                f"{', '.join(part.name for part in parts)}{hint}; name others with `weights`"
            )


def _find_set(table: Table, part: TableSet, data: Path | None) -> Any:
    """Return the pictures of a test set. Raises DatasetError with the layout that is expected."""
    if data is None:
        raise DatasetError(
            f"{table.name}: needs its test sets; name their folder with `data`"
        )
    try:
        return find(part.dataset, data, part.split)
    except DatasetError as error:
        alternatives = [
            other.name
            for other in table.sets
            if other.dataset and other.name != part.name
        ]
        way_out = (
            f"; to skip it, choose others with `sets={','.join(alternatives)}`"
            if alternatives
            else ""
        )
        raise DatasetError(f"{table.name}: {error}{way_out}") from error


def _check_distinct(test_sets: Mapping[str, Any]) -> None:
    """Raise DatasetError if one folder would be read as several test sets."""
    # two sets may have files of the same names
    names: dict[tuple[Any, ...], str] = {}
    for name, pictures in test_sets.items():
        files = (str(pictures[0].clean), str(pictures[-1].clean), len(pictures))
        if (other := names.setdefault(files, name)) != name:
            raise DatasetError(
                f"{pictures.root}: may be {other} or {name}; choose one by `sets`, or name the folder "
                "that holds both"
            )


def _measured(
    table: Table,
    part: TableSet,
    pictures: Any,
    systems: Sequence[System],
    protocol: Protocol,
    on_progress: OnProgress,
) -> Iterator[ClipMetrics]:
    """Yield the metrics of each clip of a part of a table, and report the clips as they come."""
    set_systems = [system for system in systems if system.test_set in ("", part.name)]
    # only some datasets say which frames are measured
    more = (
        {"measured_frames": pictures.measured_frames}
        if getattr(pictures, "measured_frames", ())
        else {}
    )
    names: list[str] = []
    for clip in protocol.measure(
        table, part, pictures, set_systems, SHOWN_COUNT, **more
    ):
        if clip.clip not in names[-1:]:
            names.append(clip.clip)
            on_progress(f"{part.title}: {clip.clip} ({len(names)} of {len(pictures)})")
        yield clip


def _rows(
    table: Table,
    parts: Sequence[TableSet],
    clips: Sequence[ClipMetrics],
    system_names: Sequence[str],
    pooled: bool,
) -> Iterator[Row]:
    """Yield a row per set, column and system: measured ones first, then those only published."""
    for part in parts:
        # measured systems first, so that published ones fill what is left
        for index, column in enumerate(part.columns):
            on = (
                part.title
                if len(part.columns) == 1
                else f"{part.title}, {table.column} {column}"
            )
            values_of = (
                partial(_measured_values, table, part)
                if part.dataset
                else partial(_means_of_sets, table, parts)
            )
            measured = list(values_of(column, clips, pooled))
            for system, weights, values, count in measured:
                published = part.published.get(system, ({},) * len(part.columns))[index]
                yield Row(
                    title_of(table, system),
                    on,
                    rounded(values),
                    published,
                    weights,
                    "",
                    count,
                )
            for system, cells in part.published.items():
                if (
                    cells[index]
                    and system not in {entry[0] for entry in measured}
                    and (not system_names or system in system_names)
                ):
                    yield Row(table.systems[system], on, {}, cells[index])


# system, weights, means, number of pictures that they are over
Entry = tuple[str, str, Values, int]


def _measured_values(
    table: Table,
    part: TableSet,
    column: str,
    clips: Sequence[ClipMetrics],
    pooled: bool,
) -> Iterator[Entry]:
    """Yield the results of each system in one column: a setting, a clip's name, or the mean of all clips."""
    column_clips = [
        clip
        for clip in clips
        if clip.test_set == part.name and belongs(table, column, clip)
    ]
    for system, weights in dict.fromkeys(
        (clip.system, clip.weights) for clip in column_clips
    ):
        system_clips = [
            clip
            for clip in column_clips
            if (clip.system, clip.weights) == (system, weights)
        ]
        yield (
            system,
            weights,
            mean_of(system_clips, pooled),
            sum(len(next(iter(clip.frames.values()))) for clip in system_clips),
        )


def belongs(table: Table, column: str, clip: ClipMetrics) -> bool:
    """Return True if a clip's measurement belongs to a column; the average takes all clips."""
    return column in (AVERAGE, clip.clip if table.column == "clip" else clip.column)


def mean_of(clips: Sequence[ClipMetrics], pooled: bool) -> Values:
    """Return the mean over all frames together if `pooled`, else the mean over the clips' means."""
    means = {}
    for metric in clips[0].frames:
        values = [clip.means[metric] for clip in clips]
        if pooled:
            values = [value for clip in clips for value in clip.frames[metric]]
        means[metric] = mean_of_frames(values)
    return means


def _means_of_sets(
    table: Table,
    parts: Sequence[TableSet],
    column: str,
    clips: Sequence[ClipMetrics],
    pooled: bool,
) -> Iterator[Entry]:
    """Yield the mean over the sets of each system that was measured on all of them."""
    per_set = []
    for part in parts:
        if part.dataset:
            values = _measured_values(table, part, column, clips, pooled)
            per_set.append({entry[:2]: entry for entry in values})
    for key in per_set[0]:
        entries = [by_key[key] for by_key in per_set if key in by_key]
        if len(entries) == len(per_set):
            metrics = [entry[2] for entry in entries]
            means = {
                metric: fmean(map(itemgetter(metric), metrics)) for metric in metrics[0]
            }
            yield *key, means, sum(entry[3] for entry in entries)
