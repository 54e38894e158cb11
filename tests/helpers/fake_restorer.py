"""A restorer without a network."""

from collections.abc import Sequence

import torch
from no_change import IdentityRestorer
from torch import Tensor

from vidrestore.restorers.base import Facts


class Fake(IdentityRestorer):
    """A restorer for tests: adds to each frame its place in the clip, so that joins show; remembers what it
    was asked.
    """

    facts = Facts("fake", clip=6, overlap=2, needs_sigma=True)

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[float, ...], str | None]] = []

    def restore(
        self,
        clip: tuple[Tensor, ...],
        sigma: tuple[float, ...],
        *,
        measured: bool = False,
        coding: tuple[tuple[float, ...], ...] = (),
        precision: str | None = None,
        real_rows: Sequence[int | None] = (),
    ) -> tuple[Tensor, ...]:
        self.calls.append((sigma, precision))
        return tuple(plane + torch.arange(len(plane))[:, None, None] for plane in clip)
