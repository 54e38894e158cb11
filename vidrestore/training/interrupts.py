"""Ctrl-C at a good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT back until the block is done, then let it do what it would have done: mostly, raise KeyboardInterrupt.

    Only the main thread hears signals; in another one the block just runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    if came:
        signal.raise_signal(signal.SIGINT)
