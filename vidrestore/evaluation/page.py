"""An evaluation as one HTML page that needs nothing else: table, pictures with a slider, error maps, curves.
No network, no other files.

Its numbers are those of the JSON, which it holds as well (the element `result`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import compress, groupby

import numpy as np
from numpy.typing import NDArray

from vidrestore.charts import chart
from vidrestore.evaluation.contestants import GIVEN
from vidrestore.evaluation.png import data_uri, error_map
from vidrestore.evaluation.results import ClipFigures, Result, Row, Shown
from vidrestore.events import plain

Picture = NDArray[np.uint8]

LARGEST = (480, 720)  # rows and columns of a picture: the middle of larger ones is shown, pixel by pixel
COMPARISONS, CHARTS = 24, 24  # on one page, at most
MOST_ERROR = 32.0  # grey levels: yellow in an error map
LEAST_WIDTH = 640  # pixels on the page: smaller pictures are shown larger
NAMES = ("system", "weights", "on")
UNITS = {
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "vmaf": "VMAF",
    "flicker": "flicker, grey levels",
    "bitrate": "bitrate, kbit/s",
    "noise": "noise, grey levels",
}


def page(result: Result) -> str:
    """The page as a text."""
    pictures: dict[str, str] = {}
    body = [_head(result), _table(result), *_comparisons(result, pictures), *_charts(result)]
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


def _asset(name: str) -> str:
    return files("vidrestore.evaluation").joinpath("web", name).read_text(encoding="utf-8")


def _in_script(text: str) -> str:
    """JSON that can't end the element it stands in."""
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def _head(result: Result) -> str:
    source = f"<p>{escape(result.source)}</p>" if result.source else ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in (*result.protocol, *result.notes))
    return f'<h1>{escape(result.title)}</h1>{source}<ul class="protocol">{lines}</ul>'


def _table(result: Result) -> str:
    heads = [*NAMES]
    for metric in result.metrics:
        heads += [UNITS.get(metric, metric), result.against]
    heads.append("verdict")
    rows = [_cells(result, row) for row in result.rows]
    filled = [any(cells[at][1] for cells in rows) for at in range(len(heads))]
    if result.suite == "report":  # the title names them
        filled[: len(NAMES)] = [False] * len(NAMES)
    head = "".join(f"<th>{escape(each)}</th>" for each in compress(heads, filled))
    body = "".join(
        f"<tr{_kind(row)}>"
        + "".join(f"<td{kind}>{text}</td>" for kind, text in compress(cells, filled))
        + "</tr>"
        for row, cells in zip(result.rows, rows, strict=True)
    )
    table = f'<table id="figures"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def _cells(result: Result, row: Row) -> list[tuple[str, str]]:
    """Attributes and text of a row's cells; columns that all rows leave empty are not shown."""
    cells = [("", escape(text)) for text in (row.system, row.weights, row.on)]
    for metric in result.metrics:
        for side, values in (("measured", row.measured), ("reference", row.reference)):
            value = json.dumps(plain(values[metric])) if metric in values else ""
            cells.append((f' class="number" data-metric="{escape(metric)}" data-side="{side}"', value))
    return [*cells, ("", escape(row.verdict))]


def _kind(row: Row) -> str:
    return f' class="{row.verdict.replace(" ", "-")}"' if row.verdict else ""


def _comparisons(result: Result, pictures: dict[str, str]) -> Iterator[str]:
    """Before and after, of every system that changes something; the first ones of them."""
    seen = [clip for clip in result.clips if clip.shown is not None and clip.system != GIVEN]
    if seen:
        left_out = f" The first {COMPARISONS} of {len(seen)}." if len(seen) > COMPARISONS else ""
        yield (
            f"<h2>Pictures</h2><p>Drag: {_sides(result)}.{left_out} Large pictures are cut to their middle."
            "</p>"
        )
    for clip in seen[:COMPARISONS]:
        assert clip.shown is not None
        yield _comparison(result, clip, clip.shown, pictures)


def _sides(result: Result) -> str:
    if result.suite == "reference":
        return "the reference on the left, the video on the right"
    return "before on the left, after on the right"


def _comparison(result: Result, clip: ClipFigures, shown: Shown, pictures: dict[str, str]) -> str:
    before, after = _middle(shown.given), _middle(shown.restored)
    names = {"given": _kept(before, pictures), "restored": _kept(after, pictures)}
    others = []
    if shown.clean is None:
        caption = "the difference" if result.suite == "reference" else "what was changed"
        others.append((_kept(error_map(after, before, MOST_ERROR), pictures), caption))
    else:
        clean = _middle(shown.clean)
        others.append((_kept(clean, pictures), "clean"))
        for name, picture in (("before", before), ("after", after)):
            others.append((_kept(error_map(picture, clean, MOST_ERROR), pictures), f"error {name}"))
    places = [place for place in _where(result, clip) if place != clip.system]
    title = f"{_system(result, clip)}: {', '.join([*places, f'frame {shown.frame}'])}"
    width = max(before.shape[1], LEAST_WIDTH)
    slider = (
        f'<div class="slider" style="max-width:{width}px"><img data-picture="{names["restored"]}" '
        'alt="after">'
        f'<img class="over" data-picture="{names["given"]}" alt="before">'
        '<input type="range" min="0" max="100" value="50" aria-label="before and after"></div>'
    )
    figures = "".join(
        f'<figure><img data-picture="{key}" alt="{name}"><figcaption>{name}</figcaption></figure>'
        for key, name in others
    )
    scale = f"<p>Purple: 0, yellow: {MOST_ERROR:g} grey levels and more.</p>"
    return (
        f'<section class="comparison"><h3>{escape(title)}</h3>{slider}<div '
        f'class="others">{figures}</div>{scale}</section>'
    )


def _where(result: Result, clip: ClipFigures) -> list[str]:
    """Test set, clip and setting, as far as there are any."""
    return [
        part
        for part in (
            clip.test_set,
            clip.clip,
            f"{result.column} {clip.column}".strip() if clip.column else "",
        )
        if part
    ]


def _system(result: Result, clip: ClipFigures) -> str:
    name = result.names.get(clip.system, clip.system)
    return f"{name} ({clip.weights})" if clip.weights else name


def _middle(picture: Picture) -> Picture:
    """The middle of a picture that is larger than `LARGEST`."""
    height, width = (min(size, most) for size, most in zip(picture.shape, LARGEST, strict=False))
    top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
    return picture[top : top + height, left : left + width]


def _kept(picture: Picture, pictures: dict[str, str]) -> str:
    """The key of a picture, which is kept once however often it is shown."""
    content = np.ascontiguousarray(picture)
    key = sha256(str(content.shape).encode() + content.tobytes()).hexdigest()[:16]
    if key not in pictures:
        pictures[key] = data_uri(content)
    return key


def _charts(result: Result) -> Iterator[str]:
    """Curves of all systems on one clip in one chart, of each metric; the first ones of them."""
    moving = [clip for clip in result.clips if any(len(values) > 1 for values in clip.frames.values())]
    moving.sort(key=_place)
    groups = [list(clips) for _, clips in groupby(moving, key=_place)]
    charts = [(metric, clips) for clips in groups for metric in clips[0].frames]
    if charts:
        left_out = f" The first {CHARTS} of {len(charts)}." if len(charts) > CHARTS else ""
        yield f"<h2>Frame by frame</h2><p>{left_out}</p>"
    for metric, clips in charts[:CHARTS]:
        unit = UNITS.get(metric, metric)
        title = ", ".join([*_where(result, clips[0]), unit])
        curves = {_system(result, clip): clip.reported(metric) for clip in clips}
        yield f"<section><h3>{escape(title)}</h3>{chart(title, unit, curves)}</section>"


def _place(clip: ClipFigures) -> tuple[str, str, str]:
    return clip.test_set, clip.clip, clip.column
