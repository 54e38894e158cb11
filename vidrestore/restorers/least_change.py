"""Leave frames without anything to remove as they are.

A network that was trained on little but rain darkens bright skies slightly, as if they were behind the veil
of distant rain. But a veil never comes without streaks: if the network changes no detail in a frame, its
other changes are mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vidrestore.restorers.small_picture import downscale, enlarged
from vidrestore.restorers.task_weights import increasing_numbers

LEVELS = "detail_levels"  # parameter of weights
AREA = 16  # side in pixels of areas, whose mean change isn't detail


def detail_levels(parameters: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Return the two amounts of changed detail, in grey levels, in the parameters of the weights `name`; None
    if they have none.

    Frames with less than the first stay as they are; those with more than the second are changed in full.
    Raises CheckpointError unless they are two increasing numbers.
    """
    if LEVELS not in parameters:
        return None
    low, high = increasing_numbers(parameters, LEVELS, 2, name)
    return low, high


def changed_detail(given: Tensor, restored: Tensor) -> Tensor:
    """Return the difference of detail between pictures (B, C, H, W): the mean absolute difference after
    subtracting its means over areas, in grey levels (B, 1, 1, 1).
    """
    change = restored - given
    rows, columns = (max(1, side // AREA) for side in change.shape[-2:])
    change -= enlarged(downscale(change, (rows, columns)), change)
    return 255 * change.abs_().mean((1, 2, 3), keepdim=True)


def if_detail_changed(given: Tensor, restored: Tensor, levels: tuple[float, float]) -> Tensor:
    """Return `restored` (B, C, H, W), or a share of its change; `given` itself, to the bit, below the levels.

    Nothing is read from the device.
    """
    low, high = levels
    share = ((changed_detail(given, restored) - low) / (high - low)).clamp(0, 1)
    return given.lerp(restored, share)
