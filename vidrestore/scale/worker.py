"""A process that restores the segments it is told to: it loads its model once and opens each film once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property

from vidrestore.errors import PlanError, VidRestoreError
from vidrestore.frames import Frame
from vidrestore.jobs.job import ignore, prepare
from vidrestore.jobs.segmented import SegmentedWork
from vidrestore.jobs.segments import Segment
from vidrestore.jobs.work_folder import WorkFolder
from vidrestore.media.reader import VideoReader
from vidrestore.media.span import Span
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.plan import Plan
from vidrestore.restorers.base import Restorer, load_restorer


class WorkerError(VidRestoreError):
    """Processes that were to restore parts of a film ended without having done so."""


@dataclass(frozen=True)
class Film:
    """A film in paths and numbers, as it is told to other processes."""

    source: str
    output: str
    span: Span

    @classmethod
    def of(cls, plan: Plan) -> Film:
        return cls(plan.source.path, os.path.abspath(plan.output), plan.span)


class Worker:
    """Restores runs of segments of films whose plans are finished, `task` with `options`."""

    def __init__(self, task: str, options: RestoreOptions) -> None:
        self.task, self.options = task, replace(options, restart=False)  # only who tells workers what to do begins anew
        self._film: Film | None = None
        self._open = ExitStack()

    @cached_property
    def restorer(self) -> Restorer:
        return load_restorer(self.task, self.options)

    def restore(self, film: Film, run: list[Segment], count: Callable[[], None] = lambda: None) -> int:
        """Restore segments that follow each other, calling `count` for every frame; gives the number of clips that half precision could
        not hold. Raises VidRestoreError.
        """
        if film != self._film:
            self.close()
            self._work = self._opened(film)
            self._film = film
        before = self._work.retried

        def counted(frames: Iterator[Frame]) -> Iterator[Frame]:
            for frame in frames:
                count()
                yield frame

        self._work.restore(run, counted)
        return self._work.retried - before

    def _opened(self, film: Film) -> SegmentedWork:
        reader = self._open.enter_context(VideoReader(film.source, threads=self.options.threads, deinterlace=self.options.deinterlace))
        job = prepare(reader.info, film.output, self.task, self.options, lambda: self.restorer, film.span)
        folder = WorkFolder(film.output, self.options.work_dir)
        if folder.read("job") is None:
            raise PlanError(f"{folder.path}: a worker sees no job there; workers need the same folders as the process that they work for")
        work = SegmentedWork(job, reader, folder, ignore, beside=True)
        if not work.load_plan():
            raise PlanError(f"{folder.path}: a worker sees no plan there; is the folder shared by all machines?")
        return work

    def close(self) -> None:
        """Let go of the film."""
        self._film = None
        self._open.close()
