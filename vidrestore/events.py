"""The events of a running job, also as newline-delimited JSON.

A job calls `on_event(event)` (a `Listener`) from one thread, in order. The command line shows events as a
progress bar on stderr; with `--json` it prints each as one line of JSON on stdout. The fields of a line
are in events.schema.json, a JSON Schema: version 1, a new number when a field changes its meaning or goes
away. New fields and events may come without one: ignore them.

The events of a source that is restored, or was by an earlier run, begin with "start" and end with "done". The
last event of a source that fails is "error"; it has no "start" if the error was found before work began: a
missing file, an output that exists. Of several sources, one whose output exists is left alone: its only event
is a "warning". With --dry-run there is only "plan" or "error", or the events of a finished source. The last
event of a shard that leaves parts to others is a "warning" that names them. If the inputs are wrong as a
whole, such as a folder without videos, there is a single "error"; a command line that can't be parsed prints
no event. Times are in seconds, sizes in bytes, fractions are strings such as "24000/1001"; a number that is
not finite is `null`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, ClassVar

SCHEMA_VERSION = 1
# stages before "start", which the progress bar shows and JSON omits
BEFORE_START = ("read", "load")
DAMAGED_SOURCE = 4  # exit code of a job that is done, but whose source was damaged


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    name: ClassVar[str]
    derived: ClassVar[tuple[str, ...]] = ()  # properties that are fields of the schema
    inner: ClassVar[tuple[str, ...]] = ()  # fields that are in `details` of the schema
    source: str  # the input's name on the command line or in the call
    # its number, from 1, of several inputs
    index: int | None = field(default=None, kw_only=True)
    count: int | None = field(default=None, kw_only=True)
    time: str = field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"),
        kw_only=True,
        compare=False,
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain JSON values, as events.schema.json describes them."""
        names = [
            entry.name for entry in fields(self) if entry.name not in self.inner
        ] + [*self.derived]
        values = {name: plain(getattr(self, name)) for name in names}
        return {"version": SCHEMA_VERSION, "event": self.name} | values

    def to_json(self) -> str:
        """Return the event as one line of JSON, without the newline."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


Listener = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Do nothing: the listener of a call that has none."""


@dataclass(frozen=True)
class Started(Event):
    """Work on `source` has begun."""

    name: ClassVar[str] = "start"
    output: str | None = None
    task: str | None = None
    model: str | None = None
    device: str | None = None


@dataclass(frozen=True)
class Planned(Event):
    """The plan is known."""

    name: ClassVar[str] = "plan"
    frames: int | None = None  # as the file states them while it is still planned
    scenes: int | None = None
    clips: int | None = None
    reused: int | None = None  # frames that an earlier run restored
    # the plan as JSON-able values
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progressed(Event):
    """Frames have passed a stage."""

    name: ClassVar[str] = "progress"
    derived: ClassVar[tuple[str, ...]] = ("fps", "eta")
    done: int  # frames that have passed
    total: int | None = None
    seconds: float = 0.0  # since the stage began
    stage: str = "restore"
    memory: int | None = None  # peak of resident bytes
    # False until enough frames are done to estimate the remaining time
    settled: bool = True
    worked: float | None = None  # frames done, with parts of those in progress

    @property
    def fps(self) -> float | None:
        """Frames per second so far; None before any work on one."""
        count = max(self.done, self.worked or 0.0)
        return count / self.seconds if count and self.seconds > 0 else None

    @property
    def eta(self) -> float | None:
        """Seconds left at this speed; None if the total or the speed is unknown."""
        if not (self.fps and self.settled and self.total is not None):
            return None
        return max(self.total - max(self.done, self.worked or 0.0), 0) / self.fps


@dataclass(frozen=True)
class Warned(Event):
    """A warning that doesn't stop the job."""

    name: ClassVar[str] = "warning"
    message: str
    frame: int | None = None  # index, from 0


@dataclass(frozen=True)
class Summary(Event):
    """The result of a restoration: the output is complete, checked and under its final name."""

    name: ClassVar[str] = "done"
    derived: ClassVar[tuple[str, ...]] = ("details", "exit_code")
    inner: ClassVar[tuple[str, ...]] = (
        "scenes",
        "retried",
        "reused",
        "before",
        "changes",
        "dropouts",
    )
    output: str
    frames: int
    seconds: float  # of the work itself, without loading the model
    damage: str | None = None  # of the source, in one sentence
    # of `pipeline.plan.Scene`: first and stop frame, sigma by plane, noise
    scenes: tuple[Any, ...] = ()
    retried: int = 0  # clips that half precision could not hold
    reused: int = 0  # frames of an earlier run or of other processes
    before: bool = False  # an earlier run finished the video
    # `pipeline.conversions.Changes` by task on pictures
    changes: tuple[tuple[str, Any], ...] = ()
    # of a tape, that were filled, and frames that had some
    dropouts: tuple[int, int] = (0, 0)

    @property
    def fps(self) -> float:
        return (self.frames - self.reused) / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        return DAMAGED_SOURCE if self.damage else 0

    @property
    def details(self) -> dict[str, Any]:
        """The metrics of the job as values of the schema."""
        details = {
            name: getattr(self, name) for name in ("fps", "retried", "reused", "before")
        }
        details["scenes"] = []
        for scene in self.scenes:
            entry: dict[str, Any] = {
                "first": scene.first,
                "stop": scene.stop,
                "sigma": scene.sigma,
            }
            entry |= {"noise": scene.noise} if scene.rms else {}
            details["scenes"].append(entry)
        changes = [{"task": task, **changes.details} for task, changes in self.changes]
        details |= {"changes": changes} if changes else {}
        count, frames = self.dropouts
        return details | (
            {"dropouts": {"count": count, "frames": frames}} if count else {}
        )


@dataclass(frozen=True)
class Failed(Event):
    """The job has failed: no output has the final name."""

    name: ClassVar[str] = "error"
    message: str
    kind: str = "VidRestoreError"
    exit_code: int = 1


def plain(value: Any) -> Any:
    """Convert `value` to JSON values: mappings, lists, strings, finite numbers; anything else by `str`
    (paths, fractions).
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return (
        [plain(entry) for entry in value] if isinstance(value, Iterable) else str(value)
    )
