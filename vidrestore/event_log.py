"""Events in words, and in Python's log: the logger `vidrestore`.

Warnings and errors are logged at their own levels, beginnings, plans and results as INFO, and as DEBUG the
details of each plan and how long each stage took. Without a handler nothing is printed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vidrestore.events import (
    Event,
    Failed,
    Listener,
    Planned,
    Progressed,
    Started,
    Summary,
    Warned,
    plain,
)
from vidrestore.settings.tasks import TASKS

LOGGER = logging.getLogger("vidrestore")
LOGGER.addHandler(logging.NullHandler())
STAGES = {
    "read": "reading",
    "load": "loading",
    "plan": "measuring",
    "look": "looking for weather",
    "sheet": "restoring variants",
    "bench": "measuring the machine",
    "restore": "restoring",
    "join": "joining",
}
PHOTOS = (
    ".jpg",
    ".jpeg",
    ".png",
    ".tif",
    ".tiff",
    ".webp",
    ".bmp",
    ".heic",
    ".heif",
    ".avif",
)
# mean changes in grey levels: below, hardly visible; above, strong
LITTLE, MUCH = 0.5, 12.0
# the wait before a stage's first frame
WAITING = {
    "read": "the file",
    "load": "PyTorch and weights",
    "plan": "frames",
    "restore": "the first clip",
}


class Logged:
    """A listener that logs events and passes them on; `on_detail` gets the lines that are logged as DEBUG."""

    def __init__(
        self, on_event: Listener, on_detail: Callable[[str], None] = lambda line: None
    ) -> None:
        self._on_event, self._on_detail = on_event, on_detail
        self._last: Progressed | None = None  # the last event of the present stage
        self._began = 0.0  # when that stage began, by the monotonic clock

    def __call__(self, event: Event) -> None:
        self._log_stage(event)
        try:
            self._on_event(event)
        # StopIteration would silently end a generator that sends an event
        except StopIteration as error:
            raise RuntimeError("the listener on_event raised StopIteration") from error
        for level, line in _records(event):
            self._log(level, line)

    def _log_stage(self, event: Event) -> None:
        """Log how long a stage took that ends with this event."""
        now, last = time.monotonic(), self._last
        if last and (
            isinstance(event, Summary | Failed)
            or (
                isinstance(event, Progressed)
                and (event.stage, event.source) != (last.stage, last.source)
            )
        ):
            count = f", {counted_words(last.done, 'frame')}" if last.done else ""
            duration = length_of_time(now - self._began)
            self._log(
                logging.DEBUG, f"{last.source}: {stage_of(last)} took {duration}{count}"
            )
            self._last = None
        if isinstance(event, Progressed):
            self._began = self._began if self._last else now
            self._last = event

    def _log(self, level: int, line: str) -> None:
        LOGGER.log(level, line)
        if level == logging.DEBUG:
            self._on_detail(line)


def _records(event: Event) -> Iterator[tuple[int, str]]:
    """Yield the level and text of each log record of an event; progress has none."""
    if isinstance(event, Summary):
        yield logging.INFO, f"{event.source} -> {event.output}: {result_of(event)}"
        if event.damage:
            yield logging.WARNING, f"{event.source}: {event.damage}"
    elif isinstance(event, Warned | Failed):
        level = logging.WARNING if isinstance(event, Warned) else logging.ERROR
        yield (
            level,
            (describe(event) or "")
            .replace("warning: ", "")
            .removeprefix("vidrestore: "),
        )
    elif not isinstance(event, Progressed) and (line := describe(event)):
        yield logging.INFO, line
    if isinstance(event, Planned):
        for name, value in event.details.items():
            if value and name not in ("decisions", "plan"):
                yield (
                    logging.DEBUG,
                    f"{event.source}: {name.replace('_', ' ')}: {_in_words(value)}",
                )


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_in_words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_in_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(plain(value))


def describe(event: Event) -> str | None:
    """Return one line about an event, None for events without one."""
    match event:
        case Started():
            if not event.model:  # nothing to do: it was finished before
                return None
            model = f" with {event.model}"
            device = f" on {event.device}" if event.device else ""
            return f"{numbered(event)}{event.source}: {event.task or 'restore'}{model}{device}"
        case Planned():
            parts = [
                (event.frames, "frame"),
                (event.scenes, "scene"),
                (event.clips, "clip"),
            ]
            counts = [
                counted_words(number, word)
                for number, word in parts
                if number is not None
            ]
            earlier = (
                [f"going on, {event.reused} of them were restored earlier"]
                if event.reused
                else []
            )
            decided = [", ".join(event.details.get("decisions", {}).values())]
            return f"{event.source}: " + "; ".join(
                filter(None, [", ".join(counts), *earlier, *decided])
            )
        case Progressed():
            return f"{event.source}: {stage_of(event)} {progress_of(event)}".rstrip()
        case Warned():
            place = f", frame {event.frame}" if event.frame is not None else ""
            return f"{event.source}{place}: warning: {event.message}"
        case Summary(damage=str(damage)):
            return f"{event.source}: warning: {damage}"
        case Failed():
            return f"vidrestore: {event.message}"
    return None


def result_of(event: Summary) -> str:
    """Return "60 frames in 6.0 s, 10.0 fps; noise: luma 19.8"."""
    if event.before:
        return "skipped, finished before"
    count = event.frames - event.reused
    earlier = f" ({event.reused} of them by other runs)" if event.reused else ""
    speed = (
        f", {count / event.seconds:.1f} fps"
        if event.seconds > 0 and count and event.frames > 1
        else ""
    )
    unit = "photo" if is_of_photo(event) and event.frames == 1 else "frame"
    frames, seconds = counted_words(event.frames, unit), length_of_time(event.seconds)
    findings = f"{_noise(event.scenes)}{filled_dropouts(*event.dropouts)}{_changes(event.details)}"
    return f"{frames}{earlier} in {seconds}{speed}{findings}"


def filled_dropouts(count: int, frames: int) -> str:
    """Return "; 212 dropouts in 38 frames filled", nothing without any."""
    return (
        f"; {counted_words(count, 'dropout')} in {counted_words(frames, 'frame')} filled"
        if count
        else ""
    )


def _changes(details: Mapping[str, Any]) -> str:
    """Describe how much tasks on pictures changed: "; derain changed 0.3 levels: little rain found"."""
    words = ""
    for changes in details.get("changes", ()):
        task, mean = changes["task"], changes["mean"]
        note = ""
        if mean < LITTLE:
            advice = "" if changes.get("always") else TASKS[task].advice
            note = f": little {TASKS[task].removes} found" + (
                f"; {advice}" if advice else ""
            )
        elif mean > MUCH:
            note = ": if that is too much, set a strength below 1"
        if "undone" in changes:
            note = f": {_deblurred(changes)}"
        if "specks" in changes:
            note = (
                f": {changes['specks']:.3g} specks a frame"
                if changes["specks"]
                else ": no dust found"
            )
        words += f"; {task} changed {mean:.2g} level{'' if f'{mean:.2g}' == '1' else 's'}{note}"
    return words


def _deblurred(changes: Mapping[str, Any]) -> str:
    """Describe the blur of the frames: "shake of 12 px undone in 3 of 4 frames, 1 sharp already"."""
    frames, undone, hopeless = changes["frames"], changes["undone"], changes["hopeless"]
    sharp = max(0, changes["unchanged"] - hopeless)
    uneven = max(0, frames - undone - hopeless - sharp)
    parts = [
        (undone, f"shake of {changes['shake']:.0f} px undone"),
        (uneven, "too uneven to undo: slightly sharpened"),
        (hopeless, "blurred, but its shake can't be undone"),
        (sharp, "sharp already"),
    ]
    present = [(count, words) for count, words in parts if count]
    if len(present) == 1:
        return present[0][1]
    return ", ".join(
        f"{words} ({counted_words(count, 'frame')})" for count, words in present
    )


def _noise(scenes: Sequence[Any]) -> str:
    """Describe the noise of the longest scene."""
    scenes = [scene for scene in scenes if scene.rms]
    longest = max(scenes, key=lambda scene: scene.stop - scene.first, default=None)
    if not longest:
        return ""
    varies = len({scene.noise for scene in scenes}) > 1
    place = f" in the longest of {len(scenes)} scenes" if varies else ""
    return f"; noise{place}: {longest.noise}"


def is_of_photo(event: Event) -> bool:
    return event.source.lower().endswith(PHOTOS)


def numbered(event: Event) -> str:
    """Return "[2/5] " if there are several inputs."""
    return (
        f"[{event.index}/{event.count}] "
        if event.count is not None and event.count > 1
        else ""
    )


def stage_of(event: Progressed) -> str:
    return STAGES.get(event.stage, event.stage)


def progress_of(event: Progressed) -> str:
    """Return "20/60 frames, 10.0 fps, 4.0 s left, memory 1.50 GB", or what the first frame waits for."""
    memory = f"memory {event.memory / 1e9:.2f} GB" if event.memory else ""
    return ", ".join(filter(None, [position_of(event), memory]))


def position_of(event: Progressed) -> str:
    """Return "20/60 frames, 10.0 fps, 4.0 s left", or what the first frame waits for."""
    parts = []
    if event.total is not None:
        parts.append(f"{event.done}/{counted_words(event.total, 'frame')}")
    elif event.done:
        parts.append(counted_words(event.done, "frame"))
    if event.stage in WAITING and not (event.done or event.worked):
        parts.append(f"waiting for {WAITING[event.stage]}")
    if event.fps and event.settled and event.stage != "join":
        parts.append(
            f"{event.fps:.1f} fps"
            if event.fps >= 1
            else f"{1 / event.fps:.1f} s a frame"
        )
    if event.eta:
        parts.append(f"{length_of_time(event.eta)} left")
    return ", ".join(parts)


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
