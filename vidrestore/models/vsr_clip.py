"""Single frames of a clip through VSR-Transformer: only what they need is computed, and what they share is
computed once.

Equal to the network's own forward. For the centre of a window of 5, the last feed-forward layer, the
reconstruction and the tail run once, not five times, and the last attention for three frames. Features and
flows belong to a frame or to a pair, whichever windows they are in. In a compact network each layer of a
frame depends on near frames only: one window over all frames of a scene computes each of them once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from vidrestore.models.spynet import warp
from vidrestore.models.vsr_attention import Attention, Prepared
from vidrestore.models.vsr_transformer import VsrTransformer

T = TypeVar("T")


class Recent(Generic[T]):
    """The `size` results that were asked for last; others are made again when they are wanted."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.results: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of `make()`, from memory where it is there."""
        if key not in self.results:
            self.results[key] = make()
        self.results.move_to_end(key)
        while len(self.results) > self.size:
            self.results.popitem(last=False)
        return self.results[key]


class VsrClip:
    """A clip of frames (N, B, 3, H, W), RGB in [0, 1], of which single ones are restored; B may be tiles, or
    several clips.

    Flow is computed in the precision of the frames, the rest in the network's. Keeps features and flows of
    about two windows; of a compact network also the states of a few frames. For one thread at a time.
    """

    def __init__(self, network: VsrTransformer, frames: Tensor) -> None:
        self.network = network
        self.frames: list[Tensor] = [frame.contiguous(memory_format=torch.channels_last) for frame in frames]
        local, window = network.config.local, 2 * network.config.radius + 1
        self._features = Recent[Tensor](2 * local.reach + 1 if local else window + 2)
        self._flows = Recent[Tensor](2 * (window + 2))
        self._window: Window | None = None

    def restore(self, window: Sequence[int], at: int) -> Tensor:
        """Frame `window[at]` as the network restores it among the frames of `window`: (B, 3, 4H, 4W), not
        clamped.

        `window` holds indices into the clip, which may repeat (the reflection at the ends of a scene). Calls
        share what they can; those of compact networks also the window's states: they are given all frames of
        a scene, and `at` from the first to the last. ValueError if the network can't take frames of that
        size, or so many.
        """
        window = tuple(window)
        if self._window is None or self._window.indices != window:
            self.network.check_size(len(window), *self.frames[0].shape[-2:])
            self._window = None  # its states make room
            self._window = Window(self, window)
        maps = self._window.maps(self.network.config.blocks, at)
        if self.network.config.local is None:
            self._window = None  # no other frame is asked for among the same ones
        return self.network.finish(maps, self.frames[window[at]])

    def features(self, index: int) -> Tensor:
        """The extractor's features of one frame of the clip."""
        return self._features.get(index, lambda: self.network.extract(self.picture(index)))

    def picture(self, index: int) -> Tensor:
        """A frame in the network's precision."""
        return self.frames[index].to(self.network.dtype)

    def flow(self, index: int, other: int) -> Tensor:
        """Flow from one frame to another."""
        return self._flows.get(
            (index, other), lambda: self.network.pair_flow(self.frames[index], self.frames[other])
        )


class Window:
    """The states of one window's frames, each computed when it is asked for. Frames are numbered from 0 in
    the window.
    """

    def __init__(self, clip: VsrClip, indices: tuple[int, ...]) -> None:
        self.clip, self.indices = clip, indices
        self.network, local = clip.network, clip.network.config.local
        self.positions = None if local else self.network.positions(len(indices), clip.features(indices[0]))
        sight, depth = 2 * local.reach + 1 if local else len(indices), self.network.config.blocks
        self._prepared = [Recent[Prepared](sight) for _ in range(depth)]
        self._attended = [Recent[tuple[Tensor, Tensor]](2) for _ in range(depth)]
        self._fed = [Recent[Tensor](sight) for _ in range(depth)]

    def maps(self, depth: int, frame: int) -> Tensor:
        """Return the input of block `depth` for a frame; for one past the last block, its output."""
        if depth:
            return self._fed[depth - 1].get(frame, lambda: self._feed(depth - 1, frame))
        features = self.clip.features(self.indices[frame])
        return features if self.positions is None else features + self.positions[frame]

    def attended(self, depth: int, frame: int) -> tuple[Tensor, Tensor]:
        """The maps of a frame behind the attention of a block, and what it shares with its neighbours."""
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

    def _prepare(self, depth: int, frame: int, attention: Attention) -> Prepared:
        """Return the part of a frame that a block's attention needs."""
        return attention.prepare(attention.normal(self.maps(depth, frame)))

    def _forget(self, depth: int) -> None:
        """Drop what led to the maps that enter a block, once those of all frames are there."""
        done: list[Recent[Any]] = [
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
        earlier = self._neighbour(depth, frame, -1)  # in the order of time, in which states are let go
        maps, _ = self.attended(depth, frame)
        later = self._neighbour(depth, frame, 1)
        fed: Tensor = block.feed_forward(maps, self.clip.picture(self.indices[frame]), later, earlier)
        return fed

    def _neighbour(self, depth: int, frame: int, step: int) -> Tensor:
        """Normalised maps of the frame after or before, warped; at an end of the window a frame is its own
        neighbour.
        """
        other = min(max(frame + step, 0), len(self.indices) - 1)
        _, normal = self.attended(depth, other)
        if other == frame and self.network.config.local:
            return normal
        return warp(normal, self.clip.flow(self.indices[frame], self.indices[other]))
