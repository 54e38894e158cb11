"""Shards: processes that share nothing but a folder, each restoring the segments that no other has claimed.

All plan one video together, one of them at a time: the first one there makes the plan, each takes runs of
neighbouring segments, and the one that finds all of them finished joins the video. A shard that dies leaves
its finished segments, and its claims until they expire. The number of a shard decides only its first segment,
so that runs are long and few clips are restored twice; any shard can do all the work.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from vidrestore.errors import MediaError, OptionError, OutputExistsError, PlanError, VidRestoreError
from vidrestore.events import Listener
from vidrestore.files import locks
from vidrestore.files.atomic import remove_partials
from vidrestore.files.locks import BusyError, Claims
from vidrestore.files.regular import write_problem
from vidrestore.frames import Frame
from vidrestore.jobs.batch import Batch, Runner
from vidrestore.jobs.check import check, clear_up, output_marker
from vidrestore.jobs.job import Job
from vidrestore.jobs.request import Request
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.run import join, warn_if_stopped
from vidrestore.jobs.segmented import Segment, SegmentedWork, frame_count
from vidrestore.jobs.summary import FrameProgress, Summary, announced
from vidrestore.media.source import Source

T = TypeVar("T")
PATIENCE = 5.0  # seconds for another process that only looks whether the job is done
# a run is this part of what is left for each: long at first, short at the end, when all wait for the last one
SHARE = 4
# segments; what is lost in waiting grows with it, and a clip restored twice at its end is then 1 % or less
LONGEST_RUN = 16


@dataclass(frozen=True)
class Shard:
    """The `number`th of `count` shards, counted from 1."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise OptionError(
                f"a shard must be one of 1/{self.count} to {self.count}/{self.count}, got "
                f"{self.number}/{self.count}"
            )

    def run_length(self, missing: int) -> int:
        """Return the length of a run of segments to claim, by the number that is missing."""
        return min(LONGEST_RUN, 1 + missing // (SHARE * self.count))

    def ordered(self, missing: list[Segment], total: int) -> list[Segment]:
        """Return the missing ones of `total` segments in the order of this shard; each shard begins
        elsewhere.
        """
        home = (self.number - 1) * total // self.count
        return sorted(missing, key=lambda each: each.number < home)


def check_shared(batch: Batch) -> None:
    """Raise OptionError for a batch that several processes can't restore together."""
    for request in batch.requests():
        if request.is_piped:
            raise OptionError("several processes need a file to read and a file to write, not a pipe")
        if not request.has_segments:
            raise OptionError(
                "several processes need the noise for denoise after other steps; give it by `sigma`"
            )


class ClaimedWork:
    """The segments of a planned video, of which this process restores those that no other has claimed.

    `watch` is called before each step and after each frame.
    """

    def __init__(
        self,
        work: SegmentedWork,
        claims: Claims,
        shard: Shard,
        tally: Counter[Source] | None = None,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self.work, self.claims, self.shard, self._watch = work, claims, shard, watch
        self._tally = Counter() if tally is None else tally
        self._progress: FrameProgress | None = None
        self._total = 0  # frames that were missing at first

    def begin(self) -> None:
        """Announce the plan and the first progress, unless that was done."""
        if self._progress is None:
            self._total = frame_count(self.work.left())
            work, job, on_event = self.work, self.work.job, self.work.on_event
            work.reused = len(job.plan.timeline.pts) - self._total
            job.announce_plan(work.total, on_event, reused=work.reused)
            self._progress = FrameProgress(job.info.path, self._total, "restore", on_event)

    def show(self, passed: Collection[Segment] = ()) -> int:
        """Show the progress of all processes: finished segments, and those that this one has `passed`. Return
        the frames in them.
        """
        left = frame_count(each for each in self.work.left() if each not in passed)
        done = max(0, self._total - left)
        assert self._progress is not None
        self._progress.show(done)
        return done

    def step(self) -> bool:
        """Claim a run of the segments that are left, and restore it; False if others claimed all."""
        self._watch()
        run = self._claimed(self.work.left())
        if run:
            self._restore(run)
        return bool(run)

    def _claimed(self, missing: list[Segment]) -> list[Segment]:
        there, run = self.claims.all(), list[Segment]()
        length = self.shard.run_length(len(missing))
        for segment in self.shard.ordered(missing, len(self.work.segments)):
            if run and (len(run) == length or segment.number != run[-1].number + 1):
                break
            taken = self.claims.take(claim_name(segment), there)
            if taken and segment not in self.work.left():  # finished since we looked
                self.claims.release(claim_name(segment))
                taken = False
            if taken:
                run.append(segment)
            elif run:
                break
        return run

    def _restore(self, run: list[Segment]) -> None:
        self.begin()
        try:
            self.work.restore(run, lambda frames: self._counted(frames, run))
            self._tally[self.work.job.request.source] += frame_count(run)
        finally:
            for segment in run:
                self.claims.release(claim_name(segment))

    def _counted(self, frames: Iterator[Frame], run: list[Segment]) -> Iterator[Frame]:
        assert self._progress is not None
        for at, segment in enumerate(run):
            done = self.show(run[:at])
            for count, frame in enumerate(islice(frames, segment.frames), 1):
                yield frame
                self._watch()
                self._progress.show(done + count)


def claim_name(segment: Segment) -> str:
    return f"{segment.number:06}"


class ShardRunner(Runner):
    """Restores the videos of a batch as one of several shards: whatever no other shard has claimed, video by
    video, beginning elsewhere than the others; only then it waits for them.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._tally = Counter[Source]()  # frames of each source that this shard has restored
        self._finished: dict[str, Summary | VidRestoreError] | None = None  # once the first pass was made

    def check(self, batch: Batch) -> None:
        if batch.options.overwrite:
            raise OptionError(
                "`overwrite` would let a late shard start over what the others finished; remove the output "
                "first"
            )
        if batch.options.restart:
            raise OptionError(
                "`restart` would discard what other shards are at; remove the folder OUTPUT.vidrestore "
                "before they start"
            )
        check_shared(batch)

    def restore(self, batch: Batch, request: Request, on_event: Listener) -> Summary:
        """Restore one video; the first call does all that this shard can do of any video. Raises
        VidRestoreError as `vidrestore.restore` does.
        """
        if self._finished is None:
            self._finished = self._first_pass(batch, on_event)
        outcome = self._finished.get(request.source.name)
        outcome = outcome or self._restore(batch, request, on_event, wait=True)
        if isinstance(outcome, VidRestoreError):
            raise outcome
        assert outcome is not None
        return outcome

    def close(self) -> bool:
        """Leave the folders for outputs: other shards may be about to use them."""
        return False

    def _first_pass(self, batch: Batch, on_event: Listener) -> dict[str, Summary | VidRestoreError]:
        """Return the results of the videos that are finished, or failed, without waiting for other shards; a
        single one is waited for.
        """
        if len(batch.sources) == 1:
            return {}
        home = (self.shard.number - 1) * len(batch.sources) // self.shard.count
        finished = dict[str, Summary | VidRestoreError]()
        for source in batch.sources[home:] + batch.sources[:home]:
            try:
                request = batch.request(source)
                outcome: Summary | VidRestoreError | None = self._restore(
                    batch, request, on_event, wait=False
                )
            except VidRestoreError as error:
                outcome = error
            if outcome is not None:
                finished[source] = outcome
        return finished

    def _restore(self, batch: Batch, request: Request, on_event: Listener, *, wait: bool) -> Summary | None:
        """Restore what this shard can of one video, and return the summary once any shard has joined it.

        Without `wait`, return None if others have claimed all that is left.
        """
        folder = WorkFolder.of(request)
        load, own = batch.loader(request, on_event), self._tally[request.source]
        with ExitStack() as inside:
            inside.callback(_leave, request, folder)
            job = _retried(
                lambda: inside.enter_context(check(request, load, on_event, own=own)),
                (OutputExistsError, BusyError),  # as another shard may be naming it just now
                lambda: not folder.path.is_dir(),
            )
            if isinstance(job, Summary):
                return job
            assert job.folder is not None
            job.begin(on_event)
            inside.enter_context(warn_if_stopped(job, folder, on_event))
            return _Sharded(job, job.folder, self.shard, on_event, self._tally).run(wait=wait)


def _leave(request: Request, folder: WorkFolder) -> None:
    """If no other shard uses the folder, remove it if it has no finished segments or its video is joined."""
    with suppress(VidRestoreError, OSError):
        if clear_up(request, folder) is None and folder.path.is_dir():
            with folder.locked():  # which removes a folder without finished segments
                pass


def _retried(attempt: Callable[[], T], errors: tuple[type[Exception], ...], is_last: Callable[[], bool]) -> T:
    """Return the result of an attempt that may fail because of what another process is about to finish; once
    `is_last` is true, there is one more.
    """
    deadline, last = time.monotonic() + PATIENCE, False
    while True:
        try:
            return attempt()
        except errors:
            if last or time.monotonic() > deadline:
                raise
            last = is_last()
        time.sleep(locks.POLL)


class _Sharded:
    """A shard at work on one video."""

    def __init__(
        self,
        job: Job,
        folder: WorkFolder,
        shard: Shard,
        on_event: Listener,
        tally: Counter[Source],
    ) -> None:
        self.job, self.folder, self.shard, self.on_event = job, folder, shard, on_event
        self.claims, self.tally = folder.claims, tally
        self.began = time.monotonic()
        self.work: SegmentedWork | None = None
        self.joined: Summary | None = None

    def is_joined(self) -> bool:
        """Return True if the output has its name, whichever shard joined it: the marker is removed last."""
        first = self.job.request.output.first_file
        return first.exists() and (self.folder.read("job") is None or self.folder.marker(first) is not None)

    def run(self, *, wait: bool) -> Summary | None:
        """Restore all that can be restored; return None if others have claimed the rest and `wait` is False.
        A failure because others finished while this one worked is not an error.
        """
        try:
            return self._run(wait=wait)
        except (OSError, MediaError, PlanError) as error:
            if self.is_joined():
                return self.done_by_others()
            if isinstance(error, OSError):
                raise write_problem(str(self.folder.path), error) from error
            raise

    def _run(self, *, wait: bool) -> Summary | None:
        with self.claims.held("job"):
            if self.is_joined():
                return self.done_by_others()
            self.work = SegmentedWork.begin(self.job, self.folder, self.on_event, beside=True)
            self.work.check_output()
        claimed = ClaimedWork(self.work, self.claims, self.shard, self.tally)
        while not self.is_joined():
            if self._step(claimed):
                continue
            if not wait:
                return None
            time.sleep(locks.POLL)
        if wait:
            self._wait_for_joiner()
        return self.joined or self.done_by_others()

    def _step(self, claimed: ClaimedWork) -> bool:
        """Plan, restore or join, whichever comes next; return False if others have claimed all of it."""
        work = claimed.work
        if not work.is_planned and not work.load_plan():
            with self.claims.taken("plan") as free:
                if free and not work.load_plan():
                    work.plan()
        elif work.left():
            return claimed.step()
        else:
            with self.claims.taken("join") as free:
                if free and not self.is_joined() and not work.missing():
                    remove_partials(self.folder.output, alone=True)  # left by a process that died here
                    work.reused = len(self.job.plan.timeline.pts) - self.tally[self.job.request.source]
                    self.joined = join(work, self.began)
        return free

    def _wait_for_joiner(self) -> None:
        """Wait until the shard that named the output has cleared up, or clear up in its place if it died."""
        with suppress(FileNotFoundError):
            while self.folder.marker(self.job.request.output.first_file) is not None:
                if self.claims.take("join"):
                    self.folder.remove()
                    return
                time.sleep(locks.POLL)

    def done_by_others(self) -> Summary:
        """Announce the summary of a video that another process joined."""
        own, work = self.tally[self.job.request.source], self.work
        is_planned = work is not None and work.is_planned
        try:
            marker = output_marker(self.job.request)
        except OutputExistsError:
            if not is_planned:
                raise
            marker = None
        if marker is None:
            damage = work.source_damage if work else None
            marker = {"frames": len(self.job.plan.timeline.pts), "damage": damage}
        found = Summary.of_marker(self.job.request, marker, own=own)
        seconds, retried = time.monotonic() - self.began, work.retried if work else 0
        return announced(replace(found, seconds=seconds, retried=retried), self.on_event)
