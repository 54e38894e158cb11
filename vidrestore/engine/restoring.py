"""From planned clips to restored frames: to float, through the model, joined, back to the source's own samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.clips import Bounds, Planes, join_clips
from vidrestore.colour import grey_to_planes
from vidrestore.engine.chain import ordered_map
from vidrestore.engine.plan import Clip, PlannedClip, colour_planes
from vidrestore.engine.tasks import Restorer
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame, PixelFormat

CLIPS_MEMORY = 600 << 20  # bytes for the float samples of all clips that are restored at once
COPIES = 4  # of a clip's float samples while it is restored: in, out, and what the model accumulates

T = TypeVar("T")
R = TypeVar("R")
RestoredClip: TypeAlias = tuple[Clip, list[Frame], list[Planes]]


class ClipRestorer:
    """Restores planned clips, several at once, and joins them to frames.

    `strength` mixes: 1 is the restored picture, 0 the source. `threads` are shared among the clips that are restored at once.
    `retried` counts the clips that half precision could not hold and that were restored again in fp32.
    """

    def __init__(self, restorer: Restorer, pixels: PixelFormat, *, strength: float = 1.0, threads: int = 1) -> None:
        self.restorer = restorer
        self.pixels = pixels
        self.strength = strength
        self.threads = threads
        self.retried = 0
        self._counting = Lock()

    def frames(self, clips: Iterator[PlannedClip], span: Bounds | None = None) -> Generator[Frame]:
        """Yield every frame restored, with its own time; with `span` only frames [first, stop), the same as in the whole run.

        Keeps the clips that are being restored and one more.
        """
        first = next(clips, None)
        if first is None:
            return
        upcoming: deque[Clip] = deque()
        every = _noted([first], clips, upcoming)
        with closing(self.at_once(self.restore, every, first[1][0])) as restored:
            del first  # nothing here keeps it in memory
            yield from self._joined(_pieces(restored, upcoming), span)

    def at_once(self, work: Callable[[T], R], items: Iterable[T], frame: Frame) -> Generator[R]:
        """`map` of `work` over clips of frames like this one, as many at once as there are threads and memory for."""
        return at_once(work, items, self.clips_at_once(frame), self.threads)

    def clips_at_once(self, frame: Frame) -> int:
        """How many clips to restore at the same time: single-threaded clips use the cores best, as long as there is memory."""
        if self.restorer.parallel:
            return self.restorer.parallel
        samples = self.restorer.clip * sum(plane.size for plane in frame.planes) * self.restorer.scale**2
        return max(1, min(self.threads, CLIPS_MEMORY // (COPIES * 4 * samples)))

    def restore(self, planned: PlannedClip) -> RestoredClip:
        """Restore one clip. Raises VidRestoreError where the model gives what is no number."""
        clip, frames = planned
        with torch.inference_mode():
            source = clip_planes(frames, self.pixels)
            restored = self.restorer.restore(source, clip.sigma)
            if not all_finite(restored):
                restored = self._again(source, clip)
            if self.strength < 1:
                restored = tuple(before.lerp(after, self.strength) for before, after in zip(source, restored, strict=True))
        return clip, frames, list(zip(*(plane.unbind(0) for plane in restored), strict=True))

    def _again(self, source: tuple[Tensor, ...], clip: Clip) -> tuple[Tensor, ...]:
        with self._counting:
            self.retried += 1
        restored = self.restorer.restore(source, clip.sigma, precision="fp32")
        if not all_finite(restored):
            raise VidRestoreError(
                f"frames {clip.first} to {clip.stop - 1}: {self.restorer.name} gave values that are no numbers, in fp32 too; "
                "the weights may be damaged: see `vidrestore weights verify`"
            )
        return restored

    def _joined(self, clips: Iterable[RestoredClip], span: Bounds | None) -> Iterator[Frame]:
        """Join the clips and give each frame the time and the alpha plane of its source."""
        sources: deque[Frame] = deque()
        for planes in join_clips(_with_sources(clips, sources, span[0] if span else 0), span):
            source = sources.popleft()
            native = grey_to_planes(planes, self.pixels)
            del planes  # a view of one frame would keep its whole clip in memory
            yield replace(source, planes=(*native, *source.planes[len(native) :]))


def at_once(work: Callable[[T], R], items: Iterable[T], workers: int, threads: int) -> Generator[R]:
    """`map` of `work` by several workers at once, each with its share of the threads; the calling thread is left with one.

    Torch counts threads by the thread that calls it. Teams of several that compete for the cores wait for each other, spinning:
    measured, a conversion took 99 ms of CPU time instead of 2.
    """
    share = max(1, threads // workers)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with closing(ordered_map(work, items, workers, begin=partial(torch.set_num_threads, share))) as results:
            yield from results
    finally:
        torch.set_num_threads(before)


def clip_planes(frames: list[Frame], pixels: PixelFormat) -> tuple[Tensor, ...]:
    """Each colour plane of a clip as one tensor (T, H, W), float32 on the 0-255 scale."""
    return tuple(_stacked([frame.planes[plane] for frame in frames], pixels.unit) for plane in range(colour_planes(pixels)))


def _stacked(planes: list[NDArray[Any]], unit: float) -> Tensor:
    """One pass over memory that NumPy takes in huge pages: for small models the page faults would cost more than the conversion."""
    stack = np.empty((len(planes), *planes[0].shape), np.float32)
    for target, plane in zip(stack, planes, strict=True):
        target[...] = plane
    return torch.from_numpy(stack if unit == 1 else np.divide(stack, np.float32(unit), out=stack))


def all_finite(planes: tuple[Tensor, ...]) -> bool:
    """Whether no sample is NaN or infinite. A sum shows that at the price of reading the samples once."""
    return all(bool(torch.isfinite(plane.sum())) for plane in planes)


def _noted(first: list[PlannedClip], rest: Iterator[PlannedClip], upcoming: deque[Clip]) -> Iterator[PlannedClip]:
    """The first clip and the rest, each noted in `upcoming` when its restoration begins."""
    upcoming.append(first[0][0])
    yield first.pop()
    for planned in rest:
        upcoming.append(planned[0])
        yield planned
        del planned


def _pieces(clips: Iterable[RestoredClip], upcoming: deque[Clip]) -> Iterator[RestoredClip]:
    """Each clip in two: the frames that are its own, and a copy of those that fade into the next clip.

    The next clip is known while it is still being restored (`ordered_map` reads ahead). So most frames go on at once, and their memory is
    free before the next clip comes.
    """
    done = 0
    for clip, frames, planes in clips:
        upcoming.popleft()
        edge = max(upcoming[0].first, done) if upcoming and upcoming[0].first < clip.stop else clip.stop
        own = edge - clip.first
        shared = [tuple(plane.clone() for plane in each) for each in planes[own:]]
        yield replace(clip, stop=edge), frames[:own], planes[:own]
        del planes
        if shared:
            yield replace(clip, first=edge), frames[own:], shared
        done = clip.stop


def _with_sources(clips: Iterable[RestoredClip], sources: deque[Frame], seen: int) -> Iterator[tuple[Bounds, list[Planes]]]:
    """Pass the clips on, and put every source frame from index `seen` on into `sources`, once."""
    for clip, frames, planes in clips:
        sources.extend(frames[max(seen - clip.first, 0) :])
        seen = max(seen, clip.stop)
        yield (clip.first, clip.stop), planes
