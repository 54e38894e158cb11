"""Restore single frames of a clip by VSR-Transformer; shared results are computed once, unneeded ones not at
all.

The results equal the network's own forward. For the centre of a window of 5, the last feed-forward layer, the
reconstruction and the tail run once, not five times, and the last attention for three frames. Features and
flows belong to a frame or to a pair, in whatever windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from vidrestore.models.spynet import warp
from vidrestore.models.vsr_transformer import (
    VsrAttention,
    VsrFeedForward,
    VsrTransformer,
)


class VsrClip:
    """A clip of frames (N, B, 3, H, W), RGB in [0, 1], of which single frames are restored; B are tiles, or
    several clips.

    Flow is computed in the precision of the frames, the rest in the network's. Caches features and flows of
    about two windows. Not thread-safe.
    """

    def __init__(self, network: VsrTransformer, frames: Tensor) -> None:
        self.network = network
        self.frames = inputs = [
            frame.contiguous(memory_format=torch.channels_last) for frame in frames
        ]
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
        return self.network.finish(
            self._maps(window, position), self.frames[window[position]]
        )

    def _maps(self, window: Sequence[int], position: int) -> Tensor:
        """Return the last block's output for one frame of a window."""
        count, outputs = len(window), [position]
        # blocks, last first, with the frames that are needed after their attention, and as their output
        stages = []
        for depth in reversed(range(self.network.config.blocks)):
            block = self.network.block(depth)
            around = sorted(
                {
                    other
                    for frame in outputs
                    for other in (frame, *_neighbours(frame, count))
                }
            )
            attended = around if block.feed_forward else outputs
            stages.append((block, attended, outputs))
            outputs = list(range(count)) if block.attention else attended
        positions = self.network.positions(count, self.features(window[0]))
        maps = {
            frame: self.features(window[frame]) + positions[frame] for frame in outputs
        }
        for block, attended, outputs in reversed(stages):
            if block.attention:
                maps = _attended(block.attention, maps, attended)
            if block.feed_forward:
                maps = self._fed(block.feed_forward, maps, window, outputs)
            else:
                maps = {frame: block.alone(maps[frame]) for frame in outputs}
        return maps[position]

    def _fed(
        self,
        layer: VsrFeedForward,
        maps: dict[int, Tensor],
        window: Sequence[int],
        outputs: list[int],
    ) -> dict[int, Tensor]:
        """Return the maps of frames after a feed-forward layer, to which their neighbours are aligned."""
        normal = {frame: layer.norm(states) for frame, states in maps.items()}
        results = {}
        for frame in outputs:
            before, after = _neighbours(frame, len(window))
            earlier = warp(normal[before], self.flow(window[frame], window[before]))
            later = warp(normal[after], self.flow(window[frame], window[after]))
            picture = self.frames[window[frame]].to(self.network.dtype)
            results[frame] = layer(maps[frame], picture, later, earlier)
        return results


def _neighbours(frame: int, count: int) -> tuple[int, int]:
    """Return the frames before and after one of `count`; at the ends it is its own neighbour."""
    return max(frame - 1, 0), min(frame + 1, count - 1)


def _attended(
    attention: VsrAttention, maps: dict[int, Tensor], outputs: list[int]
) -> dict[int, Tensor]:
    """Return the maps of the frames `outputs` after attention to all frames of a window."""
    normal = {frame: attention.norm(states) for frame, states in maps.items()}
    keys, values = zip(*map(attention.prepare, normal.values()), strict=True)
    results = {}
    for frame in outputs:
        tokens = attention.mix(attention.queries(normal[frame]), keys, values)
        results[frame] = attention.finish(maps[frame], normal[frame], tokens)
    return results
