"""Handle Ctrl-C and SIGTERM: the first stops the command cleanly, the second at once.

The first raises KeyboardInterrupt in the main thread, and every `with` and `finally` on the way out cleans
up: threads (`pipeline.chain`), unfinished files (`files.atomic`), the work folder (`jobs.run.warn_if_stopped`
reports its content), the checkpoint of a training run. Steps that must not be interrupted are protected by
`files.stopping`. The exit code is 130.
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
    """Let the first SIGINT or SIGTERM raise KeyboardInterrupt, and the second end the process.

    A signal that was ignored stays ignored (`nohup`). Only the main thread receives signals; in another
    thread the block runs unchanged.
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
        self.stopping = False

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if self.stopping:
            os._exit(INTERRUPTED)
        self.stopping = True
        # not print, which the signal may have interrupted
        with suppress(OSError):  # the reader of stderr may have stopped, too
            os.write(
                sys.__stderr__.fileno() if sys.__stderr__ else 2,
                b"\nvidrestore: stopping; once more stops at once\n",
            )
        raise KeyboardInterrupt
