"""A job that was checked and can begin: frames decoded, planned and restored at the same time, each in
threads of its own.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from vidrestore import __version__
from vidrestore.clips import needed_clips, owned_span
from vidrestore.events import DAMAGED_SOURCE, Listener, Started, Warned
from vidrestore.frames import Frame, Scale
from vidrestore.jobs.frame_progress import counted
from vidrestore.jobs.request import Request
from vidrestore.media.probe import SourceInfo
from vidrestore.media.reader import VideoReader
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.chain import frames_ahead
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.excerpt import expected_frames
from vidrestore.pipeline.pipelines import clip_restorer, known_sigma, output_scale
from vidrestore.pipeline.plan import (
    PLAN_VERSION,
    Plan,
    PlannedClip,
    Scene,
    planned_clips,
    planned_range,
)
from vidrestore.restorers.base import Restorer
from vidrestore.restorers.devices import device_name


def ignore(event: object) -> None:
    """Do nothing with an event."""


@dataclass(frozen=True)
class Summary:
    """The result of a restoration.

    `seconds` and `fps` measure the work itself, without loading the model. `damage` describes the damage of
    the source in one sentence, None if it was whole. `retried` counts the clips that half precision could not
    hold. `skipped`: the output existed. `reused` counts the frames of an earlier run or of other processes.
    `before`: the whole video was finished before.
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

    @property
    def fps(self) -> float:
        return (self.frames - self.reused) / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        return DAMAGED_SOURCE if self.damage else 0


@dataclass
class Job:
    """A restoration that was checked and can begin (`jobs.opening.open_job`).

    `plan` is filled while frames go by; `warnings` are for the user, before it begins.
    """

    request: Request
    reader: VideoReader
    restorer: Restorer
    plan: Plan
    warnings: tuple[str, ...] = ()

    @property
    def info(self) -> SourceInfo:
        return self.reader.info

    @property
    def options(self) -> RestoreOptions:
        return self.request.options

    @property
    def scale(self) -> Scale:
        """The size of the output over that of the source."""
        return output_scale(self.restorer.facts.scale, self.options, self.info.video.height)

    @property
    def sigma(self) -> float | None:
        """The noise that was given; None to measure it."""
        return known_sigma(self.restorer, self.options)

    def identity(self) -> dict[str, Any]:
        """Return all that alters pixels or bits, as JSON values.

        Weights are known by their hash, whatever `model` calls them. The length of segments is left out: a
        job that was begun keeps its own.
        """
        source = {key: value for key, value in asdict(self.plan.source).items() if key != "path"}
        options = {key: value for key, value in self.request.values().items() if key != "model"}
        return {
            "source": source,
            "task": self.plan.task,
            "weights": self.restorer.facts.weights or self.restorer.facts.name,
            **options,
            "encoder": asdict(self.plan.encoder),
            "copied_streams": list(self.plan.copy),
            "span": asdict(self.plan.span),
            "versions": {
                "vidrestore": __version__,
                "plan": PLAN_VERSION,
                **{name: _version(name) for name in ("av", "torch")},
            },
        }

    def begin(self, on_event: Listener) -> None:
        """Announce the job and its warnings."""
        on_event(
            Started(
                *self.request.names,
                self.plan.task,
                self.restorer.facts.name,
                device_name(self.restorer.facts.device),
            )
        )
        self.warn(self.warnings, on_event)

    def warn(self, warnings: Iterable[str], on_event: Listener) -> None:
        for warning in warnings:
            on_event(Warned(self.info.path, warning))

    def frames(self) -> Generator[Frame]:
        """Return the decoded frames that are to be restored."""
        return self.reader.frames(self.plan.span.start, self.plan.span.stop)

    def planned(self, frames: Iterable[Frame]) -> Iterator[PlannedClip]:
        """Yield the clips of decoded frames as they are planned."""
        return planned_clips(
            frames, self.plan.timeline, self.info.video.format, self.sigma, detect=self.options.scene_detect
        )

    def clip_restorer(self) -> ClipRestorer:
        threads = self.options.threads or available_cores()
        return clip_restorer(self.restorer, self.info.video, self.options, threads)

    @property
    def damage(self) -> str | None:
        """The damage of the frames that were decoded so far, in one sentence."""
        return self.reader.damage.summary() if self.reader.damage.found else None


def restored_frames(job: Job, frames: Iterator[Frame], clips: ClipRestorer) -> Generator[Frame]:
    """Yield the restored frames of decoded ones, which run in a thread of their own; planning and joining in
    another, the model in more.
    """
    with (
        frames_ahead(frames) as decoded,
        frames_ahead(clips.frames(job.planned(decoded))) as restored,
    ):
        yield from restored


def restore_clips(
    job: Job, clips: range, restorer: ClipRestorer | None = None, *, from_start: bool = False
) -> Generator[Frame]:
    """Yield the frames that a range of clips of the finished plan `job.plan` owns, the same as in the whole
    run.

    A clip owns the frames that no earlier clip has; the clip after the range is restored too if it shares
    frames with the last. `from_start` decodes all that comes before, too, instead of jumping there.
    """
    bounds = job.plan.timeline.bounds
    span = owned_span(bounds, clips.start)[0], owned_span(bounds, clips.stop - 1)[1]
    needed = needed_clips(bounds, clips)
    first = bounds[needed.start][0]
    source = (
        _without_first(job.frames(), first) if from_start else job.reader.frames(job.plan.timeline.pts[first])
    )
    with frames_ahead(source) as decoded:
        planned = planned_range(decoded, job.plan, needed)
        with frames_ahead((restorer or job.clip_restorer()).frames(planned, span)) as restored:
            yield from restored


def _without_first(frames: Generator[Frame], count: int) -> Generator[Frame]:
    with closing(frames):
        yield from islice(frames, count, None)


def plan_source(job: Job, on_event: Listener = ignore) -> Plan:
    """Decode what is to be restored once, restore nothing, and return the finished plan."""
    total = expected_frames(job.info, job.plan.span)
    with frames_ahead(job.frames()) as decoded:
        for _ in job.planned(
            interlaced_warned(
                counted(decoded, job.info.path, total, "plan", on_event), job.info.path, on_event
            )
        ):
            pass
    return job.plan


def damage_summary(found: str | None, copied: str | None = None) -> str | None:
    """Return in one sentence what was wrong with a source: `found` in its video, `copied` in its other
    streams.
    """
    if copied and not found:
        return f"the source is damaged: {copied}"
    return "; ".join(part for part in (found, copied) if part) or None


def interlaced_warned(frames: Iterable[Frame], source: str, on_event: Listener) -> Iterator[Frame]:
    """Yield the same frames, with a warning at the first that is interlaced: those that were looked at before
    were not.

    Hours of work are not thrown away for it: videos that are progressive but for some marked scenes are
    common, and most of those are marked wrongly.
    """
    warned = False
    for index, frame in enumerate(frames):
        if frame.interlaced and not warned:
            warned = True
            on_event(
                Warned(
                    source,
                    "the video turns interlaced here; moving parts blur its fields: see `deinterlace`",
                    index,
                )
            )
        yield frame


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # a build that was not installed as a package
        return None
