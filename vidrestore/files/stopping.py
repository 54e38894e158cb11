"""Stop at Ctrl-C and the like, and delay that during a step that must not be interrupted.

The first signal raises KeyboardInterrupt in the main thread, and every `with` and `finally` on the way out
cleans up: threads (`pipeline.chain`), unfinished files (`files.atomic`), the work folder
(`jobs.run.warn_if_stopped` reports its content), the checkpoint of a training run. The second signal ends the
process.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

INTERRUPTED = 130  # exit code
RETRY = 0.05  # seconds from an interruption that was lost to the next one
# Ctrl-C, a request to end, and a terminal that was closed or lost (SIGBREAK: Ctrl-Break on Windows)
STOPS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
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
    # handlers for the block, and one for interruptions that C code swallows
    before, stop, report = _handlers(STOPS), _Stop(), sys.unraisablehook

    def pass_on(error: Any) -> None:
        if stop.is_lost_in(error):
            stop.try_again()
        else:
            report(error)

    try:
        sys.unraisablehook = pass_on
        for number, handler in before.items():
            if handler != signal.SIG_IGN or number == signal.SIGINT:
                signal.signal(number, stop)
        yield
    except Exception as error:
        # C code, such as that which reads weights, raises errors of its own
        if stop.stopping:
            raise KeyboardInterrupt from error
        raise
    finally:
        sys.unraisablehook = report
        _restore(before)


class _Stop:
    """The handler of signals: `stopping` after the first one; `tries_again` while its interruption, which was
    lost, is about to come once more.
    """

    def __init__(self) -> None:
        self.stopping = self.tries_again = False

    def is_lost_in(self, error: Any) -> bool:
        """Return True for an interruption that C code, such as torch's, or a destructor could not pass on."""
        return self.stopping and error.exc_type is KeyboardInterrupt

    def try_again(self) -> None:
        """Interrupt the main thread once more, when it has left that code."""
        self.tries_again = True
        threading.Timer(RETRY, _interrupt).start()

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        # the second time without delay
        if self.tries_again:
            self.tries_again = False
            raise KeyboardInterrupt
        if self.stopping:
            os._exit(INTERRUPTED)
        self.stopping = True
        # not print, which the signal may have interrupted
        with suppress(OSError):  # the reader of stderr may have stopped, too
            os.write(
                sys.__stderr__.fileno() if sys.__stderr__ else 2,
                # a bar may be on this line: clear it, or it would stay above the next one
                b"\r\x1b[K" * os.isatty(2)
                + b"vidrestore: stopping; once more stops at once\n",
            )
        raise KeyboardInterrupt


def _interrupt() -> None:
    """Send the main thread SIGINT."""
    if hasattr(signal, "pthread_kill"):  # which also ends a call of the system
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay signals until the block is done, then let them take effect: usually, raise KeyboardInterrupt.

    They are those of `DELAYED`. An error of the block itself is raised instead. Only the main thread receives
    signals; in another thread the block runs unchanged.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # remember, and let them act afterwards
    received: list[int] = []
    before = _handlers(DELAYED)
    try:
        for delayed in DELAYED:
            signal.signal(delayed, lambda number, frame: received.append(number))
        yield
    finally:
        _restore(before)
    for number in sorted(set(received), key=DELAYED.index):
        signal.raise_signal(number)


def _handlers(numbers: Sequence[signal.Signals]) -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) or signal.SIG_DFL for number in numbers}


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    """Set handlers of signals, all of them even if one that is set already raises KeyboardInterrupt."""
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    except BaseException:
        _restore(handlers)
        raise


def end_with_parent() -> None:
    """Let this process, which was started by `multiprocessing`, end when the one that started it is gone, as
    one that was killed is.
    """
    from multiprocessing import parent_process

    def end() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()
