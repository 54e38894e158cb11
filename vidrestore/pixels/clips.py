"""Cut a video into overlapping clips, and join the restored clips.

A clip is `length` consecutive frames of one scene, identified by its bounds [first, stop). Neighbours share
frames, over which the join cross-fades from one to the other. Every frame comes from at most two clips, which
depend on the bounds alone: a range of clips restored on its own therefore gives exactly the same frames as in
the whole run (`owned_span`, `needed_clips`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Bounds: TypeAlias = tuple[int, int]  # [first, stop) in frames
Planes: TypeAlias = tuple[Tensor, ...]  # one frame


def clip_bounds(
    count: int, cuts: Sequence[int], length: int, overlap: int
) -> list[Bounds]:
    """Return the bounds of the clips that cover frames [0, count) without crossing a cut (the first frame of
    a new scene).

    Neighbours in a scene share `overlap` frames. The last clip of a scene takes the remaining frames: up to
    two fifths more than `length`, or at least about half of it. (Extending it backwards to full length would
    restore a third more frames in scenes of two or three clips.) A scene shorter than `length` is one short
    clip. Raises ValueError unless overlap is in [0, length) and cuts increase within (0, count).
    """
    # the frames between two cuts are a scene
    _check_overlap(length, overlap)
    edges = [0, *cuts, count] if count else []
    if any(first >= stop for first, stop in pairwise(edges)):
        raise ValueError(f"cuts must increase within (0, {count}), got {list(cuts)}")
    clips: list[Bounds] = []
    for first, stop in pairwise(edges):
        clips += _scene_bounds(first, stop, length, overlap)
    return clips


def _scene_bounds(first: int, stop: int, length: int, overlap: int) -> list[Bounds]:
    bounds = []
    # the last clip takes what remains, if that is little
    while stop - first > longest_clip(length):
        bounds.append((first, first + length))
        first += length - overlap
    return [*bounds, (first, stop)]


def longest_clip(length: int) -> int:
    """Return the frames of the longest possible clip: the last of a scene also takes a short remainder."""
    return length + length * 2 // 5


def _check_overlap(length: int, overlap: int) -> None:
    if not 0 <= overlap < length:
        raise ValueError(
            f"overlap must be in [0, {length}) for clips of {length} frames, got {overlap}"
        )


def owned_span(bounds: Sequence[Bounds], clip: int) -> Bounds:
    """Return the frames [first, stop) of a clip that no earlier clip has. All spans tile the video."""
    first, stop = bounds[clip]
    return (max(first, bounds[clip - 1][1]) if clip else first), stop


def owners(bounds: Sequence[Bounds], first: int, stop: int) -> range:
    """Return the clips that own the frames [first, stop)."""
    ends = [end for _, end in bounds]
    return range(bisect_right(ends, first), bisect_left(ends, stop) + 1)


def needed_clips(bounds: Sequence[Bounds], clips: range) -> range:
    """Return the clips to restore for the frames owned by `clips`: those, and the next one if it shares
    frames with the last.
    """
    following = bounds[clips.stop : clips.stop + 1]
    overlaps = bool(following) and following[0][0] < bounds[clips.stop - 1][1]
    return range(clips.start, clips.stop + overlaps)


def live_clips(
    frames: Iterable[tuple[bool, T]], length: int, overlap: int
) -> Iterator[tuple[Bounds, list[T]]]:
    """Yield (bounds, frames) of the clips of a stream of unknown length; each item is (begins a new scene,
    frame).

    The bounds are those of `clip_bounds`. At most one clip is in memory. Raises ValueError unless overlap is
    in [0, length).
    """
    _check_overlap(length, overlap)
    buffer: list[T] = []
    first = 0
    # a clip ends with its scene, or when the next frame would be too much
    for begins, frame in frames:
        if begins and buffer:
            yield (first, first + len(buffer)), buffer
            first = first + len(buffer)
            buffer = []
        buffer.append(frame)
        del frame  # so that only the clip refers to it
        if len(buffer) > longest_clip(length):
            yield (first, first + length), buffer[:length]
            first = first + length - overlap
            buffer = buffer[length - overlap :]
    if buffer:
        yield (first, first + len(buffer)), buffer


def join_clips(
    clips: Iterable[tuple[Bounds, Sequence[T]]],
    fade: Callable[[T, T, float], T],
    span: Bounds | None = None,
) -> Iterator[T]:
    """Yield every frame once, in order, cross-faded if two clips have it; at most two clips are in memory.

    `clips` are (bounds, restored frames) in order; `fade(earlier, later, weight of the later)` mixes two
    frames (`crossfade`). With `span`, only the frames [first, stop) are yielded, equal to those of the whole
    run: for the frames owned by clips a to b it is (owned_span(bounds, a)[0], owned_span(bounds, b)[1]), and
    the clips are those of `needed_clips`.
    """
    if span is None:
        return _joined(clips, fade, None)
    # frames of other owners are needed for the fading only
    first, stop = span
    return islice(_joined(clips, fade, first), stop - first)


def _joined(
    clips: Iterable[tuple[Bounds, Sequence[T]]],
    fade: Callable[[T, T, float], T],
    position: int | None,
) -> Iterator[T]:
    """Join the clips from frame `position`, or from the first frame of the first clip."""
    # frames of the last clip from `position` on, which are not yielded yet
    buffer: Sequence[T] = ()
    # the frames of the last clip alone, the shared ones faded, then the rest waits for the next clip
    for (first, stop), frames in clips:
        if len(frames) != stop - first:
            raise ValueError(
                f"clip of frames {first} to {stop}: {stop - first} frames expected, got {len(frames)}"
            )
        position = first if position is None else position
        head = max(first - position, 0)
        yield from buffer[:head]
        shared = buffer[head:]
        position += head
        tail = frames[position - first :]
        yield from map(fade, shared, tail, crossfade_weights(len(shared)))
        position += len(shared)
        buffer = tail[len(shared) :]
        del frames, tail, shared  # free them before the next clip is restored
    yield from buffer


def crossfade_weights(count: int) -> list[float]:
    """Return the weight of the later clip on each of `count` shared frames: t^4 / (t^4 + (1 - t)^4) at t =
    1/(n+1), 2/(n+1), ...

    Weights are never 0 or 1, but mostly close to one of them: the even mean of two estimates has less error
    than either, and a frame that is 0.4 dB better than its neighbours is visible as flicker.
    """
    shares = [(index + 1) / (count + 1) for index in range(count)]
    return [share**4 / (share**4 + (1 - share) ** 4) for share in shares]


def crossfade(old: Planes, new: Planes, weight: float) -> Planes:
    """Mix the float planes of a frame from two clips; `weight` is that of the later one."""
    return tuple(
        torch.lerp(before, after, weight)
        for before, after in zip(old, new, strict=True)
    )


def reflected(index: int, count: int) -> int:
    """Return the index in a scene of `count` frames for any `index`, by reflection at the ends."""
    if count == 1:
        return 0
    turn = index % (2 * count - 2)
    return min(turn, 2 * count - 2 - turn)


def reflected_window(centre: int, radius: int, count: int) -> list[int]:
    """Return the frames around frame `centre` of a scene of `count`, `radius` on either side."""
    return [
        reflected(index, count) for index in range(centre - radius, centre + radius + 1)
    ]
