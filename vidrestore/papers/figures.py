"""Plots of the papers whose values are not printed: quality by the depth of a network, and by frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from vidrestore.evaluation.results import ClipMetrics, Curve, Plot, Row, mean_of_frames, rounded
from vidrestore.papers.tables import Table, TableSet, title_of
from vidrestore.sensing.recover import recovery_clips


def plots(table: Table, parts: Sequence[TableSet], clips: Sequence[ClipMetrics]) -> Iterator[Plot]:
    """Yield the plots of a figure: PSNR by the depth of a network, or by the frame of a clip."""
    for part in parts if clips else ():
        part_clips = [clip for clip in clips if clip.test_set == part.name]
        if table.settings.get("plot") == "depth":
            yield Plot(part.title, "psnr", table.column, _depth_curves(table, part_clips), logarithmic=True)
        elif table.settings.get("plot") == "frames":
            for column in part.columns:
                curves = _frame_curves(table, column, part_clips)
                yield Plot(f"{part.title}, {table.column} {column}", "psnr", "frame", curves)


def _by_system(table: Table, clips: Iterable[ClipMetrics]) -> dict[str, list[ClipMetrics]]:
    """Return the clips of each system by its title, with the weights if there are any."""
    systems: dict[str, list[ClipMetrics]] = {}
    for clip in clips:
        title = title_of(table, clip.system) + (f" ({clip.weights})" if clip.weights else "")
        systems.setdefault(title, []).append(clip)
    return systems


def _depth_curves(table: Table, clips: Sequence[ClipMetrics]) -> Mapping[str, Curve]:
    """Return the mean PSNR over all frames by number of layers or iterations, for each system."""
    depths: dict[str, dict[int, list[float]]] = {}
    for clip in clips:
        by_depth = depths.setdefault(title_of(table, clip.system), {})
        by_depth.setdefault(int(clip.column), []).extend(clip.frames["psnr"])
    return {
        system: (sorted(values), [mean_of_frames(values[depth]) for depth in sorted(values)])
        for system, values in depths.items()
    }


def _frame_curves(table: Table, column: str, clips: Sequence[ClipMetrics]) -> dict[str, Curve]:
    """Return the mean PSNR by the frame of a clip, from 1 on, for each system."""
    length = int(column)
    curves: dict[str, Curve] = {}
    column_clips = [clip for clip in clips if clip.column == column]
    for system, system_clips in _by_system(table, column_clips).items():
        psnrs: list[list[float]] = [[] for _ in range(length)]
        for clip in system_clips:
            values = clip.frames["psnr"]
            for first, start, stop in recovery_clips(len(values), length):
                for frame in range(start, stop):
                    psnrs[frame - first].append(values[frame])
        frames = [frame for frame, values in enumerate(psnrs) if values]
        curves[system] = [frame + 1 for frame in frames], [mean_of_frames(psnrs[frame]) for frame in frames]
    return curves


def frame_rows(table: Table, table_plots: Iterable[Plot]) -> Iterator[Row]:
    """Yield the values of plots by frame; those by depth are rows of the table already."""
    for plot in table_plots if table.settings.get("plot") == "frames" else ():
        for system, (frames, values) in plot.curves.items():
            for frame, value in zip(frames, values, strict=True):
                yield Row(system, f"{plot.title}, frame {frame}", rounded({"psnr": value}))
