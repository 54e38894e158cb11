"""Control the level of FFmpeg's log, which PyAV discards by default, and collect the errors of one source."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.codec.context import CodecContext

_lock = threading.Lock()
_wanted: list[int] = []
_before: list[tuple[int | None, bool]] = []


@contextmanager
def log_level(level: int) -> Iterator[None]:
    """Log FFmpeg's messages up to `level` (av.logging.ERROR, INFO ...), then restore the settings; calls may
    overlap.
    """
    from av import logging as ffmpeg

    with _lock:
        if not _wanted:
            _before[:] = [(ffmpeg.get_level(), ffmpeg.get_skip_repeated())]
            ffmpeg.set_skip_repeated(False)  # a file read a second time logs the same messages
        _wanted.append(level)
        ffmpeg.set_level(max(_wanted))
    try:
        yield
    finally:
        with _lock:
            _wanted.remove(level)
            if _wanted:
                ffmpeg.set_level(max(_wanted))
            else:
                level_before, skipped_before = _before.pop()
                ffmpeg.set_level(level_before)
                ffmpeg.set_skip_repeated(skipped_before)


_collectors: dict[int, ErrorCollector] = {}  # by the thread (its number in the system) that works for it
_opening = threading.Lock()


class ErrorCollector(logging.Handler):
    """Passes errors of FFmpeg's components in `names` to `collect`: those of threads that work for it, and
    those of threads that work for no other.
    """

    def __init__(self, names: frozenset[str], collect: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self.names, self.collect = names, collect

    def emit(self, record: logging.LogRecord) -> None:
        name = record.name.removeprefix("libav.")
        if name in self.names and _collectors.get(threading.get_native_id(), self) is self:
            self.collect(f"{name}: {record.getMessage()}")

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Take errors of this thread for its own until the block ends."""
        thread = threading.get_native_id()
        before = _collectors.get(thread)
        _collectors[thread] = self
        try:
            yield
        finally:
            if before is None:
                del _collectors[thread]
            else:
                _collectors[thread] = before

    def open(self, context: CodecContext) -> None:
        """Open a decoder, and take errors of the threads that it starts for its own."""
        with _opening, self.calling():
            before = _threads()
            context.open(strict=False)
            for thread in _threads() - before:
                _collectors[thread] = self

    def close(self) -> None:
        super().close()
        for thread in [thread for thread, owner in list(_collectors.items()) if owner is self]:
            del _collectors[thread]


def errors_ignored() -> AbstractContextManager[None]:
    """Keep this thread's errors from those who collect errors in other threads, until the block ends."""
    return ErrorCollector(frozenset(), lambda message: None).calling()


def _threads() -> set[int]:
    """Return the numbers of this process's threads; empty where the system doesn't list them."""
    try:
        return set(map(int, os.listdir("/proc/self/task")))
    except OSError:
        return set()


@contextmanager
def collect_errors(names: frozenset[str], collect: Callable[[str], None]) -> Iterator[ErrorCollector]:
    """Pass FFmpeg's errors to `collect`, from any thread, including the decoder's own.

    Only errors of components in `names` (the decoder, the demuxer) are passed, not those of an encoder that
    runs at the same time; nor those of another decoder, if both are called by `calling` and opened by `open`.
    They come from Python's logging, since av.logging.Capture keeps one global stack, which overlapping users
    would corrupt.
    """
    from av import logging as ffmpeg

    collector = ErrorCollector(names, collect)
    logger = logging.getLogger("libav")
    logger.addHandler(collector)
    try:
        with log_level(ffmpeg.ERROR):
            yield collector
    finally:
        logger.removeHandler(collector)
        collector.close()
