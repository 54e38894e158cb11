"""Show events: a progress bar on a terminal's stderr, plain lines elsewhere, JSON on stdout."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO

from vidrestore.cli.terminal import (
    bar_console,
    cleared,
    escaped,
    in_options,
    print_json_line,
    print_line,
    show_above,
)
from vidrestore.event_log import (
    Logged,
    describe,
    is_of_photo,
    numbered,
    position_of,
    progress_of,
    result_of,
    stage_of,
)
from vidrestore.events import (
    BEFORE_START,
    Event,
    Failed,
    Listener,
    Planned,
    Progressed,
    Started,
    Summary,
    Warned,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

ELAPSED = 7  # characters of the elapsed time: 1:02:30
SHORT_NAME = 16  # characters
PLAIN_INTERVAL = 10.0  # seconds between two lines about the same stage


@contextmanager
def listening(json: bool = False, quiet: bool = False, *, verbose: bool = False) -> Iterator[Listener]:
    """Yield a listener for the inputs of one command.

    `json` prints every event on stdout, one per line; otherwise finished inputs are a sentence on stdout.
    Progress and warnings go to stderr, with `verbose` also the details of plans and the time that each stage
    took. `quiet` leaves errors, and damage of a source, which changes the exit code.
    """
    mixed = json and sys.stdout.isatty()  # a bar and JSON on one terminal would overwrite each other
    shown = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    display: AbstractContextManager[BarListener | PlainLines] = (
        progress_bar() if shown and not (quiet or mixed) else nullcontext(PlainLines(sys.stderr, quiet=quiet))
    )
    with display as progress:
        brief = Brief(progress)

        def emit(event: Event) -> None:
            brief(event)  # removes the bar before the result is printed
            if json:
                print_json(event)
            elif not quiet:
                print_summary(event)

        log = Logged(emit, progress.show) if verbose and not quiet else Logged(emit)
        yield lambda event: log(in_options(event))


class Brief:
    """A listener that shortens the events of several inputs: a photo takes one line, without its start and
    plan, and the same warning is passed on once.
    """

    def __init__(self, on_event: Listener) -> None:
        self._on_event = on_event
        self._warned: set[str] = set()

    def __call__(self, event: Event) -> None:
        several = event.count is not None and event.count > 1
        is_photo = several and is_of_photo(event)
        is_whole = isinstance(event, Progressed) and event.done == event.total
        if is_photo and (is_whole or isinstance(event, Started | Planned)):
            return
        if several and isinstance(event, Warned):
            if event.message in self._warned:
                return
            self._warned.add(event.message)
        self._on_event(event)


def print_json(event: Event) -> None:
    """Print an event as one line of JSON at once, so that the reader of a pipe can follow the job."""
    if isinstance(event, Progressed) and event.stage in BEFORE_START:
        return
    print_json_line(event.to_json())


def print_summary(event: Event) -> None:
    """Print a sentence about a finished input; on stderr if stdout carries the video."""
    if isinstance(event, Summary):
        piped = event.output == "-"
        output = "stdout" if piped else event.output
        print_line(
            f"{numbered(event)}{event.source} -> {output}: {result_of(event)}", sys.stderr if piped else None
        )


class PlainLines:
    """A listener that writes lines to `stream`: progress at most once in `PLAIN_INTERVAL` seconds; with
    `quiet` only errors.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.stream, self.quiet = stream, quiet
        self._stage: tuple[str, str] | None = None
        self._next = 0.0  # when progress is due, by the monotonic clock

    def __call__(self, event: Event) -> None:
        if self.quiet and not isinstance(event, Summary | Failed):
            return
        if (not isinstance(event, Progressed) or self._is_due(event)) and (line := describe(event)):
            self.show(line)

    def show(self, line: str) -> None:
        print_line(line, self.stream)

    def _is_due(self, event: Progressed) -> bool:
        now = time.monotonic()
        if (event.source, event.stage) != self._stage:  # the first event of a stage carries no information
            self._stage, self._next = (event.source, event.stage), now + PLAIN_INTERVAL
        if now < self._next and not (event.done == event.total and event.stage == "restore"):
            return False
        self._next = now + PLAIN_INTERVAL
        return True


@contextmanager
def progress_bar() -> Iterator[BarListener]:
    """Yield a listener that draws one bar per source on stderr, with the time since it appeared."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = bar_console()
    width = _bar_width(console.width)
    columns = (
        TextColumn("{task.description}", markup=False),
        *([BarColumn(width)] if width else []),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    progress = Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    listener = BarListener(progress)
    cleared.append(listener.clear)
    try:
        yield listener
    finally:
        cleared.remove(listener.clear)
        stop(progress)


def stop(progress: Progress) -> None:
    """Take a display away, also one that a signal interrupted while it drew for the first time."""
    with suppress(IndexError):  # of rich
        progress.stop()


def _bar_width(columns: int) -> int:
    return min(40, columns - 90) if columns >= 100 else 0  # the text says more than a short bar


def shortened(name: str, room: int) -> str:
    """Return a name of at most `room` characters, its middle left out; nothing in less than five."""
    if len(name) <= room:
        return name
    kept = room - 1
    return f"{name[: kept // 2]}…{name[len(name) - kept + kept // 2 :]}" if room >= 5 else ""


class BarListener:
    """Draws events on a rich progress display, which is visible while there is progress; lines appear above
    the bar.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._bar: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progressed):
            self._draw(event)
            return
        if isinstance(event, (Summary, Failed)):
            self.clear()
        if line := describe(event):
            self.show(line)

    def show(self, line: str) -> None:
        show_above(self.progress.console, line)

    def _draw(self, event: Progressed) -> None:
        width = self.progress.console.width
        bar = _bar_width(width)
        room = width - bar - ELAPSED - 2 - bool(bar)  # blanks between columns
        name, text = escaped(os.path.basename(event.source)), progress_of(event)
        begin = f"{numbered(event)}{stage_of(event)} "
        if len(begin + name + text) > room:
            text = position_of(event)  # if narrow, drop memory first, then the stage
        if len(begin + name[:SHORT_NAME] + text) > room:
            begin = numbered(event)
        stage = (begin + shortened(name, room - len(begin + text))).rstrip()
        if self._bar is None:
            self._bar = self.progress.add_task(stage, total=event.total, text=text)
            self.progress.start()
        self.progress.update(self._bar, description=stage, completed=event.done, total=event.total, text=text)
        for task in self.progress.tasks:
            task.finished_time = None  # a stage may be finished: the clock runs on

    def clear(self) -> None:
        """Take the bar away until there is further progress."""
        if self._bar is not None:
            stop(self.progress)
            self.progress.remove_task(self._bar)
            self._bar = None
