"""Control the level of FFmpeg's log, which PyAV discards by default, and collect the errors of one source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from av import logging as ffmpeg
from av.logging import Capture

# a garbage collection in a locked part may end another user of it
_lock = threading.RLock()
_levels: list[int] = []
_before: list[tuple[int | None, bool]] = []


@contextmanager
def log_level(level: int) -> Iterator[None]:
    """Log FFmpeg's messages up to `level` (such as av.logging.ERROR) in the block; blocks may overlap."""
    with _lock:
        if not _levels:
            _before[:] = [(ffmpeg.get_level(), ffmpeg.get_skip_repeated())]
            # a file read a second time logs the same messages
            ffmpeg.set_skip_repeated(False)
        _levels.append(level)
        ffmpeg.set_level(max(_levels))
    try:
        yield
    finally:
        with _lock:
            _levels.remove(level)
            if _levels:
                ffmpeg.set_level(max(_levels))
            else:
                level_before, skipped_before = _before.pop()
                ffmpeg.set_level(level_before)
                ffmpeg.set_skip_repeated(skipped_before)


class ErrorCollector:
    """Collects the errors of one demuxer and one decoder, and no others' of the same names.

    What the calling thread logs in `calling` is its own. Frame threads of a decoder log by themselves, with
    its context's `log_level_offset`, which each copies: an ERROR (16) of the decoder with mark 3 has level
    13, a FATAL (8) level 5. There are seven marks; a decoder without one gets a single thread.
    """

    def __init__(
        self, names: frozenset[str], collect: Callable[[str], None], mark: int
    ) -> None:
        self.names, self.mark = names, mark
        self._collect = collect
        # errors of frame threads that `collect` has not got yet
        self._errors: list[str] = []

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Collect what this thread logs until the block ends; for calls of the demuxer and the decoder."""
        with ffmpeg.Capture() as messages:
            try:
                yield
            finally:
                for level, name, message in messages:
                    if level <= ffmpeg.ERROR and name in self.names:
                        self._collect(f"{name}: {message.strip()}")
                self.hand_over()

    def hand_over(self) -> None:
        """Give each collector what frame threads have logged, and `collect` those of this one."""
        with _lock:
            while _captures and _captures[0].logs:
                level, name, message = _captures[0].logs.pop(0)
                for other in _collectors:
                    if other.mark and level in (
                        ffmpeg.ERROR - other.mark,
                        ffmpeg.FATAL - other.mark,
                    ):
                        other._errors.append(f"{name}: {message.strip()}")
        while self._errors:
            self._collect(self._errors.pop(0))


_MARKS = frozenset(range(1, 8))
_collectors: list[ErrorCollector] = []
# one while there are collectors: of all threads, outside `calling`
_captures: list[Capture] = []


@contextmanager
def collect_errors(
    names: frozenset[str], collect: Callable[[str], None]
) -> Iterator[ErrorCollector]:
    """Pass FFmpeg's errors to `collect`: those of components in `names` (the decoder, the demuxer) in
    `calling`, and those of the threads of the decoder whose `log_level_offset` is `-mark`.

    PyAV keeps one stack of captures for all threads, which overlapping ones would corrupt: there is one.
    """
    with log_level(ffmpeg.ERROR):
        with _lock:
            if not _collectors:
                _captures[:] = [ffmpeg.Capture(local=False)]
                _captures[0].__enter__()
            free = _MARKS - {other.mark for other in _collectors}
            collector = ErrorCollector(names, collect, min(free, default=0))
            _collectors.append(collector)
        try:
            yield collector
        finally:
            collector.hand_over()
            with _lock:
                _collectors.remove(collector)
                if not _collectors:
                    _captures.pop().__exit__(None, None, None)
