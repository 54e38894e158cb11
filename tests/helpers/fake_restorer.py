"""A restorer that is no network."""

from __future__ import annotations

import torch
from torch import Tensor


class Fake:
    """A restorer for tests: adds to each frame its place in the clip, so that joins show; remembers what it
    was asked.
    """

    name = "fake"
    clip = 6
    overlap = 2
    scale = 1
    needs_sigma = True
    radius = 0
    parallel = 0

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[float, ...], str | None]] = []

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
    ) -> tuple[Tensor, ...]:
        self.calls.append((sigma, precision))
        return tuple(plane + torch.arange(len(plane))[:, None, None] for plane in clip)
