"""Systems to measure, and the results: one row per system and test set, beside a reference value."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vidrestore.events import plain
from vidrestore.weights import Model

Curve = tuple[Sequence[float], Sequence[float]]  # positions and values
Values = Mapping[str, float]  # metric -> value: "psnr" in dB, "ssim", ...
Verdict = Literal["", "agrees", "differs", "not listed"]

RESULT_VERSION = 1  # version of the JSON schema
# By the part of a metric's name before "_"; 4 for the others.
DECIMALS = {"psnr": 3, "ssim": 5, "noise": 2, "flicker": 2, "bitrate": 1}


@dataclass(frozen=True)
class Row:
    """One system on one test set. `reference` holds the paper's or manifest's values; either side may lack
    metrics. `verdict` is empty unless both are of the same network on the same data.
    """

    system: str
    on: str  # the test set and its setting: "Avenue, CS rate 0.2"
    measured: Values = field(default_factory=dict)
    reference: Values = field(default_factory=dict)
    weights: str = ""
    verdict: Verdict = ""
    # pictures that the measured values are means over; 0 if they aren't such means
    count: int = 0


@dataclass(frozen=True)
class Comparison:
    """One frame to look at, (H, W, 3) uint8 each: the system's input (enlarged if need be), its output, and
    the clean frame if known.
    """

    frame: int
    source: NDArray[np.uint8]
    restored: NDArray[np.uint8]
    clean: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class ClipMetrics:
    """The values of every metric by frame, of one system on one clip or picture; `column` is the setting."""

    system: str
    test_set: str
    column: str
    clip: str
    frames: Mapping[str, tuple[float, ...]]
    weights: str = ""
    comparison: Comparison | None = None

    @property
    def means(self) -> Values:
        """The mean of every metric over the frames, by `mean_of_frames`."""
        return {
            metric: mean_of_frames(values) for metric, values in self.frames.items()
        }

    def reported(self, metric: str) -> list[float]:
        """Return one metric by frame, rounded as everywhere."""
        return [rounded({metric: value})[metric] for value in self.frames[metric]]


@dataclass(frozen=True)
class Plot:
    """Curves of one metric, where a paper has a figure in place of a table.

    title: the test set and its setting.
    metric: "psnr", ...
    axis: the meaning of the positions.
    curves: by system, positions and values.
    logarithmic: positions are drawn by their logarithms.
    """

    title: str
    metric: str
    axis: str
    curves: Mapping[str, Curve]
    logarithmic: bool = False


@dataclass(frozen=True)
class Result:
    """A whole evaluation. `against` names the reference: "manifest", "published", or "before" restoration."""

    suite: str
    title: str
    against: str
    rows: tuple[Row, ...]
    protocol: tuple[str, ...] = ()  # how it was measured, one choice per line
    notes: tuple[str, ...] = ()  # remarks on this run for a reader
    source: str = ""  # where the reference values were published
    clips: tuple[ClipMetrics, ...] = ()  # the measurements that the rows are means over
    # a clip's system -> its title in the rows
    names: Mapping[str, str] = field(default_factory=dict)
    column: str = ""  # the setting that the clips' columns stand for: "sigma"
    plots: tuple[Plot, ...] = ()  # where a paper has a figure

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of all metrics, in order of appearance."""
        return tuple(
            dict.fromkeys(
                name for row in self.rows for name in (*row.measured, *row.reference)
            )
        )

    @property
    def differing(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict == "differs")

    def to_dict(self) -> dict[str, Any]:
        """Return `version` and the fields as JSON values; a value that isn't finite is None."""
        return {"version": RESULT_VERSION} | {
            name: _as_json(value) for name, value in vars(self).items()
        }

    def to_json(self) -> str:
        return (
            json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
            + "\n"
        )

    def to_csv(self) -> str:
        """Return one CSV line per row, with columns psnr, psnr_published, ... per metric, empty without
        value.
        """
        # a column of each metric beside its reference
        names = [
            column
            for metric in self.metrics
            for column in (metric, f"{metric}_{self.against}")
        ]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["system", "on", "weights", *names, "verdict", "count"])
        for row in self.rows:
            sides = row.measured, row.reference
            values = [side.get(metric, "") for metric in self.metrics for side in sides]
            writer.writerow(
                [row.system, row.on, row.weights, *values, row.verdict, row.count or ""]
            )
        return stream.getvalue()


def mean_of_frames(values: Iterable[float]) -> float:
    """Return the mean of those that are finite (the PSNR of equal pictures is not), else infinity."""
    values = list(values)
    return fmean([value for value in values if math.isfinite(value)] or values)


def psnr_of_mean(psnrs: Iterable[float]) -> float:
    """Return the PSNR in dB of the mean squared error over frames; infinite if all equal their references."""
    # in squares of the data range
    error = fmean(10 ** (-value / 10) for value in psnrs)
    return -10 * math.log10(error) if error else math.inf


def rounded(values: Values) -> dict[str, float]:
    """Round metrics as they are reported everywhere: PSNR to 0.001 dB, SSIM to 0.00001."""
    return {
        name: round(value, DECIMALS.get(name.partition("_")[0], 4))
        for name, value in values.items()
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, ClipMetrics):
        # frames are rounded as the rows are, pictures left out
        frames = {metric: value.reported(metric) for metric in value.frames}
        parts = vars(value) | {"frames": frames}
        return plain(
            {name: part for name, part in parts.items() if name != "comparison"}
        )
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return plain(vars(value) if isinstance(value, Row | Plot) else value)


GIVEN = "given"  # the identity: returns its input unchanged
BICUBIC = "bicubic"
WITHOUT_WEIGHTS = (GIVEN, BICUBIC)
SYSTEM_TITLES = {  # titles of systems that a table doesn't list
    GIVEN: "as given",
    BICUBIC: "Bicubic",
    "dust": "DUST",
    "mh-dust": "MH-DUST",
    "mb-taylorformer-t": "MB-TaylorFormer-T V2",
    "vsr-transformer-n": "VSR-Transformer-N",
    "dust-temperature": "DUST with temperature",
    "dust-any-sigma": "DUST for every sigma",
    "mh-dust-any-sigma": "MH-DUST for every sigma",
}


@dataclass(frozen=True)
class System:
    """A system to measure."""

    name: str
    model: Model | None = None
    source: str = ""  # name or file of the weights
    device: str = "cpu"
    test_set: str = ""  # the one that the weights are for; empty for all
    label: str = ""  # replaces the weights' name if others on the same test set have it

    @property
    def weights(self) -> str:
        return self.label or (self.model.card.name if self.model else "")

    @cached_property
    def network(self) -> Any:
        """The network of `model`, which must not be None."""
        assert self.model is not None
        return self.model.network


def with_unique_labels(systems: Sequence[System]) -> list[System]:
    """Return the systems, labelled by their source if another on the same test set has the same weights'
    name, as of a/dust.safetensors and b/dust.safetensors.
    """

    def clash(one: System, other: System) -> bool:
        same_set = one.test_set == other.test_set or not (
            one.test_set and other.test_set
        )
        return one.weights == other.weights and one.source != other.source and same_set

    def labelled(one: System) -> System:
        return (
            replace(one, label=one.source)
            if any(clash(one, other) for other in systems)
            else one
        )

    return list(map(labelled, systems))
