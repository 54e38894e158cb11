"""Restorers that compare the frames of a scene with each other, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.errors import OptionError
from vidrestore.pixels.clips import Bounds
from vidrestore.restorers.base import Facts
from vidrestore.restorers.devices import torch_device
from vidrestore.restorers.result_cache import ResultCache
from vidrestore.settings.options import RestoreOptions
from vidrestore.working import steps

RGB_BYTES = 4 * 3  # of a pixel


class TemporalRestorer:
    """Restorer of single frames by those around them; see `restorers.base.RgbRestorer`.

    A subclass looks at each frame with the next ones (`look`), and restores frames by the looks around them
    (`restored`).

    name: what does the work, in place of the name of weights
    radius: frames on either side that a frame depends on
    looks: frames on either side whose looks it takes
    reach: frames on either side that a look may take
    maps: of a frame's size in float32, at the peak of the work on one frame
    look_maps: of a frame's size in float32, in the look at one frame
    """

    input_kind: Literal["rgb"] = "rgb"
    name: str
    radius: int
    looks: int
    reach: int
    maps: int
    look_maps: int
    shares = (3, 1)  # of the time: looks, and restoring by them

    def __init__(self, task: str, options: RestoreOptions) -> None:
        if options.tile is not None:
            raise OptionError(f"`tile`: {task} compares whole frames; leave it out")
        self.device = torch_device(options.device)
        self.facts = Facts(
            self.name,
            device=str(self.device),
            clip=4 * self.radius,
            overlap=2 * self.radius,
            radius=self.radius,
            cached=True,
        )

    def clip_length(self, height: int, width: int) -> int:
        return self.facts.clip

    def halve_batch(self) -> bool:
        return False

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def memory(self, height: int, width: int) -> int:
        frame = RGB_BYTES + 4 * self.look_maps
        return height * width * frame * self.facts.clip + self.part_memory(
            height, width
        )

    def part_memory(self, height: int, width: int) -> int:
        return 4 * self.maps * height * width

    def frames(
        self,
        clip: Tensor,
        keep: Bounds,
        *,
        precision: str | None = None,
        first: int = 0,
        cache: ResultCache | None = None,
    ) -> Iterator[Tensor]:
        """See `RgbRestorer.frames`."""
        cache = ResultCache() if cache is None else cache
        last = len(clip) - 1
        if not last:  # a scene of one frame
            yield clip[0]
            return

        # A look depends on its neighbours, of which there are fewer at the ends of a scene: those in its key.
        begin, end = max(0, keep[0] - self.looks), min(last, keep[1] - 1 + self.looks)
        keys = {}
        for place in range(begin, end + 1):
            earliest, latest = max(0, place - self.reach), min(last, place + self.reach)
            keys[place] = first + earliest, first + place, first + latest
        stages = steps(("looks", "restored"), self.shares)
        next(stages)
        with torch.inference_mode():
            looks = cache.get(
                keys,
                lambda missing: dealt(self._looking(clip), missing),
                self.facts.clip,
            )

        def restored(place: int) -> Tensor:
            with torch.inference_mode():
                return self.restored(clip, place, looks)

        next(stages)
        for place, frame in zip(
            range(*keep), dealt(restored, range(*keep)), strict=True
        ):
            self.count(first + place, place, clip, looks, cache)
            yield frame

    def _looking(self, clip: Tensor) -> Callable[[int], Any]:
        return lambda place: self.look(clip, place)

    def look(self, clip: Tensor, place: int) -> Any:
        """Return what one frame of a scene (T, 3, H, W) shows beside its neighbours."""
        raise NotImplementedError

    def restored(self, clip: Tensor, place: int, looks: dict[int, Any]) -> Tensor:
        """Return one frame (3, H, W) restored by the looks at frames around it, by their places."""
        raise NotImplementedError

    def count(
        self,
        number: int,
        place: int,
        clip: Tensor,
        looks: dict[int, Any],
        cache: ResultCache,
    ) -> None:
        """Count what was found in a frame of the video, whose number there is given."""
