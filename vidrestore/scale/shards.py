"""Shards: processes that know nothing of each other but a folder they share, each restoring what no other has claimed.

All plan one film together, one of them at a time: the first one there makes the plan, each takes runs of neighbouring segments, and whoever
finds all of them finished joins the film. A shard that dies leaves its finished segments, and its claims until they expire. The number of a
shard says only where in the film it begins, so that runs are long and few clips are restored twice; all of them can do all the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from vidrestore.errors import MediaError, OptionError, OutputExistsError, PlanError, VidRestoreError
from vidrestore.events import Listener, Started
from vidrestore.files.atomic import own_partial_path, remove_partials, write_problem
from vidrestore.files.lease import BusyError
from vidrestore.frames import Frame
from vidrestore.jobs.finished import done_before, finished_before, named_film
from vidrestore.jobs.job import Job, RestorerLoader, Summary, check_request, left_alone
from vidrestore.jobs.run import join, kept, prepared, told, warn
from vidrestore.jobs.segmented import SegmentedWork
from vidrestore.jobs.segments import Segment
from vidrestore.jobs.work_folder import WorkFolder
from vidrestore.media.encoders import PIPE
from vidrestore.media.reader import VideoReader
from vidrestore.options import RestoreOptions
from vidrestore.scale import claims as leases
from vidrestore.scale.claims import Claims
from vidrestore.scale.runs import from_home, run_length
from vidrestore.scale.team_progress import Progress

PATIENCE = 5.0  # seconds for another process that only looks whether the job is done


@dataclass(frozen=True)
class Shard:
    """The `number`th of `count` shards, counted from 1."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise OptionError(f"a shard must be one of 1/{self.count} to {self.count}/{self.count}, got {self.number}/{self.count}")


def check_files(source: str, output: str) -> None:
    """Refuse what several processes can't read or write. Raises OptionError."""
    if PIPE in (source, output):
        raise OptionError("several processes need a file to read and a file to write, not a pipe")


def check_options(options: RestoreOptions) -> None:
    """Refuse what shards can't do together. Raises OptionError."""
    if options.overwrite:
        raise OptionError("--overwrite would let a shard that comes late begin anew what the others finished; remove the output first")
    if options.restart:
        raise OptionError("--restart would discard what other shards are at; remove the folder OUTPUT.vidrestore before they start")


def restore_shard(
    source: str, output: str, task: str, options: RestoreOptions, loader: RestorerLoader, on_event: Listener, shard: Shard, *, wait: bool
) -> Summary | None:
    """Do what a shard can for one film, and give what was done once the film is there, whoever joined it.

    With `wait` that is when this returns; otherwise None means that others are at all that is left. Raises VidRestoreError as
    `jobs.run.restore_source` does, OptionError where the options are none for shards.
    """
    check_options(options)
    check_files(source, output)
    folder = WorkFolder(output, options.work_dir)
    if not folder.path.is_dir() and (there := left_alone(source, output, options)):
        return there
    if before := _checked(source, output, task, options, folder):
        on_event(Started(source, output, task, device=options.device))
        return told(before, on_event)
    with VideoReader(source, threads=options.threads, deinterlace=options.deinterlace) as reader:
        job = prepared(reader, output, task, options, loader, on_event)
        try:
            with _inside(folder) as claims, kept(folder, source, on_event):
                return _Sharded(job, reader, folder, claims, shard, on_event).run_or_find_done(wait=wait)
        finally:
            _clear_up(source, task, options, folder)


def _clear_up(source: str, task: str, options: RestoreOptions, folder: WorkFolder) -> None:
    """What the last to leave does: remove a folder without finished segments, or that of a film which has its name."""
    with suppress(VidRestoreError, OSError):
        if finished_before(source, task, options, folder) is None and folder.path.is_dir():
            _remove_unless_finished(folder)


def _remove_unless_finished(folder: WorkFolder) -> None:
    """Remove a folder without finished segments: it goes when its lock is let go. Raises BusyError where another process is in."""
    with folder.locked():
        pass


def _checked(source: str, output: str, task: str, options: RestoreOptions, folder: WorkFolder) -> Summary | None:
    """What was done, where the film is there; another shard may be naming it just now."""
    deadline, last = time.monotonic() + PATIENCE, False
    while True:
        try:
            if before := _done(source, output, task, options, folder):
                return before
            check_request(source, output, options)
            return None
        except OutputExistsError:
            if last or time.monotonic() > deadline:
                raise
            last = not folder.path.is_dir()
        time.sleep(leases.POLL)


def _done(source: str, output: str, task: str, options: RestoreOptions, folder: WorkFolder) -> Summary | None:
    with suppress(BusyError):
        if before := finished_before(source, task, options, folder):
            return before
    return None if named_film(folder) is None and folder.path.is_dir() else done_before(source, output, task, options)


@contextmanager
def _inside(folder: WorkFolder) -> Iterator[Claims]:
    deadline = time.monotonic() + PATIENCE
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(folder.locked(shared=True))
                break
            except BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(leases.POLL)
        yield stack.enter_context(Claims(folder.path, folder.beat))


class _Sharded:
    """A shard at one film."""

    def __init__(self, job: Job, reader: VideoReader, folder: WorkFolder, claims: Claims, shard: Shard, on_event: Listener) -> None:
        self.job, self.reader, self.folder, self.claims, self.shard, self.on_event = job, reader, folder, claims, shard, on_event
        self.began = time.monotonic()
        self.own = 0  # frames
        self._work: SegmentedWork | None = None
        self._progress: Progress | None = None
        self._joined: Summary | None = None

    @property
    def work(self) -> SegmentedWork:
        assert self._work is not None
        return self._work

    def run_or_find_done(self, *, wait: bool) -> Summary | None:
        """As `run`. Whatever goes wrong because others were done while this one was at it is no error."""
        try:
            return self.run(wait=wait)
        except (OSError, MediaError, PlanError) as error:
            if self.is_named():
                return self.done_by_others()
            if isinstance(error, OSError):
                raise write_problem(str(self.folder.path), error) from error
            raise

    def run(self, *, wait: bool) -> Summary | None:
        """All that can be done; None where others are at the rest and nobody is to wait for them."""
        with self.claims.held("job"):
            if self.is_named():
                return self.done_by_others()
            self._begin()
        while not self.is_named():
            if self._step():
                continue
            if not wait:
                return None
            time.sleep(leases.POLL)
        return self._joined or self.done_by_others()

    def _begin(self) -> None:
        self._work = SegmentedWork(self.job, self.reader, self.folder, self.on_event, beside=True)
        self.work.partial = own_partial_path(self.job.plan.output)
        self.work.check_output()
        warn(self.job.info.path, self.job.warnings, self.on_event)

    def is_named(self) -> bool:
        """Whether the film is there, whoever joined it. What tells of it goes after what tells of the job."""
        return self.folder.output.exists() and (self.folder.read("job") is None or named_film(self.folder) is not None)

    def done_by_others(self) -> Summary:
        """What was done, of a film that somebody else joined."""
        plan, outcome = self.job.plan, self._work.outcome if self._work else None
        try:
            found = done_before(self.job.info.path, plan.output, plan.task, self.job.options)
        except OutputExistsError:
            if outcome is None:
                raise
            found = None
        if found is None or not found.frames:
            damage = outcome.damage if outcome else None
            found = Summary(self.job.info.path, plan.output, len(plan.timeline.pts), 0.0, damage=damage)
        retried, seconds, others = self._work.retried if self._work else 0, time.monotonic() - self.began, found.frames - self.own
        summary = replace(found, seconds=seconds, retried=retried, reused=max(0, others), before=self.own == 0)
        return told(summary, self.on_event)

    def _step(self) -> bool:
        """Do what is to be done next; False where others are at all of it."""
        work = self.work
        if work.outcome is None and not work.load_plan():
            return self._plan()
        finished = set(self.folder.finished())
        missing = [segment for segment in work.segments if segment.number not in finished]
        if not missing:
            return self._join()
        run = self._claimed(missing)
        if run:
            self._restore(run, sum(segment.frames for segment in missing))
        return bool(run)

    def _plan(self) -> bool:
        if not self.claims.take("plan"):
            return False
        try:
            if not self.work.load_plan():
                self.work.plan()
        finally:
            self.claims.release("plan")
        return True

    def _claimed(self, missing: list[Segment]) -> list[Segment]:
        """The next run of segments that nobody is at, which are now ours."""
        there, run = self.claims.there(), list[Segment]()
        length = run_length(len(missing), self.shard.count)
        for segment in from_home(missing, self.shard.number - 1, self.shard.count, len(self.work.segments)):
            if run and (len(run) == length or segment.number != run[-1].number + 1):
                break
            taken = self.claims.take(_claim(segment), there)
            if taken and self.folder.segment(segment.number).exists():  # finished since we looked
                self.claims.release(_claim(segment))
                taken = False
            if taken:
                run.append(segment)
            elif run:
                break
        return run

    def _restore(self, run: list[Segment], left: int) -> None:
        if self._progress is None:
            self.work.reused = len(self.job.plan.timeline.pts) - left
            self.work.tell_plan()
            self._progress = Progress(self.job.info.path, left, self.on_event)
        self._progress.left(left)
        try:
            self.work.restore(run, self._counted)
            self.own += sum(segment.frames for segment in run)
        finally:
            for segment in run:
                self.claims.release(_claim(segment))

    def _counted(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        assert self._progress is not None
        for frame in frames:
            self._progress.add(1)
            yield frame

    def _join(self) -> bool:
        if not self.claims.take("join"):
            return False
        try:
            if not self.is_named() and not self.work.missing():
                remove_partials(self.job.plan.output)  # of one that died here
                self.work.reused = len(self.job.plan.timeline.pts) - self.own
                self._joined = join(self.work, self.began)
        finally:
            self.claims.release("join")
        return True


def _claim(segment: Segment) -> str:
    return f"{segment.number:06}"
