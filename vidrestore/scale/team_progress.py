"""How far several processes are, told to one listener."""

from __future__ import annotations

import time

from vidrestore.events import Listener, Progressed
from vidrestore.jobs.frame_progress import PROGRESS_SECONDS, peak_memory


class Progress:
    """`total` frames are to be restored; `add` those that were, or say how many are `left`."""

    def __init__(self, source: str, total: int, on_event: Listener) -> None:
        self.source, self.total, self.on_event = source, total, on_event
        self.done = 0
        self._began = self._told = time.monotonic()

    def add(self, frames: int) -> None:
        """So many more are restored."""
        self.done = min(self.total, self.done + frames)
        if time.monotonic() - self._told >= PROGRESS_SECONDS:
            self._told = time.monotonic()
            self.on_event(Progressed(self.source, self.done, self.total, self._told - self._began, "restore", peak_memory()))

    def left(self, frames: int) -> None:
        """So many are still to be restored, whoever did the others."""
        self.done = max(0, self.total - frames)
