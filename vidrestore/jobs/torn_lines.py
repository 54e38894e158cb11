"""Find the lines at the bottom of a picture of a tape that are shifted, where its heads switch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TornSearch:
    """Constants of the search, chosen on 50 training clips with drawn shifts and noise, and without; lines
    are those of a field, levels are grey levels of 255.

    lowest, above: lines at the bottom that are looked at, and those above them that they are compared with
    nearest, farthest: columns that a torn line is shifted by
    share: of the difference to the line above, that the best shift leaves at most
    usual: difference to the line above, over the median of that in the lines above
    least: levels, of the same difference
    """

    lowest: int = 10
    above: int = 30
    nearest: int = 4
    farthest: int = 40
    share: float = 0.8
    usual: float = 1.2
    least: float = 4.0


TORN_SEARCH = TornSearch()


def torn_lines(fields: Sequence[NDArray[Any]]) -> int:
    """Return how many of the lowest lines of fields (h, w), luma in grey levels, are torn; 0 if none are.

    A torn picture continues at another column: a line is like the one above after a shift only.
    """
    height, width = fields[0].shape if fields else (0, 0)
    if (
        height <= TORN_SEARCH.lowest + TORN_SEARCH.above
        or width < 4 * TORN_SEARCH.farthest
    ):
        return 0
    differences = np.mean([_differences(field) for field in fields], 0)
    shifted = np.mean([_shifted_differences(field) for field in fields], 0)
    usual = float(np.median(differences[: TORN_SEARCH.above]))
    lowest = differences[TORN_SEARCH.above :]
    least = max(TORN_SEARCH.least, TORN_SEARCH.usual * usual)
    torn = np.flatnonzero((lowest > least) & (shifted < TORN_SEARCH.share * lowest))
    return TORN_SEARCH.lowest - int(torn[0]) if torn.size else 0


def _differences(field: NDArray[Any]) -> NDArray[Any]:
    """Return the mean absolute difference of each of the last lines to the line above."""
    lines = field[
        -TORN_SEARCH.above - TORN_SEARCH.lowest - 1 :,
        TORN_SEARCH.farthest : -TORN_SEARCH.farthest,
    ]
    means: NDArray[Any] = np.abs(np.diff(lines, axis=0)).mean(1)
    return means


def _shifted_differences(field: NDArray[Any]) -> NDArray[Any]:
    """Return the same of the lowest lines, the least over the shifts of the line above."""
    lines, above = field[-TORN_SEARCH.lowest :], field[-TORN_SEARCH.lowest - 1 : -1]
    middle = lines[:, TORN_SEARCH.farthest : -TORN_SEARCH.farthest]
    shifts = np.lib.stride_tricks.sliding_window_view(above, middle.shape[1], axis=1)
    means = np.stack(
        [
            np.abs(shifts[:, column] - middle).mean(1)
            for column in range(shifts.shape[1])
        ]
    )
    offsets = np.abs(np.arange(len(means)) - TORN_SEARCH.farthest)
    least: NDArray[Any] = means[offsets >= TORN_SEARCH.nearest].min(0)
    return least
