"""How far a job is, told to its listener as the frames go by."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable
from typing import TypeVar

from vidrestore.events import Listener, Progressed

PROGRESS_SECONDS = 0.2  # between two events

T = TypeVar("T")


def counted(frames: Iterable[T], source: str, total: int | None, stage: str, on_event: Listener) -> Generator[T]:
    """The same frames; between them `Progressed` events of `stage`, each after the frame that it counts was dealt with."""
    began = told = time.monotonic()
    for done, frame in enumerate(frames, 1):
        yield frame
        if time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            on_event(Progressed(source, done, total, told - began, stage, peak_memory()))


def peak_memory() -> int | None:
    """Peak resident bytes of this process; None where the system doesn't say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
