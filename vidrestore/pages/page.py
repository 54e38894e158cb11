"""Write an evaluation (`results`) as one HTML page: table, pictures with a slider, error maps, curves, and
the JSON. The page has no external files and makes no network requests.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import compress, groupby
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.events import plain
from vidrestore.media.reading.pictures import png
from vidrestore.pages.results import GIVEN, ClipMetrics, Comparison, Result, Row
from vidrestore.pages.svg_charts import chart, legend, plot

Picture = NDArray[np.uint8]

# rows and columns; larger pictures are cropped to their middle, not scaled
LARGEST_PICTURE = (480, 720)
COMPARISONS, CHARTS = 24, 24  # most on one page
MOST_ERROR = 32.0  # grey levels; this error and more is yellow in an error map
# words for the map's colours
ERROR_COLOURS = f"purple: 0, yellow: {MOST_ERROR:g} grey levels and more"
REPORT = "report"  # the suite of a page about a restoration
LEAST_WIDTH = 640  # pixels on the page; smaller pictures are enlarged
NAME_COLUMNS = ("system", "weights", "on")
METRIC_UNITS = {
    "psnr": "PSNR, dB",
    "psnr_mse": "PSNR of the mean squared error, dB",
    "ssim": "SSIM",
    "vmaf": "VMAF",
    "flicker": "flicker, grey levels",
    "bitrate": "bitrate, kbit/s",
    "parameters": "parameters, M",
    "multiply_adds": "multiply-adds, G",
    "epoch_seconds": "epoch, s",
    "test_seconds": "test set, s",
    "noise": "noise, grey levels",
}


def page(result: Result) -> str:
    """Return the HTML of the page."""
    # pictures are stored once, however often they are shown
    pictures: dict[str, str] = {}
    source = f"<p>{escape(result.source)}</p>" if result.source else ""
    head = f"<h1>{escape(result.title)}</h1>{source}"
    # who restored wants to look, who measures wants the table
    seen = [*_comparisons(result, pictures)]
    if result.suite == REPORT:  # for those who look, before those who check
        facts = ["<h2>Settings and files</h2>", _list(result.protocol)]
        body = [
            head + _list(result.notes),
            *seen,
            _table(result),
            *_charts(result),
            *facts,
        ]
    else:
        head += _list((*result.protocol, *result.notes))
        body = [head, _table(result), *_plots(result), *seen, *_charts(result)]
    # parts of the page, each in its place of the template
    parts = {
        "title": escape(result.title),
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "body": "\n".join(body),
        "result": _in_script(result.to_json()),
        "pictures": _in_script(json.dumps(pictures)),
    }
    text = _asset("page.html")
    for name, content in parts.items():
        text = text.replace(f"<!--{name}-->", content, 1)
    return text


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="protocol">{items}</ul>' if items else ""


def _asset(name: str) -> str:
    return files("vidrestore.pages").joinpath("web", name).read_text(encoding="utf-8")


def _in_script(text: str) -> str:
    """Escape JSON so that it can't end the script element that holds it."""
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def _table(result: Result) -> str:
    """Return the HTML of the table of a result's figures, without columns that say nothing."""
    # headings, with the reference of each metric
    units = [METRIC_UNITS.get(metric, metric) for metric in result.metrics]
    heads = [
        *NAME_COLUMNS,
        *(text for unit in units for text in (unit, result.against)),
        "verdict",
    ]
    if result.suite == REPORT:
        heads = [
            *NAME_COLUMNS,
            *(f"{unit} {side}" for unit in units for side in ("before", "after")),
            "verdict",
        ]
    rows = [_cells(result, row) for row in result.rows]

    def is_filled(column: int) -> bool:
        return any(cells[column][1] for cells in rows)

    # columns that say nothing are left out
    filled = list(map(is_filled, range(len(heads))))
    if result.suite == REPORT:  # the title names them
        filled[: len(NAME_COLUMNS)] = [False] * len(NAME_COLUMNS)
    head = "".join(f"<th>{escape(title)}</th>" for title in compress(heads, filled))
    body = ""
    for row, cells in zip(result.rows, rows, strict=True):
        kind = f' class="{row.verdict.replace(" ", "-")}"' if row.verdict else ""
        columns = "".join(
            f"<td{attributes}>{text}</td>"
            for attributes, text in compress(cells, filled)
        )
        body += f"<tr{kind}>{columns}</tr>"
    table = f'<table id="figures"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def _cells(result: Result, row: Row) -> list[tuple[str, str]]:
    """Return attributes and text of a row's cells; columns that all rows leave empty are not shown."""
    # names, then each metric with its reference
    cells = [("", escape(text)) for text in (row.system, row.weights, row.on)]
    sides = [("measured", row.measured), ("reference", row.reference)]
    for metric in result.metrics:
        for side, values in reversed(sides) if result.suite == REPORT else sides:
            value = json.dumps(plain(values[metric])) if metric in values else ""
            cells.append(
                (
                    f' class="number" data-metric="{escape(metric)}" data-side="{side}"',
                    value,
                )
            )
    return [*cells, ("", escape(row.verdict))]


def _comparisons(result: Result, pictures: dict[str, str]) -> Iterator[str]:
    """Yield a heading and at most `COMPARISONS` comparisons, of systems that change something."""
    compared = [
        clip
        for clip in result.clips
        if clip.comparison is not None and clip.system != GIVEN
    ]
    if compared:
        sides = "before on the left, after on the right"
        if result.suite == "reference":
            sides = "the reference on the left, the video on the right"
        limit = (
            f" The first {COMPARISONS} of {len(compared)}."
            if len(compared) > COMPARISONS
            else ""
        )
        yield f"<h2>Pictures</h2><p>Drag: {sides}.{limit} Large pictures are cut to their middle.</p>"
    for clip in compared[:COMPARISONS]:
        assert clip.comparison is not None
        yield _comparison(result, clip, clip.comparison, pictures)


def _comparison(
    result: Result, clip: ClipMetrics, comparison: Comparison, pictures: dict[str, str]
) -> str:
    """Return the HTML of one comparison: a slider, and beside it the clean picture and the errors."""
    # the two pictures of the slider
    before = _middle(comparison.source)
    after = _middle(comparison.restored)
    names = {
        "given": _picture_key(before, pictures),
        "restored": _picture_key(after, pictures),
    }
    # beside it what was changed, or the clean picture and both errors
    panels = []
    if comparison.clean is None:
        caption = (
            "the difference" if result.suite == "reference" else "what was changed"
        )
        key = _picture_key(error_map(after, before, MOST_ERROR), pictures)
        panels.append((key, f"{caption}, {ERROR_COLOURS}"))
    else:
        clean = _middle(comparison.clean)
        panels.append((_picture_key(clean, pictures), "clean"))
        for name, picture in (("before", before), ("after", after)):
            caption = f"error {name}, {ERROR_COLOURS}"
            panels.append(
                (_picture_key(error_map(picture, clean, MOST_ERROR), pictures), caption)
            )
    # the heading names what the heading of the page doesn't
    places = [place for place in _place_names(result, clip) if place != clip.system]
    title = (
        f"{_system(result, clip)}: {', '.join([*places, f'frame {comparison.frame}'])}"
    )
    width = max(before.shape[1], LEAST_WIDTH)
    slider = (
        f'<div class="slider" style="max-width:{width}px"><img data-picture="{names["restored"]}" '
        'alt="after">'
        f'<img class="over" data-picture="{names["given"]}" alt="before">'
        '<input type="range" min="0" max="100" value="50" aria-label="before and after"></div>'
    )
    figures = "".join(
        f'<figure><img data-picture="{key}" alt="{name}"><figcaption>{name}</figcaption></figure>'
        for key, name in panels
    )
    return (
        f'<section class="comparison"><h3>{escape(title)}</h3>{slider}<div '
        f'class="others">{figures}</div></section>'
    )


def _place_names(result: Result, clip: ClipMetrics) -> list[str]:
    """Return test set, clip and setting, without empty ones."""
    column = f"{result.column} {clip.column}".strip() if clip.column else ""
    return [part for part in (clip.test_set, clip.clip, column) if part]


def _system(result: Result, clip: ClipMetrics) -> str:
    name = result.names.get(clip.system, clip.system)
    return f"{name} ({clip.weights})" if clip.weights else name


def _middle(picture: Picture) -> Picture:
    """Crop a picture that is larger than `LARGEST_PICTURE` to its middle."""
    height, width = (
        min(size, most)
        for size, most in zip(picture.shape, LARGEST_PICTURE, strict=False)
    )
    top = (picture.shape[0] - height) // 2
    left = (picture.shape[1] - width) // 2
    return picture[top : top + height, left : left + width]


def _picture_key(picture: Picture, pictures: dict[str, str]) -> str:
    """Return the key of a picture in `pictures`; equal pictures are added once."""
    content = np.ascontiguousarray(picture)
    key = sha256(str(content.shape).encode() + content.tobytes()).hexdigest()[:16]
    if key not in pictures:
        pictures[key] = data_uri(content)
    return key


def _plots(result: Result) -> Iterator[str]:
    """Yield the plots of a paper's figure, as the paper has them."""
    for drawn in result.plots:
        positions = [
            position for places, _ in drawn.curves.values() for position in places
        ]
        if positions:
            unit = METRIC_UNITS.get(drawn.metric, drawn.metric)
            ends = (min(positions), max(positions))
            title = f"{drawn.title}: {unit}, {drawn.axis}"
            curves = plot(
                title, unit, drawn.curves, ends, "", logarithmic=drawn.logarithmic
            )
            yield f"<section><h3>{escape(title)}</h3>{curves}{legend([*drawn.curves])}</section>"


def _charts(result: Result) -> Iterator[str]:
    """Yield one chart per metric and clip, with the curves of all systems; `CHARTS` at most."""
    # a single picture has no curve
    videos = [
        clip
        for clip in result.clips
        if max(map(len, clip.frames.values()), default=0) > 1
    ]
    key = attrgetter("test_set", "clip", "column")
    groups = [list(clips) for _, clips in groupby(sorted(videos, key=key), key)]
    charts = [(metric, clips) for clips in groups for metric in clips[0].frames]
    if charts:
        limit = f" The first {CHARTS} of {len(charts)}." if len(charts) > CHARTS else ""
        yield f"<h2>Frame by frame</h2><p>{limit}</p>"
    for metric, clips in charts[:CHARTS]:
        unit = METRIC_UNITS.get(metric, metric)
        title = ", ".join([*_place_names(result, clips[0]), unit])
        curves = {_system(result, clip): clip.reported(metric) for clip in clips}
        yield f"<section><h3>{escape(title)}</h3>{chart(title, unit, curves)}</section>"


# R, G, B of the error map's colours at even steps, from purple (no error) to yellow.
HEAT = np.array(
    [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)],
    dtype=np.float64,
)


def data_uri(picture: NDArray[np.uint8]) -> str:
    """Return a picture (H, W, 3) as a PNG data URI for the `src` of an image."""
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def error_map(
    picture: NDArray[np.uint8], reference: NDArray[np.uint8], most: float
) -> NDArray[np.uint8]:
    """Return the mean absolute difference of R, G, B, (H, W, 3) each, as colours: purple for no difference,
    yellow for `most` grey levels and more.
    """
    # errors are few integers, so that a table maps them
    error: NDArray[Any] = np.abs(picture.astype(np.int16) - reference).sum(2)
    steps = np.arange(3 * 255 + 1) / (3 * most)  # every possible sum over R, G, B
    positions = np.linspace(0, 1, len(HEAT))
    colours = np.stack(
        [np.interp(steps, positions, HEAT[:, channel]) for channel in range(3)], axis=1
    )
    mapped: NDArray[np.uint8] = colours.round().astype(np.uint8)[error]
    return mapped
