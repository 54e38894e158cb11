"""The task that changes nothing: what comes out shows what everything around a model does to a film."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from vidrestore.options import RestoreOptions


class IdentityRestorer:
    """Gives every clip back as it is, in clips that share frames."""

    name = "identity"
    clip = 20
    overlap = 4
    scale = 1
    needs_sigma = False
    radius = 0
    parallel = 0

    def __init__(self, options: RestoreOptions) -> None:
        pass

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
    ) -> tuple[Tensor, ...]:
        return clip
