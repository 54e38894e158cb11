"""The result of a restoration, and the events that end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from vidrestore.event_log import REMOVED
from vidrestore.events import DAMAGED_SOURCE, Finished, Listener, Warned

if TYPE_CHECKING:
    from vidrestore.jobs.request import Request
    from vidrestore.pipeline.conversions import Changes
    from vidrestore.pipeline.plan import Scene


@dataclass(frozen=True)
class Summary:
    """The result of a restoration.

    `seconds` and `fps` measure the work itself, without loading the model. `damage` describes the damage of
    the source in one sentence, None if it was whole. `retried` counts the clips that half precision could not
    hold. `skipped`: the output existed. `reused` counts the frames of an earlier run or of other processes.
    `before`: the whole video was finished before. `changes`: what the tasks on pictures changed in the frames
    that this process restored.
    """

    source: str
    output: str
    frames: int
    seconds: float
    scenes: tuple[Scene, ...] = ()
    damage: str | None = None
    retried: int = 0
    skipped: bool = False
    reused: int = 0
    before: bool = False
    changes: tuple[tuple[str, Changes], ...] = ()

    @classmethod
    def of_marker(cls, request: Request, marker: Mapping[str, Any], *, own: int = 0) -> Self:
        """Return the summary of an output that was finished before, with so many frames of this process."""
        reused = max(0, marker["frames"] - own)
        return cls(
            *request.names, marker["frames"], 0.0, damage=marker["damage"], reused=reused, before=not own
        )

    @property
    def fps(self) -> float:
        return (self.frames - self.reused) / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        return DAMAGED_SOURCE if self.damage else 0


def announced(summary: Summary, on_event: Listener) -> Summary:
    """Return the summary, after its events."""
    if summary.retried:
        on_event(
            Warned(
                summary.source,
                f"{summary.retried} clips went beyond half precision and were restored again in fp32",
            )
        )
    for task, changes in summary.changes:
        if changes.unchanged:
            found = f"no {REMOVED[task]} was found in {changes.unchanged} of {changes.frames} frames"
            on_event(Warned(summary.source, f"{found}, which stay as they are"))
    measured = [scene for scene in summary.scenes if scene.rms]
    if measured and not any(level for scene in measured for level in scene.sigma):
        on_event(
            Warned(
                summary.source, "no noise was found, so nothing was removed; set its strength with `sigma`"
            )
        )
    elif measured and summary.frames == 1:
        on_event(
            Warned(
                summary.source,
                "its noise was measured on one frame, where fine texture looks the same; if texture is gone, "
                "set a lower `sigma`, if coarse noise is left, a higher one",
            )
        )
    scenes = [
        {"first": scene.first, "stop": scene.stop, "sigma": scene.sigma}
        | ({"noise": scene.noise} if scene.rms else {})
        for scene in summary.scenes
    ]
    details = {"fps": summary.fps, "scenes": scenes, "reused": summary.reused, "before": summary.before}
    if summary.changes:
        details["changes"] = [
            {"task": task, "frames": each.frames, "unchanged": each.unchanged, "mean": round(each.mean, 3)}
            for task, each in summary.changes
        ]
    on_event(
        Finished(summary.source, summary.output, summary.frames, summary.seconds, summary.damage, details)
    )
    return summary
