"""A restorer that is no network."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vidrestore.restorers.base import Facts


class Fake:
    """A restorer for tests: adds to each frame its place in the clip, so that joins show; remembers what it
    was asked.
    """

    sees: Literal["planes"] = "planes"
    facts = Facts("fake", clip=6, overlap=2, needs_sigma=True)

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[float, ...], str | None]] = []

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def sample(self) -> None:
        return None

    def halve_batch(self) -> bool:
        return False

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
    ) -> tuple[Tensor, ...]:
        self.calls.append((sigma, precision))
        return tuple(plane + torch.arange(len(plane))[:, None, None] for plane in clip)
