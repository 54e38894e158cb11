"""A restorer without a network, and what one is asked for."""

from pathlib import Path
from typing import Any

import torch
from no_change import IdentityRestorer
from torch import Tensor

from vidrestore.jobs.request import Request, Step
from vidrestore.media.formats.source import Source, Target
from vidrestore.restorers.base import Facts
from vidrestore.settings.options import RestoreOptions


def request_of(
    source: Path, output: Path, task: str = "denoise", **options: Any
) -> Request:
    """The request to do one task on one file."""
    return Request(
        Source(str(source)),
        Target(str(output)),
        (Step(task, RestoreOptions(**options)),),
    )


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
        precision: str | None = None,
        **settings: Any,
    ) -> tuple[Tensor, ...]:
        self.calls.append((sigma, precision))
        return tuple(plane + torch.arange(len(plane))[:, None, None] for plane in clip)
