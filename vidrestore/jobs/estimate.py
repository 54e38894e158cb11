"""Plan a restoration and estimate its cost, without doing it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from vidrestore.errors import MediaError, OptionError, OutputExistsError
from vidrestore.events import DAMAGED_SOURCE, Listener, Planned, Summary, Warned
from vidrestore.jobs.job import Job, plan_source, versions
from vidrestore.jobs.request import Request, StepLoader
from vidrestore.jobs.run import check
from vidrestore.jobs.segmented import LENGTH, segments_of
from vidrestore.media.formats.encoding import Encoder
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.plan import Plan, Timeline, planned_clips
from vidrestore.pixels.frames import Frame, PixelFormat

# Frames of a clip on trial for restorers of RGB pictures, whose time per frame is the same in shorter clips
# [measured: sr 0.46 s in clips of 6, 0.44 of 24]. Those of planes find patches once for a clip: denoise takes
# 0.48 s a frame in clips of 6, 0.28 of 20, so their clips are not shortened.
FEW = 6
# seconds of restoring that are measured well; faster machines restore more frames
ENOUGH = 1.0
MOST_BYTES = 256 << 20  # of restored frames in memory
# side in pixels of the middle of a large picture, of which planes are restored
PLANES_PART = 512
WIDE_PART = 1024  # side of its result for restorers of RGB pictures, which see farther


class Trial(NamedTuple):
    """The first frames, restored on trial."""

    frames: list[Frame]
    costs: tuple[float, ...]  # seconds of each step for a frame of its clips
    share: float = 1.0  # of a frame's pixels that were restored

    @property
    def rate(self) -> float:
        """Frames per second."""
        return 1 / sum(self.costs)


class Encoding(NamedTuple):
    """The speed of an encoder, and the sizes of its frames."""

    rate: float  # frames per second
    key: float  # mean bytes of key frames
    other: float  # mean bytes of all other frames


@dataclass(frozen=True)
class Estimate:
    """The plan of a restoration and its cost, extrapolated from the first frames."""

    plan: Plan
    seconds: float  # of work
    size: int  # of the video stream in bytes
    damage: str | None  # of the source, in words
    # that are made automatically, in words
    decisions: Mapping[str, str] = field(default_factory=dict)
    restoring: float = 0.0  # frames per second
    encoding: float = 0.0  # frames per second
    cores: int = 0  # that the work is dealt to; 0 beside a GPU

    @property
    def exit_code(self) -> int:
        return DAMAGED_SOURCE if self.damage else 0

    @property
    def frames(self) -> int:
        return len(self.plan.timeline.pts)


def estimate(
    request: Request, load: StepLoader, on_event: Listener
) -> Estimate | Summary:
    """Check and plan the video, and restore and encode its first frames on trial; write nothing.

    Return the summary instead if nothing is left to do. If the output exists, that is a warning. Raises
    VidRestoreError as `vidrestore.restore` does.
    """
    if request.is_piped:
        raise OptionError(
            "`dry_run` needs a file to read and a file to write, not a pipe"
        )
    try:
        return _estimate(request, load, on_event)
    except OutputExistsError as error:
        on_event(Warned(request.source.name, str(error)))
    return _estimate(request.with_options(overwrite=True), load, on_event)


def _estimate(
    request: Request, load: StepLoader, on_event: Listener
) -> Estimate | Summary:
    """Plan a source whole, try its first frames, and announce what all would take."""
    with check(request, load, on_event, locks=False) as job:
        if isinstance(job, Summary):
            return job
        began = time.monotonic()
        plan, damage = plan_source(job), job.damage
        planning = time.monotonic() - began
        # the first frames stand for all
        trial = try_restoring(job)
        encoding = try_encoding(job, trial)
        seconds = _seconds(job, planning, trial, encoding)
        timeline = plan.timeline
        # a key frame for each segment and each scene
        keys = len(
            {
                0,
                *timeline.cuts,
                *(segment.first for segment in segments_of(timeline, LENGTH)),
            }
        )
        size = round(keys * encoding.key + (len(timeline.pts) - keys) * encoding.other)
        cores = 0 if job.steps.on_gpu else job.steps.first.threads
        estimate = Estimate(
            plan,
            seconds,
            size,
            damage,
            job.decisions(),
            trial.rate,
            encoding.rate,
            cores,
        )
        weights = job.weights()
    # what a program that reads the events needs to decide
    details = {
        "plan": plan.to_dict(),
        "seconds": seconds,
        "size": size,
        "damage": damage,
    }
    details |= {
        "restored_per_second": estimate.restoring,
        "encoded_per_second": estimate.encoding,
    }
    details |= {
        "cores": cores,
        "decisions": estimate.decisions,
        "weights": weights,
        "versions": versions(),
    }
    scenes, clips = len(timeline.scenes), len(timeline.clips)
    on_event(
        Planned(str(request.source), estimate.frames, scenes, clips, details=details)
    )
    return estimate


def _seconds(job: Job, planning: float, trial: Trial, encoding: Encoding) -> float:
    """Return the seconds for all of the video: on a CPU all work shares the cores, beside a GPU the slowest
    part counts.
    """
    plans = [job.plan, *(stage.plan_after(job.plan) for stage in job.steps.later)]
    steps = zip(trial.costs, job.steps.stages, plans, strict=True)
    restoring = sum(cost * stage.work(plan.timeline) for cost, stage, plan in steps)
    parts = planning, restoring, len(job.plan.timeline.pts) / encoding.rate
    return max(parts) if job.steps.on_gpu else sum(parts)


def try_restoring(job: Job) -> Trial:
    """Restore the first frames step by step: as many clips as are restored at once, or four times as many
    while that takes less than `ENOUGH`. Raises MediaError if there is no frame.
    """
    # a GPU compiles its kernels in the first run, whose time doesn't count
    is_slow_at_first = job.steps.on_gpu
    clips = 1
    while True:
        trial, is_whole = _restored(job, clips)
        seconds = len(trial.frames) / trial.rate
        memory = sum(frame.nbytes for frame in trial.frames)
        is_enough = is_whole or seconds >= ENOUGH or 4 * memory > MOST_BYTES
        if is_enough and not is_slow_at_first:
            return trial
        clips, is_slow_at_first = clips if is_enough else 4 * clips, False


def _restored(job: Job, clips: int) -> tuple[Trial, bool]:
    """Restore `clips` times as many clips as are restored at once; return True if there are no more."""
    # as many frames as a run would hold at once
    with closing(job.decoded()) as decoded:
        frames = list(islice(decoded, 1))
        if not frames:
            raise MediaError(f"{job.info.path}: no frame could be decoded")
        count = clips * _frames_at_once(job.steps.first)
        frames += islice(decoded, count - 1)
    is_whole = len(frames) < count
    costs = list[float]()
    share = 1.0
    # a single picture may be large: its middle is enough
    if len(frames) == 1 and is_whole:
        restorers = [stage.restorer for stage in job.steps.stages]
        side = WIDE_PART // max(restorer.facts.scale for restorer in restorers)
        if all(restorer.input_kind == "planes" for restorer in restorers):
            side = PLANES_PART
        part = _middle(frames[0], job.info.video.format, side)
        share = part.planes[0].size / frames[0].planes[0].size
        frames = [part]
    for stage in job.steps.stages:
        clip_frames = frames[: clips * _frames_at_once(stage)]
        seconds = list[float]()
        # one with counts and results of its own
        restorer = ClipRestorer(stage.task, stage.restorer, stage.video, stage.options)
        for _ in range(2 if share < 1 and stage.restorer.input_kind == "rgb" else 1):
            began = time.monotonic()
            timeline = Timeline(_clip_length(stage), overlap=0)
            planned = planned_clips(
                clip_frames, timeline, stage.video.format, stage.sigma, detect=False
            )
            if share < 1 and not costs:  # the noise is that of the whole picture
                planned = iter([(job.plan.timeline.clips[0], clip_frames)])
            frames = list(restorer.frames(planned))
            seconds.append(time.monotonic() - began)
        # the second time without what is done once for a picture of any size, such as a search for its blur
        costs.append((seconds[0] + seconds[-1] * (1 / share - 1)) / len(frames))
    return Trial(frames, tuple(costs), share), is_whole


def _middle(frame: Frame, pixels: PixelFormat, side: int) -> Frame:
    """Return the middle of a large picture, or all of a small one."""
    lengths = frame.planes[0].shape
    starts = [max(0, length - side) // 2 // 16 * 16 for length in lengths]
    stops = [
        start + min(side, length) for start, length in zip(starts, lengths, strict=True)
    ]
    planes = []
    for index, plane in enumerate(frame.planes):
        (top, left), (bottom, right) = (
            pixels.plane_size(index, *corner) for corner in (starts, stops)
        )
        planes.append(plane[top:bottom, left:right])
    return replace(frame, planes=tuple(planes))


def _frames_at_once(stage: ClipRestorer) -> int:
    return _clip_length(stage) * stage.at_once().clips


def _clip_length(stage: ClipRestorer) -> int:
    is_short = stage.restorer.input_kind == "rgb" and stage.device.type == "cpu"
    return min(stage.length, FEW) if is_short else stage.length


def try_encoding(job: Job, trial: Trial) -> Encoding:
    """Encode restored frames to measure rate and size; the packets are discarded."""
    # of a large picture only a part was restored
    began = time.monotonic()
    video = job.output_info.video
    share = trial.share
    if share < 1:
        height, width = trial.frames[0].planes[0].shape
        video = replace(video, height=height, width=width)
    encoder = Encoder.opened(job.plan.encoder, video)
    packets = list[Any]()
    for frame in trial.frames:
        packets += encoder.encode(frame, frame.pts, frame.duration)
    packets += encoder.flush()
    rate = share * len(packets) / (time.monotonic() - began)
    key_sizes = [packet.size / share for packet in packets if packet.is_keyframe]
    inter_sizes = [
        packet.size / share for packet in packets if not packet.is_keyframe
    ] or key_sizes
    return Encoding(
        rate, sum(key_sizes) / len(key_sizes), sum(inter_sizes) / len(inter_sizes)
    )
