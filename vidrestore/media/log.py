"""Control the level of FFmpeg's log, which PyAV discards by default, and collect the errors of one source."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


class _Collector(logging.Handler):
    def __init__(self, names: frozenset[str], collect: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self.names, self.collect = names, collect

    def emit(self, record: logging.LogRecord) -> None:
        name = record.name.removeprefix("libav.")
        if name in self.names:
            self.collect(f"{name}: {record.getMessage()}")


@contextmanager
def collect_errors(names: frozenset[str], collect: Callable[[str], None]) -> Iterator[None]:
    """Pass FFmpeg's errors to `collect`, from any thread, including the decoder's own.

    Only errors of components in `names` (the decoder, the demuxer) are passed, not those of an encoder that
    runs at the same time. They come from Python's logging, since av.logging.Capture keeps one global stack,
    which overlapping users would corrupt.
    """
    from av import logging as ffmpeg

    handler = _Collector(names, collect)
    logger = logging.getLogger("libav")
    logger.addHandler(handler)
    try:
        with log_level(ffmpeg.ERROR):
            yield
    finally:
        logger.removeHandler(handler)
