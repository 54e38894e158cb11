"""Time cut into overlapping clips and joined again.

A clip is `length` consecutive frames of one scene, named by its bounds [first, stop). Neighbours share
frames, over which the join fades linearly from one to the other. Every frame is made by at most two clips,
and which two follows from the bounds alone: a range of clips restored on its own therefore gives exactly the
frames that the whole run gives there (`owned_span`, `needed_clips`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Bounds: TypeAlias = tuple[int, int]  # [first, stop) in frames
Planes: TypeAlias = tuple[Tensor, ...]  # one frame


def clip_bounds(count: int, cuts: Sequence[int], length: int, overlap: int) -> list[Bounds]:
    """Bounds of the clips that cover frames [0, count), none across a cut (the index of the first frame of a
    new scene).

    Neighbours in a scene share `overlap` frames. The last clip of a scene takes what is left: up to two
    fifths more than `length`, and otherwise at least about half of it. (Reaching back to full length instead
    restores scenes of two or three clips a third more often than needed.) A scene shorter than `length` is
    one short clip. Raises ValueError where overlap is not in [0, length) or cuts don't rise within (0,
    count).
    """
    _check_overlap(length, overlap)
    edges = [0, *cuts, count] if count else []
    if any(first >= stop for first, stop in pairwise(edges)):
        raise ValueError(f"cuts must rise and lie in (0, {count}), got {list(cuts)}")
    return [
        bounds for first, stop in pairwise(edges) for bounds in _scene_bounds(first, stop, length, overlap)
    ]


def _scene_bounds(first: int, stop: int, length: int, overlap: int) -> list[Bounds]:
    bounds = []
    while stop - first > longest_clip(length):
        bounds.append((first, first + length))
        first += length - overlap
    return [*bounds, (first, stop)]


def longest_clip(length: int) -> int:
    """Frames of the longest clip there can be: the last one of a scene may take in a short rest."""
    return length + length * 2 // 5


def _check_overlap(length: int, overlap: int) -> None:
    if not 0 <= overlap < length:
        raise ValueError(f"overlap must be in [0, {length}) for clips of {length} frames, got {overlap}")


def owned_span(bounds: Sequence[Bounds], clip: int) -> Bounds:
    """The frames [first, stop) that a clip owns: its own that no earlier clip has. The spans of all clips
    tile the video.
    """
    first, stop = bounds[clip]
    return (max(first, bounds[clip - 1][1]) if clip else first), stop


def needed_clips(bounds: Sequence[Bounds], clips: range) -> range:
    """The clips to restore for the frames owned by `clips`: those, and the next one where it shares frames
    with the last of them.
    """
    shares = clips.stop < len(bounds) and bounds[clips.stop][0] < bounds[clips.stop - 1][1]
    return range(clips.start, clips.stop + shares)


def live_clips(
    frames: Iterable[tuple[bool, T]], length: int, overlap: int
) -> Iterator[tuple[Bounds, list[T]]]:
    """Yield (bounds, frames) of the clips of a stream whose length nobody knows; each frame comes with
    whether it begins a new scene.

    The bounds are those of `clip_bounds`. Keeps one clip of the longest kind. Raises ValueError where overlap
    is not in [0, length).
    """
    _check_overlap(length, overlap)
    held: list[T] = []
    first = 0
    for begins, frame in frames:
        if begins and held:
            yield (first, first + len(held)), held
            first, held = first + len(held), []
        held.append(frame)
        del frame  # nothing but the clip keeps it in memory
        if len(held) > longest_clip(length):
            yield (first, first + length), held[:length]
            first, held = first + length - overlap, held[length - overlap :]
    if held:
        yield (first, first + len(held)), held


def join_clips(
    clips: Iterable[tuple[Bounds, Sequence[T]]], fade: Callable[[T, T, float], T], span: Bounds | None = None
) -> Iterator[T]:
    """Yield every frame once, in order, faded from one to the other where two clips have it; keeps two clips
    at most.

    `clips` are (bounds, restored frames) in order; `fade` makes one frame of two and the weight of the later
    (`crossfade`). With `span`, only the frames [first, stop) come out, as they do in the whole run: for the
    frames owned by clips a to b, both included, it is (owned_span(bounds, a)[0], owned_span(bounds, b)[1]),
    and the clips are those of `needed_clips`.
    """
    if span is None:
        return _joined(clips, fade, None)
    first, stop = span
    return islice(_joined(clips, fade, first), stop - first)


def _joined(
    clips: Iterable[tuple[Bounds, Sequence[T]]], fade: Callable[[T, T, float], T], done: int | None
) -> Iterator[T]:
    """Join the clips from frame `done` on, or from the first frame of the first clip."""
    held: Sequence[T] = ()  # what is not yet out of the last clip: frame `done` and on
    for (first, stop), frames in clips:
        if len(frames) != stop - first:
            raise ValueError(
                f"clip of frames {first} to {stop}: {stop - first} frames expected, got {len(frames)}"
            )
        done = first if done is None else done
        alone = max(first - done, 0)
        yield from held[:alone]
        shared = held[alone:]
        done += alone
        fresh = frames[done - first :]
        yield from map(fade, shared, fresh, crossfade_weights(len(shared)))
        done += len(shared)
        held = fresh[len(shared) :]
        del frames, fresh, shared  # else they live on while the next clip is made
    yield from held


def crossfade_weights(count: int) -> list[float]:
    """Weight of the later clip on each of `count` shared frames: t^4 / (t^4 + (1 - t)^4) at t = 1/(n+1),
    2/(n+1), ...

    Neither clip is ever alone or absent, but most frames are mostly of one: the even mean of two estimates
    has less error than either, and a frame that is 0.4 dB better than its neighbours shows.
    """
    shares = [(index + 1) / (count + 1) for index in range(count)]
    return [share**4 / (share**4 + (1 - share) ** 4) for share in shares]


def crossfade(old: Planes, new: Planes, weight: float) -> Planes:
    """Float planes of a frame as two clips have it, mixed: `weight` of the later one."""
    return tuple(torch.lerp(before, after, weight) for before, after in zip(old, new, strict=True))


def reflected(index: int, count: int) -> int:
    """Return the frame that stands for `index` in a scene of `count` frames, reflected at the first and last
    one.
    """
    if count == 1:
        return 0
    turn = index % (2 * count - 2)
    return min(turn, 2 * count - 2 - turn)
