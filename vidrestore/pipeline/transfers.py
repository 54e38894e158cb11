"""Stored samples of clips on their way to a device, as integers and each frame once, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.clips import Planes
from vidrestore.colour import grey_to_stored
from vidrestore.frames import Frame, PixelFormat
from vidrestore.pipeline.plan import colour_planes

Stacks = tuple[Tensor, ...]  # (T, h, w) of each plane, stored samples; those of 16 bits in int16


@dataclass
class Sent:
    """A clip's samples, whose copy may still be under way."""

    stacks: Stacks
    copied: torch.cuda.Event | None = None

    def arrived(self) -> Stacks:
        """Return the stacks for work on the calling thread's current stream, which waits for the copy."""
        if self.copied is not None:
            stream = torch.cuda.current_stream(self.stacks[0].device)
            stream.wait_event(self.copied)
            for stack in self.stacks:
                stack.record_stream(stream)
        return self.stacks


class Uploads:
    """Copies the first `planes` planes of clips to a device, in the order of the clips.

    Frames that a clip shares with the last one are there already. On CUDA the copy is from pinned memory and
    on a stream of its own, so that it runs beside the work on the clip before.
    """

    def __init__(self, device: torch.device, planes: int) -> None:
        self.device, self.planes = device, planes
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._last: tuple[int, Stacks] | None = None  # the stop of the last clip, and its samples

    def send(self, first: int, frames: list[Frame]) -> Sent:
        """Begin to copy frames `first` and on; free those of the last clip that are not needed any more."""
        shared = 0
        if self._last is not None and self._last[0] > first:
            shared = min(self._last[0] - first, len(self._last[1][0]))
        stacks = tuple(self._copied(plane, frames[shared:], shared) for plane in range(self.planes))
        self._last = first + len(frames), stacks
        return Sent(stacks, self.stream.record_event() if self.stream else None)

    def _copied(self, plane: int, fresh: list[Frame], shared: int) -> Tensor:
        with torch.cuda.stream(self.stream):  # does nothing without a stream
            known = self._last[1][plane][-shared:] if self._last is not None and shared else None
            if not fresh and known is not None:
                return known
            samples = np.stack([frame.planes[plane] for frame in fresh])
            stack = torch.from_numpy(samples.view(np.int16) if samples.dtype == np.uint16 else samples)
            if self.stream is not None:
                stack = stack.pin_memory()
            there = stack.to(self.device, non_blocking=True)
            return there if known is None else torch.cat((known, there))


class Samples(NamedTuple):
    """Frames, and the stacks of their colour planes on a device; None on the CPU."""

    frames: list[Frame]
    pixels: PixelFormat
    stacks: Stacks | None

    def grey(self, places: slice = slice(None)) -> Planes:
        """Return the colour planes (T, h, w) of some frames, float32 on the 0-255 scale; always a copy."""
        if self.stacks is not None:
            return floats((stack[places] for stack in self.stacks), self.pixels.unit)
        planes = zip(*(frame.planes for frame in self.frames[places]), strict=True)
        colours = islice(planes, colour_planes(self.pixels))
        return tuple(_stacked(plane, self.pixels.unit) for plane in colours)


def _stacked(planes: tuple[NDArray[Any], ...], unit: float) -> Tensor:
    """Stack planes as floats in one pass over memory that NumPy takes in huge pages."""
    stack = np.empty((len(planes), *planes[0].shape), np.float32)
    for target, plane in zip(stack, planes, strict=True):
        target[...] = plane
    return torch.from_numpy(stack if unit == 1 else np.divide(stack, np.float32(unit), out=stack))


def floats(stacks: Iterable[Tensor], unit: float) -> tuple[Tensor, ...]:
    """Stacks of stored samples to float32 on the 0-255 scale; `unit` as of `PixelFormat`."""
    whole = (stack.int().bitwise_and_(0xFFFF) if stack.dtype == torch.int16 else stack for stack in stacks)
    return tuple(stack.to(torch.float32, copy=True).mul_(1 / unit) for stack in whole)


def stored_samples(planes: Iterable[Tensor], pixels: PixelFormat) -> tuple[NDArray[Any], ...]:
    """Convert planes on the 0-255 scale to arrays of the samples that the format stores.

    From a GPU they are copied to pinned memory, which the bus writes to at its full speed, all together.
    """
    stacks = list(grey_to_stored(list(planes), pixels))
    if stacks[0].device.type == "cuda":
        device, sent = stacks[0].device, stacks
        stacks = [torch.empty(stack.shape, dtype=stack.dtype, pin_memory=True) for stack in sent]
        for stack, samples in zip(stacks, sent, strict=True):
            stack.copy_(samples, non_blocking=True)
        torch.cuda.current_stream(device).synchronize()
    arrays = (stack.cpu().numpy() for stack in stacks)
    return tuple(array.view(np.uint16) if 8 < pixels.depth <= 16 else array for array in arrays)


def all_finite(planes: tuple[Tensor, ...]) -> bool:
    """Return True if no sample is NaN or infinite; one sum per plane shows it, and one value is read."""
    return bool(torch.isfinite(torch.stack([plane.sum() for plane in planes])).all())
