"""Condition one network on its task: learned vectors, one per task and stage."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vidrestore.models.fast.compiled import in_one_piece


class TaskVectors(nn.Module):
    """Add a learnt vector per task to maps (B, C, H, W); zero at first, so all tasks start alike."""

    def __init__(self, count: int, channels: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(count, channels))

    def forward(self, maps: Tensor, tasks: Tensor) -> Tensor:
        """Add the vectors of the tasks with indices (B,) to the maps; in place without gradients."""
        added = self.vectors[tasks].to(maps.dtype)[:, :, None, None]
        return maps + added if in_one_piece() else maps.add_(added)


def check_names(names: tuple[str, ...]) -> None:
    """Raise ValueError unless these are different names of tasks."""
    if not isinstance(names, tuple) or len(set(names)) < len(names) or not all(names):
        raise ValueError(f"tasks must be different names, got {names!r}")


def check_tasks(tasks: Tensor | None, names: Sequence[str], batch: int) -> None:
    """Raise ValueError unless there is an index for each picture of a batch, or None if the network has no
    tasks.
    """
    if not names:
        if tasks is not None:
            raise ValueError("tasks must be None: this network has no tasks")
        return
    if tasks is None:
        raise ValueError(f"tasks must be given: one index per picture into {', '.join(names)}")
    if tasks.shape != (batch,) or tasks.dtype != torch.long:
        raise ValueError(f"tasks must be {batch} integers (int64), got {tuple(tasks.shape)} of {tasks.dtype}")
