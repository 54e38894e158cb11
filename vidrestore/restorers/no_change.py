"""A task that changes nothing, to see the effect of all steps but the model on a video."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vidrestore.restorers.base import Facts

if TYPE_CHECKING:
    from torch import Tensor

    from vidrestore.options import RestoreOptions


class IdentityRestorer:
    """Return every clip unchanged, in clips that share frames."""

    sees: Literal["planes"] = "planes"
    facts = Facts("identity", clip=20, overlap=4)

    def __init__(self, options: RestoreOptions) -> None:
        pass

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def sample(self) -> None:
        return None

    def halve_batch(self) -> bool:
        return False

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
    ) -> tuple[Tensor, ...]:
        return clip
