"""Which segments one of several processes takes next: runs of neighbours, as few clips are to be restored twice as possible."""

from __future__ import annotations

from vidrestore.jobs.segments import Segment

SHARE = 4  # a run is this part of what is left for each: long at first, short at the end, when all wait for the last one
LONGEST = 16  # segments; what is lost in waiting grows with it, and a clip restored twice at its end is then 1 % or less


def run_length(missing: int, workers: int) -> int:
    """How many segments in a row to take when so many are missing."""
    return min(LONGEST, 1 + missing // (SHARE * workers))


def from_home(missing: list[Segment], worker: int, workers: int, total: int) -> list[Segment]:
    """The missing ones of `total` segments in the order in which the worker (from 0) should look at them: each begins somewhere else."""
    home = worker * total // workers
    return [*(each for each in missing if each.number >= home), *(each for each in missing if each.number < home)]
