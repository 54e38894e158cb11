"""Process the inputs of a command one by one."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from vidrestore.cli.terminal import is_of_stdout, print_line
from vidrestore.errors import BusyError, VidRestoreError
from vidrestore.events import (
    DAMAGED_SOURCE,
    Event,
    Failed,
    Listener,
    Progressed,
    Summary,
    Warned,
)
from vidrestore.files.regular import disk_problem
from vidrestore.files.stopping import INTERRUPTED

# exit codes
FAILED = 1  # all of several inputs; a single one ends with the code of its own error
_LOOK_SECONDS = 0.5  # between two looks at an input that another process works on
SOME_FAILED = 3  # some of several inputs failed

MEMORY_ADVICE = (
    "there is too little memory (or a limit such as ulimit -v); end other programs, or give a smaller "
    "--tile, fewer --threads or a smaller video"
)
_NO_MEMORY = (
    "can't allocate memory",
    "annot allocate memory",
    "out of memory",
    "can't start new thread",
    "failed to map segment",
    "bad_alloc",
    "return without exception set",  # C code that could not allocate the error
    "without setting an exception",
)
# of Python's `tempfile`, with the folders that it tried
_NO_TEMPORARY = "No usable temporary directory"


def line_about(error: Exception, name: str = "a file") -> str | None:
    """Return a line about an error of the system, with memory or with the file `name`; None for a bug."""
    if isinstance(error, MemoryError) or any(
        words in str(error) for words in _NO_MEMORY
    ):
        return MEMORY_ADVICE
    if _NO_TEMPORARY in str(error):
        return f"{error}; make room there, or name another with TMPDIR"
    return str(disk_problem(name, error)) if isinstance(error, OSError) else None


def run_each(
    sources: Sequence[str], work: Callable[[str], int], on_event: Listener
) -> int:
    """Call `work(source)`, which returns an exit code, for each source; return the common code: that of
    a single one, else 1 if all failed, 3 if some did, 4 if a source is damaged, 0.

    A VidRestoreError becomes a `Failed` event, as does an OSError unless it is of stdout. So does an
    interruption, which is then raised again; other exceptions are bugs and are raised. If there are several
    inputs, those that failed and those that are damaged are listed at the end, on stderr. One of several that
    another process works on has its turn once all others had theirs, and that process is waited for.
    """
    codes, failed, damaged = [], list[str](), list[str]()
    queue, postponed = deque(sources), set[str]()
    # work on each, those of other processes last
    while queue:
        source = queue.popleft()
        try:
            on_event(Progressed(source, 0, stage="read"))
            codes.append(work(source))
            damaged += [source] * (codes[-1] == DAMAGED_SOURCE)
        except VidRestoreError as error:
            if isinstance(error, BusyError) and not error.host and len(sources) > 1:
                queue.append(source)
                if source in postponed:
                    time.sleep(_LOOK_SECONDS)
                else:
                    postponed.add(source)
                    on_event(
                        Warned(
                            source,
                            "another process works on this; it is looked at again at the end",
                        )
                    )
                continue
            on_event(
                Failed(
                    source,
                    str(error),
                    kind=type(error).__name__,
                    exit_code=error.exit_code,
                )
            )
            codes.append(error.exit_code)
            failed.append(source)
        except OSError as error:
            if is_of_stdout(error) or (line := line_about(error, source)) is None:
                raise
            on_event(Failed(source, line, kind=type(error).__name__, exit_code=FAILED))
            codes.append(FAILED)
            failed.append(source)
        except KeyboardInterrupt:
            on_event(
                Failed(
                    source, f"{source}: interrupted", "KeyboardInterrupt", INTERRUPTED
                )
            )
            raise

    # of several, name those that need a look
    for listed, state in (
        (failed, "failed"),
        (damaged, "are damaged" if len(damaged) > 1 else "is damaged"),
    ):
        if listed and len(sources) > 1:
            names = ", ".join(listed)
            print_line(
                f"vidrestore: {len(listed)} of {len(sources)} inputs {state}: {names}",
                sys.stderr,
            )
    if failed and len(sources) > 1:
        return FAILED if len(failed) == len(sources) else SOME_FAILED
    return max(codes, default=0)


def with_numbers(on_event: Listener, sources: Sequence[str]) -> Listener:
    """Return a listener that passes events on with the number of their source among `sources`; not that one
    was interrupted which is done.
    """
    # by name, as events have it
    numbers = {source: number for number, source in enumerate(sources, 1)}
    finished = set[str]()

    def emit(event: Event) -> None:
        if isinstance(event, Summary):
            finished.add(event.source)
        is_interruption = isinstance(event, Failed) and event.exit_code == INTERRUPTED
        if is_interruption and event.source in finished:
            return
        number = numbers.get(event.source)
        on_event(
            event
            if number is None
            else replace(event, index=number, count=len(sources))
        )

    return emit
