"""Records of a run beside its checkpoint: a log with a line per step, a plot of the loss and the held-out
metrics.
"""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

from vidrestore.errors import CheckpointError
from vidrestore.events import plain
from vidrestore.files.atomic import replacing
from vidrestore.files.regular import Count, open_descriptor, parse_object, stored
from vidrestore.svg_charts import picture
from vidrestore.training.learner import Validations
from vidrestore.training.training_events import Began, Event, Listener, Stepped, Validated

POINTS = 320  # most points of a curve
_STEP = stored(step=Count, loss=float | None)


@contextmanager
def recording(stem: Path, validations: Validations, on_event: Listener) -> Iterator[Listener]:
    """Yield a listener that writes records named after `stem`, the plot at every validation, and calls
    `on_event`. Raises CheckpointError if one can't be written.
    """
    plot = stem.with_suffix(".svg")
    with closing(StepLog(stem.with_suffix(".log.jsonl"))) as log:

        def emit(event: Event) -> None:
            log(event)
            if isinstance(event, Validated):
                svg = training_plot(stem.name, log.steps, log.losses, validations.curve)
                with _writing(plot), replacing(plot, sync=False) as stream:
                    stream.write(svg.encode())
            on_event(event)

        yield emit


class StepLog:
    """A listener that writes a line of JSON per step: step, loss, learning_rate, gradient_norm and seconds.

    Values that are not finite are null. A run that begins at a step removes later lines. `steps` and `losses`
    hold the log's values. Raises CheckpointError if the log can't be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps, self.losses = array("q"), array("d")
        self._stream: IO[bytes] | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Began):
            self._begin(event.step)
        if isinstance(event, Stepped):
            values = {"step": event.step, "loss": event.loss, "learning_rate": event.learning_rate}
            values |= {"gradient_norm": event.gradient_norm, "seconds": round(event.seconds, 3)}
            finite = plain(values)
            self._write(json.dumps(finite).encode() + b"\n")
            self._append(finite)

    def _begin(self, step: int) -> None:
        with _writing(self.path):
            descriptor = open_descriptor(self.path, os.O_RDWR | os.O_CREAT, mode=0o666)
            # unbuffered, so that a line is in the file as soon as it is written
            self._stream = os.fdopen(descriptor, "r+b", buffering=0)
            end = self._read(step)
            self._stream.truncate(end)
            self._stream.seek(end)

    def _read(self, step: int) -> int:
        """Load the log up to a step; return the number of bytes read."""
        end = 0
        with self.path.open("rb") as stream:
            for line in stream:
                values = _values(line)
                if values is None or values["step"] > step:
                    break
                self._append(values)
                end += len(line)
        return end

    def _write(self, line: bytes) -> None:
        with _writing(self.path):
            assert self._stream is not None
            if self._stream.write(line) < len(line):
                raise OSError("no space left on the device")

    def _append(self, values: dict[str, Any]) -> None:
        self.steps.append(values["step"])
        self.losses.append(math.nan if values["loss"] is None else values["loss"])

    def close(self) -> None:
        if self._stream:
            is_empty = not os.fstat(self._stream.fileno()).st_size
            self._stream.close()
            if is_empty:  # the run failed before its first step
                self.path.unlink(missing_ok=True)


def training_plot(
    name: str, steps: Sequence[int], losses: Sequence[float], curve: Sequence[dict[str, Any]]
) -> str:
    """Return an SVG of the log loss by step, thinned to means, above the held-out PSNR."""
    positions = [point["step"] for point in curve]
    metrics = {
        metric: ([point["step"] for point in curve], [point["psnr"][metric] for point in curve])
        for metric in curve[-1]["psnr"]
    }
    metrics = {metric: values for metric, values in metrics.items() if all(map(math.isfinite, values[1]))}
    points = thinned(steps, losses)
    plots = [("loss", "log10 of the loss, by step", {"training": points})] if points[0] else []
    plots += [("validation", "PSNR, dB, by step", metrics)] if metrics else []
    ends = (min([0, *positions]), max([*steps[-1:], *positions]))
    return picture(name, plots, ends, "step ")


def thinned(steps: Sequence[int], losses: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return at most `POINTS` positions, and log10 of the mean loss around each; skip empty ones."""
    size = -(-len(losses) // POINTS) or 1
    positions, means = [], []
    for first in range(0, len(losses), size):
        part = [loss for loss in losses[first : first + size] if math.isfinite(loss)]
        mean = sum(part) / max(len(part), 1)
        if mean > 0:
            numbers = steps[first : first + size]
            positions.append((numbers[0] + numbers[-1]) / 2)
            means.append(round(math.log10(mean), 4))
    return positions, means


def _values(line: bytes) -> dict[str, Any] | None:
    """Parse one line of a log; None if it is incomplete."""
    try:
        values = parse_object(line, _STEP) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return values


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raise CheckpointError in place of an error of writing a record."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(
            f"{path}: can't be written ({reason}); free some space or remove the file, and go on with "
            "`resume`"
        ) from error
