"""Records of a run beside its checkpoint: a log with a line per step as JSON and as CSV, a table of the
held-out metrics, a plot of both, and TensorBoard's files, which need the optional package `tensorboard`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any

from vidrestore.errors import CheckpointError, OptionError
from vidrestore.events import plain
from vidrestore.files.atomic import replacing
from vidrestore.files.regular import (
    Count,
    open_descriptor,
    open_regular,
    parse_object,
    stored,
)
from vidrestore.lab.training.learner import Validations
from vidrestore.lab.training_events import (
    Began,
    Event,
    Listener,
    Noticed,
    Stepped,
    Validated,
)
from vidrestore.pages.svg_charts import CHART_STYLE, picture

POINTS = 320  # most points of a curve
_HEAD = 1 << 12  # bytes that show whose a file is
_TABLE_HEAD = b"step,psnr "  # first bytes of a table of metrics
_STEP_RECORD = stored(step=Count, loss=float | None)
_COLUMNS = ("step", "loss", "learning_rate", "gradient_norm", "seconds")


@contextmanager
def recording(
    stem: Path,
    validations: Validations,
    on_event: Listener,
    *,
    tensorboard: bool = False,
) -> Iterator[Listener]:
    """Yield a listener that writes records named after `stem`, table and plot at every validation, and calls
    `on_event`. Raises CheckpointError if one can't be written, or has the name of a file that isn't a record
    of a run; OptionError if the package for `tensorboard` is missing.
    """
    plot = stem.with_suffix(".svg")
    metrics = stem.with_suffix(".validations.csv")
    _check_own(plot, lambda head: CHART_STYLE.encode() in head)
    _check_own(metrics, lambda head: head.startswith(_TABLE_HEAD))
    # all logs are closed, whatever ends the run
    with ExitStack() as stack:
        board = (
            stack.enter_context(_board(stem.with_suffix(".tensorboard")))
            if tensorboard
            else None
        )
        log = stack.enter_context(closing(StepLog(stem.with_suffix(".log.jsonl"))))
        table = stack.enter_context(closing(CsvLog(stem.with_suffix(".log.csv"))))

        def emit(event: Event) -> None:
            log(event)
            table(event)
            if board:
                board(event)
            if isinstance(event, Validated):
                svg = training_plot(stem.name, log.steps, log.losses, validations.curve)
                _replace(plot, svg)
                _replace(metrics, metrics_table(validations.curve))
            on_event(event)
            # of a resumed run
            last = log.steps[-1] if log.steps else 0
            if isinstance(event, Began) and last < event.step:
                gap = f"lacks steps {last + 1} to {event.step}: it was deleted or cut"
                on_event(Noticed(f"{log.path}: {gap}, and goes on behind them"))

        yield emit


class StepLog:
    """A listener that writes a line of JSON per step: step, loss, learning_rate, gradient_norm and seconds.

    Values that are not finite are null. A run that begins at a step removes later lines. `steps` and `losses`
    hold the log's values. Raises CheckpointError if the log can't be written, or if a file of that name isn't
    one.
    """

    heading = b""
    signature = b'{"step": '  # first bytes of a log

    def __init__(self, path: Path) -> None:
        _check_own(path, self._is_own)
        self.path = path
        self.steps = array("q")
        self.losses = array("d")
        self._stream: IO[bytes] | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Began):
            self._begin(event.step)
        if isinstance(event, Stepped):
            values = {name: getattr(event, name) for name in _COLUMNS}
            finite = plain(values | {"seconds": round(event.seconds, 3)})
            self._write(self.line(finite))
            self._append(finite)

    def _is_own(self, head: bytes) -> bool:
        """Return True for the first bytes of a log, even if a full disk cut its first line."""
        line, end, _ = head.removeprefix(self.heading).partition(b"\n")
        if end:
            return self.values(line + end) is not None
        return self.signature.startswith(head[: len(self.signature)])

    def _begin(self, step: int) -> None:
        # lines of steps that the checkpoint doesn't have are written again
        with _writing(self.path):
            descriptor = open_descriptor(self.path, os.O_RDWR | os.O_CREAT, mode=0o666)
            # unbuffered, so that a line is in the file as soon as it is written
            self._stream = os.fdopen(descriptor, "r+b", buffering=0)
            end = self._read(step)
            self._stream.truncate(end)
            self._stream.seek(end)
        if not end:
            self._write(self.heading)

    def _read(self, step: int) -> int:
        """Load the log up to a step; return the number of bytes read."""
        # up to the first line that isn't one of ours
        end = 0
        with self.path.open("rb") as stream:
            if stream.read(len(self.heading)) != self.heading:
                return 0
            end = len(self.heading)
            for line in stream:
                values = self.values(line)
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

    def line(self, values: dict[str, Any]) -> bytes:
        """Return the line of a step."""
        return json.dumps(values).encode() + b"\n"

    def values(self, line: bytes) -> dict[str, Any] | None:
        """Parse one line; return None if it is incomplete."""
        try:
            return parse_object(line, _STEP_RECORD) if line.endswith(b"\n") else None
        except ValueError:
            return None

    def _append(self, values: dict[str, Any]) -> None:
        self.steps.append(values["step"])
        self.losses.append(math.nan if values["loss"] is None else values["loss"])

    def close(self) -> None:
        if self._stream:
            # an empty log would look like a run
            is_empty = os.fstat(self._stream.fileno()).st_size <= len(self.heading)
            self._stream.close()
            if is_empty:  # the run failed before its first step
                self.path.unlink(missing_ok=True)


class CsvLog(StepLog):
    """The same as a table for spreadsheets, with a heading; values that are not finite are empty."""

    heading = ",".join(_COLUMNS).encode() + b"\n"
    signature = heading

    def line(self, values: dict[str, Any]) -> bytes:
        cells = ["" if values[name] is None else str(values[name]) for name in _COLUMNS]
        return ",".join(cells).encode() + b"\n"

    def values(self, line: bytes) -> dict[str, Any] | None:
        cells = line.decode("ascii", "replace").split(",")
        if len(cells) != len(_COLUMNS) or not line.endswith(b"\n"):
            return None
        try:
            return {"step": int(cells[0]), "loss": float(cells[1] or "nan")}
        except ValueError:
            return None


def metrics_table(curve: Sequence[dict[str, Any]]) -> str:
    """Return a validation a line as CSV: its step, and the PSNR in dB by sigma or degradation; empty where
    it isn't finite.
    """
    metrics = list(curve[-1]["psnr"])
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["step", *(f"psnr {metric}" for metric in metrics)])
    for point in curve:
        values = plain({metric: point["psnr"][metric] for metric in metrics})
        table.writerow([point["step"], *values.values()])
    return stream.getvalue()


@contextmanager
def _board(folder: Path) -> Iterator[Listener]:
    """Yield a listener that writes for TensorBoard to `folder`; the steps after that of a resumed run are
    replaced. Raises OptionError if the package is missing.
    """
    writer_of = board_writer()
    # writers begin with the run's first event, which names the step
    with ExitStack() as stack:
        writers: list[Any] = []

        def emit(event: Event) -> None:
            match event:
                case Began():
                    writer = writer_of(str(folder), purge_step=event.step + 1)
                    writers.append(stack.enter_context(closing(writer)))
                case Stepped():
                    for name in ("loss", "learning_rate", "gradient_norm"):
                        writers[-1].add_scalar(
                            f"training/{name}", getattr(event, name), event.step
                        )
                case Validated():
                    for metric, psnr in event.psnr.items():
                        writers[-1].add_scalar(
                            f"held out/PSNR {metric}", psnr, event.step
                        )

        yield emit


def board_writer() -> Any:
    """Return TensorBoard's class of writers. Raises OptionError if the package is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise OptionError(
            '`tensorboard` needs a package that is not installed: pip install "vidrestore[tensorboard]"'
        ) from error
    return SummaryWriter


def training_plot(
    name: str,
    steps: Sequence[int],
    losses: Sequence[float],
    curve: Sequence[dict[str, Any]],
) -> str:
    """Return an SVG of the log loss by step, thinned to means, above the held-out PSNR."""
    # curves of metrics that are finite everywhere
    positions = [point["step"] for point in curve]
    metrics = {}
    for metric in curve[-1]["psnr"]:
        psnrs = [point["psnr"][metric] for point in curve]
        if all(map(math.isfinite, psnrs)):
            metrics[metric] = (positions, psnrs)
    points = thinned(steps, losses)
    plots = (
        [("loss", "log10 of the loss, by step", {"training": points})]
        if points[0]
        else []
    )
    plots += [("validation", "PSNR, dB, by step", metrics)] if metrics else []
    ends = (min([0, *positions]), max([*steps[-1:], *positions]))
    return picture(name, plots, ends, "step ")


def thinned(
    steps: Sequence[int], losses: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return at most `POINTS` positions, and log10 of the mean loss around each; skip empty ones."""
    # mean of a few steps each, at their middle
    size = -(-len(losses) // POINTS) or 1
    positions = []
    means = []
    for first in range(0, len(losses), size):
        part = [loss for loss in losses[first : first + size] if math.isfinite(loss)]
        mean = sum(part) / max(len(part), 1)
        if mean > 0:
            numbers = steps[first : first + size]
            positions.append((numbers[0] + numbers[-1]) / 2)
            means.append(round(math.log10(mean), 4))
    return positions, means


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


def _check_own(path: Path, is_own: Callable[[bytes], bool]) -> None:
    """Raise CheckpointError for a file that a run would replace though its first bytes aren't a record's."""
    # a link is refused when the record is written
    with _writing(path):
        if path.is_symlink() or not path.exists():
            return
        with open_regular(path) as stream:
            head = stream.read(_HEAD)
    if head and not is_own(head):
        raise CheckpointError(
            f"{path}: isn't a record of a training run, and would be replaced; move it, or choose another "
            "`output`"
        )


def _replace(path: Path, text: str) -> None:
    with _writing(path), replacing(path, sync=False) as stream:
        stream.write(text.encode())
