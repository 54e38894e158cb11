"""Restore single frames of a clip by VSR-Transformer, computing shared results once and nothing that isn't
needed.

The results equal the network's own forward. For the centre of a window of 5, the last feed-forward layer, the
reconstruction and the tail run once, not five times, and the last attention for three frames. Features and
flows belong to a frame or to a pair, in whatever windows. In a compact network each layer of a frame depends
on near frames only, so one window over all frames of a scene computes each of them once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from vidrestore.models.spynet import warp
from vidrestore.models.vsr_transformer import Attention, KeysAndValues, VsrTransformer

T = TypeVar("T")


class LruCache(Generic[T]):
    """The `size` most recently used results; others are computed again when needed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.results: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached result of `key`, or that of `make()`."""
        if key not in self.results:
            self.put(key, make())
        self.results.move_to_end(key)
        return self.results[key]

    def put(self, key: Hashable, result: T) -> None:
        """Keep a result, and forget the one that was not used for longest if there are too many."""
        self.results[key] = result
        while len(self.results) > self.size:
            self.results.popitem(last=False)


class VsrClip:
    """A clip of frames (N, B, 3, H, W), RGB in [0, 1], of which single frames are restored; B are tiles, or
    several clips.

    Flow is computed in the precision of the frames, the rest in the network's. Caches features and flows of
    about two windows, and the states of a few frames of a compact network. Flows of so many pairs are
    computed `together`. Not thread-safe.
    """

    def __init__(self, network: VsrTransformer, frames: Tensor, together: int = 1) -> None:
        self.network, self.together = network, together
        self.frames: list[Tensor] = [frame.contiguous(memory_format=torch.channels_last) for frame in frames]
        local, window = network.config.local, 2 * network.config.radius + 1
        self._features = LruCache[Tensor](2 * local.reach + 1 if local else window + 2)
        self._flows = LruCache[Tensor](2 * (window + 2 * together))
        self._window: Window | None = None

    def restore(self, window: Sequence[int], at: int) -> Tensor:
        """Return frame `window[at]`, restored among the frames of `window`: (B, 3, 4H, 4W), not clamped.

        `window` holds indices into the clip, which may repeat (the reflection at the ends of a scene). Calls
        share results; for compact networks also the window's states, so pass all frames of a scene as
        `window`, and `at` in ascending order. Raises ValueError if the network can't take that frame size or
        number of frames.
        """
        window = tuple(window)
        if self._window is None or self._window.indices != window:
            self.network.check_size(len(window), *self.frames[0].shape[-2:])
            self._window = None  # free its states first
            self._window = Window(self, window)
        maps = self._window.maps(self.network.config.blocks, at)
        if self.network.config.local is None:
            self._window = None  # the released form restores one frame per window
        return self.network.finish(maps, self.frames[window[at]])

    def features(self, index: int) -> Tensor:
        """Return the extractor's features of one frame of the clip."""
        return self._features.get(index, lambda: self.network.extract(self.picture(index)))

    def picture(self, index: int) -> Tensor:
        """Return a frame in the network's precision."""
        return self.frames[index].to(self.network.dtype)

    def flow(self, index: int, other: int) -> Tensor:
        """Return the flow from one frame to another. Those of the pairs after it are computed with it."""
        if (index, other) not in self._flows.results:
            count = min(self.together, len(self.frames) - max(index, other))
            here, there = (torch.cat(self.frames[at : at + count]) for at in (index, other))
            for at, flow in enumerate(self.network.pair_flow(here, there).chunk(count)):
                self._flows.put((index + at, other + at), flow)
        return self._flows.results[index, other]


class Window:
    """The states of one window's frames, computed when needed. Frames are numbered from 0 in the window."""

    def __init__(self, clip: VsrClip, indices: tuple[int, ...]) -> None:
        self.clip, self.indices = clip, indices
        self.network, local = clip.network, clip.network.config.local
        self.positions = None if local else self.network.positions(len(indices), clip.features(indices[0]))
        sight, depth = 2 * local.reach + 1 if local else len(indices), self.network.config.blocks
        self._prepared = [LruCache[KeysAndValues](sight) for _ in range(depth)]
        distances = [self.network.config.distance(block) for block in range(depth)]
        # the earlier neighbour is read before the later one is made
        self._attended = [LruCache[tuple[Tensor, Tensor]](2 * distance) for distance in distances]
        self._fed = [LruCache[Tensor](sight) for _ in range(depth)]

    def maps(self, depth: int, frame: int) -> Tensor:
        """Return the input of block `depth` for a frame; for the number of blocks, the last block's
        output.
        """
        if depth:
            return self._fed[depth - 1].get(frame, lambda: self._feed(depth - 1, frame))
        features = self.clip.features(self.indices[frame])
        return features if self.positions is None else features + self.positions[frame]

    def attended(self, depth: int, frame: int) -> tuple[Tensor, Tensor]:
        """Return the maps of a frame after the attention of a block, and the part that it shares with its
        neighbours.
        """
        return self._attended[depth].get(frame, lambda: self._attend(depth, frame))

    def _attend(self, depth: int, frame: int) -> tuple[Tensor, Tensor]:
        block = self.network.block(depth)
        maps = self._mixed(depth, frame, block.attention) if block.attention else self.maps(depth, frame)
        return maps, block.feed_forward.shared(maps) if block.feed_forward else maps

    def _mixed(self, depth: int, frame: int, attention: Attention) -> Tensor:
        seen = attention.sight(frame, len(self.indices))
        for other in seen:
            self.maps(depth, other)
        if len(seen) == len(self.indices):
            self._forget(depth)
        near = [
            self._prepared[depth].get(other, partial(self._prepare, depth, other, attention))
            for other in seen
        ]
        normal = attention.normal(self.maps(depth, frame))
        bias = attention.bias(frame, seen, *normal.shape[-2:])
        tokens = attention.mix(
            attention.queries(normal), [each.key for each in near], [each.value for each in near], bias
        )
        return attention.finish(self.maps(depth, frame), normal, tokens)

    def _prepare(self, depth: int, frame: int, attention: Attention) -> KeysAndValues:
        """Return the keys and values of a frame for a block's attention."""
        return attention.prepare(attention.normal(self.maps(depth, frame)))

    def _forget(self, depth: int) -> None:
        """Free the states before a block, once its input is known for all frames."""
        done: list[LruCache[Any]] = [
            *self._prepared[:depth],
            *self._attended[:depth],
            *self._fed[: max(0, depth - 1)],
        ]
        for each in done:
            each.results.clear()

    def _feed(self, depth: int, frame: int) -> Tensor:
        block = self.network.block(depth)
        if block.feed_forward is None:
            return block.feed_alone(self.attended(depth, frame)[0])
        distance = self.network.config.distance(depth)
        earlier = self._neighbour(depth, frame, -distance)  # in order of time, in which states are evicted
        maps, _ = self.attended(depth, frame)
        later = self._neighbour(depth, frame, distance)
        fed: Tensor = block.feed_forward(maps, self.clip.picture(self.indices[frame]), later, earlier)
        return fed

    def _neighbour(self, depth: int, frame: int, step: int) -> Tensor:
        """Return the shared maps of the frame `step` frames on, warped; beyond the ends of the window those
        of the frame itself.
        """
        other = frame + step if 0 <= frame + step < len(self.indices) else frame
        _, normal = self.attended(depth, other)
        if other == frame and self.network.config.local:
            return normal
        return warp(normal, self.clip.flow(self.indices[frame], self.indices[other]))
