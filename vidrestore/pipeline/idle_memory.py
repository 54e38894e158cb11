"""Give memory that the heap of the C library keeps for later back to the system.

Clips are freed in another order than they were allocated in, by several threads, and glibc keeps what lies
idle between the blocks that are still used: measured, the peak of a 1,000-frame video was 14 % above that of
100 frames, although both need the same.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

# seconds; giving back at every clip costs time, since the next clip needs the same pages again
PERIOD = 2.0


def find_trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`; None if the C library has none (musl, macOS, Windows)."""
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


class IdleMemory:
    """Gives idle memory back, at most once in `period` seconds; does nothing if the C library can't (`trim`
    is None).
    """

    def __init__(
        self,
        trim: Callable[[int], int] | None,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trim, self.period, self.clock = trim, period, clock
        self._last = clock()

    def give_back(self) -> None:
        """Return idle memory to the system now and then. Call it often, from one thread."""
        now = self.clock()
        if self.trim is not None and now - self._last >= self.period:
            self.trim(0)
            self._last = now
