"""Records of a run beside its checkpoint: a log with a line per step, and a picture of the loss and the
held-out figures.
"""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any

from vidrestore.charts import picture
from vidrestore.errors import CheckpointError
from vidrestore.events import plain
from vidrestore.files.atomic import replacing
from vidrestore.files.checked_json import parse_json
from vidrestore.files.regular import open_descriptor
from vidrestore.training.tensorboard import tensorboard_listener
from vidrestore.training.training_events import Began, Event, Listener, Stepped, Validated, to_all

POINTS = 320  # of a drawn curve: more would not be seen


@contextmanager
def recording(
    beside: Path, curve: Callable[[], Sequence[dict[str, Any]]], listen: Listener, *, tensorboard: bool
) -> Iterator[Listener]:
    """A listener that keeps records in files named after `beside`, and passes everything on to `listen`.

    `curve` gives the validations so far. Raises OptionError without the package for `tensorboard`.
    """
    with ExitStack() as stack:
        log = stack.enter_context(closing(StepLog(beside.with_suffix(".log.jsonl"))))
        listeners: list[Listener] = [log, CurvePicture(beside.with_suffix(".svg"), log, curve), listen]
        if tensorboard:
            listeners.append(stack.enter_context(tensorboard_listener(beside.with_suffix(".tensorboard"))))
        yield to_all(*listeners)


class StepLog:
    """A listener that writes a line of JSON per step: step, loss, learning_rate, gradient_norm and seconds
    (null where not finite).

    Where a run begins at a step, lines beyond it are cut off: that run will write its own. `losses` are those
    by step. Raises CheckpointError if the log can't be written.
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
            self._keep(finite)

    def _begin(self, step: int) -> None:
        with _writing(self.path):
            descriptor = open_descriptor(self.path, os.O_RDWR | os.O_CREAT, follow=True, mode=0o666)
            # a line is there as soon as it is written
            self._stream = os.fdopen(descriptor, "r+b", buffering=0)
            end = self._read(step)
            self._stream.truncate(end)
            self._stream.seek(end)

    def _read(self, step: int) -> int:
        """Keep what the log holds up to a step; bytes of that."""
        end = 0
        with self.path.open("rb") as stream:
            for line in stream:
                values = _values(line)
                if values is None or values["step"] > step:
                    break
                self._keep(values)
                end += len(line)
        return end

    def _write(self, line: bytes) -> None:
        with _writing(self.path):
            assert self._stream is not None
            if self._stream.write(line) < len(line):
                raise OSError("no space left on the device")

    def _keep(self, values: dict[str, Any]) -> None:
        self.steps.append(values["step"])
        self.losses.append(math.nan if values["loss"] is None else values["loss"])

    def close(self) -> None:
        if self._stream:
            self._stream.close()


class CurvePicture:
    """A listener that draws loss and held-out PSNR, from the first step on, at every validation: an SVG file.

    `curve` gives the validations so far, as checkpoints hold them. Raises CheckpointError if it can't be
    written.
    """

    def __init__(self, path: Path, log: StepLog, curve: Callable[[], Sequence[dict[str, Any]]]) -> None:
        self.path, self.log, self.curve = path, log, curve

    def __call__(self, event: Event) -> None:
        if isinstance(event, Validated):
            drawn = training_picture(self.path.stem, self.log.steps, self.log.losses, self.curve())
            with _writing(self.path), replacing(self.path, sync=False) as stream:
                stream.write(drawn.encode())


def training_picture(
    name: str, steps: Sequence[int], losses: Sequence[float], curve: Sequence[dict[str, Any]]
) -> str:
    """An SVG of the loss by step, thinned to means and as a logarithm, above the held-out PSNR of validations
    by step.
    """
    places = [point["step"] for point in curve]
    figures = {
        what: ([point["step"] for point in curve], [point["psnr"][what] for point in curve])
        for what in curve[-1]["psnr"]
    }
    figures = {what: values for what, values in figures.items() if all(map(math.isfinite, values[1]))}
    drawn = thinned(steps, losses)
    plots = [("loss", "log10 of the loss, by step", {"training": drawn})] if drawn[0] else []
    plots += [("held out", "PSNR, dB, by step", figures)] if figures else []
    ends = (min([0, *places]), max([*steps[-1:], *places]))
    return picture(name, plots, ends, "step ")


def thinned(steps: Sequence[int], losses: Sequence[float]) -> tuple[list[float], list[float]]:
    """At most `POINTS` places and the logarithm (base 10) of the mean loss around each; those that have none
    are left out.
    """
    size = -(-len(losses) // POINTS) or 1
    places, means = [], []
    for first in range(0, len(losses), size):
        part = [loss for loss in losses[first : first + size] if math.isfinite(loss)]
        mean = sum(part) / max(len(part), 1)
        if mean > 0:
            middle = steps[first : first + size]
            places.append((middle[0] + middle[-1]) / 2)
            means.append(round(math.log10(mean), 4))
    return places, means


def _values(line: bytes) -> dict[str, Any] | None:
    """Of one line of a log; None for one that was broken off."""
    try:
        values = parse_json(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return values if isinstance(values, dict) and {"step", "loss"} <= values.keys() else None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Put errors of writing a record into words."""
    try:
        yield
    except OSError as error:
        told = error.strerror or error
        raise CheckpointError(
            f"{path}: can't be written ({told}); free some space or remove it, and go on with `resume`"
        ) from error
