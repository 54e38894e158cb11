"""Plan a restoration and estimate its cost, without doing it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from vidrestore.errors import OptionError
from vidrestore.events import DAMAGED_SOURCE, Listener, Planned
from vidrestore.jobs.job import Job, Request, Summary, open_job, plan_source, versions
from vidrestore.jobs.resume import nothing_to_do
from vidrestore.jobs.steps import StepLoader, available_cores, write_frames
from vidrestore.media.source import PIPE, Target
from vidrestore.media.span import WHOLE
from vidrestore.pipeline.plan import Plan


@dataclass(frozen=True)
class Estimate:
    """`plan` is what would be done; `seconds` of work and `size` in bytes (of the video alone) follow from
    restoring the first clips.

    `damage` describes damage of the source, `decisions` what was chosen without being asked.
    """

    plan: Plan
    seconds: float
    size: int
    damage: str | None
    decisions: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return DAMAGED_SOURCE if self.damage else 0

    @property
    def frames(self) -> int:
        return len(self.plan.timeline.pts)


def estimate(request: Request, load: StepLoader, on_event: Listener) -> Estimate | Summary:
    """Check and plan the whole video and restore its first clips on trial; write nothing that stays.

    Return the summary instead if nothing is left to do. Raises VidRestoreError as `vidrestore.restore` does.
    """
    if request.is_piped:
        raise OptionError("`dry_run` needs a file to read and a file to write, not a pipe")
    if before := nothing_to_do(request, on_event):
        return before
    with open_job(request, load) as job:
        plan, damage = plan_source(job), job.damage
        seconds, size = _trial(job)
        found = Estimate(plan, seconds, size, damage, job.decisions())
        weights = job.weights()
    details = {"plan": plan.to_dict(), "seconds": seconds, "size": size, "damage": damage}
    details |= {"decisions": found.decisions, "weights": weights, "versions": versions()}
    on_event(
        Planned(
            str(request.source),
            found.frames,
            len(plan.timeline.scenes),
            len(plan.timeline.clips),
            details=details,
        )
    )
    return found


def _trial(job: Job) -> tuple[float, int]:
    """Return seconds and bytes for the whole video, from as many of its first clips as there are threads."""
    timeline = job.plan.timeline
    clips = timeline.clips[: job.options.threads or available_cores()]
    with tempfile.TemporaryDirectory() as folder:
        output = job.request.output
        path = Path(folder) / (output.path.name if output.is_pattern else f"trial{output.suffix}")
        silent = replace(job.output_info, path=PIPE)
        writer = job.writer(Target(str(path)), source=silent, copy=(), rate=None, span=WHOLE)
        began = time.monotonic()
        decoded = islice(job.decoded(), clips[-1].stop)
        write_frames(job.steps.frames(decoded, job.steps.first.timeline([])), writer)
        share = len(timeline.pts) / writer.frames
        size = sum(written.stat().st_size for written in Path(folder).iterdir())
        return (time.monotonic() - began) * share, round(size * share)
