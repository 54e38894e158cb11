"""Several sources, restored by several processes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from vidrestore.errors import VidRestoreError
from vidrestore.events import Listener
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.job import Summary, ignore
from vidrestore.jobs.run import restore_source
from vidrestore.options import RestoreOptions
from vidrestore.scale.shards import Shard, check_files, check_options, restore_shard
from vidrestore.scale.team import Workers, restore_with


class ShardedBatch(Batch):
    """What one shard does of several films: all that no other is at, film by film, beginning elsewhere than the others; only then it waits
    for them. As `jobs.batch.Batch` otherwise.
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
        many: bool = False,
    ) -> None:
        super().__init__(sources, output, task, options, recursive=recursive, many=many)
        self.shard = shard
        check_options(options)
        for source, target in self.outputs.items():
            check_files(source, target)
        self._finished: dict[str, Summary | VidRestoreError] | None = None  # once the first pass was made

    def restore(self, source: str, on_event: Listener = ignore) -> Summary:
        """The first film asked for waits for all that this shard can do of any. Raises VidRestoreError as `vidrestore.restore` does."""
        if self._finished is None:
            self._finished = self._first_pass(on_event)
        outcome = self._finished.get(source) or self._attempt(source, on_event, wait=True)
        if isinstance(outcome, VidRestoreError):
            raise outcome
        assert outcome is not None
        return outcome

    def _first_pass(self, on_event: Listener) -> dict[str, Summary | VidRestoreError]:
        """What came of the films that are done, or failed, without waiting for other shards; a film alone is waited for at once."""
        if len(self.sources) == 1:
            return {}
        outcomes = ((source, self._attempt(source, on_event)) for source in self._from_home())
        return {source: outcome for source, outcome in outcomes if outcome is not None}

    def _from_home(self) -> list[str]:
        home = (self.shard.number - 1) * len(self.sources) // self.shard.count
        return self.sources[home:] + self.sources[:home]

    def _attempt(self, source: str, on_event: Listener, *, wait: bool = False) -> Summary | VidRestoreError | None:
        target, task, options = self.outputs[source], self.task, self.options
        try:
            return restore_shard(source, target, task, options, lambda: self.restorer, on_event, self.shard, wait=wait)
        except VidRestoreError as error:
            return error


class TeamBatch(Batch):
    """Several films, each restored by a team of workers that keep their models loaded, until `close`. As `jobs.batch.Batch` otherwise."""

    def __init__(
        self,
        sources: Sequence[str],
        output: str | None,
        task: str,
        options: RestoreOptions,
        workers: Workers,
        *,
        recursive: bool = False,
        many: bool = False,
    ) -> None:
        super().__init__(sources, output, task, options, recursive=recursive, many=many)
        self.workers = workers
        for source, target in self.outputs.items():
            check_files(source, target)

    def restore(self, source: str, on_event: Listener = ignore) -> Summary:
        run = partial(restore_with, self.workers)
        target, task, options = self.outputs[source], self.task, self.options
        return restore_source(source, target, task, options, lambda: self.restorer, on_event, again=self.again, run=run)

    def close(self) -> None:
        self.workers.stop()
        super().close()
