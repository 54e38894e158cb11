"""Events as a person or a script wants to see them: a progress bar on stderr, plain lines where that is no terminal, JSON on stdout."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from vidrestore.events import Event, Failed, Finished, Listener, Planned, Progressed, Started, Warned

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_INTERVAL = 10.0  # seconds between two lines about the same stage


@contextmanager
def listening(json: bool = False, quiet: bool = False) -> Iterator[Listener]:
    """A listener for the inputs of one command.

    `json` prints every event on stdout, one per line; otherwise a sentence on stdout says what was made. Progress goes to stderr unless
    `quiet`, warnings and errors always.
    """
    with ExitStack() as stack:
        mixed = json and sys.stdout.isatty()  # a bar and JSON on one terminal would overwrite each other
        drawn = not quiet and not mixed and sys.stderr.isatty()
        progress: Listener = stack.enter_context(progress_bar()) if drawn else PlainLines(sys.stderr, quiet=quiet)
        listeners = (progress, print_json if json else print_summary)  # the bar is gone before the summary is printed

        def tell(event: Event) -> None:
            for listener in listeners:
                listener(event)

        yield tell


def say(line: str, stream: TextIO | None = None) -> None:
    """Print a line, at once. Where nobody reads any more, or a disk is full, films are not given up for it: it is said once on stderr."""
    stream = stream or sys.stdout
    try:
        print(line, file=stream, flush=True)
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # what is still in the buffer goes there, too
        os.close(null)
        if stream is sys.stdout:
            say(f"vidrestore: nothing more is said on stdout, which can't be written ({error.strerror}); the work goes on", sys.stderr)


def print_json(event: Event) -> None:
    """One event, one line of JSON, at once: a reader at the other end of a pipe follows the job."""
    line = event.to_json()
    try:
        line.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        line = jsonlib.dumps(jsonlib.loads(line))  # in ASCII
    say(line)


def print_summary(event: Event) -> None:
    """What a finished input has become; on stderr where stdout carries the video."""
    if isinstance(event, Finished):
        if event.before:
            say(f"{event.source} -> {event.output}: skipped, finished before")
            return
        piped = event.output == "-"
        made = event.frames - event.reused
        speed = f", {made / event.seconds:.1f} fps" if event.seconds > 0 and made else ""
        earlier = f" ({event.reused} of them earlier)" if event.reused else ""
        line = f"{event.source} -> {'stdout' if piped else event.output}: {_frames(event.frames)}{earlier} in {_span(event.seconds)}{speed}"
        line += _noise(event.details)
        say(line, sys.stderr if piped else None)


def describe(event: Event) -> str | None:
    """One line about an event that is worth a line of its own; None for the others."""
    match event:
        case Started():
            model = f" with {event.model}" if event.model else ""
            device = f" on {event.device}" if event.device else ""
            return f"{event.source}: {event.task or 'restore'}{model}{device}"
        case Planned():
            parts = [(event.frames, "frame"), (event.scenes, "scene"), (event.clips, "clip")]
            known = ", ".join(_count(number, word) for number, word in parts if number is not None)
            return f"{event.source}: {known}" + (f"; going on, {event.reused} of them were restored earlier" if event.reused else "")
        case Progressed():
            return f"{event.source}: {event.stage} {_position(event)}{_speed(event)}"
        case Warned():
            where = f", frame {event.frame}" if event.frame is not None else ""
            return f"{event.source}{where}: warning: {event.message}"
        case Finished(damage=str(damage)):
            return f"{event.source}: warning: {damage}"
        case Failed():
            return f"vidrestore: {event.message}"
    return None


class PlainLines:
    """A listener that writes lines to `stream`: progress at most once in `PLAIN_INTERVAL` seconds. `quiet` leaves warnings and errors."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.stream = stream
        self.quiet = quiet
        self._stage: tuple[str, str] | None = None
        self._next = 0.0

    def __call__(self, event: Event) -> None:
        loud = isinstance(event, (Warned, Finished, Failed))
        if (loud or not self.quiet) and (not isinstance(event, Progressed) or self._is_due(event)) and (line := describe(event)):
            say(line, self.stream)

    def _is_due(self, event: Progressed) -> bool:
        now = time.monotonic()
        if (event.source, event.stage) != self._stage:  # the first lines of a stage say nothing yet
            self._stage, self._next = (event.source, event.stage), now + PLAIN_INTERVAL
        if now < self._next and event.done != event.total:
            return False
        self._next = now + PLAIN_INTERVAL
        return True


@contextmanager
def progress_bar() -> Iterator[Listener]:
    """A listener that draws one bar per stage of a source on the terminal behind stderr; stdout stays as it is."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[text]}", markup=False))
    progress = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
    try:
        yield BarListener(progress)
    finally:
        progress.stop()


class BarListener:
    """Draws events on a rich progress display, which stands while there is progress to show; lines appear above the bar."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._bar: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progressed):
            self._draw(event)
            return
        if isinstance(event, (Finished, Failed)):
            self._remove_bar()
        if line := describe(event):
            self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _draw(self, event: Progressed) -> None:
        if self._bar is None:
            self._bar = self.progress.add_task(event.stage, total=None, text="")
            self.progress.start()
        text = _position(event) + _speed(event)
        self.progress.update(self._bar, description=event.stage, completed=event.done, total=event.total, text=text)

    def _remove_bar(self) -> None:
        if self._bar is not None:
            self.progress.stop()
            self.progress.remove_task(self._bar)
            self._bar = None


def _noise(details: Mapping[str, Any]) -> str:
    """What was measured in the longest scene."""
    scenes = [scene for scene in details.get("scenes", ()) if "noise" in scene]
    longest = max(scenes, key=lambda scene: scene["stop"] - scene["first"], default=None)
    return f"; noise: {longest['noise']}" if longest else ""


def _position(event: Progressed) -> str:
    return f"{event.done}/{_frames(event.total)}" if event.total is not None else _frames(event.done)


def _speed(event: Progressed) -> str:
    fps = f", {event.fps:.1f} fps" if event.fps else ""
    eta = f", {_span(event.eta)} left" if event.eta is not None else ""
    memory = f", {event.memory / 1e9:.2f} GB" if event.memory else ""
    return fps + eta + memory


def _frames(count: int) -> str:
    return _count(count, "frame")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _span(seconds: float) -> str:
    """A length of time, as precise as a reader needs it: 4.2 s, 3:07, 1:02:30."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
