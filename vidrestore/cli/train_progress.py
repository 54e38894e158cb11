"""Show a training run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vidrestore.cli.keywords import as_options
from vidrestore.cli.terminal import escaped, fitted, say
from vidrestore.training.training_events import (
    Began,
    Event,
    Interrupted,
    Listener,
    Noticed,
    Reached,
    Stepped,
    Validated,
)

if TYPE_CHECKING:
    from rich.console import Console

STAGES = {
    "load": "loading",
    "read": "reading data",
    "batches": "making the first batches",
    "train": "training",
    "validate": "validating",
    "save": "saving",
}


def is_first() -> bool:
    """Return True if this is the process that prints, of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def listening() -> Iterator[Listener]:
    """Yield a listener that shows events on stderr."""
    if not sys.stderr.isatty():
        yield lines()
        return
    from rich.console import Console

    with training_bar(Console(stderr=True)) as listener:
        yield listener


def lines() -> Listener:
    """Return a listener that prints a line for each event that has one, and for each stage the first time."""
    known: set[str] = set()

    def emit(event: Event) -> None:
        if isinstance(event, Reached):
            if event.stage not in known:
                say(STAGES[event.stage], sys.stderr)
            known.add(event.stage)
        elif line := describe(event):
            say(line, sys.stderr)

    return emit


@contextmanager
def training_bar(console: Console) -> Iterator[Listener]:
    """Yield a listener that draws a bar over the steps, with stage, loss, rate and remaining time;
    validations are lines above it.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.fields[stage]}", markup=False),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeRemainingColumn(),
    )
    bars = Bars(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=4,
    )
    bar = bars.add_task("", total=None, text="", stage="", start=False)

    def emit(event: Event) -> None:
        if isinstance(event, Began):
            bars.update(bar, completed=event.step, total=event.steps)
            bars.start_task(bar)
        if isinstance(event, Reached):
            bars.update(bar, stage=STAGES[event.stage])
            bars.start()
        if isinstance(event, Stepped):
            bars.update(
                bar, completed=event.step, text=f"loss {event.loss:.4f}  rate {event.learning_rate:.2g}"
            )
        elif line := describe(event):
            line = fitted(escaped(line), console.width)
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        yield emit
    finally:
        bars.stop()


def describe(event: Event) -> str | None:
    """Return one line about an event; None for a step."""
    match event:
        case Began():
            origin = (
                f"from {event.checkpoint}" if event.checkpoint else "from the beginning: no checkpoint yet"
            )
            return f"step {event.step} of {event.steps}, on {event.device}, {origin}"
        case Validated():
            metrics = "  ".join(
                _metric(name, psnr, event.before.get(name)) for name, psnr in event.psnr.items()
            )
            best = "  best so far" if event.best else ""
            return (
                f"step {event.step}  {event.seconds:.0f} s  loss {event.loss:.4f}  held out  {metrics}{best}"
            )
        case Interrupted():
            return (
                f"interrupted: step {event.step} is in {event.checkpoint}; the same command with "
                "--resume continues"
            )
        case Noticed():
            return as_options(event.message)
        case Stepped() | Reached():
            return None


def _metric(name: float | str, psnr: float, before: float | None) -> str:
    label = name if isinstance(name, str) else f"sigma {name:g}"
    return f"{label}: {psnr:.2f} dB" + ("" if before is None else f" (given {before:.2f})")
