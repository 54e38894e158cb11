"""Restore the small files of a batch side by side, so that each core has work.

A photograph or a short clip has parts that one core works on alone: it is opened, planned, encoded and
checked. While it doesn't fill the cores and the memory, the next files begin, each in a thread of its own.
They share the workers (`cores.Crew`) and the memory that a single file may take. A file that fills them waits
until it is alone. Each has its own job, lock and output; the caller sees one after the other, as in a batch
that is restored one by one.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from vidrestore.errors import VidRestoreError
from vidrestore.events import Event, Listener, Progressed, Summary
from vidrestore.jobs.batch import Batch, Runner
from vidrestore.jobs.request import Request
from vidrestore.jobs.run import restore_request
from vidrestore.working import HERE, LOOK, check_stop, threads_for

if TYPE_CHECKING:
    from vidrestore.cores import Crew
    from vidrestore.jobs.segmented import SegmentedWork


class Turn:
    """A file of a batch that was begun, in a thread of its own. The lock of its runner guards all fields.

    events: those that were not passed on yet.
    share: of the memory for clips; None until it may be restored, 0 when it is.
    summary, error: how it ended.
    """

    def __init__(self) -> None:
        self.events = deque[Event]()
        self.share: float | None = None
        self.has_ended = False
        self.summary: Summary | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread()


class SideBySide(Runner):
    """Restores the files of a batch in threads of this process, several at once if they are small.

    `restore` passes on the events of its file alone, and raises its error, in the thread that calls it. If
    that is interrupted, all files stop; those whose turn had not come are left for the next run.
    """

    def __init__(self) -> None:
        self._changed, self._stop = threading.Condition(), threading.Event()
        self._turns: dict[str, Turn] = {}  # by source
        self._waiting = deque[str]()  # sources
        self._workers = 1
        self._crew: Crew | None = None
        self._closing = ExitStack()

    def check(self, batch: Batch) -> None:
        self._waiting = deque(batch.sources)
        self._workers = threads_for(batch.options.threads)

    def restore(
        self, batch: Batch, request: Request, on_event: Listener
    ) -> Summary | None:
        if self._workers == 1 or len(batch.sources) == 1:
            return super().restore(batch, request, on_event)
        # begun ahead, unless it is the first, or too large for that
        name = request.source.name
        if name not in self._turns:
            with suppress(ValueError):  # one that another process has worked on
                self._waiting.remove(name)
            self._begin(batch, request)
        turn = self._turns[name]
        try:
            while not self._pass_on(turn, on_event):
                self._begin_others(batch)
        except KeyboardInterrupt:
            # what the file that was interrupted has kept
            self._end()
            self._pass_on(turn, on_event)
            raise
        finally:
            del self._turns[name]
        if turn.error is not None:
            raise turn.error
        return turn.summary

    def close(self) -> bool:
        self._end()
        self._closing.close()
        return True

    def _end(self) -> None:
        """Stop all files, and wait until they have left what is finished."""
        self._stop.set()
        for turn in self._turns.values():
            if turn.thread.is_alive():
                turn.thread.join()

    # In the caller's thread

    def _pass_on(self, turn: Turn, on_event: Listener) -> bool:
        """Wait for events of a file, or room for others, and pass them on; return True if it has ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: turn.events or turn.has_ended or self._may_begin(), LOOK
            )
            events, has_ended = [*turn.events], turn.has_ended
            turn.events.clear()
        for event in events:
            on_event(event)
        return has_ended

    def _may_begin(self) -> bool:
        """Return True if one more file can begin: those that have begun are restored already, and leave a
        worker and memory.
        """
        running = [turn for turn in self._turns.values() if not turn.has_ended]
        shares = [1.0 if turn.share is None else turn.share for turn in running]
        return bool(self._waiting) and len(running) < self._workers and sum(shares) < 1

    def _begin_others(self, batch: Batch) -> None:
        """Begin the next file if there is room for it."""
        with self._changed:
            source = self._waiting.popleft() if self._may_begin() else None
        if source is not None:
            with suppress(VidRestoreError):  # raised when its turn comes
                self._begin(batch, batch.request(source))

    def _begin(self, batch: Batch, request: Request) -> None:
        turn = Turn()
        turn.thread = threading.Thread(
            target=self._work, args=(turn, batch, request), daemon=True
        )
        with self._changed:
            self._turns[request.source.name] = turn
        turn.thread.start()

    # In the thread of a file

    def _work(self, turn: Turn, batch: Batch, request: Request) -> None:
        HERE.flag = self._stop

        def listen(event: Event) -> None:
            if isinstance(event, Progressed):
                check_stop()
            with self._changed:
                turn.events.append(event)
                self._changed.notify_all()

        try:
            load, run = batch.loader(request, listen), partial(self._run, turn)
            turn.summary = restore_request(request, load, listen, run)
        except BaseException as error:
            turn.error = error
        with self._changed:
            turn.has_ended = True
            self._changed.notify_all()

    def _run(self, turn: Turn, work: SegmentedWork) -> None:
        """Restore the segments of a file once it has room beside others."""
        from vidrestore.cores import MEMBER, Crew

        stages, frames = work.job.steps.stages, work.total
        share = min(1.0, sum(stage.memory_share(frames) for stage in stages))

        def has_room() -> bool:
            others = [other.share or 0.0 for other in self._turns.values()]
            return sum(others) + share <= 1

        with self._changed:
            while not self._changed.wait_for(has_room, LOOK):
                check_stop()
            turn.share = share
            if self._crew is None:
                crew = Crew(self._workers, is_shared=True)
                self._crew = self._closing.enter_context(crew)
            MEMBER.crew = self._crew
            self._changed.notify_all()
        try:
            work.run()
        finally:
            with self._changed:
                turn.share = 0.0
                self._changed.notify_all()
