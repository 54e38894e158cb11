"""Several inputs, one command: a failed one does not stop the others, and the exit code tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vidrestore.errors import VidRestoreError
from vidrestore.events import Failed, Listener

SOME_FAILED = 3  # of several inputs; a single one ends with the code of its own error


def run_each(sources: Sequence[str], work: Callable[[str], int], on_event: Listener) -> int:
    """Call `work(source)`, which returns an exit code, for each source in turn; the exit code of the whole: 3, else 4, else 0.

    An error of ours is told as a `Failed` event; anything else is a bug and goes up.
    """
    codes = []
    for source in sources:
        try:
            codes.append(work(source))
        except VidRestoreError as error:
            on_event(Failed(source, str(error), kind=type(error).__name__, exit_code=error.exit_code))
            codes.append(SOME_FAILED if len(sources) > 1 else error.exit_code)
    return SOME_FAILED if SOME_FAILED in codes else max(codes, default=0)
