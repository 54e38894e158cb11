"""Plan a restoration and estimate its cost, without doing it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from vidrestore.errors import OptionError
from vidrestore.events import DAMAGED_SOURCE, Listener, Planned
from vidrestore.jobs.job import Job, Request, check, plan_source, versions
from vidrestore.jobs.segmented import LENGTH, segments_of
from vidrestore.jobs.steps import StepLoader
from vidrestore.jobs.summary import Summary
from vidrestore.jobs.trial import Encoding, Trial, try_encoding, try_restoring
from vidrestore.pipeline.plan import Plan


@dataclass(frozen=True)
class Estimate:
    """`plan` is what would be done; `seconds` of work and `size` in bytes (of the video alone) follow from
    the first frames, of which `restoring` and `encoding` are done in a second.

    `damage` describes damage of the source, `decisions` what was chosen without being asked.
    """

    plan: Plan
    seconds: float
    size: int
    damage: str | None
    decisions: Mapping[str, str] = field(default_factory=dict)
    restoring: float = 0.0
    encoding: float = 0.0

    @property
    def exit_code(self) -> int:
        return DAMAGED_SOURCE if self.damage else 0

    @property
    def frames(self) -> int:
        return len(self.plan.timeline.pts)


def estimate(request: Request, load: StepLoader, on_event: Listener) -> Estimate | Summary:
    """Check and plan the whole video, restore and encode its first frames on trial; write nothing.

    Return the summary instead if nothing is left to do. Raises VidRestoreError as `vidrestore.restore` does.
    """
    if request.is_piped:
        raise OptionError("`dry_run` needs a file to read and a file to write, not a pipe")
    with check(request, load, on_event, locks=False) as job:
        if isinstance(job, Summary):
            return job
        began = time.monotonic()
        plan, damage = plan_source(job), job.damage
        planning = time.monotonic() - began
        trial = try_restoring(job)
        encoding = try_encoding(job, trial.frames, plan.encoder)
        seconds = _seconds(job, planning, trial, encoding)
        size = _size(job, encoding)
        found = Estimate(plan, seconds, size, damage, job.decisions(), trial.rate, encoding.rate)
        weights = job.weights()
    details = {"plan": plan.to_dict(), "seconds": seconds, "size": size, "damage": damage}
    details |= {"restored_per_second": found.restoring, "encoded_per_second": found.encoding}
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


def _seconds(job: Job, planning: float, trial: Trial, encoding: Encoding) -> float:
    """Return the seconds for the whole video: on a CPU all work shares the cores, beside a GPU the slowest
    part counts.
    """
    plans = [job.plan, *(stage.plan_after(job.plan) for stage in job.steps.later)]
    restoring = sum(
        cost * stage.work(plan.timeline)
        for cost, stage, plan in zip(trial.costs, job.steps.stages, plans, strict=True)
    )
    parts = planning, restoring, len(job.plan.timeline.pts) / encoding.rate
    return max(parts) if job.steps.on_gpu else sum(parts)


def _size(job: Job, encoding: Encoding) -> int:
    """Return the bytes of the whole video, with a key frame for each segment and each scene."""
    timeline = job.plan.timeline
    keys = len({0, *timeline.cuts, *(segment.first for segment in segments_of(timeline, LENGTH))})
    return round(keys * encoding.key + (len(timeline.pts) - keys) * encoding.other)
