"""Restore single frames of a clip by VSR-Transformer, computing shared results once and nothing that isn't
needed.

The results equal the network's own forward. For the centre of a window of 5, the last feed-forward layer, the
reconstruction and the tail run once, not five times, and the last attention for three frames. Features and
flows belong to a frame or to a pair, in whatever windows.
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
    about two windows. Not thread-safe.
    """

    def __init__(self, network: VsrTransformer, frames: Tensor) -> None:
        self.network = network
        self.frames: list[Tensor] = [frame.contiguous(memory_format=torch.channels_last) for frame in frames]
        window = 2 * network.config.radius + 1
        self._features = LruCache[Tensor](window + 2)
        self._flows = LruCache[Tensor](2 * (window + 2))

    def restore(self, window: Sequence[int], at: int) -> Tensor:
        """Return frame `window[at]`, restored among the frames of `window`: (B, 3, 4H, 4W), not clamped.

        `window` holds indices into the clip, which may repeat (the reflection at the ends of a scene). Calls
        share results. Raises ValueError if the network can't take that frame size or number of frames.
        """
        self.network.check_size(len(window), *self.frames[0].shape[-2:])
        maps = Window(self, tuple(window)).maps(self.network.config.blocks, at)
        return self.network.finish(maps, self.frames[window[at]])

    def features(self, index: int) -> Tensor:
        """Return the extractor's features of one frame of the clip."""
        return self._features.get(index, lambda: self.network.extract(self.picture(index)))

    def picture(self, index: int) -> Tensor:
        """Return a frame in the network's precision."""
        return self.frames[index].to(self.network.dtype)

    def flow(self, index: int, other: int) -> Tensor:
        """Return the flow from one frame to another."""
        return self._flows.get(
            (index, other), lambda: self.network.pair_flow(self.frames[index], self.frames[other])
        )


class Window:
    """The states of one window's frames, computed when needed. Frames are numbered from 0 in the window."""

    def __init__(self, clip: VsrClip, indices: tuple[int, ...]) -> None:
        self.clip, self.indices = clip, indices
        self.network = clip.network
        self.positions = self.network.positions(len(indices), clip.features(indices[0]))
        sight, depth = len(indices), self.network.config.blocks
        self._prepared = [LruCache[KeysAndValues](sight) for _ in range(depth)]
        # the earlier neighbour is read before the later one is made
        self._attended = [LruCache[tuple[Tensor, Tensor]](2) for _ in range(depth)]
        self._fed = [LruCache[Tensor](sight) for _ in range(depth)]

    def maps(self, depth: int, frame: int) -> Tensor:
        """Return the input of block `depth` for a frame; for the number of blocks, the last block's
        output.
        """
        if depth:
            return self._fed[depth - 1].get(frame, lambda: self._feed(depth - 1, frame))
        features = self.clip.features(self.indices[frame])
        return features + self.positions[frame]

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
        for other in range(len(self.indices)):
            self.maps(depth, other)
        self._forget(depth)
        near = [
            self._prepared[depth].get(other, partial(self._prepare, depth, other, attention))
            for other in range(len(self.indices))
        ]
        normal = attention.normal(self.maps(depth, frame))
        tokens = attention.mix(
            attention.queries(normal), [each.key for each in near], [each.value for each in near]
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
        earlier = self._neighbour(depth, frame, -1)  # in order of time, in which states are evicted
        maps, _ = self.attended(depth, frame)
        later = self._neighbour(depth, frame, 1)
        fed: Tensor = block.feed_forward(maps, self.clip.picture(self.indices[frame]), later, earlier)
        return fed

    def _neighbour(self, depth: int, frame: int, step: int) -> Tensor:
        """Return the shared maps of the frame `step` frames on, warped; beyond the ends of the window those
        of the frame itself.
        """
        other = frame + step if 0 <= frame + step < len(self.indices) else frame
        _, normal = self.attended(depth, other)
        return warp(normal, self.clip.flow(self.indices[frame], self.indices[other]))
