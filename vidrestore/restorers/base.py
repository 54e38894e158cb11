"""What a restorer is, and which one does which task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

from vidrestore.errors import OptionError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vidrestore.clips import Bounds
    from vidrestore.options import RestoreOptions


class Restorer(Protocol):
    """A model with what a chain must know to feed it.

    `clip` frames at a time, neighbouring clips sharing `overlap` of them; the output is `scale` times larger.
    `radius`: how many neighbouring frames a restored frame depends on, either side (0: single images).
    `parallel`: how many clips may be restored at once, each in a thread of its own; 0 leaves it to the chain.
    """

    name: str  # of the weights
    clip: int
    overlap: int
    scale: int
    needs_sigma: bool
    radius: int
    parallel: int

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
    ) -> tuple[Tensor, ...]:
        """Restore one clip: every colour plane (T, H, W), float32 on the 0-255 scale, with its noise `sigma`;
        the same comes out. Networks on RGB are given frames instead, see `RgbRestorer`.

        `precision` "fp32" asks for full precision whatever the options say. May be called from several
        threads at once. The clip is not altered.
        """
        ...


@runtime_checkable
class Doubting(Protocol):
    """A restorer that has something to say before it works."""

    doubts: tuple[str, ...]  # warnings


@runtime_checkable
class RgbRestorer(Restorer, Protocol):
    """A restorer of whole pictures: frames are R'G'B' in [0, 1] (what video holds beyond black and white goes
    beyond), with the transfer of the file.

    A frame depends on `radius` frames on either side, and `overlap` is twice that: a clip gives only the
    frames that it sees all neighbours of, or that are at an end of their scene. So frames are the same
    however long the clips are. Clips have three times `radius` frames at least: then, where a range of clips
    ends, the clip after it has all that its last frames need.
    """

    team: int  # CPU threads that one clip makes good use of
    device: torch.device

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of the tiles for frames of this size; the frame's own, made multiples of what the
        network asks, where it fits.
        """
        ...

    def clip_length(self, height: int, width: int) -> int:
        """Frames of a clip, for sources of this size: as many as are good for speed, as few as memory asks
        for.
        """
        ...

    def memory(self, height: int, width: int) -> int:
        """Estimate the peak bytes for one clip, weights apart, from the network's sizes."""
        ...

    def frames(self, clip: Tensor, keep: Bounds, *, precision: str | None = None) -> Iterator[Tensor]:
        """Yield frames [first, stop) = `keep` of a clip (T, 3, H, W), restored: each (3, scale * H, scale *
        W), float32, not clamped.

        Where the clip ends, the scene ends. `precision` as in `restore`; may be called from several threads
        at once.
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
    "denoise": "vidrestore.restorers.denoisers:denoiser",
    "dehaze": "vidrestore.restorers.mb_taylorformer_restorer:dehazer",
    "derain": "vidrestore.restorers.mb_taylorformer_restorer:derainer",
    "desnow": "vidrestore.restorers.mb_taylorformer_restorer:desnower",
    "deblur": "vidrestore.restorers.mb_taylorformer_restorer:deblurrer",
    "sr": "vidrestore.restorers.vsr_restorer:VsrRestorer",
    "<identity>": "vidrestore.restorers.no_change:IdentityRestorer",
}
# of the tasks that enlarge: encoders are tried at the size of the output before weights are loaded
SCALES = {"sr": 4}


def load_restorer(task: str, options: RestoreOptions) -> Restorer:
    """The restorer of a task, ready to work.

    Raises OptionError for an unknown task; CheckpointError where its weights can't be loaded.
    """
    if task not in TASKS:
        raise OptionError(
            f"no task named {task!r}; there are: "
            f"{', '.join(name for name in TASKS if not name.startswith('<'))}"
        )
    module, _, name = TASKS[task].partition(":")
    factory = cast("Callable[[RestoreOptions], Restorer]", getattr(import_module(module), name))
    return factory(options)
