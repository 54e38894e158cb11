"""Plan a video in a thread of its own, while what is planned is restored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition, Event, Thread, get_ident
from typing import Self

from vidrestore import events
from vidrestore.cores import use_one_thread
from vidrestore.jobs.job import Job, planned_clips_of
from vidrestore.pipeline.chain import report_progress
from vidrestore.working import HERE, LOOK, check_stop


class PlanAhead:
    """Plans a job in a thread of its own, which ends with the `with` block; the plan grows by whole clips.

    The thread that makes it gets the events of planning while it waits, and in `pass_on`. `finish` is called
    in the other one with the finished plan.
    """

    def __init__(
        self, job: Job, on_event: events.Listener, finish: Callable[[], None]
    ) -> None:
        self.timeline = job.plan.timeline
        self.is_finished = False
        self.shows_progress = True  # else only the other events are passed on
        self._job, self._on_event, self._finish, self._maker = (
            job,
            on_event,
            finish,
            get_ident(),
        )
        self._events = deque[events.Event]()
        self._count = 0  # clips that are planned
        self._error: BaseException | None = None
        self._changed, self._stop = Condition(), Event()
        self._thread = Thread(target=self._plan, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _plan(self) -> None:
        """Plan all clips, in a thread of its own, counting those that others may take."""
        error: BaseException | None = None
        HERE.flag = self._stop
        use_one_thread()
        # a clip is counted once it is in the plan as a whole
        try:
            for count, _ in enumerate(
                planned_clips_of(self._job, self._events.append), 1
            ):
                del _  # its frames
                with self._changed:
                    self._count = count
                    self._changed.notify_all()
                check_stop()
            self._finish()
        except BaseException as caught:
            error = caught
        # the last word: finished, or what went wrong
        with self._changed:
            self.is_finished, self._error = True, error
            self._changed.notify_all()

    def clips(self, first: int = 0) -> Iterator[int]:
        """Yield the indices of the clips from `first` on, each once it is planned. Raises what planning
        raised, in any thread.
        """
        index = first
        while self._has(index):
            yield index
            index += 1

    def _has(self, index: int) -> bool:
        """Wait for a clip; return False if the plan ends before."""
        is_decided = False
        # wake up now and then, to pass on events and to notice a stop
        while not is_decided:
            with self._changed:
                is_decided = self._changed.wait_for(
                    lambda: self.is_finished or self._count > index, LOOK
                )
            if get_ident() == self._maker:
                self.pass_on()
            if self._error is not None:
                raise self._error
            report_progress()
        return self._count > index

    def pass_on(self) -> None:
        """Pass on the events that planning has sent."""
        while self._events:
            event = self._events.popleft()
            if self.shows_progress or not isinstance(event, events.Progressed):
                self._on_event(event)
