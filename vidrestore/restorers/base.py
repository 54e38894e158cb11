"""The protocol of restorers, and the restorer of each task.

A restorer states its `facts` and what it restores: colour planes (`PlaneRestorer`) or R'G'B' frames
(`RgbRestorer`). `vidrestore.settings.families` names the restorers of each family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from vidrestore.errors import OptionError
from vidrestore.settings.families import find_family, load
from vidrestore.settings.tasks import TASKS

if TYPE_CHECKING:
    from torch import Tensor

    from vidrestore.pixels.clips import Bounds
    from vidrestore.restorers.result_cache import ResultCache
    from vidrestore.settings.options import RestoreOptions


@dataclass(frozen=True)
class Facts:
    """Facts about a restorer that a pipeline needs to feed it."""

    name: str  # name of the weights
    weights: str = ""  # their checksum; empty if there are no weights
    device: str = "cpu"
    clip: int = 1  # frames per clip; `clip_length` may ask for fewer
    overlap: int = 0  # frames that neighbouring clips share
    # neighbouring frames that a restored frame depends on, either side; 0: single images
    radius: int = 0
    # results for frames that clips share are cached for the next clip
    cached: bool = False
    scale: int = 1  # size of the output over that of the source
    needs_sigma: bool = False  # noise must be given or measured
    # a photograph's loss of coding is removed before, and so not amplified
    takes_loss: bool = False
    warnings: tuple[str, ...] = ()  # warnings for the user, before work begins
    # name and checksum of each file of weights, if they are several
    files: tuple[tuple[str, str], ...] = ()


class PictureForm(NamedTuple):
    """The inputs of a network that restores pictures, as attributes of its `config` state them."""

    frames: int = 1  # taken at once, of which the middle one is restored
    multiple: int = 1  # sides must be multiples of it
    tasks: tuple[str, ...] = ()  # choices of the second input; empty: no second input
    pixel_memory: int = 0  # bytes per pixel at the peak; 0: unknown
    scale: int = 1  # size of the output over that of the input
    haze: bool = False  # it estimates haze and removes it (`models.scattering`)

    @classmethod
    def of(cls, network: object) -> PictureForm:
        config = getattr(network, "config", None)
        stated = {
            name: getattr(config, name) for name in cls._fields if hasattr(config, name)
        }
        return cls(**stated)


class AnyRestorer(Protocol):
    """The part of the protocol that all restorers share; any method may run in several threads at once."""

    @property
    def facts(self) -> Facts: ...

    def clip_length(self, height: int, width: int) -> int:
        """Return the frames per clip for sources of this size: enough for speed, few enough for memory."""
        ...

    def halve_batch(self) -> bool:
        """Halve the batch after memory ran out; return False if it is already the smallest."""
        ...


class PlaneRestorer(AnyRestorer, Protocol):
    """A restorer of colour planes, each at its own resolution."""

    input_kind: Literal["planes"]

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
        """Restore one clip: every colour plane (T, H, W), float32 on the 0-255 scale, with its noise `sigma`,
        which is white unless it was `measured`. Where that is a coder's loss, `coding` has the factor of
        sigma in each frame; it has nothing for other planes. `real_rows` are those of its frames, if some
        have interpolated ones (`Frame`).

        Return planes of the same shape; the clip itself is not altered. `precision` "fp32" overrides that of
        the options.
        """
        ...


class RgbRestorer(AnyRestorer, Protocol):
    """A restorer of whole pictures: R'G'B' in [0, 1] (values of video beyond black and white lie outside),
    with the transfer of the file.

    A frame depends on `facts.radius` frames on either side, and `facts.overlap` is twice that: a clip gives
    only frames whose neighbours it holds, or that are near an end of their scene. So frames are the same for
    any length of clips. Clips have at least three times `radius` frames, so that one more clip is enough to
    restore the last frames of a range of clips.
    """

    input_kind: Literal["rgb"]

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        """Return (height, width) of the tiles for frames of this size.

        If a frame fits, that is its own size, rounded up to the network's multiples.
        """
        ...

    def memory(self, height: int, width: int) -> int:
        """Estimate the peak bytes for one clip, weights apart, from the network's sizes."""
        ...

    def part_memory(self, height: int, width: int) -> int:
        """Estimate the bytes of `memory` that each further part of a clip takes that is computed at the same
        time (`cores.dealt`).
        """
        ...

    def frames(
        self,
        clip: Tensor,
        keep: Bounds,
        *,
        precision: str | None = None,
        first: int = 0,
        cache: ResultCache | None = None,
    ) -> Iterator[Tensor]:
        """Yield the frames `keep` = [start, stop) of a clip (T, 3, H, W), restored.

        Each is (3, scale * H, scale * W), float32, not clamped; one to be left as it is equals the clip's.
        The end of the clip is the end of a scene. `precision` is as in `PlaneRestorer.restore`. `first` is
        the number of the clip's first frame in its video, whose clips share a `cache` of results by these
        numbers.
        """
        ...


Restorer: TypeAlias = PlaneRestorer | RgbRestorer


def load_restorer(task: str, options: RestoreOptions) -> Restorer:
    """Return the restorer of a task, ready to work.

    Raises OptionError for an unknown task; CheckpointError if its weights can't be loaded.
    """
    if not isinstance(task, str) or task not in TASKS:
        raise OptionError(f"no task named {task!r}; there are: {', '.join(TASKS)}")
    from vidrestore.weights import card_of

    if options.model is not None and not TASKS[task].weights:
        raise OptionError(
            f"`model={options.model}`: {task} has no networks; leave `model` out"
        )
    family = options.family
    if family is None and options.model is not None:
        family = card_of(options.model, task=task).family
    restorers = {} if family is None else find_family(family).restorers
    if options.family is not None and task not in restorers:
        raise OptionError(
            f"`family={family}` has no networks for {task}; it has {', '.join(restorers)}"
        )
    make: Callable[[RestoreOptions], Restorer] = load(
        restorers.get(task, TASKS[task].restorer)
    )
    return make(options)
