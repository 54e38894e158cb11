"""Process the inputs of a command one by one, and stop at Ctrl-C or SIGTERM.

The first signal raises KeyboardInterrupt in the main thread, and every `with` and `finally` on the way out
cleans up: threads (`pipeline.chain`), unfinished files (`files.atomic`), the work folder
(`jobs.run.warn_if_stopped` reports its content), the checkpoint of a training run. Steps that must not be
interrupted are protected by `files.atomic`. The exit code is 130. The second signal ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import Any

from vidrestore.cli.terminal import print_line
from vidrestore.errors import VidRestoreError
from vidrestore.events import DAMAGED_SOURCE, Event, Failed, Listener, Progressed

# exit codes
FAILED = 1  # all of several inputs; a single one ends with the code of its own error
SOME_FAILED = 3  # some of several inputs failed
INTERRUPTED = 130


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
                # a bar may be on this line: clear it, or it would stay above the next one
                b"\r\x1b[K" * os.isatty(2) + b"vidrestore: stopping; once more stops at once\n",
            )
        raise KeyboardInterrupt


def run_each(sources: Sequence[str], work: Callable[[str], int], on_event: Listener) -> int:
    """Call `work(source)`, which returns an exit code, for each source; return the common code: that of
    a single one, else 1 if all failed, 3 if some did, 4 if a source is damaged, 0.

    A VidRestoreError becomes a `Failed` event. So does an interruption, which is then raised again; other
    exceptions are bugs and are raised. If there are several inputs, those that failed and those that are
    damaged are listed at the end, on stderr.
    """
    codes, failed, damaged = [], list[str](), list[str]()
    for source in sources:
        try:
            on_event(Progressed(source, 0, stage="read"))
            codes.append(work(source))
            damaged += [source] * (codes[-1] == DAMAGED_SOURCE)
        except VidRestoreError as error:
            on_event(Failed(source, str(error), kind=type(error).__name__, exit_code=error.exit_code))
            codes.append(error.exit_code)
            failed.append(source)
        except KeyboardInterrupt:
            on_event(Failed(source, f"{source}: interrupted", "KeyboardInterrupt", INTERRUPTED))
            raise
    for listed, state in (failed, "failed"), (damaged, "are damaged" if len(damaged) > 1 else "is damaged"):
        if listed and len(sources) > 1:
            names = ", ".join(listed)
            print_line(f"vidrestore: {len(listed)} of {len(sources)} inputs {state}: {names}", sys.stderr)
    if failed and len(sources) > 1:
        return FAILED if len(failed) == len(sources) else SOME_FAILED
    return max(codes, default=0)


def with_numbers(on_event: Listener, sources: Sequence[str]) -> Listener:
    """Return a listener that passes events on with the number of their source among `sources`."""
    numbers = {source: number for number, source in enumerate(sources, 1)}

    def emit(event: Event) -> None:
        number = numbers.get(event.source)
        on_event(event if number is None else replace(event, index=number, count=len(sources)))

    return emit
