"""Several inputs, one command: a failed one does not stop the others, and the exit code tells."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from vidrestore.cli.interrupts import INTERRUPTED
from vidrestore.errors import VidRestoreError
from vidrestore.events import Failed, Listener

SOME_FAILED = 3  # of several inputs, or all; a single one ends with the code of its own error


def run_each(sources: Sequence[str], work: Callable[[str], int], on_event: Listener) -> int:
    """Call `work(source)`, which returns an exit code, for each source in turn; the exit code of the whole: 3, else 4, else 0.

    An error of ours is told as a `Failed` event, and so is an interruption, which goes up; anything else is a bug and goes up. Of several
    inputs, those that failed are named once more at the end, on stderr.
    """
    codes, failed = [], []
    for source in sources:
        try:
            codes.append(work(source))
        except VidRestoreError as error:
            on_event(Failed(source, str(error), kind=type(error).__name__, exit_code=error.exit_code))
            codes.append(SOME_FAILED if len(sources) > 1 else error.exit_code)
            failed.append(source)
        except KeyboardInterrupt:
            on_event(Failed(source, f"{source}: interrupted", kind="KeyboardInterrupt", exit_code=INTERRUPTED))
            raise
    if failed and len(sources) > 1:
        print(f"vidrestore: {len(failed)} of {len(sources)} inputs failed: {', '.join(failed)}", file=sys.stderr, flush=True)
    return SOME_FAILED if SOME_FAILED in codes else max(codes, default=0)
