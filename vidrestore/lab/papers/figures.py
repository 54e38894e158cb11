"""Plots of the papers whose values are not printed: quality by the depth of a network, and by frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vidrestore.lab.papers.tables import Table, TableSet, title_of
from vidrestore.lab.sensing.recover import recovery_clips
from vidrestore.pages.results import (
    ClipMetrics,
    Curve,
    Plot,
    Row,
    mean_of_frames,
    rounded,
)

# title of a system, position on the axis, PSNR of a frame
Sample = tuple[str, int, float]


def plots(
    table: Table, parts: Sequence[TableSet], clips: Sequence[ClipMetrics]
) -> Iterator[Plot]:
    """Yield the plots of a figure: PSNR by the depth of a network, or by the frame of a clip."""
    # only figures of a paper have a plot
    kind = table.settings.get("plot")
    for part in parts if clips and kind else ():
        part_clips = [clip for clip in clips if clip.test_set == part.name]
        if kind == "depth":
            curves = _curves(_depth_samples(table, part_clips))
            yield Plot(part.title, "psnr", table.column, curves, logarithmic=True)
            continue
        for column in part.columns:
            curves = _curves(_frame_samples(table, column, part_clips))
            yield Plot(
                f"{part.title}, {table.column} {column}", "psnr", "frame", curves
            )


def _depth_samples(table: Table, clips: Iterable[ClipMetrics]) -> Iterator[Sample]:
    for clip in clips:
        for psnr in clip.frames["psnr"]:
            yield title_of(table, clip.system), int(clip.column), psnr


def _frame_samples(
    table: Table, column: str, clips: Iterable[ClipMetrics]
) -> Iterator[Sample]:
    """Yield the frames by their place in the group that they were recovered in, from 1 on."""
    for clip in clips:
        psnrs = clip.frames["psnr"] if clip.column == column else ()
        title = title_of(table, clip.system) + (
            f" ({clip.weights})" if clip.weights else ""
        )
        for first, start, stop in recovery_clips(len(psnrs), int(column)):
            for frame in range(start, stop):
                yield title, frame - first + 1, psnrs[frame]


def _curves(samples: Iterable[Sample]) -> dict[str, Curve]:
    """Return the mean PSNR at each position, by system."""
    # gather, then average
    psnrs: dict[str, dict[int, list[float]]] = {}
    for title, position, psnr in samples:
        psnrs.setdefault(title, {}).setdefault(position, []).append(psnr)
    curves: dict[str, Curve] = {}
    for title, by_position in psnrs.items():
        positions = sorted(by_position)
        curves[title] = (
            positions,
            [mean_of_frames(by_position[position]) for position in positions],
        )
    return curves


def frame_rows(table: Table, table_plots: Iterable[Plot]) -> Iterator[Row]:
    """Yield the values of plots by frame; those by depth are rows of the table already."""
    for plot in table_plots if table.settings.get("plot") == "frames" else ():
        for system, (frames, values) in plot.curves.items():
            for frame, value in zip(frames, values, strict=True):
                yield Row(
                    system, f"{plot.title}, frame {frame}", rounded({"psnr": value})
                )
