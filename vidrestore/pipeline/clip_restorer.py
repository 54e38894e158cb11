"""From planned clips to restored frames: clips restored several at once, and joined in order.

The two kinds of restorers differ in what happens to a clip: see `plane_clips` and `rgb_clips`. Floats take
four times the memory of 8-bit samples, so a frame is in floats only while its clip is restored.
"""

from __future__ import annotations

import ctypes
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from vidrestore.clips import Bounds, Planes, crossfade, join_clips
from vidrestore.colour import grey_to_planes, grey_to_stored
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame, PixelFormat
from vidrestore.pipeline.chain import ordered_map
from vidrestore.pipeline.plan import Clip, PlannedClip, colour_planes
from vidrestore.pipeline.transfers import Sent, Uploads, as_arrays
from vidrestore.restorers.base import Facts

UNCHANGED = 0.02  # grey levels; frames whose mean change is below it look and nearly are the same
T = TypeVar("T")
R = TypeVar("R")


class EdgedClip(NamedTuple):
    """A planned clip and its neighbours' edges: all frames outside [before, after) belong to two clips."""

    clip: Clip
    frames: list[Frame]
    before: int  # stop of the clip before it
    after: int  # first frame of the clip after it
    sent: Sent | None = None  # its samples on the device, if that is not the CPU


class Restored(NamedTuple):
    """A frame with its own samples; or, with `planes`, the source's frame and the restored floats that
    another clip is to fade into.
    """

    frame: Frame
    planes: Planes | None = None


Piece: TypeAlias = tuple[Bounds, list[Restored]]


@dataclass(frozen=True)
class Changes:
    """Frames that were restored, those of them that stayed as they were (see UNCHANGED), and the sum of the
    frames' mean absolute changes in grey levels.
    """

    frames: int = 0
    unchanged: int = 0
    total: float = 0.0

    def __add__(self, other: Changes) -> Changes:
        return Changes(self.frames + other.frames, self.unchanged + other.unchanged, self.total + other.total)

    @property
    def mean(self) -> float:
        """The mean absolute change of a sample in grey levels."""
        return self.total / self.frames if self.frames else 0.0


class ClipRestorer(ABC):
    """Restores planned clips, several at once, and joins them to frames.

    `threads` are shared among the clips that are restored at once. `retried` counts the clips that half
    precision could not hold and that were restored again in fp32.
    """

    def __init__(self, facts: Facts, pixels: PixelFormat, threads: int) -> None:
        self.facts = facts
        self.pixels = pixels
        self.threads = threads
        self.retried = 0
        self.device = torch.device(facts.device)
        self._compared, none = 0, torch.zeros((), device=self.device)
        self._unchanged, self._change = none, none
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
        clips_there = self._sent(_chained(waiting, edged))
        with closing(self.at_once(self.restore, clips_there, frame)) as restored:
            del frame
            for item in join_clips(_pieces(restored), _fade, span):
                yield self._finished(item).frame

    def at_once(self, work: Callable[[T], R], items: Iterable[T], frame: Frame) -> Generator[R]:
        """`map` of `work` over clips of frames like this one, as many at once as there are threads and memory
        for.
        """
        return at_once(work, items, self.clips_at_once(frame), self.threads)

    @abstractmethod
    def clips_at_once(self, frame: Frame) -> int:
        """Return how many clips of frames like this one to restore at the same time."""

    def _sent(self, clips: Generator[EdgedClip]) -> Generator[EdgedClip]:
        """Yield the clips, each on its way to the device while earlier ones are restored."""
        uploads = None if self.device.type == "cpu" else Uploads(self.device, colour_planes(self.pixels))
        with closing(clips):
            for edged in clips:
                if uploads is None:
                    yield edged
                else:
                    yield edged._replace(sent=uploads.send(edged.clip.first, edged.frames))
                del edged

    def restore(self, edged: EdgedClip) -> tuple[Piece, Piece]:
        """Restore one clip: return the frames that are its own, and those that fade into the next clip.

        If a device runs out of memory, less is computed at once and the clip is restored again. Raises
        VidRestoreError if the model produces NaN or infinity, or if less at once is not possible.
        """
        while True:
            try:
                with torch.inference_mode():
                    return self.pieces(edged)
            except torch.OutOfMemoryError as error:
                failure = error.with_traceback(None)  # its frames hold tensors
            if not self.halve_batch():
                raise self.too_large(edged.clip) from failure
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    @abstractmethod
    def pieces(self, edged: EdgedClip) -> tuple[Piece, Piece]:
        """Return what `restore` does, or raise torch.OutOfMemoryError."""

    @abstractmethod
    def halve_batch(self) -> bool:
        """See `AnyRestorer.halve_batch`."""

    @abstractmethod
    def too_large(self, clip: Clip) -> VidRestoreError:
        """Return the error for a clip that the device has too little memory for."""

    def count_retry(self) -> None:
        """Count one more clip that half precision could not hold."""
        with self._counting:
            self.retried += 1

    @property
    def changes(self) -> Changes:
        """What was changed so far, where restored pictures are compared with their sources."""
        with self._counting:
            return Changes(self._compared, int(self._unchanged), float(self._change))

    def count_changes(self, before: Tensor, after: Tensor) -> None:
        """Count restored pictures (N, 3, H, W) in [0, 1]; nothing is read from their device yet."""
        change = 255 * (after - before).abs().mean((1, 2, 3))
        with self._counting:
            self._compared += len(change)
            self._unchanged = self._unchanged + (change < UNCHANGED).sum()
            self._change = self._change + change.sum()

    def _finished(self, item: Restored) -> Restored:
        """Return a frame with the samples of the source's format, and its alpha."""
        frame, planes = item
        if planes is None:
            return item
        if self.device.type == "cpu":
            native = grey_to_planes(planes, self.pixels)
        else:
            native = as_arrays(grey_to_stored(planes, self.pixels), self.pixels.depth)
        return Restored(replace(frame, planes=(*native, *frame.planes[len(native) :])))


def not_finite(clip: Clip, name: str) -> VidRestoreError:
    """Return the error for a clip that a model can't restore in full precision either."""
    return VidRestoreError(
        f"frames {clip.first} to {clip.stop - 1}: {name} produced NaN or infinity, in fp32 too; "
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


def all_finite(planes: tuple[Tensor, ...]) -> bool:
    """Return True if no sample is NaN or infinite; one sum per plane shows it, and one value is read."""
    return bool(torch.isfinite(torch.stack([plane.sum() for plane in planes])).all())


def _edged(clips: Iterator[PlannedClip]) -> Iterator[EdgedClip]:
    """Yield each clip with its neighbours' edges; reads one clip ahead."""
    before = 0
    held = next(clips, None)
    while held is not None:
        (clip, frames), held = held, next(clips, None)
        yield EdgedClip(clip, frames, before, held[0].first if held else clip.stop)
        del frames
        before = clip.stop


def _chained(first: list[T], rest: Iterator[T]) -> Generator[T]:
    """Yield the first item, which is taken out of its list, and the rest."""
    yield first.pop()
    yield from rest


def _pieces(clips: Iterable[tuple[Piece, Piece]]) -> Iterator[Piece]:
    """Yield one piece after the other: most frames leave at once, and their memory is free before the next
    clip comes.
    """
    for own, shared in clips:
        yield own
        del own
        yield shared
        del shared


def _fade(old: Restored, new: Restored, weight: float) -> Restored:
    assert old.planes is not None and new.planes is not None
    return Restored(new.frame, crossfade(old.planes, new.planes, weight))


# Clips are freed in another order than they were allocated in, by several threads, and glibc keeps what lies
# idle between the blocks that are still used: measured, the peak of a 1,000-frame video was 14 % above that
# of 100 frames, although both need the same. So that memory is given back to the system now and then; giving
# back at every clip costs time, since the next clip needs the same pages again.
TRIM_PERIOD = 2.0  # seconds


def find_trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`; None if the C library has none (musl, macOS, Windows)."""
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


class IdleMemory:
    """Gives idle memory back, at most once in `period` seconds; does nothing if the C library can't (`trim`
    is None).
    """

    def __init__(
        self,
        trim: Callable[[int], int] | None,
        period: float = TRIM_PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trim, self.period, self.clock = trim, period, clock
        self._last = clock()

    def give_back(self) -> None:
        """Return idle memory to the system now and then. Call it often, from one thread."""
        now = self.clock()
        if self.trim is not None and now - self._last >= self.period:
            self.trim(0)
            self._last = now
