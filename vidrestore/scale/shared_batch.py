"""Ways to restore the videos of a batch by several processes."""

from __future__ import annotations

from collections import Counter
from functools import partial

from vidrestore.errors import VidRestoreError
from vidrestore.events import Listener
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.job import Summary
from vidrestore.jobs.run import restore_request
from vidrestore.media.source import Source
from vidrestore.scale.shards import Shard, check_options, check_shared, restore_shard
from vidrestore.scale.workers import Workers, restore_with


class AsShard:
    """The part of one shard in several videos: all that no other has claimed, video by video, beginning
    elsewhere than the others; only then it waits for them.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._tally = Counter[Source]()  # frames of each source that this shard has restored
        self._finished: dict[str, Summary | VidRestoreError] | None = None  # once the first pass was made

    def check(self, batch: Batch) -> None:
        check_options(batch.options)
        for source in batch.sources:
            check_shared(batch.request(source))

    def restore(self, batch: Batch, source: str, on_event: Listener) -> Summary:
        """The first call does all that this shard can do of any video. Raises VidRestoreError as
        `vidrestore.restore` does.
        """
        if self._finished is None:
            self._finished = self._first_pass(batch, on_event)
        outcome = self._finished.get(source) or self._attempt(batch, source, on_event, wait=True)
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
        ordered = batch.sources[home:] + batch.sources[:home]
        outcomes = ((source, self._attempt(batch, source, on_event)) for source in ordered)
        return {source: outcome for source, outcome in outcomes if outcome is not None}

    def _attempt(
        self, batch: Batch, source: str, on_event: Listener, *, wait: bool = False
    ) -> Summary | VidRestoreError | None:
        try:
            return restore_shard(
                batch.request(source),
                self.shard,
                batch.loader(source, on_event),
                on_event,
                wait=wait,
                tally=self._tally,
            )
        except VidRestoreError as error:
            return error


class ByWorkers:
    """Each video is restored by workers that keep their models loaded, until `close`."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def check(self, batch: Batch) -> None:
        for source in batch.sources:
            check_shared(batch.request(source))

    def restore(self, batch: Batch, source: str, on_event: Listener) -> Summary:
        run = partial(restore_with, self.workers)
        return restore_request(batch.request(source), batch.loader(source, on_event), on_event, run)

    def close(self) -> bool:
        self.workers.stop()
        return True
