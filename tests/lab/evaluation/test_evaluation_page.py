"""The page has the numbers of the JSON and the pictures bit for bit, and needs no network."""

import base64
import io
import json
import re
from html.parser import HTMLParser
from typing import Any

import av
import numpy as np
import pytest
from eval_command import run, write_vid4

from vidrestore.media.reading.pictures import png
from vidrestore.pages import page as pages
from vidrestore.pages.page import COMPARISONS, error_map, page
from vidrestore.pages.results import ClipMetrics, Comparison, Result, Row
from vidrestore.pages.svg_charts import chart


class Parsed(HTMLParser):
    """The content of a page: rows of its table, texts of its scripts, attributes of all elements by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[dict[str, str | None], str]]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag in ("td", "th"):
            self.rows[-1][-1] = (attributes, self.rows[-1][-1][1] + data)
        if tag == "script":
            self.scripts[attributes.get("id") or "code"] = data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def decoded(content: bytes) -> np.ndarray:
    with av.open(io.BytesIO(content), format="png_pipe") as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


def picture(seed: int, height: int = 40, width: int = 52) -> np.ndarray:
    return np.random.default_rng(seed).integers(
        0, 256, (height, width, 3), dtype=np.uint8
    )


def result(clips: int = 1, **shown: Any) -> Result:
    measured = {"psnr": (30.12345, 31.5)}
    comparison = Comparison(1, **shown) if shown else None
    result = [
        ClipMetrics(
            "dust", "avenue", "0.2", f"{number:02d}", measured, "weights", comparison
        )
        for number in range(clips)
    ]
    published = {"psnr": 37.95, "ssim": 0.9766}
    row = Row(
        "DUST <b>",
        "Avenue, CS rate 0.2",
        {"psnr": 30.812},
        published,
        "weights",
        "differs",
        2,
    )
    title = "</script><script>alert(1)</script>"
    facts = {"source": "paper", "clips": tuple(result)}
    return Result("dust-table4", title, "published", (row,), ("a & b",), **facts)


def table_of(text: str) -> list[dict[str, Any]]:
    """The rows of the page's table as the JSON has them; a column that isn't there is empty in all rows."""
    heads, *lines = Parsed(text).rows
    rows = []
    for cells in lines:
        result: dict[str, Any] = dict.fromkeys(
            ("system", "weights", "on", "verdict"), ""
        )
        result |= {"measured": {}, "reference": {}}
        for (_, head), (attributes, value) in zip(heads, cells, strict=True):
            if "data-side" not in attributes:
                result[head] = value
            elif value:
                result[str(attributes["data-side"])][str(attributes["data-metric"])] = (
                    json.loads(value)
                )
        rows.append(result)
    return rows


def test_the_numbers_of_the_page_are_those_of_the_json(tmp_path):
    write_vid4(tmp_path, frames=2)
    html, result = tmp_path / "page.html", tmp_path / "found.json"
    line = ("--suite", "vsr-table3", "--systems", "bicubic", "--data", tmp_path)
    assert run(*line, "--html", html, "--json", result) == 0
    text, expected = html.read_text(), json.loads(result.read_text())
    assert [row | {"count": 0} for row in table_of(text)] == [
        row | {"count": 0} for row in expected["rows"]
    ]
    assert json.loads(Parsed(text).scripts["result"]) == expected
    curves = [
        list(map(float, str(curve["data-values"]).split()))
        for curve in Parsed(text).all("polyline")
    ]
    assert curves == [
        clip["frames"][metric]
        for clip in expected["clips"]
        for metric in clip["frames"]
    ]
    assert any(row["measured"] for row in expected["rows"]) and len(curves) == 8


def test_the_page_needs_neither_network_nor_other_files():
    text = page(result(source=picture(1), restored=picture(2), clean=picture(3)))
    parsed = Parsed(text)
    assert not parsed.all("link") and not [
        script for script in parsed.all("script") if "src" in script
    ]
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|https?://", text)
    (policy,) = (meta["content"] for meta in parsed.all("meta") if "http-equiv" in meta)
    assert (
        policy is not None
        and "default-src 'none'" in policy
        and "img-src data:" in policy
    )
    pictures = json.loads(parsed.scripts["pictures"]).values()
    assert all(uri.startswith("data:image/png;base64,") for uri in pictures)


def test_names_on_the_page_are_text_and_not_code():
    text = page(result())
    assert len(Parsed(text).all("script")) == 3
    assert (
        "alert(1)</script>" not in text
        and "DUST &lt;b&gt;" in text
        and "a &amp; b" in text
    )


def test_pictures_are_the_frames_bit_by_bit_and_kept_once():
    inputs, restored, clean = picture(1), picture(2), picture(3)
    parsed = Parsed(
        page(result(clips=2, source=inputs, restored=restored, clean=clean))
    )
    pictures = {
        key: decoded(base64.b64decode(uri.partition(",")[2]))
        for key, uri in json.loads(parsed.scripts["pictures"]).items()
    }
    shown = [image["data-picture"] for image in parsed.all("img")]
    assert len(shown) == 10 and len(pictures) == 5  # both clips show the same five
    wanted = (
        restored,
        inputs,
        clean,
        error_map(inputs, clean, 32),
        error_map(restored, clean, 32),
    )
    for key, expected in zip(shown, wanted, strict=False):
        assert np.array_equal(pictures[str(key)], expected)
    assert [image.get("class") for image in parsed.all("img")][:2] == [None, "over"]


def test_large_pictures_show_their_middle_and_only_the_first_ones_are_shown(
    monkeypatch,
):
    monkeypatch.setattr(pages, "LARGEST_PICTURE", (40, 50))
    large = picture(4, 60, 60)
    text = page(
        result(clips=COMPARISONS + 3, source=large, restored=large, clean=large)
    )
    parsed = Parsed(text)
    assert [each.get("class") for each in parsed.all("div")].count(
        "slider"
    ) == COMPARISONS
    assert f"The first {COMPARISONS} of {COMPARISONS + 3}." in text
    first = json.loads(parsed.scripts["pictures"])[
        str(parsed.all("img")[0]["data-picture"])
    ]
    assert np.array_equal(
        decoded(base64.b64decode(first.partition(",")[2])), large[10:-10, 5:-5]
    )


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (40, 52)])
def test_png_files_hold_every_sample(shape):
    noise = picture(7, *shape)
    assert np.array_equal(decoded(png(noise)), noise)
    ramp = (
        np.add.outer(np.arange(shape[0]), np.arange(shape[1]))
        .astype(np.uint8)[..., None]
        .repeat(3, 2)
    )
    assert np.array_equal(decoded(png(ramp)), ramp)


def test_an_error_map_runs_from_purple_to_yellow():
    reference = np.zeros((1, 3, 3), np.uint8)
    result = error_map(
        np.array([[[0, 0, 0], [16, 16, 16], [255, 200, 90]]], np.uint8), reference, 32
    )
    assert result.tolist() == [[[68, 1, 84], [33, 145, 140], [253, 231, 37]]]


def test_a_curve_stands_where_its_values_say():
    text = chart(
        "clip", "PSNR, dB", {"DUST": [30.0, 40.0, 35.0], "ViT": [30.0, 30.0, 30.0]}
    )
    points = re.findall(r'points="([^"]*)"', text)[0].split()
    (left, bottom), (middle, top), (right, between) = (
        map(float, point.split(",")) for point in points
    )
    assert middle == pytest.approx((left + right) / 2, abs=0.1)
    assert between == pytest.approx((top + bottom) / 2, abs=0.1)
    assert top < between < bottom  # upwards
    assert "<li>" in text and "ViT" in text
