"""Restorations from a source to its output: of a file to a file in segments, from which the next run goes on; of pipes in one go."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Literal

from vidrestore.events import Finished, Listener, Planned, Started, Warned
from vidrestore.jobs.finished import done_before, finished_before
from vidrestore.jobs.frame_progress import counted
from vidrestore.jobs.job import (
    Job,
    RestorerLoader,
    Summary,
    check_picture,
    check_request,
    damage_summary,
    ignore,
    interlaced_warned,
    left_alone,
    prepare,
    restored_frames,
)
from vidrestore.jobs.naming import SUFFIXES, output_for
from vidrestore.jobs.segmented import SegmentedWork
from vidrestore.jobs.work_folder import WorkFolder
from vidrestore.media.encoders import PIPE
from vidrestore.media.reader import VideoReader
from vidrestore.media.writer import VideoWriter
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.excerpt import expected_frames, find_span
from vidrestore.restorers.base import load_restorer


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
    is no output. A run that ends early leaves what it has finished in the folder OUTPUT.vidrestore, and the same call goes on from there.
    """
    chosen = replace(options or RestoreOptions(), **overrides)
    if sigma is not None:
        chosen = replace(chosen, sigma=sigma)
    target = output_for(os.fspath(source), None if output is None else os.fspath(output), SUFFIXES.get(task, task))
    return restore_source(os.fspath(source), target, task, chosen, lambda: load_restorer(task, chosen), on_event or ignore)


def restore_source(
    source: str,
    output: str,
    task: str,
    options: RestoreOptions,
    loader: RestorerLoader,
    on_event: Listener,
    *,
    again: bool = False,
    run: Callable[[SegmentedWork], None] = lambda work: work.run(),
) -> Summary:
    """Restore one source into `output`, with the restorer that `loader` gives once everything else was checked.

    `again`: an output that is there and is this film counts as done instead of being in the way. `run` restores all segments.
    """
    if PIPE in (source, output):
        return _restore_stream(source, output, task, options, loader, on_event)
    folder = WorkFolder(output, options.work_dir)
    if before := nothing_to_do(source, task, options, folder, on_event, again=again):
        return before
    check_request(source, output, options)
    with folder.locked(), VideoReader(source, threads=options.threads, deinterlace=options.deinterlace) as reader:
        job = prepared(reader, output, task, options, loader, on_event)
        work = SegmentedWork(job, reader, folder, on_event)
        with kept(folder, source, on_event):
            return _restore_file(work, run)


def nothing_to_do(
    source: str, task: str, options: RestoreOptions, folder: WorkFolder, on_event: Listener, *, again: bool
) -> Summary | None:
    """What became of a film that is done, or is to be left as it is; None where there is work."""
    output = str(folder.output)
    before = finished_before(source, task, options, folder)
    if before is None and (there := left_alone(source, output, options)):
        return there
    if before is None and again:
        before = done_before(source, output, task, options)
    if before is None:
        return None
    on_event(Started(source, output, task, device=options.device))
    return told(before, on_event)


def prepared(reader: VideoReader, output: str, task: str, options: RestoreOptions, loader: RestorerLoader, on_event: Listener) -> Job:
    """The checked job of an opened source, which is told to have begun."""
    check_picture(reader.source, reader.info.video)
    span = find_span(reader, options.start, options.duration)
    job = prepare(reader.info, output, task, options, loader, span)
    on_event(Started(reader.source, output, task, job.restorer.name, options.device))
    return job


def _restore_file(work: SegmentedWork, run: Callable[[SegmentedWork], None]) -> Summary:
    warn(work.job.info.path, work.job.warnings, work.on_event)
    began = time.monotonic()
    run(work)
    return join(work, began)


def join(work: SegmentedWork, began: float) -> Summary:
    """Make the film of its segments and tell of it; `began`: by `time.monotonic`, when this run did."""
    job, on_event = work.job, work.on_event
    warn(job.info.path, work.join(), on_event)
    _warn_deinterlaced(job, work.outcome.deinterlaced if work.outcome else 0, on_event)
    return told(_summary(job, time.monotonic() - began, work.damage, work.retried, work.reused), on_event)


@contextmanager
def kept(folder: WorkFolder, source: str, on_event: Listener) -> Iterator[None]:
    """However a run ends early, say what it leaves."""
    try:
        yield
    except BaseException:
        if count := len(folder.finished()):
            segments = f"{count} finished segment{'s' * (count > 1)}"
            on_event(Warned(source, f"stopped; {segments} are kept in {folder.path}, and the same command goes on from there"))
        raise


def _restore_stream(source: str, output: str, task: str, options: RestoreOptions, loader: RestorerLoader, on_event: Listener) -> Summary:
    """From or to a pipe, in one go."""
    if there := left_alone(source, output, options):
        return there
    check_request(source, output, options)
    with VideoReader(source, threads=options.threads, deinterlace=options.deinterlace) as reader:
        return _stream(prepared(reader, output, task, options, loader, on_event), reader, on_event)


def _stream(job: Job, reader: VideoReader, on_event: Listener) -> Summary:
    plan, clips, total = job.plan, job.clip_restorer(), expected_frames(job.info, job.plan.span)
    details = {"encoder": plan.encoder.encoder, "pix_fmt": plan.encoder.pix_fmt, "copied_streams": plan.copy}
    on_event(Planned(job.info.path, total, details=details))
    warn(job.info.path, job.warnings, on_event)
    began = time.monotonic()
    writer = _writer(job)
    with closing(restored_frames(job, job.frames(reader), clips)) as frames, writer:
        watched = interlaced_warned(frames, job.info.path, on_event)
        for frame in counted(watched, job.info.path, total, "restore", on_event):
            writer.write(frame)
    seconds = time.monotonic() - began
    warn(job.info.path, writer.warnings, on_event)
    _warn_deinterlaced(job, reader.deinterlaced, on_event)
    damage = damage_summary(reader.damage.summary() if reader.damage.found else None, writer.damage)
    return told(_summary(job, seconds, damage, clips.retried), on_event)


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


def _warn_deinterlaced(job: Job, count: int, on_event: Listener) -> None:
    if job.options.deinterlace and not count:
        warn(job.info.path, ["no frame is marked as interlaced, so --deinterlace changed nothing"], on_event)


def warn(source: str, warnings: Iterable[str], on_event: Listener) -> None:
    """Tell warnings about a source."""
    for warning in warnings:
        on_event(Warned(source, warning))


def _summary(job: Job, seconds: float, damage: str | None, retried: int, reused: int = 0) -> Summary:
    timeline = job.plan.timeline
    return Summary(
        job.info.path, job.plan.output, len(timeline.pts), seconds, tuple(timeline.scenes), damage, retried=retried, reused=reused
    )


def told(summary: Summary, on_event: Listener) -> Summary:
    """The same summary, after its events."""
    if summary.retried:
        on_event(Warned(summary.source, f"{summary.retried} clips went beyond half precision and were restored again in fp32"))
    measured = [scene for scene in summary.scenes if scene.rms]
    if measured and not any(level for scene in measured for level in scene.sigma):
        on_event(Warned(summary.source, "no noise was found, so nothing was removed; --sigma says how strong it is"))
    scenes = [
        {"first": scene.first, "stop": scene.stop, "sigma": scene.sigma} | ({"noise": scene.noise} if scene.rms else {})
        for scene in summary.scenes
    ]
    details = {"fps": summary.fps, "scenes": scenes, "reused": summary.reused, "before": summary.before}
    on_event(Finished(summary.source, summary.output, summary.frames, summary.seconds, summary.damage, details))
    return summary
