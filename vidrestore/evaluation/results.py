"""Results of an evaluation: one row per system and test set, beside the value of the paper or manifest."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vidrestore.events import plain

Values = Mapping[str, float]  # metric -> value: "psnr" in dB, "ssim", ...
Verdict = Literal["", "agrees", "differs", "not listed"]

VERSION = 1  # of the JSON
DECIMALS = {
    "psnr": 3,
    "ssim": 5,
    "noise": 2,
    "flicker": 2,
    "bitrate": 1,
}  # of metrics by the first part of their name; others keep four


@dataclass(frozen=True)
class Row:
    """One system on one test set. `reference` is what the paper or the manifest says of it; either side may
    lack metrics.

    `verdict` says whether the two agree, where they are of the same network on the same data; it is empty
    elsewhere.
    """

    system: str
    on: str  # the test set and its setting: "Avenue, CS rate 0.2"
    measured: Values = field(default_factory=dict)
    reference: Values = field(default_factory=dict)
    weights: str = ""
    verdict: Verdict = ""
    count: int = 0  # pictures that the measured values are means of; 0 where they are no means over pictures


@dataclass(frozen=True)
class Shown:
    """One frame to look at, (H, W, 3) uint8 each: what the system was given, made as large as the others; its
    result; the clean frame, where there is one.
    """

    frame: int
    given: NDArray[np.uint8]
    restored: NDArray[np.uint8]
    clean: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class ClipFigures:
    """One system on one clip (or picture): every metric frame by frame. `column` is the setting, as in the
    table's columns.
    """

    system: str
    test_set: str
    column: str
    clip: str
    frames: Mapping[str, tuple[float, ...]]
    weights: str = ""
    shown: Shown | None = None

    @property
    def means(self) -> Values:
        """Over the frames."""
        return {metric: fmean(values) for metric, values in self.frames.items()}

    def reported(self, metric: str) -> list[float]:
        """One metric frame by frame, rounded as everywhere."""
        return [rounded({metric: value})[metric] for value in self.frames[metric]]


@dataclass(frozen=True)
class Result:
    """An evaluation as a whole. `against` says what the reference is: "manifest", "published", or "before"
    restoration.
    """

    suite: str
    title: str
    against: str
    rows: tuple[Row, ...]
    protocol: tuple[str, ...] = ()  # how it was measured, one choice per line
    notes: tuple[str, ...] = ()  # what a reader must know of this run
    source: str = ""  # of the references
    clips: tuple[ClipFigures, ...] = ()  # what the rows are means of
    names: Mapping[str, str] = field(default_factory=dict)  # of the clips' systems, as in the rows
    column: str = ""  # what the clips' columns are: "sigma"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all metrics, in order of appearance."""
        return tuple(dict.fromkeys(name for row in self.rows for name in (*row.measured, *row.reference)))

    @property
    def differing(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict == "differs")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: `version` and the fields of this class; a figure that isn't finite, as the PSNR of
        equal pictures, is None.
        """
        return {"version": VERSION} | {
            item.name: _as_json(getattr(self, item.name)) for item in fields(Result)
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """One line per row; columns psnr, psnr_published, ... per metric, empty if there is no value."""
        names = [column for metric in self.metrics for column in (metric, f"{metric}_{self.against}")]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["system", "on", "weights", *names, "verdict", "count"])
        for row in self.rows:
            values = [
                values.get(metric, "") for metric in self.metrics for values in (row.measured, row.reference)
            ]
            writer.writerow([row.system, row.on, row.weights, *values, row.verdict, row.count or ""])
        return stream.getvalue()


def rounded(values: Values) -> dict[str, float]:
    """Values as they are reported everywhere: PSNR to 0.001 dB, SSIM to 0.00001."""
    return {name: round(value, DECIMALS.get(name.partition("_")[0], 4)) for name, value in values.items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, ClipFigures):
        return plain(
            {name: part for name, part in vars(value).items() if name != "shown"}
            | {"frames": _reported(value)}
        )
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return plain(vars(value) if isinstance(value, Row) else value)


def _reported(clip: ClipFigures) -> dict[str, list[float]]:
    return {metric: clip.reported(metric) for metric in clip.frames}
