"""Residual pairs of plain convolutions: the cheap stage of image networks for CPUs, used where maps are
large.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast.compiled import in_one_piece
from vidrestore.models.task_vectors import TaskVectors


class ConvolutionPair(nn.Module):
    """x + conv(relu(conv(x))), 3x3 each: the residual block of EDSR (B. Lim et al., CVPRW 2017).

    Negative values are multiplied by `slope`. With 0 a channel that is never positive gets no gradients and
    stays so for ever.
    """

    def __init__(self, channels: int, slope: float = 0.0) -> None:
        super().__init__()
        self.slope = slope
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        added: Tensor = self.second(F.leaky_relu(self.first(maps), self.slope))
        return maps + added if in_one_piece() else added.add_(maps)


class ConvolutionStage(nn.Module):
    """A level of `pairs` blocks. With tasks, the task's vector is added first, as in
    `mb_taylorformer.Stage`.
    """

    def __init__(self, channels: int, pairs: int, tasks: int, slope: float = 0.0) -> None:
        super().__init__()
        self.task = TaskVectors(tasks, channels) if tasks else None
        self.pairs = nn.Sequential(*(ConvolutionPair(channels, slope) for _ in range(pairs)))
        self.pairs.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, maps: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Map (B, C, H, W), and with tasks their indices (B,), to the same shape; in place with tasks and
        without gradients.
        """
        if self.task is not None:
            maps = self.task(maps, tasks)
        restored: Tensor = self.pairs(maps)
        return restored
