"""Restore single frames of a clip by VSR-Transformer; shared results are computed once, unneeded ones not at
all.

The results equal the network's own forward. For the centre of a window of 5, the last feed-forward layer, the
reconstruction and the tail run once, not five times, and the last attention for three frames. Features and
flows belong to a frame or to a pair, in whatever windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from vidrestore.models.spynet import warp
from vidrestore.models.vsr_transformer import VsrAttention, VsrTransformer

NEIGHBOURS = 2  # frames whose state after attention is stored


class VsrClip:
    """A clip of frames (N, B, 3, H, W), RGB in [0, 1], of which single frames are restored; B are tiles, or
    several clips.

    Flow is computed in the precision of the frames, the rest in the network's. Caches features and flows of
    about two windows. Not thread-safe.
    """

    def __init__(self, network: VsrTransformer, frames: Tensor) -> None:
        self.network = network
        self.frames = inputs = [frame.contiguous(memory_format=torch.channels_last) for frame in frames]
        window = 2 * network.config.radius + 1

        @lru_cache(window + 2)
        def features(index: int) -> Tensor:
            maps: Tensor = network.extractor(inputs[index].to(network.dtype))
            return maps

        @lru_cache(2 * (window + 2))
        def flow(index: int, other: int) -> Tensor:
            return network.pair_flow(inputs[index], inputs[other])

        self.features, self.flow = features, flow

    def restore(self, window: Sequence[int], position: int) -> Tensor:
        """Return frame `window[position]`, restored among those of `window`: (B, 3, 4H, 4W), not clamped.

        `window` holds indices into the clip, which may repeat (the reflection at the ends of a scene). Calls
        share results. Raises ValueError if the network can't take that frame size or number of frames.
        """
        self.network.check_size(len(window), *self.frames[0].shape[-2:])
        maps = Window(self, tuple(window)).maps(self.network.config.blocks, position)
        return self.network.finish(maps, self.frames[window[position]])


class Window:
    """The states of one window's frames, computed when needed. Frames are numbered from 0 in the window."""

    def __init__(self, clip: VsrClip, indices: tuple[int, ...]) -> None:
        self.clip, self.indices = clip, indices
        self.network = clip.network
        self.positions = self.network.positions(len(indices), clip.features(indices[0]))
        depth = self.network.config.blocks
        self._prepared: list[dict[int, tuple[Tensor, Tensor]]] = [{} for _ in range(depth)]
        self._attended: list[dict[int, tuple[Tensor, Tensor]]] = [{} for _ in range(depth)]
        self._fed: list[dict[int, Tensor]] = [{} for _ in range(depth)]

    def maps(self, depth: int, frame: int) -> Tensor:
        """Return the input of block `depth` for a frame, or the last block's output."""
        if not depth:
            return self.clip.features(self.indices[frame]) + self.positions[frame]
        cache = self._fed[depth - 1]
        if frame not in cache:
            cache[frame] = self._feed(depth - 1, frame)
        return cache[frame]

    def attended(self, depth: int, frame: int) -> tuple[Tensor, Tensor]:
        """Return the maps of a frame after the attention of a block, and those that neighbours take."""
        cache, block = self._attended[depth], self.network.block(depth)
        if frame not in cache:
            maps = self._mixed(depth, frame, block.attention) if block.attention else self.maps(depth, frame)
            cache[frame] = maps, block.feed_forward.norm(maps) if block.feed_forward else maps
            if len(cache) > NEIGHBOURS:
                del cache[next(iter(cache))]
        return cache[frame]

    def _mixed(self, depth: int, frame: int, attention: VsrAttention) -> Tensor:
        inputs = [self.maps(depth, other) for other in range(len(self.indices))]
        prepared_states = self._prepared
        # free the states before the block, whose input is known now for all frames
        for states in (prepared_states[:depth], self._attended[:depth], self._fed[: max(0, depth - 1)]):
            for state in states:
                state.clear()
        for other, maps in enumerate(inputs):
            if other not in prepared_states[depth]:
                prepared_states[depth][other] = attention.prepare(attention.norm(maps))
        keys, values = zip(*(prepared_states[depth][other] for other in range(len(inputs))), strict=True)
        normal = attention.norm(inputs[frame])
        tokens = attention.mix(attention.queries(normal), keys, values)
        return attention.finish(inputs[frame], normal, tokens)

    def _feed(self, depth: int, frame: int) -> Tensor:
        block = self.network.block(depth)
        if block.feed_forward is None:
            return cast("Tensor", block.alone(self.attended(depth, frame)[0]))
        earlier = self._neighbour(depth, frame, -1)  # in order of time, in which states are evicted
        maps, _ = self.attended(depth, frame)
        later = self._neighbour(depth, frame, 1)
        picture = self.clip.frames[self.indices[frame]].to(self.network.dtype)
        fed: Tensor = block.feed_forward(maps, picture, later, earlier)
        return fed

    def _neighbour(self, depth: int, frame: int, step: int) -> Tensor:
        """Return the maps that a frame takes from the one `step` on, warped; at the ends from itself."""
        other = frame + step if 0 <= frame + step < len(self.indices) else frame
        _, normal = self.attended(depth, other)
        return warp(normal, self.clip.flow(self.indices[frame], self.indices[other]))
