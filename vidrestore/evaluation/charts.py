"""Figures frame by frame as an SVG that stands in a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 180
LEFT, RIGHT, TOP, BOTTOM = 56, 8, 10, 24  # pixels around the curves
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")  # P. Tol's, told apart by everyone


def chart(title: str, unit: str, curves: Mapping[str, Sequence[float]]) -> str:
    """An `<svg>` with one curve per name over the frames, 0 at the left; its values are in `data-values`, too."""
    values = [value for curve in curves.values() for value in curve]
    low, high = _bounds(min(values), max(values))
    frames = max(map(len, curves.values()))
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for share in (0.0, 0.5, 1.0):
        y = TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{low + share * (high - low):.4g}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">frame 0</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{frames - 1}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(unit)}</text>')
    for index, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{_x(at, frames):.1f},{_y(value, low, high):.1f}" for at, value in enumerate(curve))
        data = " ".join(map(json.dumps, curve))
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<polyline points="{points}" stroke="{colour}" data-name="{escape(name)}" data-values="{data}"/>')
    return "".join(parts) + "</svg>" + legend(list(curves))


def legend(names: Sequence[str]) -> str:
    """Which colour is whose."""
    entries = (
        f'<li><span style="background:{COLOURS[index % len(COLOURS)]}"></span>{escape(name)}</li>' for index, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _bounds(low: float, high: float) -> tuple[float, float]:
    """A little beyond the values, so that a constant curve has a scale too."""
    margin = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
    return low - margin, high + margin


def _x(frame: int, frames: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * frame / max(frames - 1, 1)


def _y(value: float, low: float, high: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)
