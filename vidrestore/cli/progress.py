"""Show events: a progress bar on a terminal's stderr, plain lines elsewhere, JSON on stdout."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from vidrestore.cli.terminal import escaped, fitted, in_options, say, say_json
from vidrestore.events import (
    BEFORE_START,
    Event,
    Failed,
    Finished,
    Listener,
    Planned,
    Progressed,
    Started,
    Warned,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_INTERVAL = 10.0  # seconds between two lines about the same stage
STAGES = {
    "read": "reading",
    "load": "loading",
    "plan": "measuring",
    "restore": "restoring",
    "join": "joining",
}


@contextmanager
def listening(json: bool = False, quiet: bool = False) -> Iterator[Listener]:
    """Yield a listener for the inputs of one command.

    `json` prints every event on stdout, one per line; otherwise finished inputs are a sentence on stdout.
    Progress and warnings go to stderr. `quiet` leaves errors, and damage of a source, which changes the exit
    code.
    """
    with ExitStack() as stack:
        mixed = json and sys.stdout.isatty()  # a bar and JSON on one terminal would overwrite each other
        has_bar = (
            not quiet
            and not mixed
            and sys.stderr.isatty()
            and os.environ.get("TERM") not in ("dumb", "unknown")
        )
        progress: Listener = (
            stack.enter_context(progress_bar()) if has_bar else PlainLines(sys.stderr, quiet=quiet)
        )
        results = (print_json,) if json else () if quiet else (print_summary,)
        listeners = (progress, *results)  # the bar is removed before the summary is printed

        def emit(event: Event) -> None:
            for listener in listeners:
                listener(event)

        yield in_options(emit)


def print_json(event: Event) -> None:
    """Print an event as one line of JSON at once, so that the reader of a pipe can follow the job."""
    if isinstance(event, Progressed) and event.stage in BEFORE_START:
        return
    say_json(event.to_json())


def print_summary(event: Event) -> None:
    """Print a sentence about a finished input; on stderr if stdout carries the video."""
    if isinstance(event, Finished):
        piped = event.output == "-"
        made = "skipped, finished before" if event.before else _result(event)
        say(
            f"{_number(event)}{event.source} -> {'stdout' if piped else event.output}: {made}",
            sys.stderr if piped else None,
        )


def _result(event: Finished) -> str:
    """Return "60 frames in 6.0 s, 10.0 fps, noise 19.8"."""
    made = event.frames - event.reused
    earlier = f" ({event.reused} of them earlier)" if event.reused else ""
    speed = f", {made / event.seconds:.1f} fps" if event.seconds > 0 and made else ""
    return (
        f"{_frames(event.frames)}{earlier} in {length_of_time(event.seconds)}{speed}{_noise(event.details)}"
    )


def describe(event: Event) -> str | None:
    """Return one line about an event, None for events without one."""
    match event:
        case Started():
            if not event.model:  # nothing to do: it was finished before
                return None
            model = f" with {event.model}"
            device = f" on {event.device}" if event.device else ""
            return f"{_number(event)}{event.source}: {event.task or 'restore'}{model}{device}"
        case Planned():
            parts = [(event.frames, "frame"), (event.scenes, "scene"), (event.clips, "clip")]
            known = ", ".join(counted_words(number, word) for number, word in parts if number is not None)
            if str(encoder := event.details.get("encoder")).endswith("_nvenc"):
                known += f"; encoded by {encoder}"
            earlier = f"; going on, {event.reused} of them were restored earlier" if event.reused else ""
            reason = event.details.get("deinterlaced")
            return f"{event.source}: {known}{earlier}" + (f"; deinterlaced: {reason}" if reason else "")
        case Progressed():
            return f"{event.source}: {_stage(event)}{_position(event)}{_speed(event)}"
        case Warned():
            where = f", frame {event.frame}" if event.frame is not None else ""
            return f"{event.source}{where}: warning: {event.message}"
        case Finished(damage=str(damage)):
            return f"{event.source}: warning: {damage}"
        case Failed():
            return f"vidrestore: {event.message}"
    return None


class PlainLines:
    """A listener that writes lines to `stream`: progress at most once in `PLAIN_INTERVAL` seconds; with
    `quiet` only errors.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.stream = stream
        self.quiet = quiet
        self._stage: tuple[str, str] | None = None
        self._next = 0.0

    def __call__(self, event: Event) -> None:
        loud = isinstance(event, (Finished, Failed))
        if (
            (loud or not self.quiet)
            and (not isinstance(event, Progressed) or self._is_due(event))
            and (line := describe(event))
        ):
            say(line, self.stream)

    def _is_due(self, event: Progressed) -> bool:
        now = time.monotonic()
        if (event.source, event.stage) != self._stage:  # the first progress of a stage carries no information
            self._stage, self._next = (event.source, event.stage), now + PLAIN_INTERVAL
        if now < self._next and not (event.done == event.total and event.stage == "restore"):
            return False
        self._next = now + PLAIN_INTERVAL
        return True


@contextmanager
def progress_bar() -> Iterator[Listener]:
    """Yield a listener that draws one bar per stage of a source on stderr; stdout is not touched."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    progress = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    )
    try:
        yield BarListener(progress)
    finally:
        progress.stop()


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
        if isinstance(event, (Finished, Failed)):
            self._remove_bar()
        if line := describe(event):
            console = self.progress.console
            line = fitted(escaped(line), console.width)
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _draw(self, event: Progressed) -> None:
        stage, text = _number(event) + _stage(event), _position(event).strip() + _speed(event)
        if self._bar is None:
            self._bar = self.progress.add_task(stage, total=event.total, text=text)
            self.progress.start()
        self.progress.update(self._bar, description=stage, completed=event.done, total=event.total, text=text)

    def _remove_bar(self) -> None:
        if self._bar is not None:
            self.progress.stop()
            self.progress.remove_task(self._bar)
            self._bar = None


def _number(event: Event) -> str:
    """Return "[2/5] " if there are several inputs."""
    return f"[{event.index}/{event.count}] " if event.count is not None and event.count > 1 else ""


def _stage(event: Progressed) -> str:
    return STAGES.get(event.stage, event.stage)


def _noise(details: Mapping[str, Any]) -> str:
    """Describe the noise of the longest scene."""
    scenes = [scene for scene in details.get("scenes", ()) if "noise" in scene]
    longest = max(scenes, key=lambda scene: scene["stop"] - scene["first"], default=None)
    return f"; noise: {longest['noise']}" if longest else ""


def _position(event: Progressed) -> str:
    if event.total is not None:
        return f" {event.done}/{_frames(event.total)}"
    return f" {_frames(event.done)}" if event.done else ""


def _speed(event: Progressed) -> str:
    fps = f", {event.fps:.1f} fps" if event.fps and event.settled and event.stage != "join" else ""
    eta = f", {length_of_time(event.eta)} left" if event.eta else ""
    memory = f", {event.memory / 1e9:.2f} GB" if event.memory else ""
    return fps + eta + memory


def _frames(count: int) -> str:
    return counted_words(count, "frame")


def counted_words(number: int, word: str) -> str:
    """Return "1 frame" or "2 frames"."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def length_of_time(seconds: float) -> str:
    """Format a duration with suitable precision: 4.2 s, 3:07, 1:02:30."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
