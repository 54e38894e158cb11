"""The task `<identity>`, which changes nothing: it shows the effect of all steps but the model on a video.

Importing this module adds it, in this process or in another.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vidrestore.restorers.base import Facts
from vidrestore.settings.tasks import TASKS, Task

if TYPE_CHECKING:
    from torch import Tensor

    from vidrestore.settings.options import RestoreOptions


class IdentityRestorer:
    """Return every clip unchanged, in clips that share frames."""

    input_kind: Literal["planes"] = "planes"
    facts = Facts("identity", clip=20, overlap=4)

    def __init__(self, options: RestoreOptions) -> None:
        pass

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def halve_batch(self) -> bool:
        return False

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], **settings: Any
    ) -> tuple[Tensor, ...]:
        return clip


TASKS["<identity>"] = Task(
    "<identity>", "vidrestore", "nothing", "no_change:IdentityRestorer", (), ""
)
IDENTITY_DENOISE = replace(TASKS["denoise"], restorer=TASKS["<identity>"].restorer)
# code that does so in another Python, also in the place of the denoiser
ADDED = (
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import no_change; "
)
WITH_IDENTITY = ADDED + (
    "from vidrestore.settings.tasks import TASKS; TASKS['denoise'] = no_change.IDENTITY_DENOISE; from "
    "vidrestore.cli import main; "
)


def work_over(*arguments: Any) -> None:
    """As `scale.workers.work_over`, in a process that has imported this module."""
    from vidrestore.scale import workers

    added()
    workers.work_over(*arguments)


def added() -> None:
    """Make segments of 20 frames; importing this module has added the task."""
    from vidrestore.jobs import segmented

    segmented.LENGTH = 20
