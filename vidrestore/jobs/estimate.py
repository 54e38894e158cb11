"""What a restoration would do and cost, found without doing it."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from vidrestore.errors import OptionError
from vidrestore.events import Listener, Planned
from vidrestore.jobs.job import Job, RestorerLoader, available_cores, check_picture, check_request, plan_source, prepare, restore_clips
from vidrestore.media.encoders import PIPE
from vidrestore.media.reader import VideoReader
from vidrestore.media.writer import VideoWriter
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.excerpt import find_span
from vidrestore.pipeline.plan import Plan


@dataclass(frozen=True)
class Estimate:
    """`plan` is what would be done; `seconds` of work and `size` in bytes (of the video alone) follow from restoring the first clips.

    `damage` says what is wrong with the source.
    """

    plan: Plan
    seconds: float
    size: int
    damage: str | None

    @property
    def frames(self) -> int:
        return len(self.plan.timeline.pts)


def estimate(source: str, output: str, task: str, options: RestoreOptions, loader: RestorerLoader, on_event: Listener) -> Estimate:
    """Check and plan the whole film and restore its first clips on trial; writes nothing that stays.

    Raises VidRestoreError as `vidrestore.restore` does.
    """
    if PIPE in (source, output):
        raise OptionError("--dry-run needs a file to read and a file to write, not a pipe")
    check_request(source, output, options)
    with VideoReader(source, threads=options.threads, deinterlace=options.deinterlace) as reader:
        check_picture(source, reader.info.video)
        job = prepare(reader.info, output, task, options, loader, find_span(reader, options.start, options.duration))
        plan = plan_source(job, reader)
        damage = reader.damage.summary() if reader.damage.found else None
        seconds, size = _trial(job, reader)
    found = Estimate(plan, seconds, size, damage)
    timeline = plan.timeline
    details = {"plan": plan.to_dict(), "seconds": seconds, "size": size, "damage": damage}
    on_event(Planned(source, found.frames, len(timeline.scenes), len(timeline.clips), details=details))
    return found


def _trial(job: Job, reader: VideoReader) -> tuple[float, int]:
    """Seconds and bytes for the whole film, from as many of its first clips as there are threads."""
    timeline = job.plan.timeline
    clips = range(min(len(timeline.clips), job.options.threads or available_cores()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trial{Path(job.plan.output).suffix}"
        silent = replace(job.info, path=PIPE)
        writer = VideoWriter(str(path), source=silent, encoder=job.plan.encoder, copy=(), scale=job.restorer.scale)
        began = time.monotonic()
        with closing(restore_clips(job, reader, clips)) as frames, writer:
            for frame in frames:
                writer.write(frame)
        share = len(timeline.pts) / writer.frames
        return (time.monotonic() - began) * share, round(path.stat().st_size * share)
