"""Several tasks one after the other: a video decoded once and encoded once.

Each step plans and restores the frames of the one before, in threads of its own; between them frames have the
samples of the source's format. It has no segments: a run that ends early starts over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from vidrestore.errors import OptionError
from vidrestore.events import Listener, Planned, Progressed, Started, Warned
from vidrestore.frames import Frame, Scale, enlarged_size
from vidrestore.jobs.encoder_choice import choose_encoder
from vidrestore.jobs.finished import announced, mark_file, nothing_to_do
from vidrestore.jobs.frame_progress import counted
from vidrestore.jobs.job import (
    Job,
    Summary,
    available_cores,
    damage_summary,
    ignore,
    interlaced_warned,
)
from vidrestore.jobs.naming import output_for, suffix_of
from vidrestore.jobs.opening import open_job
from vidrestore.jobs.request import Request
from vidrestore.jobs.work_folder import digest
from vidrestore.media.probe import VideoInfo
from vidrestore.media.source import Source
from vidrestore.media.writer import VideoWriter
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.chain import frames_ahead
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.excerpt import expected_frames
from vidrestore.pipeline.pipelines import clip_restorer, known_sigma, output_scale
from vidrestore.pipeline.plan import Timeline, planned_clips
from vidrestore.restorers.base import SCALES, Restorer, load_restorer
from vidrestore.restorers.devices import device_name


@dataclass(frozen=True)
class Step:
    """One task with its options; those that concern files are the first step's."""

    task: str
    options: RestoreOptions


@dataclass(frozen=True)
class StepsRequest(Request):
    """Restore by `steps`; task and options are those of the first."""

    steps: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        """A short name for all steps, the same for any source."""
        names = [Request(self.source, self.output, step.task, step.options).name for step in self.steps]
        return digest({"steps": names})


class Chain:
    """Loaded steps for one video; `scale` is that of the output."""

    def __init__(self, steps: Sequence[Step], restorers: Sequence[Restorer], video: VideoInfo) -> None:
        self.stages: list[tuple[Step, Restorer, VideoInfo, ClipRestorer]] = []
        for step, restorer in zip(steps, restorers, strict=True):
            threads = step.options.threads or available_cores()
            stage = clip_restorer(restorer, video, step.options, threads)
            self.stages.append((step, restorer, video, stage))
            scale = output_scale(restorer.facts.scale, step.options, video.height)
            height, width = enlarged_size(video.height, video.width, scale)
            video = replace(video, width=width, height=height)

    @property
    def retried(self) -> int:
        return sum(stage.retried for _, _, _, stage in self.stages)

    def frames(self, frames: Iterator[Frame], timeline: Timeline, open_: ExitStack) -> Iterator[Frame]:
        """Yield the frames of the last step; what the first one plans is written into `timeline`."""
        for at, (step, restorer, video, stage) in enumerate(self.stages):
            if at:
                length = restorer.clip_length(video.height, video.width)
                timeline = Timeline(length, restorer.facts.overlap)
            sigma = known_sigma(restorer, step.options)
            detect = step.options.scene_detect
            clips = planned_clips(frames, timeline, video.format, sigma, detect=detect)
            frames = open_.enter_context(frames_ahead(stage.frames(clips)))
        return frames


def restore_steps(
    source: str, output: str | None, steps: Sequence[Step], on_event: Listener = ignore
) -> Summary:
    """Restore `source` into `output` (by default beside it) by all steps in their order. Raises
    VidRestoreError.
    """
    check_steps(steps)
    suffix = ".".join(suffix_of(step.task, step.options) for step in steps)
    target = output_for(Source(source), output, suffix)
    target.make_folder()
    request = StepsRequest(Source(source), target, steps[0].task, steps[0].options, tuple(steps))
    if before := nothing_to_do(request, on_event):
        return before

    def load() -> Restorer:
        on_event(Progressed(source, 0, stage="load"))
        return load_restorer(steps[0].task, steps[0].options)

    with open_job(request, load) as job, _said_if_stopped(source, on_event):
        summary = _run(job, steps, on_event)
        if not request.is_piped:
            mark_file(job, summary.damage)
        return announced(summary, on_event)


@contextmanager
def _said_if_stopped(source: str, on_event: Listener) -> Iterator[None]:
    try:
        yield
    except BaseException:
        on_event(Warned(source, "stopped; nothing is kept, and the same command starts over"))
        raise


def check_steps(steps: Sequence[Step]) -> None:
    """Refuse steps that make no sense together. Raises OptionError."""
    if not steps:
        raise OptionError("no step was given; expected tasks such as denoise,deblur,sr")
    if sum(step.task in SCALES for step in steps) > 1:
        raise OptionError("sr can be one of the steps once: its output is four times larger at most")


def total_scale(steps: Sequence[Step], video: VideoInfo) -> Scale:
    """Return how many times larger the last step's frames are than the source's."""
    enlarging = next((step for step in steps if step.task in SCALES), None)
    return 1 if enlarging is None else output_scale(SCALES[enlarging.task], enlarging.options, video.height)


def _run(job: Job, steps: Sequence[Step], on_event: Listener) -> Summary:
    scale, info, options = total_scale(steps, job.info.video), job.info, job.options
    encoder = choose_encoder(info, job.request.output, options.encoder, scale=scale)
    restorers = [job.restorer, *(load_restorer(step.task, step.options) for step in steps[1:])]
    chain, total = Chain(steps, restorers, info.video), expected_frames(info, job.plan.span)
    names = [restorer.facts.name for restorer in restorers]
    tasks, device = ", ".join(step.task for step in steps), device_name(job.restorer.facts.device)
    on_event(Started(info.path, job.plan.output, tasks, ", ".join(names), device))
    job.warn(job.warnings, on_event)
    job.warn([doubt for restorer in restorers[1:] for doubt in restorer.facts.doubts], on_event)
    details = {"encoder": encoder.encoder, "pix_fmt": encoder.pix_fmt, "steps": names}
    on_event(Planned(info.path, total, details=details))
    began = time.monotonic()
    writer = VideoWriter(
        job.request.output,
        source=info,
        encoder=encoder,
        copy=job.plan.copy,
        overwrite=options.overwrite,
        scale=scale,
        rate=options.cfr,
        span=job.plan.span,
        drop=options.drop,
    )
    with ExitStack() as open_, writer:
        decoded = open_.enter_context(frames_ahead(job.frames()))
        restored = chain.frames(interlaced_warned(decoded, info.path, on_event), job.plan.timeline, open_)
        for frame in counted(restored, info.path, total, "restore", on_event):
            writer.write(frame)
    job.warn(writer.warnings, on_event)
    seconds, damage = time.monotonic() - began, damage_summary(job.damage, writer.damage)
    scenes = tuple(job.plan.timeline.scenes)
    return Summary(info.path, job.plan.output, writer.frames, seconds, scenes, damage, chain.retried)
