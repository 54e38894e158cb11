"""Show progress: a bar on a terminal's stderr, plain lines elsewhere; events also as JSON on stdout."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO

from vidrestore.cli.terminal import (
    as_options,
    bar_console,
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
def listening(
    json: bool = False, quiet: bool = False, *, verbose: bool = False
) -> Iterator[Listener]:
    """Yield a listener for the inputs of one command.

    `json` prints every event on stdout, one per line; otherwise finished inputs are a sentence on stdout.
    Progress and warnings go to stderr, with `verbose` also the details of plans and the time that each stage
    took. `quiet` leaves errors, and damage of a source, which changes the exit code.
    """
    # brief on the terminal, complete in JSON
    # a bar and JSON on one terminal would overwrite each other
    mixed = json and sys.stdout.isatty()
    with display(bar=not (quiet or mixed), quiet=quiet) as progress:
        brief = Brief(progress)

        def emit(event: Event) -> None:
            brief(event)  # removes the bar before the result is printed
            if json:
                print_json(event)
            elif not quiet:
                print_summary(event)

        log = Logged(emit, progress.show) if verbose and not quiet else Logged(emit)
        yield lambda event: log(in_options(event))


def display(
    *, bar: bool = True, quiet: bool = False
) -> AbstractContextManager[Bar | PlainLines]:
    """Return what shows progress on stderr: a bar on a terminal that has one, if `bar`, else plain lines."""
    has_bar = (
        bar
        and sys.stderr.isatty()
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )
    return (
        progress_bar() if has_bar else nullcontext(PlainLines(sys.stderr, quiet=quiet))
    )


class Brief:
    """A listener that shortens the events of several inputs: a photo takes one line, without its start and
    plan, and the same warning is passed on once.
    """

    def __init__(self, on_event: Listener) -> None:
        self._on_event = on_event
        self._warned: set[str] = set()

    def __call__(self, event: Event) -> None:
        # a batch of photos takes a line for each
        is_batch = event.count is not None and event.count > 1
        is_photo = is_batch and is_of_photo(event)
        is_whole = isinstance(event, Progressed) and event.done == event.total
        if is_photo and (is_whole or isinstance(event, Started | Planned)):
            return
        if is_batch and isinstance(event, Warned):
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
            f"{numbered(event)}{event.source} -> {output}: {as_options(result_of(event))}",
            sys.stderr if piped else None,
        )


class PlainLines:
    """A listener that writes lines to `stream`: progress at most once in `PLAIN_INTERVAL` seconds; with
    `quiet` only errors.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.stream, self.quiet = stream, quiet
        self._stage: object = None
        self._next = 0.0  # when progress is due, by the monotonic clock

    def __call__(self, event: Event) -> None:
        if self.quiet and not isinstance(event, Summary | Failed):
            return
        if isinstance(event, Progressed):
            is_last = event.done == event.total and event.stage == "restore"
            if not self._is_due((event.source, event.stage), at_once=is_last):
                return
        if line := describe(event):
            self.show(line)

    def show(self, line: str) -> None:
        print_line(line, self.stream)

    def draw(
        self, stage: str, text: str, done: int = 0, total: int | None = None
    ) -> None:
        """Write a line about a stage: the first one at once, further ones at intervals."""
        is_first = stage != self._stage
        if self._is_due(stage) or is_first:
            self.show(f"{stage}: {text}")

    def _is_due(self, stage: object, *, at_once: bool = False) -> bool:
        # the first event of a stage at once, others at intervals
        now = time.monotonic()
        if stage != self._stage:  # the first event of a stage carries no information
            self._stage, self._next = stage, now + PLAIN_INTERVAL
        if now < self._next and not at_once:
            return False
        self._next = now + PLAIN_INTERVAL
        return True


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """Yield a bar on stderr, with the time since it appeared."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # columns as wide as the terminal allows
    console = bar_console()
    width = _bar_width(console.width)
    columns = (
        TextColumn("{task.description}", markup=False),
        *([BarColumn(width)] if width else []),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    progress = Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar = Bar(progress)
    try:
        yield bar
    finally:
        bar.clear()


def _bar_width(columns: int) -> int:
    # the text says more than a short bar
    return min(40, columns - 90) if columns >= 100 else 0


def shortened(name: str, room: int) -> str:
    """Return a name of at most `room` characters, its middle left out; nothing in less than five."""
    if len(name) <= room:
        return name
    if room < 5:
        return ""
    half = (room - 1) // 2
    return f"{name[:half]}…{name[len(name) - room + 1 + half :]}"


class Bar:
    """One bar on a rich display, visible while there is progress; lines appear above it. A listener of
    events, too.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._bar: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progressed):
            self._draw_frames(event)
            return
        if isinstance(event, (Summary, Failed)):
            self.clear()
        if line := describe(event):
            self.show(line)

    def show(self, line: str) -> None:
        show_above(self.progress.console, line)

    def _draw_frames(self, event: Progressed) -> None:
        # on a narrow terminal the less important parts go first
        width = self.progress.console.width
        bar = _bar_width(width)
        room = width - bar - ELAPSED - 2 - bool(bar)  # blanks between columns
        name = escaped(os.path.basename(event.source))
        text = progress_of(event)
        begin = f"{numbered(event)}{stage_of(event)} "
        if len(begin + name + text) > room:
            text = position_of(event)  # if narrow, drop memory first, then the stage
        if len(begin + name[:SHORT_NAME] + text) > room:
            begin = numbered(event)
        stage = (begin + shortened(name, room - len(begin + text))).rstrip()
        self.draw(stage, text, event.worked or event.done, event.total)

    def draw(
        self, stage: str, text: str, done: float = 0, total: int | None = None
    ) -> None:
        """Draw the bar between the name of a stage and a text."""
        # one bar for all stages
        stage, text = escaped(stage), escaped(text)
        if self._bar is None:
            self._bar = self.progress.add_task(stage, total=total, text=text)
            self.progress.start()
        self.progress.update(
            self._bar, description=stage, completed=done, total=total, text=text
        )
        for task in self.progress.tasks:
            task.finished_time = None  # a stage may be finished: the clock runs on

    def clear(self) -> None:
        """Take the bar away until there is further progress."""
        if self._bar is not None:
            # of rich, if a signal interrupted its first drawing
            with suppress(IndexError):
                self.progress.stop()
            self.progress.remove_task(self._bar)
            self._bar = None
