"""A restoration before it runs: everything checked first; then frames that are decoded, planned and restored at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from vidrestore.clips import needed_clips, owned_span
from vidrestore.errors import OptionError, PlanError
from vidrestore.events import DAMAGED_SOURCE, Listener, Warned
from vidrestore.files.atomic import check_output
from vidrestore.frames import Frame
from vidrestore.jobs.frame_progress import counted
from vidrestore.media.deinterlace import PIPE_DEINTERLACED
from vidrestore.media.encoders import PIPE, choose_encoder, container_of
from vidrestore.media.encoding import EncoderChoice
from vidrestore.media.hdr import hdr_warning
from vidrestore.media.probe import SourceInfo, VideoInfo
from vidrestore.media.reader import VideoReader
from vidrestore.media.side_data import lost_side_data
from vidrestore.media.span import WHOLE, Span
from vidrestore.media.streams import check_streams
from vidrestore.options import RecoverOptions, RestoreOptions
from vidrestore.pipeline.chain import buffered
from vidrestore.pipeline.excerpt import expected_frames
from vidrestore.pipeline.plan import Plan, Scene, SourceIdentity, Timeline, planned_clips, planned_range
from vidrestore.pipeline.plane_clips import ClipRestorer
from vidrestore.pipeline.rgb_clips import RgbClipRestorer
from vidrestore.restorers.base import SCALES, Doubting, Restorer, RgbRestorer

QUEUE_BYTES = 4 << 20  # of frames between two threads: some of SD, one of 4K; 16 MB were no faster, and took 45 MB more once they were full

RestorerLoader = Callable[[], Restorer]


def ignore(event: object) -> None:
    """The listener of who wants to hear nothing."""


@dataclass(frozen=True)
class Summary:
    """What a restoration did.

    `seconds` and `fps` are of the work itself, loading the model apart. `damage` says in one sentence what was wrong with the source,
    None where nothing was. `retried` counts the clips that half precision could not hold. `skipped`: the output was there already.
    `reused`: frames that others had restored: an earlier run, or other processes. `before`: the whole film was done before.
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
    """A restoration that was checked and can begin. `plan` is filled while frames go by; `warnings` are for the user, before it begins."""

    info: SourceInfo
    options: RestoreOptions
    restorer: Restorer
    plan: Plan
    warnings: tuple[str, ...] = ()

    @property
    def sigma(self) -> float | None:
        """The noise that was given; None to measure it."""
        if not self.restorer.needs_sigma:
            return 0.0
        return None if self.options.sigma == "auto" else self.options.sigma

    def frames(self, reader: VideoReader) -> Generator[Frame]:
        """The decoded frames that are to be restored."""
        return reader.frames(self.plan.span.start, self.plan.span.stop)

    def clip_restorer(self) -> ClipRestorer:
        threads = self.options.threads or available_cores()
        if isinstance(self.restorer, RgbRestorer):
            return RgbClipRestorer(self.restorer, self.info.video, strength=self.options.strength, threads=threads)
        finish = {"strength": self.options.strength, "chroma_strength": self.options.chroma_strength, "grain": self.options.grain}
        return ClipRestorer(self.restorer, self.info.video.format, **finish, threads=threads)  # type: ignore[arg-type]


def prepare(info: SourceInfo, output: str, task: str, options: RestoreOptions, loader: RestorerLoader, span: Span = WHOLE) -> Job:
    """Check what can be checked before work: the picture, the streams to copy, the encoder by opening it; load the model last."""
    check_picture(info.path, info.video)
    copy = check_streams(info, output, options.drop)
    encoder = choose_encoder(info, output, options.encoder, scale=SCALES.get(task, 1))
    warnings = check_side_data(info, encoder, strict=options.strict)
    restorer = loader()
    if isinstance(restorer, Doubting):
        warnings += restorer.doubts
    timeline = Timeline(_clip_length(restorer, info.video), restorer.overlap)
    return Job(info, options, restorer, Plan(SourceIdentity.of(info.path), output, task, encoder, copy, timeline, span), warnings)


def _clip_length(restorer: Restorer, video: VideoInfo) -> int:
    return restorer.clip_length(video.height, video.width) if isinstance(restorer, RgbRestorer) else restorer.clip


def check_request(source: str, output: str, options: RestoreOptions | RecoverOptions) -> None:
    """Refuse what can be seen to be wrong without opening the source."""
    container_of(output)
    if output != PIPE:
        check_output(output, source, overwrite=options.overwrite)
        if options.cfr is not None:
            raise OptionError(f"--cfr {options.cfr} is for a pipe (-o -); a file keeps the time of every frame, leave the option out")


def left_alone(source: str, output: str, options: RestoreOptions) -> Summary | None:
    """What becomes of an output that is there with --skip-existing; None where there is work."""
    there = options.skip_existing and output != PIPE and os.path.exists(output)
    return Summary(source, output, 0, 0.0, skipped=True) if there else None


def check_picture(source: str, video: VideoInfo, way_out: str | None = None) -> None:
    """Refuse what would be restored wrongly."""
    if video.interlaced:
        way_out = way_out or (f"do it before: {PIPE_DEINTERLACED}" if source == PIPE else "add --deinterlace")
        raise PlanError(f"{source}: the video is interlaced, and its fields would be blurred into each other; {way_out}")


def check_side_data(info: SourceInfo, encoder: EncoderChoice, *, strict: bool) -> tuple[str, ...]:
    """Warnings about what encoding again leaves out. Raises PlanError for any of it, and for HDR that is lost, where `strict`."""
    lost = lost_side_data(info.video)
    hdr = hdr_warning(encoder.encoder, info.video)  # otherwise told by the writer
    if strict and (lost or hdr):
        found = "; ".join(part for part in (lost, hdr) if part)
        raise PlanError(f"{info.path}: {found}; leave --strict out to restore it all the same")
    return (lost,) if lost else ()


def restored_frames(job: Job, frames: Iterator[Frame], clips: ClipRestorer) -> Generator[Frame]:
    """Yield the restored frames of decoded ones, which run in a thread of their own; planning and joining in another, the model in more."""
    with closing(buffered(frames, QUEUE_BYTES, _nbytes)) as decoded:
        planned = planned_clips(decoded, job.plan.timeline, job.info.video.format, job.sigma, detect=job.options.scene_detect)
        with closing(buffered(clips.frames(planned), QUEUE_BYTES, _nbytes)) as restored:
            yield from restored


def restore_clips(
    job: Job, reader: VideoReader, clips: range, restorer: ClipRestorer | None = None, *, from_start: bool = False
) -> Generator[Frame]:
    """Yield the frames that a range of clips of the finished plan `job.plan` owns, the same as in the whole run.

    A clip owns the frames that no earlier clip has; the clip after the range is restored too where it shares frames with the last.
    `from_start` decodes all that comes before, too, instead of jumping there.
    """
    bounds = job.plan.timeline.bounds
    span = owned_span(bounds, clips.start)[0], owned_span(bounds, clips.stop - 1)[1]
    needed = needed_clips(bounds, clips)
    first = bounds[needed.start][0]
    source = _without_first(job.frames(reader), first) if from_start else reader.frames(job.plan.timeline.pts[first])
    with closing(buffered(source, QUEUE_BYTES, _nbytes)) as decoded:
        planned = planned_range(decoded, job.plan, needed)
        with closing(buffered((restorer or job.clip_restorer()).frames(planned, span), QUEUE_BYTES, _nbytes)) as restored:
            yield from restored


def _without_first(frames: Generator[Frame], count: int) -> Generator[Frame]:
    with closing(frames):
        yield from islice(frames, count, None)


def plan_source(job: Job, reader: VideoReader, on_event: Listener = ignore) -> Plan:
    """The plan pass: decode what is to be restored once, restore nothing, and give the finished plan."""
    total = expected_frames(job.info, job.plan.span)
    with closing(buffered(job.frames(reader), QUEUE_BYTES, _nbytes)) as decoded:
        frames = interlaced_warned(counted(decoded, job.info.path, total, "plan", on_event), job.info.path, on_event)
        for _ in planned_clips(frames, job.plan.timeline, job.info.video.format, job.sigma, detect=job.options.scene_detect):
            pass
    return job.plan


def damage_summary(found: str | None, copied: str | None = None) -> str | None:
    """What was wrong with a source, in a sentence: what was `found` with its video, and with its other streams."""
    if copied and not found:
        return f"the source is damaged: {copied}"
    return "; ".join(part for part in (found, copied) if part) or None


def interlaced_warned(frames: Iterable[Frame], source: str, on_event: Listener) -> Iterator[Frame]:
    """The same frames, with a warning at the first that is interlaced: the film's first frames, which were looked at, were not.

    Hours of work are not thrown away for it: films that are progressive but for some marked scenes are common, and most of those are
    marked wrongly.
    """
    warned = False
    for index, frame in enumerate(frames):
        if frame.interlaced and not warned:
            warned = True
            on_event(Warned(source, "the video turns interlaced here; where it moves, its fields blur: see --deinterlace", index))
        yield frame


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _nbytes(frame: Frame) -> int:
    return frame.nbytes
