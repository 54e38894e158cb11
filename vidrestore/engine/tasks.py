"""What a restorer is, and which one does which task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol, cast, runtime_checkable

from vidrestore.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

    from vidrestore.engine.options import RestoreOptions


class Restorer(Protocol):
    """A model with what a chain must know to feed it.

    `clip` frames at a time, neighbouring clips sharing `overlap` of them; the output is `scale` times larger. `pixels`: each native
    plane by itself, or RGB. `radius`: how many neighbouring frames a restored frame depends on, either side (0: single images).
    `parallel`: how many clips may be restored at once, each in a thread of its own; 0 leaves it to the chain.
    """

    name: str  # of the weights
    clip: int
    overlap: int
    scale: int
    pixels: Literal["planes", "rgb"]
    needs_sigma: bool
    radius: int
    parallel: int

    def restore(self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None) -> tuple[Tensor, ...]:
        """Restore one clip: every colour plane (T, H, W), float32 on the 0-255 scale, with its noise `sigma`; the same comes out.

        `precision` "fp32" asks for full precision whatever the options say. May be called from several threads at once. The clip is
        not altered.
        """
        ...


@runtime_checkable
class Counted(Protocol):
    """A restorer that knows its work, so that `vidrestore bench` can hold it against the machine's peak."""

    def operations(self, sizes: Sequence[tuple[int, int]]) -> dict[str, float]:
        """Operations for one frame with planes of these sizes (height, width), by number format: "fp32", "bf16", "int8".

        A multiply and an add are two; frames that clips share count as often as they are restored.
        """
        ...


# Loaded when asked for: importing this module stays quick. Names in angle brackets are no commands.
TASKS = {
    "denoise": "vidrestore.engine.denoise:DenoiseRestorer",
    "<identity>": "vidrestore.engine.identity:IdentityRestorer",
}


def load_restorer(task: str, options: RestoreOptions) -> Restorer:
    """The restorer of a task, ready to work.

    Raises OptionError for an unknown task; CheckpointError where its weights can't be loaded.
    """
    if task not in TASKS:
        raise OptionError(f"no task named {task!r}; there are: {', '.join(name for name in TASKS if not name.startswith('<'))}")
    module, _, name = TASKS[task].partition(":")
    factory = cast("Callable[[RestoreOptions], Restorer]", getattr(import_module(module), name))
    return factory(options)
