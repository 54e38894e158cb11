"""Ctrl-C at a good moment: a step that must not be cut in two holds signals back. `cli.interrupts` decides
what a signal does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# the weightiest first
HELD = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGCHLD") if hasattr(signal, name)]


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold signals back until the block is done, then let them do what they would have done: mostly, raise
    KeyboardInterrupt.

    These are SIGINT, SIGTERM and SIGCHLD, at which torch raises where a process that makes batches has ended.
    An error of the block itself goes up instead. Only the main thread hears signals; in another one the block
    just runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in HELD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
    for number in sorted(set(came), key=HELD.index):
        signal.raise_signal(number)
