"""Restore decoded frames by one or several steps, and write them.

Each step plans and restores the frames of the one before, in threads of its own; between them frames have the
samples of the source's format. A single task is one step. The cuts are those of the source for all steps, so
that the clips of each step follow from the plan, and any range of frames can be restored by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from statistics import fmean, median
from sys import maxsize

import torch
from torch import Tensor

from vidrestore.errors import OptionError
from vidrestore.jobs.request import Step
from vidrestore.media.formats.source import PIPE
from vidrestore.media.reading.coding_loss import kind_by_coding
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.reading.scan import starts
from vidrestore.media.writing.writer import VideoWriter
from vidrestore.noise.meter import without_bars
from vidrestore.pipeline.chain import buffered, frames_ahead
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.conversions import Changes, output_scale
from vidrestore.pipeline.plan import (
    NOISE_STEP,
    Plan,
    PlannedClip,
    Timeline,
    colour_planes,
    planned_clips,
    planned_range,
)
from vidrestore.pixels.clips import Bounds, needed_clips, owned_span, owners
from vidrestore.pixels.colour import planes_to_grey
from vidrestore.pixels.frames import Frame, PixelFormat, Scale, VideoInfo, enlarged_size
from vidrestore.pixels.softness import spectral_fall
from vidrestore.restorers.base import Restorer
from vidrestore.settings.options import Input
from vidrestore.settings.tasks import TASKS

# Fall of a spectrum (dB) above which frames are enlarged as those of a camera. Of 56 photographs and 30
# held-out frames that were downscaled it is 16.3 at most; from 17 on blur, the other network gains 0.5 dB.
SOFT_FALL = 17.0
ONE = 0  # bytes of a queue that holds a single clip, however large


def total_scale(steps: Sequence[Step], video: VideoInfo) -> Scale:
    """Return how many times larger the last step's frames are than the source's."""
    enlarging = next(
        (step for step in steps if step.task in TASKS and TASKS[step.task].scale > 1),
        None,
    )
    return (
        1
        if enlarging is None
        else output_scale(TASKS[enlarging.task].scale, enlarging.options, video.height)
    )


def measured_input(step: Step, reader: VideoReader) -> tuple[Input, str] | None:
    """Return the kind of input that a source is for a step, "clean" or "compressed", with the reason; None if
    its network doesn't depend on that.

    Many bits may encode noise, which the network for clean video would preserve: noise is measured, too. And
    what a lens made soft has the network for all that isn't downscaled.
    """
    if not step.measures_input:
        return None
    if reader.info.path == PIPE:  # its frames can be read only once
        return "compressed", "a pipe has no record of its coder"
    kind: Input = "compressed"
    why, falls = "", list[float]()
    for start in starts(reader.info.video):
        kind, why, falls = _input_at(start, reader)
        if kind != "clean" or any(falls):  # a black beginning tells nothing
            break
    if kind == "clean" and falls and median(falls) > SOFT_FALL:
        return "compressed", f"soft: its finest detail is {median(falls):.0f} dB weaker"
    return kind, why


def _input_at(start: int | None, reader: VideoReader) -> tuple[Input, str, list[float]]:
    """Return the kind of input by the coding and the noise of a clip that begins at a pts, None for the
    beginning; the reason; and by how much its frames are soft.
    """
    # a clip's worth of frames, decoded for this alone
    pixels, timeline = reader.info.video.format, Timeline(NOISE_STEP, 0)
    with closing(reader.frames(start)) as decoded:
        sample = islice(decoded, NOISE_STEP)
        clips = list(planned_clips(sample, timeline, pixels, None, detect=False))
    frames = [frame for _, clip_frames in clips for frame in clip_frames]
    falls = [spectral_fall(luma_of(frame, pixels)) for frame in frames]
    # what the coder took decides, unless there is noise
    losses = [frame.loss[0] for frame in frames]
    kind, why = kind_by_coding(reader.info, fmean(losses) if losses else 0.0)
    if kind == "clean" and any(clip.rms[0] for clip, _ in clips):
        return "compressed", "it has noise", falls
    return kind, why, falls


def luma_of(frame: Frame, pixels: PixelFormat) -> Tensor:
    """Return the luma (H, W) of a frame on the 0-255 scale; of R, G, B it is their mean. Bars are left out,
    whose edges are sharper than any lens.
    """
    planes = planes_to_grey(frame.planes[: colour_planes(pixels)], pixels)
    luma = planes[0] if pixels.family != "rgb" else torch.stack(planes).mean(0)
    ((inner,),) = without_bars([(luma.numpy(),)])
    return torch.from_numpy(inner)


class Steps:
    """Loaded steps for one video. Raises OptionError for a later step that would measure noise: a plan has
    only that of the source.
    """

    def __init__(
        self, steps: Sequence[Step], restorers: Sequence[Restorer], video: VideoInfo
    ) -> None:
        self.stages: list[ClipRestorer] = []
        self.scale: Scale = 1  # of the last step's frames
        # each step sees the frames of the one before: its size, and whether it has kept the noise
        keeps_noise = True  # the steps so far
        for step, restorer in zip(steps, restorers, strict=True):
            stage = ClipRestorer(step.task, restorer, video, step.options)
            if stage.sigma is None and not keeps_noise:
                raise OptionError(
                    f"{step.task} measures the noise of the source, so only before tasks that alter noise; "
                    f"let it be the first, or give the noise, as in `settings={step.task}.sigma=10`"
                )
            keeps_noise = keeps_noise and stage.keeps_noise
            stage.share = 1 / len(steps)
            self.stages.append(stage)
            self.scale *= stage.scale
            height, width = enlarged_size(video.height, video.width, stage.scale)
            video = replace(video, width=width, height=height)

    @property
    def first(self) -> ClipRestorer:
        return self.stages[0]

    @property
    def later(self) -> list[ClipRestorer]:
        return self.stages[1:]

    @property
    def on_gpu(self) -> bool:
        """True if one of the steps restores on a device that is not the CPU."""
        return any(stage.device.type != "cpu" for stage in self.stages)

    @property
    def retried(self) -> int:
        """Clips that half precision could not hold."""
        return sum(stage.retried for stage in self.stages)

    @property
    def changes(self) -> tuple[tuple[str, Changes], ...]:
        """The task and the changes of each step that compares its frames with their sources."""
        counted = ((stage.task, stage.conversion.changes) for stage in self.stages)
        return tuple((task, changes) for task, changes in counted if changes.frames)

    def planned(
        self, frames: Iterable[Frame], timeline: Timeline
    ) -> Iterator[PlannedClip]:
        """Yield the first step's clips of decoded frames, as they are planned into `timeline`."""
        # the noise that any of the steps needs is measured once, in the source
        stage, detect = self.first, self.first.options.scene_detect
        sigma = None if any(step.sigma is None for step in self.stages) else stage.sigma
        return planned_clips(frames, timeline, stage.video.format, sigma, detect=detect)

    def frames(self, decoded: Iterable[Frame], timeline: Timeline) -> Generator[Frame]:
        """Yield the restored frames of decoded ones; the first step's plan is written into `timeline`."""
        # a chain of threads: decode, plan, then restore step by step
        with ExitStack() as running:
            frames: Iterable[Frame] = running.enter_context(
                frames_ahead(decoded, on_gpu=self.on_gpu)
            )
            clips = self.planned(frames, timeline)
            # noise is measured while the clip before is sent, and its frames are joined
            if self.on_gpu:
                ahead = buffered(
                    clips, ONE, lambda clip: sum(frame.nbytes for frame in clip[1])
                )
                clips = running.enter_context(closing(ahead))
            for stage in self.stages:
                if stage is not self.first:
                    stage_timeline = stage.timeline(timeline.cuts)
                    pixels = stage.video.format
                    clips = planned_clips(
                        frames, stage_timeline, pixels, stage.sigma, detect=False
                    )
                restored = stage.frames(clips)
                frames = running.enter_context(
                    frames_ahead(restored, on_gpu=self.on_gpu)
                )
            yield from frames

    def frames_in(
        self, span: Bounds, plan: Plan, decode: Callable[[int], Iterator[Frame]]
    ) -> Generator[Frame]:
        """Yield the restored frames [first, stop) of a finished plan, the same as in a complete run.

        `decode(index)` returns the decoded frames from that one on.
        """
        # from the last step to the first: what it takes is what the one before must give
        ranges = list[_Range]()
        for step_plan in reversed(
            [plan, *(stage.plan_after(plan) for stage in self.later)]
        ):
            ranges.insert(0, _Range(step_plan, *(ranges[0].input if ranges else span)))
        # then forward, each step cutting what its clips give to what is asked for
        with ExitStack() as running:
            decoded = decode(ranges[0].input[0])
            frames: Iterator[Frame] = running.enter_context(
                frames_ahead(decoded, on_gpu=self.on_gpu)
            )
            for stage, part in zip(self.stages, ranges, strict=True):
                planned = planned_range(frames, part.plan, part.clips)
                restored = stage.frames(planned, part.span)
                ahead = running.enter_context(
                    frames_ahead(restored, on_gpu=self.on_gpu)
                )
                frames = islice(
                    ahead, part.first - part.span[0], part.stop - part.span[0]
                )
            yield from frames

    def frames_from(
        self,
        first: int,
        plan: Plan,
        clips: Callable[[int], Iterator[int]],
        decode: Callable[[int], Iterator[Frame]],
    ) -> Generator[Frame]:
        """Yield the restored frames of a single step from `first` on, the same as in a complete run, while
        the plan grows: `clips(index)` yields the indices of its clips from that one on, each once it is
        planned, and `decode(index)` the decoded frames from that one on.
        """
        assert not self.later, "the clips of later steps follow from the finished plan"
        # the clip that owns the first frame gives some before it, which are skipped
        bounds = plan.timeline.bounds
        clip = owners(bounds, first, first + 1).start
        start = owned_span(bounds, clip)[0]
        with ExitStack() as running:
            decoded = running.enter_context(
                frames_ahead(decode(bounds[clip][0]), on_gpu=self.on_gpu)
            )
            restored = self.first.frames(
                planned_range(decoded, plan, clips(clip)), (start, maxsize)
            )
            ahead = running.enter_context(frames_ahead(restored, on_gpu=self.on_gpu))
            yield from islice(ahead, first - start, None)


class _Range:
    """Frames [first, stop) of a step, and the clips to restore for them."""

    def __init__(self, plan: Plan, first: int, stop: int) -> None:
        bounds = plan.timeline.bounds
        owned = owners(bounds, first, stop)
        self.plan = plan
        self.first = first
        self.stop = stop
        self.clips = needed_clips(bounds, owned)
        # the frames that the clips give, and those that they take
        self.span = owned_span(bounds, owned[0])[0], owned_span(bounds, owned[-1])[1]
        self.input = bounds[self.clips[0]][0], bounds[self.clips[-1]][1]


def write_frames(
    frames: Generator[Frame],
    writer: VideoWriter,
    watch: Callable[[Iterator[Frame]], Iterator[Frame]] = iter,
) -> None:
    """Write all frames, which pass through `watch`, and finish the writer. If anything fails, there is no
    output.
    """
    with closing(frames), writer:
        for frame in watch(frames):
            writer.write(frame)
