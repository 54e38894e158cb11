"""What a restorer is, and which one does which task."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast, runtime_checkable

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


class Sample(NamedTuple):
    """A call of a network as restorations make it, over and over: the network alone."""

    work: Callable[[], object]
    operations: float  # of its products; a multiply and an add are two
    numbers: str  # their format: "fp32", "bf16" or "int8"


@runtime_checkable
class Sampled(Protocol):
    """A restorer whose network can be held against the machine's peak by `vidrestore bench`."""

    def sample(self) -> Sample:
        """May be called from several threads at once, each with one thread of its own for the products."""
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
