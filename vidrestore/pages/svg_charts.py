"""Draw curves as SVG: charts by frame for HTML pages, and files with several plots."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape

from vidrestore.events import plain

Curve = tuple[Sequence[float], Sequence[float]]  # positions and values
Ends = tuple[float, float]  # first and last position
WIDTH, HEIGHT = 640, 180
ROW = HEIGHT + 24  # height of a plot with its title
CHART_STYLE = (
    "text { font: 12px sans-serif; fill: #333 } .grid { stroke: #ccc } polyline { fill: none; "
    "stroke-width: 1.5 }"
)
PLOT_LEFT, PLOT_RIGHT, PLOT_TOP, PLOT_BOTTOM = 72, 8, 10, 24  # pixels around the curves
# P. Tol's palette, distinguishable also by colour-blind readers
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")


def chart(title: str, unit: str, curves: Mapping[str, Sequence[float]]) -> str:
    """Return a plot of one curve per name over the frames, with a legend, for the HTML page."""
    ends = 0, max(map(len, curves.values())) - 1
    places = {name: (range(len(curve)), curve) for name, curve in curves.items()}
    return plot(title, unit, places, ends, "frame ") + legend(list(curves))


def plot(
    title: str,
    unit: str,
    curves: Mapping[str, Curve],
    ends: Ends,
    axis: str,
    attributes: str = "",
    *,
    logarithmic: bool = False,
) -> str:
    """Return an `<svg>` with one curve per name between the positions `ends`, labelled `axis`.

    Values are also in `data-values`, null if they aren't finite; infinite ones are drawn at the border.
    `attributes` are added to the tag. `logarithmic` draws positions, which must be above 0, by their
    logarithms.
    """
    # the range of the values, a little widened
    scale = math.log if logarithmic else float
    scaled_ends = scale(ends[0]), scale(ends[1])
    values = [
        value for _, curve in curves.values() for value in curve if math.isfinite(value)
    ] or [0.0]
    low, high = _bounds(min(values), max(values))
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"{attributes}>',
        f"<title>{escape(title)}</title>",
    ]
    # lines and labels of the axes
    for share in (0.0, 0.5, 1.0):
        y = PLOT_TOP + (1 - share) * (HEIGHT - PLOT_TOP - PLOT_BOTTOM)
        parts.append(
            f'<line class="grid" x1="{PLOT_LEFT}" x2="{WIDTH - PLOT_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        value = low + share * (high - low)
        parts.append(
            f'<text x="{PLOT_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        )
    parts.append(f'<text x="{PLOT_LEFT}" y="{HEIGHT - 6}">{axis}{ends[0]:g}</text>')
    parts.append(
        f'<text x="{WIDTH - PLOT_RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{ends[1]:.10g}</text>'
    )
    parts.append(
        f'<text x="{(PLOT_LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(unit)}</text>'
    )
    # the curves, without values that are not a number
    for index, (name, (places, curve)) in enumerate(curves.items()):
        points = []
        for place, value in zip(places, curve, strict=True):
            if not math.isnan(value):
                x = _x(scale(place), scaled_ends)
                y = _y(min(max(value, low), high), low, high)
                points.append(f"{x:.1f},{y:.1f}")
        data = " ".join(json.dumps(plain(value)) for value in curve)
        colour = COLOURS[index % len(COLOURS)]
        parts.append(
            f'<polyline points="{" ".join(points)}" stroke="{colour}" data-name="{escape(name)}" '
            f'data-values="{data}"/>'
        )
    return "".join(parts) + "</svg>"


def picture(
    title: str,
    plots: Sequence[tuple[str, str, Mapping[str, Curve]]],
    ends: Ends,
    axis: str,
) -> str:
    """Return an SVG file with plots (title, unit, curves) below each other over the same positions, with
    legends.
    """
    height = len(plots) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}">',
        f"<title>{escape(title)}</title><style>{CHART_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for row, (name, unit, curves) in enumerate(plots):
        names = (
            f'<tspan dx="12" fill="{COLOURS[at % len(COLOURS)]}">{escape(curve)}</tspan>'
            for at, curve in enumerate(curves)
        )
        parts.append(
            f'<text x="{PLOT_LEFT}" y="{row * ROW + 16}">{escape(name)}{"".join(names)}</text>'
        )
        place = (
            f' x="0" y="{row * ROW + ROW - HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        )
        parts.append(plot(name, unit, curves, ends, axis, place))
    return "\n".join(parts) + "\n</svg>\n"


def legend(names: Sequence[str]) -> str:
    """Return the colour of each name as an HTML list."""
    entries = (
        f'<li><span style="background:{COLOURS[index % len(COLOURS)]}"></span>{escape(name)}</li>'
        for index, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _bounds(low: float, high: float) -> tuple[float, float]:
    """Widen the range of the values a little, so that a constant curve has a scale too."""
    margin = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
    return low - margin, high + margin


def _x(place: float, ends: Ends) -> float:
    extent = (ends[1] - ends[0]) or 1
    return PLOT_LEFT + (WIDTH - PLOT_LEFT - PLOT_RIGHT) * (place - ends[0]) / extent


def _y(value: float, low: float, high: float) -> float:
    return PLOT_TOP + (HEIGHT - PLOT_TOP - PLOT_BOTTOM) * (high - value) / (high - low)
