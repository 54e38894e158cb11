"""Stop a running command: Ctrl-C and SIGTERM once to stop cleanly, twice to stop at once.

The first raises KeyboardInterrupt in the main thread, and every `with` and `finally` on the way out puts away
its own: threads (`pipeline.chain`), unfinished files (`files.atomic`), the work folder
(`jobs.run.warn_if_stopped` reports how much it holds), the checkpoint of a training run.
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


@contextmanager
def stops_cleanly() -> Iterator[None]:
    """While the block runs, the first SIGINT or SIGTERM raises KeyboardInterrupt, so that all is put away;
    the second ends the process.

    A signal that was ignored stays so (`nohup`). Only the main thread gets signals; in another one the block
    just runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stop = _Stop()
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


class _Stop:
    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if self.asked:
            os._exit(INTERRUPTED)
        self.asked = True
        # Not print: what is interrupted may be a print.
        with suppress(OSError):  # who reads it may have been stopped, too
            os.write(
                sys.__stderr__.fileno() if sys.__stderr__ else 2,
                b"\nvidrestore: stopping; once more stops at once\n",
            )
        raise KeyboardInterrupt
