"""From planned clips to restored frames: to float, through the model, back to the source's own samples,
joined.

Floats take four times the memory of 8-bit samples. So a frame is in floats only while its clip is restored;
but those that two clips share until both are there to be cross-faded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.clips import Bounds, Planes, crossfade, join_clips
from vidrestore.colour import grey_to_planes
from vidrestore.degrade.grain import with_grain
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame, PixelFormat
from vidrestore.pipeline.chain import ordered_map
from vidrestore.pipeline.idle_memory import IdleMemory, find_trim
from vidrestore.pipeline.plan import Clip, PlannedClip, colour_planes
from vidrestore.restorers.base import Restorer

CLIPS_MEMORY = 600 << 20  # bytes for the float samples of all clips that are restored at once
COPIES = 4  # of a clip's float samples while it is restored: in, out, and what the model accumulates

T = TypeVar("T")
R = TypeVar("R")


class EdgedClip(NamedTuple):
    """A planned clip and its neighbours' edges: all frames outside [before, after) belong to two clips."""

    clip: Clip
    frames: list[Frame]
    before: int  # where the clip before it stops
    after: int  # first frame of the clip after it


class Restored(NamedTuple):
    """A frame with its own samples; or, with `planes`, the source's frame and the restored floats that
    another clip is to fade into.
    """

    frame: Frame
    planes: Planes | None = None


Piece: TypeAlias = tuple[Bounds, list[Restored]]


class ClipRestorer:
    """Restores planned clips, several at once, and joins them to frames.

    `strength` mixes: 1 is the restored picture, 0 the source; `chroma_strength` the colour differences, None:
    alike. `grain`: standard deviation of the grain that is added to brightness. `threads` are shared among
    the clips that are restored at once. `retried` counts the clips that half precision could not hold and
    that were restored again in fp32.
    """

    def __init__(
        self,
        restorer: Restorer,
        pixels: PixelFormat,
        *,
        strength: float = 1.0,
        chroma_strength: float | None = None,
        grain: float = 0.0,
        threads: int = 1,
    ) -> None:
        self.restorer = restorer
        self.pixels = pixels
        self.strength = strength
        self.strengths = [strength] * colour_planes(pixels)
        if pixels.family == "yuv" and chroma_strength is not None:
            self.strengths[1:] = [chroma_strength] * (len(self.strengths) - 1)
        self.grain = grain
        self.threads = threads
        self.retried = 0
        self._counting = Lock()

    def frames(self, clips: Iterator[PlannedClip], span: Bounds | None = None) -> Generator[Frame]:
        """Yield every frame restored, with its own time; with `span` only frames [first, stop), the same as
        in the whole run.

        Keeps the clips that are being restored and two more.
        """
        edged = _edged(clips)
        first = next(edged, None)
        if first is None:
            return
        waiting, frame = [first], first.frames[0]
        del first  # nothing here keeps it in memory
        with closing(self.at_once(self.restore, _chained(waiting, edged), frame)) as restored:
            del frame
            for item in join_clips(_pieces(restored), _fade, span):
                yield self._finished(item).frame

    def at_once(self, work: Callable[[T], R], items: Iterable[T], frame: Frame) -> Generator[R]:
        """`map` of `work` over clips of frames like this one, as many at once as there are threads and memory
        for.
        """
        return at_once(work, items, self.clips_at_once(frame), self.threads)

    def clips_at_once(self, frame: Frame) -> int:
        """How many clips to restore at the same time: single-threaded clips use the cores best, as long as
        there is memory.
        """
        if self.restorer.parallel:
            return self.restorer.parallel
        samples = self.restorer.clip * sum(plane.size for plane in frame.planes) * self.restorer.scale**2
        return max(1, min(self.threads, CLIPS_MEMORY // (COPIES * 4 * samples)))

    def restore(self, edged: EdgedClip) -> tuple[Piece, Piece]:
        """Restore one clip: the frames up to those that fade into the next clip, and those. Raises
        VidRestoreError where the model gives what is no number, or finds too little memory.
        """
        clip, frames, before, after = edged
        edge = min(max(before, after), clip.stop)
        with torch.inference_mode():
            try:
                planes = self._restored(clip, clip_planes(frames, self.pixels))
            except torch.OutOfMemoryError as error:
                raise self.too_large(clip) from error
            restored = []
            for index, (frame, *each) in enumerate(zip(frames, *planes, strict=True), clip.first):
                if before <= index < after:
                    restored.append(self._finished(Restored(frame, tuple(each))))
                else:
                    # a view would keep the whole clip in memory
                    restored.append(Restored(frame, tuple(plane.clone() for plane in each)))
        own = edge - clip.first
        return ((clip.first, edge), restored[:own]), ((edge, clip.stop), restored[own:])

    def too_large(self, clip: Clip) -> VidRestoreError:
        """The error for a clip that a GPU has too little memory for."""
        name = self.restorer.name
        return VidRestoreError(
            f"frames {clip.first} to {clip.stop - 1}: {name} finds too little memory on the GPU; use "
            "--device cpu"
        )

    def _restored(self, clip: Clip, source: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        restored = self.restorer.restore(source, clip.sigma)
        if not all_finite(restored):
            restored = self._again(source, clip)
        restored = tuple(map(_mixed, source, restored, self.strengths))
        if self.grain:
            return with_grain(restored, self.grain, clip.first, colour=self.pixels.family == "yuv")
        return restored

    def count_retry(self) -> None:
        """One more clip that half precision could not hold."""
        with self._counting:
            self.retried += 1

    def _again(self, source: tuple[Tensor, ...], clip: Clip) -> tuple[Tensor, ...]:
        self.count_retry()
        restored = self.restorer.restore(source, clip.sigma, precision="fp32")
        if not all_finite(restored):
            raise no_numbers(clip, self.restorer.name)
        return restored

    def _finished(self, item: Restored) -> Restored:
        """With the samples of the source's format, and its alpha."""
        frame, planes = item
        if planes is None:
            return item
        native = grey_to_planes(planes, self.pixels)
        return Restored(replace(frame, planes=(*native, *frame.planes[len(native) :])))


def _mixed(before: Tensor, after: Tensor, strength: float) -> Tensor:
    return after if strength == 1 else before.lerp(after, strength)


def no_numbers(clip: Clip, name: str) -> VidRestoreError:
    """The error for a clip that a model can't restore in full precision either."""
    return VidRestoreError(
        f"frames {clip.first} to {clip.stop - 1}: {name} gave values that are no numbers, in fp32 too; "
        "the weights may be damaged: see `vidrestore weights verify`"
    )


def at_once(work: Callable[[T], R], items: Iterable[T], workers: int, threads: int) -> Generator[R]:
    """`map` of `work` by several workers at once, each with its share of the threads; the calling thread is
    left with one.

    Torch counts threads by the thread that calls it. Teams of several that compete for the cores wait for
    each other, spinning: measured, a conversion took 99 ms of CPU time instead of 2.
    """
    share, idle = max(1, threads // workers), IdleMemory(find_trim())
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with closing(
            ordered_map(work, items, workers, begin=partial(torch.set_num_threads, share))
        ) as results:
            for result in results:
                yield result
                del result
                idle.give_back()
    finally:
        torch.set_num_threads(before)


def clip_planes(frames: list[Frame], pixels: PixelFormat) -> tuple[Tensor, ...]:
    """Each colour plane of a clip as one tensor (T, H, W), float32 on the 0-255 scale."""
    return tuple(
        _stacked([frame.planes[plane] for frame in frames], pixels.unit)
        for plane in range(colour_planes(pixels))
    )


def _stacked(planes: list[NDArray[Any]], unit: float) -> Tensor:
    """One pass over memory that NumPy takes in huge pages: for small models the page faults would cost more
    than the conversion.
    """
    stack = np.empty((len(planes), *planes[0].shape), np.float32)
    for target, plane in zip(stack, planes, strict=True):
        target[...] = plane
    return torch.from_numpy(stack if unit == 1 else np.divide(stack, np.float32(unit), out=stack))


def all_finite(planes: tuple[Tensor, ...]) -> bool:
    """Whether no sample is NaN or infinite. A sum shows that at the price of reading the samples once."""
    return all(bool(torch.isfinite(plane.sum())) for plane in planes)


def _edged(clips: Iterator[PlannedClip]) -> Iterator[EdgedClip]:
    """Each clip with its neighbours' edges; reads one clip ahead."""
    before = 0
    held = next(clips, None)
    while held is not None:
        (clip, frames), held = held, next(clips, None)
        yield EdgedClip(clip, frames, before, held[0].first if held else clip.stop)
        del frames
        before = clip.stop


def _chained(first: list[T], rest: Iterator[T]) -> Iterator[T]:
    """The first item, which is taken out of its list, and the rest."""
    yield first.pop()
    yield from rest


def _pieces(clips: Iterable[tuple[Piece, Piece]]) -> Iterator[Piece]:
    """One piece after the other: most frames go on at once, and their memory is free before the next clip
    comes.
    """
    for own, shared in clips:
        yield own
        del own
        yield shared
        del shared


def _fade(old: Restored, new: Restored, weight: float) -> Restored:
    assert old.planes is not None and new.planes is not None
    return Restored(new.frame, crossfade(old.planes, new.planes, weight))
