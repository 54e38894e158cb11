"""Stop at Ctrl-C and the like, and delay that during a step that must not be interrupted.

The first signal raises KeyboardInterrupt in the main thread, and every `with` and `finally` on the way out
cleans up: threads (`pipeline.chain`), unfinished files (`files.atomic`), the work folder
(`jobs.run.warn_if_stopped` reports its content), the checkpoint of a training run. The second signal ends the
process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

INTERRUPTED = 130  # exit code
# Ctrl-C, a request to end, and a terminal that was closed or lost (SIGBREAK: Ctrl-Break on Windows)
STOPS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
]
# most important first; for SIGCHLD torch raises if a worker has ended
DELAYED = [*STOPS, *([signal.SIGCHLD] if hasattr(signal, "SIGCHLD") else [])]


@contextmanager
def stops_cleanly() -> Iterator[None]:
    """Let the first signal of `STOPS` raise KeyboardInterrupt, and the second end the process.

    SIGHUP that was ignored stays ignored (`nohup`); scripts ignore SIGINT for all that they run in the
    background. Only the main thread receives signals; in another thread the block runs unchanged.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOPS}
    stop = _Stop()
    for number, handler in before.items():
        if handler != signal.SIG_IGN or number == signal.SIGINT:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


class _Stop:
    def __init__(self) -> None:
        self.stopping = False

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if self.stopping:
            os._exit(INTERRUPTED)
        self.stopping = True
        # not print, which the signal may have interrupted
        with suppress(OSError):  # the reader of stderr may have stopped, too
            os.write(
                sys.__stderr__.fileno() if sys.__stderr__ else 2,
                # a bar may be on this line: clear it, or it would stay above the next one
                b"\r\x1b[K" * os.isatty(2) + b"vidrestore: stopping; once more stops at once\n",
            )
        raise KeyboardInterrupt


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay signals until the block is done, then let them take effect: usually, raise KeyboardInterrupt.

    They are those of `DELAYED`. An error of the block itself is raised instead. Only the main thread receives
    signals; in another thread the block runs unchanged.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: received.append(number)) for number in DELAYED
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
    for number in sorted(set(received), key=DELAYED.index):
        signal.raise_signal(number)
