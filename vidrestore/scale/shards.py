"""Shards: `--shard i/n` restores the i-th of n equal parts of a batch, as the tasks of an array job do.

The first process there plans a video, each restores its part, and the one that finds all parts there joins
them. None waits for the part of another: the command of a part that is missing makes it. What has one segment
only, such as a photograph, is the whole part of one process; they take turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from vidrestore.errors import MediaError, OptionError, OutputExistsError
from vidrestore.events import Listener, Summary, Warned
from vidrestore.jobs.batch import Batch, Runner
from vidrestore.jobs.request import Request
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.run import check, earlier_summary, join, warn_if_stopped
from vidrestore.jobs.segmented import SegmentedWork
from vidrestore.media.formats.source import PIPE

T = TypeVar("T")


def divided(sequence: Sequence[T], count: int) -> list[Sequence[T]]:
    """Return `count` runs of a sequence of about the same length, in order."""
    edges = [number * len(sequence) // count for number in range(count + 1)]
    return [sequence[first:stop] for first, stop in pairwise(edges)]


def check_shared(batch: Batch) -> None:
    """Raise OptionError for a batch that several processes can't restore together."""
    if PIPE in batch.sources or any(
        target.is_pipe for target in batch.outputs.values()
    ):
        raise OptionError(
            "several processes need a file to read and a file to write, not a pipe"
        )


@dataclass(frozen=True)
class Shard(Runner):
    """Restores the `number`th of `count` parts of a batch, counted from 1."""

    number: int
    count: int

    def check(self, batch: Batch) -> None:
        for name in ("overwrite", "restart"):
            if getattr(batch.options, name):
                raise OptionError(
                    f"`{name}` would discard what other shards have finished; remove the output and the "
                    "folder OUTPUT.vidrestore before they start"
                )
        check_shared(batch)

    def restore(
        self, batch: Batch, request: Request, on_event: Listener
    ) -> Summary | None:
        """Restore a part of one video, and join the video if no part is missing then, else return None."""
        # plan together with other shards, which wait for the lock
        folder = WorkFolder.of(request)
        load = batch.loader(request, on_event)
        with ExitStack() as stack:
            with folder.locked(shared=True):
                job = stack.enter_context(check(request, load, on_event, folder=folder))
                if isinstance(job, Summary):
                    return job
                job.begin(on_event)
                work = SegmentedWork.begin(job, folder, on_event, shared=True)
                work.check_output()
                work.plan()
                part = stack.enter_context(ExitStack())
                part.enter_context(folder.shard_locked(self.number, self.count))
            stack.enter_context(warn_if_stopped(work))
            # restore the shard's own segments
            began = time.monotonic()
            place = batch.sources.index(request.source.name)
            parts = self.parts(len(work.segments), place)
            own = parts[self.number - 1]
            try:
                work.restore(
                    [segment for segment in work.unfinished() if segment.number in own]
                )
            except MediaError:
                # else another shard, of another `count`, has joined the video meanwhile
                if folder.has_job:
                    raise
            # join the video if this was the last shard of it
            with folder.locked(shared=True):
                part.close()
                if not folder.has_job:  # another shard has joined the video
                    try:
                        joined = earlier_summary(request, on_event, folder)
                        if isinstance(joined, Summary):
                            return joined
                    except OutputExistsError:  # it has no tag, as with `tags=False`
                        on_event(
                            Warned(
                                request.source.name,
                                "another shard has joined the video",
                            )
                        )
                        return None
                if not (work.unfinished() or work.missing()):
                    return join(work, began)
                left = {segment.number for segment in work.unfinished()}
            # say what is missing of it
            missing = [
                f"{number}/{self.count}"
                for number, part in enumerate(parts, 1)
                if left & {*part}
            ]
            text = f"left to {', '.join(missing)}"
            if own or len(batch.sources) == 1:
                text = f"part {self.number}/{self.count} is finished; missing: {', '.join(missing)}; "
                text += "the same command with `shard` makes each of them"
            on_event(Warned(request.source.name, text))
            return None

    def parts(self, segments: int, place: int) -> list[Sequence[int]]:
        """Return the segments of each part of the video at a `place` in its batch: equal runs. Parts have the
        longer ones in turn.
        """
        runs = divided(range(segments), self.count)
        turn = place % self.count
        return runs[turn:] + runs[:turn]

    def close(self) -> bool:
        """Leave the folders for outputs: other shards may be about to use them."""
        return False
