"""Process several inputs in one command: a failed one does not stop the others, but sets the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from vidrestore.cli.interrupts import INTERRUPTED
from vidrestore.cli.terminal import say
from vidrestore.errors import VidRestoreError
from vidrestore.events import DAMAGED_SOURCE, Event, Failed, Listener, Progressed

FAILED = 1  # all of several inputs; a single one ends with the code of its own error
SOME_FAILED = 3  # of several inputs


def run_each(sources: Sequence[str], work: Callable[[str], int], on_event: Listener) -> int:
    """Call `work(source)`, which returns an exit code, for each source; return the code of the whole: that of
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
            on_event(
                Failed(source, f"{source}: interrupted", kind="KeyboardInterrupt", exit_code=INTERRUPTED)
            )
            raise
    for those, what in ((failed, "failed"), (damaged, "are damaged" if len(damaged) > 1 else "is damaged")):
        if those and len(sources) > 1:
            say(f"vidrestore: {len(those)} of {len(sources)} inputs {what}: {', '.join(those)}", sys.stderr)
    if failed and len(sources) > 1:
        return FAILED if len(failed) == len(sources) else SOME_FAILED
    return max(codes, default=0)


def numbered(on_event: Listener, sources: Sequence[str]) -> Listener:
    """Return a listener that passes events on with the number of their source among `sources`."""
    numbers = {source: number for number, source in enumerate(sources, 1)}

    def emit(event: Event) -> None:
        number = numbers.get(event.source)
        on_event(event if number is None else replace(event, index=number, count=len(sources)))

    return emit
