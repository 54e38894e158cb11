"""A restoration from a source to its output: everything checked first, then decode, plan, model and encode at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from vidrestore.clips import needed_clips, owned_span
from vidrestore.engine.chain import buffered
from vidrestore.engine.excerpt import expected_frames, find_span
from vidrestore.engine.naming import SUFFIXES, output_for
from vidrestore.engine.options import RecoverOptions, RestoreOptions
from vidrestore.engine.plan import Plan, Scene, SourceIdentity, Timeline, planned_clips, planned_range
from vidrestore.engine.progress import counted
from vidrestore.engine.restoring import ClipRestorer
from vidrestore.engine.rgb_clips import RgbClipRestorer
from vidrestore.engine.tasks import SCALES, Restorer, RgbRestorer, load_restorer
from vidrestore.errors import OptionError, PlanError
from vidrestore.events import DAMAGED_SOURCE, Finished, Listener, Planned, Started, Warned
from vidrestore.frames import Frame
from vidrestore.media.atomic import check_output
from vidrestore.media.damage import Damage
from vidrestore.media.encoders import PIPE, choose_encoder, container_of
from vidrestore.media.encoding import EncoderChoice
from vidrestore.media.hdr import hdr_warning
from vidrestore.media.probe import SourceInfo, VideoInfo
from vidrestore.media.reader import VideoReader
from vidrestore.media.side_data import lost_side_data
from vidrestore.media.span import WHOLE, Span
from vidrestore.media.streams import check_streams
from vidrestore.media.writer import VideoWriter

QUEUE_BYTES = 4 << 20  # of frames between two threads: some of SD, one of 4K; 16 MB were no faster, and took 45 MB more once they were full

RestorerLoader = Callable[[], Restorer]


@dataclass(frozen=True)
class Summary:
    """What a restoration did.

    `seconds` and `fps` are of the work itself, loading the model apart. `damage` says in one sentence what was wrong with the source,
    None where nothing was. `retried` counts the clips that half precision could not hold. `skipped`: the output was there already.
    """

    source: str
    output: str
    frames: int
    seconds: float
    scenes: tuple[Scene, ...] = ()
    damage: str | None = None
    retried: int = 0
    skipped: bool = False

    @property
    def fps(self) -> float:
        return self.frames / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        return DAMAGED_SOURCE if self.damage else 0


def restore(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    task: str = "denoise",
    sigma: float | Literal["auto"] | None = None,
    options: RestoreOptions | None = None,
    on_event: Listener | None = None,
    **overrides: Any,
) -> Summary:
    """Restore the film `source` into `output` (by default beside it); done when it returns.

    `source` is a path, or "-" for a y4m film on standard input; `output` likewise. `sigma` is the noise on the 0-255 scale, or "auto".
    `overrides` are fields of RestoreOptions and win over `options`. Raises VidRestoreError, where possible before any work; then there
    is no output.
    """
    chosen = replace(options or RestoreOptions(), **overrides)
    if sigma is not None:
        chosen = replace(chosen, sigma=sigma)
    target = output_for(os.fspath(source), None if output is None else os.fspath(output), SUFFIXES.get(task, task))
    return restore_source(os.fspath(source), target, task, chosen, lambda: load_restorer(task, chosen), on_event or ignore)


def restore_source(source: str, output: str, task: str, options: RestoreOptions, loader: RestorerLoader, on_event: Listener) -> Summary:
    """Restore one source into `output`, with the restorer that `loader` gives once everything else was checked."""
    if options.skip_existing and output != PIPE and os.path.exists(output):
        return Summary(source, output, 0, 0.0, skipped=True)
    check_request(source, output, options)
    with VideoReader(source, deinterlace=options.deinterlace) as reader:
        check_picture(source, reader.info.video)
        span = find_span(reader, options.start, options.duration)
        job = prepare(reader.info, output, task, options, loader, span)
        on_event(Started(source, output, task, job.restorer.name, options.device))
        return _run(job, reader, on_event)


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
        return ClipRestorer(self.restorer, self.info.video.format, strength=self.options.strength, threads=threads)


def prepare(info: SourceInfo, output: str, task: str, options: RestoreOptions, loader: RestorerLoader, span: Span = WHOLE) -> Job:
    """Check what can be checked before work: the picture, the streams to copy, the encoder by opening it; load the model last."""
    check_picture(info.path, info.video)
    copy = check_streams(info, output, options.drop)
    encoder = choose_encoder(info, output, options.encoder, scale=SCALES.get(task, 1))
    warnings = check_side_data(info, encoder, strict=options.strict)
    restorer = loader()
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


def check_picture(source: str, video: VideoInfo, way_out: str = "add --deinterlace") -> None:
    """Refuse what would be restored wrongly."""
    if video.interlaced:
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


def restore_clips(job: Job, reader: VideoReader, clips: range) -> Generator[Frame]:
    """Yield the frames that a range of clips of the finished plan `job.plan` owns, the same as in the whole run.

    A clip owns the frames that no earlier clip has; the clip after the range is restored too where it shares frames with the last.
    """
    bounds = job.plan.timeline.bounds
    span = owned_span(bounds, clips.start)[0], owned_span(bounds, clips.stop - 1)[1]
    needed = needed_clips(bounds, clips)
    with closing(buffered(reader.frames(job.plan.timeline.pts[bounds[needed.start][0]]), QUEUE_BYTES, _nbytes)) as decoded:
        planned = planned_range(decoded, job.plan, needed)
        with closing(buffered(job.clip_restorer().frames(planned, span), QUEUE_BYTES, _nbytes)) as restored:
            yield from restored


def plan_source(job: Job, reader: VideoReader) -> Plan:
    """The plan pass: decode what is to be restored once, restore nothing, and give the finished plan."""
    with closing(buffered(job.frames(reader), QUEUE_BYTES, _nbytes)) as decoded:
        for _ in planned_clips(decoded, job.plan.timeline, job.info.video.format, job.sigma, detect=job.options.scene_detect):
            pass
    return job.plan


def _run(job: Job, reader: VideoReader, on_event: Listener) -> Summary:
    plan, clips, total = job.plan, job.clip_restorer(), expected_frames(job.info, job.plan.span)
    details = {"encoder": plan.encoder.encoder, "pix_fmt": plan.encoder.pix_fmt, "copied_streams": plan.copy}
    on_event(Planned(job.info.path, total, details=details))
    _warn(job, job.warnings, on_event)
    began = time.monotonic()
    writer = _writer(job)
    with closing(restored_frames(job, job.frames(reader), clips)) as frames, writer:
        for frame in counted(_watched(frames, job, on_event), job.info.path, total, "restore", on_event):
            writer.write(frame)
    seconds = time.monotonic() - began
    _warn(job, writer.warnings, on_event)
    if job.options.deinterlace and not reader.deinterlaced:
        _warn(job, ["no frame is marked as interlaced, so --deinterlace changed nothing"], on_event)
    damage = damage_summary(reader.damage, writer.damage)
    summary = Summary(job.info.path, plan.output, len(plan.timeline.pts), seconds, tuple(plan.timeline.scenes), damage, clips.retried)
    _report(summary, on_event)
    return summary


def damage_summary(damage: Damage, copied: str | None = None) -> str | None:
    """What was wrong with a source, in a sentence; `copied` is what was wrong with its other streams."""
    if copied and not damage.found:
        return f"the source is damaged: {copied}"
    return "; ".join(part for part in (damage.summary() if damage.found else None, copied) if part) or None


def _watched(frames: Generator[Frame], job: Job, on_event: Listener) -> Iterator[Frame]:
    """The same frames, with a warning at the first that is interlaced: the film's first frames, which were looked at, were not.

    Hours of work are not thrown away for it: films that are progressive but for some marked scenes are common, and most of those are
    marked wrongly.
    """
    warned = False
    for index, frame in enumerate(frames):
        if frame.interlaced and not warned:
            warned = True
            on_event(Warned(job.info.path, "the video turns interlaced here; where it moves, its fields blur: see --deinterlace", index))
        yield frame


def _warn(job: Job, warnings: Iterable[str], on_event: Listener) -> None:
    for warning in warnings:
        on_event(Warned(job.info.path, warning))


def _writer(job: Job) -> VideoWriter:
    return VideoWriter(
        job.plan.output,
        source=job.info,
        encoder=job.plan.encoder,
        copy=job.plan.copy,
        frames=None,
        overwrite=job.options.overwrite,
        scale=job.restorer.scale,
        rate=job.options.cfr,
        span=job.plan.span,
    )


def _report(summary: Summary, on_event: Listener) -> None:
    if summary.retried:
        on_event(Warned(summary.source, f"{summary.retried} clips went beyond half precision and were restored again in fp32"))
    scenes = [{"first": scene.first, "stop": scene.stop, "sigma": scene.sigma} for scene in summary.scenes]
    details = {"fps": summary.fps, "scenes": scenes}
    on_event(Finished(summary.source, summary.output, summary.frames, summary.seconds, summary.damage, details))


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ignore(event: object) -> None:
    """The listener of who wants to hear nothing."""


def _nbytes(frame: Frame) -> int:
    return frame.nbytes
