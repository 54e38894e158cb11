"""Several sources, restored by several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from vidrestore.errors import VidRestoreError
from vidrestore.events import Listener
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.job import Summary, ignore
from vidrestore.jobs.run import restore_request
from vidrestore.media.source import Source
from vidrestore.options import RestoreOptions
from vidrestore.scale.shards import Shard, check_options, check_shared, restore_shard
from vidrestore.scale.workers import Workers, restore_with


class ShardedBatch(Batch):
    """The part of one shard in several videos: all that no other has claimed, video by video, beginning
    elsewhere than the others; only then it waits for them. As `jobs.batch.Batch` otherwise.
    """

    def __init__(
        self,
        sources: Sequence[str],
        output: str | None,
        task: str,
        options: RestoreOptions,
        shard: Shard,
        *,
        recursive: bool = False,
        photos: bool = False,
    ) -> None:
        super().__init__(sources, output, task, options, recursive=recursive, photos=photos)
        self.shard = shard
        check_options(options)
        for source in self.sources:
            check_shared(self.request(source))
        self._tally = Counter[Source]()  # frames of each source that this shard has restored
        self._finished: dict[str, Summary | VidRestoreError] | None = None  # once the first pass was made

    def restore(self, source: str, on_event: Listener = ignore) -> Summary:
        """The first call does all that this shard can do of any video. Raises VidRestoreError as
        `vidrestore.restore` does.
        """
        if self._finished is None:
            self._finished = self._first_pass(on_event)
        outcome = self._finished.get(source) or self._attempt(source, on_event, wait=True)
        if isinstance(outcome, VidRestoreError):
            raise outcome
        assert outcome is not None
        return outcome

    def close(self) -> None:
        """Leave the folders for outputs: other shards may be about to use them."""

    def _first_pass(self, on_event: Listener) -> dict[str, Summary | VidRestoreError]:
        """Return the results of the videos that are finished, or failed, without waiting for other shards; a
        single one is waited for.
        """
        if len(self.sources) == 1:
            return {}
        outcomes = ((source, self._attempt(source, on_event)) for source in self._from_home())
        return {source: outcome for source, outcome in outcomes if outcome is not None}

    def _from_home(self) -> list[str]:
        home = (self.shard.number - 1) * len(self.sources) // self.shard.count
        return self.sources[home:] + self.sources[:home]

    def _attempt(
        self, source: str, on_event: Listener, *, wait: bool = False
    ) -> Summary | VidRestoreError | None:
        try:
            return restore_shard(
                self.request(source),
                self.shard,
                self.loader(source, on_event),
                on_event,
                wait=wait,
                tally=self._tally,
            )
        except VidRestoreError as error:
            return error


class WorkersBatch(Batch):
    """Several videos, each restored by workers that keep their models loaded, until `close`. As
    `jobs.batch.Batch` otherwise.
    """

    def __init__(
        self,
        sources: Sequence[str],
        output: str | None,
        task: str,
        options: RestoreOptions,
        workers: Workers,
        *,
        recursive: bool = False,
        photos: bool = False,
    ) -> None:
        super().__init__(sources, output, task, options, recursive=recursive, photos=photos)
        self.workers = workers
        for source in self.sources:
            check_shared(self.request(source))

    def restore(self, source: str, on_event: Listener = ignore) -> Summary:
        return restore_request(
            self.request(source), self.loader(source, on_event), on_event, partial(restore_with, self.workers)
        )

    def close(self) -> None:
        self.workers.stop()
        super().close()
