"""Delay signals such as Ctrl-C during a step that must not be interrupted. `cli.inputs` decides their
effect.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# most important first
DELAYED = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGCHLD") if hasattr(signal, name)]


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay signals until the block is done, then let them take effect: usually, raise KeyboardInterrupt.

    They are SIGINT, SIGTERM and SIGCHLD, for which torch raises if a worker has ended. An error of the block
    itself is raised instead. Only the main thread receives signals; in another thread the block runs
    unchanged.
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
