"""Spatial-temporal convolutional self-attention of VSR-Transformer (paper, Section 4.1): attention among
patches of feature maps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Factor on the initial weights of residual branches, so that a deep stack starts near the identity.
GAIN = 0.1
SIDE = 64  # pixels; the released networks only take 64x64


@dataclass(frozen=True)
class Locality:
    """The neighbourhood of a token in a compact network.

    `window`: patches along the side of a window. `reach`: frames before and after its own. Raises ValueError
    if out of range.
    """

    window: int = 4
    reach: int = 1

    def __post_init__(self) -> None:
        if self.window < 1 or self.reach < 0:
            raise ValueError(
                f"window must be at least 1 and reach at least 0, got {self.window} and {self.reach}"
            )


def layer_norm(features: int, local: Locality | None) -> nn.LayerNorm:
    """Return a norm over channels; in the released form over a whole map (H, W, C), with a weight for each
    value.
    """
    return nn.LayerNorm(features if local else (SIDE, SIDE, features))


def normalised(maps: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Apply a layer norm, whose weights have the channel last, to (B, C, H, W)."""
    normal: Tensor = norm(maps.permute(0, 2, 3, 1))
    return normal.permute(0, 3, 1, 2)


def near_zero(conv: nn.Conv2d) -> None:
    """Scale a new convolution of a residual branch down, so that it adds little."""
    with torch.no_grad():
        conv.weight *= GAIN
        conv.bias.zero_()  # type: ignore[union-attr]


def frequencies(frames: int) -> Tensor:
    """Return the frequencies that `frames` frames need along an axis, in float32 as released; each has a sine
    and a cosine (Eq. 10).
    """
    count = -(-frames // 6)
    return 1 / 10000 ** (torch.arange(count).float() / count)


def positional_encoding(frames: int, channels: int, height: int, width: int) -> list[Tensor]:
    """Return the waves that released networks add to the features (C, H, W) of each frame, in float64, to be
    broadcast.

    The paper (Eq. 10) encodes time, row and column along the channels. The release passes frames to its
    library in the place of channels: the waves run along channel, row and column, and the frame selects the
    wave. 5 frames get sin c, cos c, sin h, cos h, sin w.
    """
    waves: list[Tensor] = []
    for axis, length in enumerate((channels, height, width)):
        angles = frequencies(frames).double()[:, None] * torch.arange(length)
        shape = [-1 if dim == axis else 1 for dim in range(3)]
        waves += [wave.view(shape) for wave in (*angles.sin(), *angles.cos())]
    return waves[:frames]


@dataclass(frozen=True)
class TokenGrid:
    """Cuts maps (B, C, H, W) into tokens: patches of `patch` pixels without overlap, split by channels among
    `heads`.

    With `window` (patches along a side) tokens only attend within their window; `shift` patches are inserted
    before the first row and column, so that windows of two layers have different borders. Without it, a frame
    is one window.
    """

    patch: int
    heads: int = 1
    window: int | None = None
    shift: int = 0

    def cut(self, maps: Tensor) -> Tensor:
        """Cut (B, C, H, W) into (B * windows * heads, tokens, d); zero beyond the frame. In a token the
        channel comes last.
        """
        count, channels = maps.shape[:2]
        (top, rows), (left, columns) = (self._padding(side) for side in maps.shape[-2:])
        if self.window:
            below, right = (
                rows * self.patch - top - maps.shape[-2],
                columns * self.patch - left - maps.shape[-1],
            )
            maps = F.pad(maps, (left, right, top, below))
        high, wide = self.window or rows, self.window or columns
        pieces = maps.permute(0, 2, 3, 1).reshape(
            count,
            rows // high,
            high,
            self.patch,
            columns // wide,
            wide,
            self.patch,
            self.heads,
            channels // self.heads,
        )
        return pieces.permute(0, 1, 4, 7, 2, 5, 3, 6, 8).reshape(
            -1, high * wide, self.patch**2 * channels // self.heads
        )

    def join(self, tokens: Tensor, shape: torch.Size) -> Tensor:
        """Join tokens to maps of `shape`: the inverse of `cut`."""
        count, channels, height, width = shape
        (top, rows), (left, columns) = (self._padding(side) for side in (height, width))
        high, wide = self.window or rows, self.window or columns
        pieces = tokens.view(
            count,
            rows // high,
            columns // wide,
            self.heads,
            high,
            wide,
            self.patch,
            self.patch,
            channels // self.heads,
        )
        maps = pieces.permute(0, 1, 4, 6, 2, 5, 7, 3, 8).reshape(
            count, rows * self.patch, columns * self.patch, channels
        )
        return maps[:, top : top + height, left : left + width].permute(0, 3, 1, 2)

    def outside(self, height: int, width: int, device: torch.device | None = None) -> Tensor:
        """Return (windows, tokens): True for tokens beyond a frame of this size."""
        patches = TokenGrid(1, 1, self.window, self.shift)
        inside = patches.cut(torch.ones(1, 1, height // self.patch, width // self.patch, device=device))
        return inside[..., 0] == 0

    def _padding(self, side: int) -> tuple[int, int]:
        """Return the pixels inserted before a side, and its number of patches with padding."""
        patches = side // self.patch
        if not self.window:
            return 0, patches
        return self.shift * self.patch, -(-(patches + self.shift) // self.window) * self.window


class KeysAndValues(NamedTuple):
    """Keys and values (B * windows * heads, tokens, d) of one or several frames."""

    key: Tensor
    value: Tensor


class Attention(nn.Module):
    """forward: maps (T * B, C, H, W) of T frames, frame by frame -> the same.

    y = x + n + Conv(fold(attention of the patches of n)), n = norm(x). The paper (Eq. 8) normalises the sum
    instead, adds no n, does not scale the logits, and its Table 4 has a depthwise value convolution: the form
    here is the released one.

    Compact networks (`local`) attend within windows of neighbouring frames, with a learnt bias for the
    distance of two frames; as in the paper they add no n, and they start near the identity.
    """

    def __init__(self, features: int, heads: int, patch: int, local: Locality | None, shifted: bool) -> None:
        super().__init__()
        self.local = local
        shift = local.window // 2 if local and shifted else 0
        self.grid = TokenGrid(patch, heads, local.window if local else None, shift)
        self.norm = layer_norm(features, local)
        self.query = nn.Conv2d(features, features, 3, padding=1, groups=features)
        self.key = nn.Conv2d(features, features, 3, padding=1, groups=features)
        self.value = nn.Conv2d(features, features, 3, padding=1)
        self.output = nn.Conv2d(features, features, 3, padding=1)
        if local:
            near_zero(self.output)
            self.distance_bias = nn.Parameter(torch.zeros(heads, 2 * local.reach + 1))

    def forward(self, maps: Tensor, frames: int) -> Tensor:
        normal = self.normal(maps)
        queries, keys, values = (
            tokens.tensor_split(frames) for tokens in (self.queries(normal), *self.prepare(normal))
        )
        mixed = []
        for frame, query in enumerate(queries):
            seen = self.sight(frame, frames)
            near = slice(seen.start, seen.stop)
            mixed.append(self.mix(query, keys[near], values[near], self.bias(frame, seen, *maps.shape[-2:])))
        return self.finish(maps, normal, torch.cat(mixed))

    def normal(self, maps: Tensor) -> Tensor:
        """Normalise maps (B, C, H, W)."""
        return normalised(maps, self.norm)

    def prepare(self, normal: Tensor) -> KeysAndValues:
        """Return the keys and values of normalised maps (B, C, H, W)."""
        # compute both before cutting either, which fragments memory less
        key, value = (self.key(normal), self.value(normal))
        return KeysAndValues(self.grid.cut(key), self.grid.cut(value))

    def queries(self, normal: Tensor) -> Tensor:
        """Return queries (B * windows * heads, tokens, d), scaled."""
        tokens = self.grid.cut(self.query(normal))
        return tokens / math.sqrt(tokens.shape[-1])

    def sight(self, frame: int, frames: int) -> range:
        """Return the frames of a window that a frame attends to."""
        if self.local is None:
            return range(frames)
        return range(max(0, frame - self.local.reach), min(frames, frame + self.local.reach + 1))

    def bias(self, frame: int, seen: range, height: int, width: int) -> Tensor | None:
        """Return (windows * heads, 1, keys) to add to the logits of a frame that attends to frames `seen`;
        None for no bias.
        """
        if self.local is None:
            return None
        outside = self.grid.outside(height, width, self.distance_bias.device)
        first = seen.start - frame + self.local.reach
        distances = self.distance_bias[:, first : first + len(seen)]
        # (windows, heads, frames, tokens)
        bias = distances[None, :, :, None].expand(len(outside), -1, -1, outside.shape[1])
        return bias.masked_fill(outside[:, None, None], float("-inf")).flatten(2).flatten(0, 1)[:, None]

    @staticmethod
    def mix(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], bias: Tensor | None) -> Tensor:
        """Return softmax(Q K^T + bias) V of a frame's tokens (B * windows * heads, tokens, d) and those of
        the frames it attends to.

        It is computed frame by frame: scaled_dot_product_attention needs all keys in one tensor, and copying
        them costs more than it saves (1.25 to 1.5 times the time on a CPU). There are few logits, since a
        token has thousands of values.
        """
        logits = torch.cat([query @ key.mT for key in keys], -1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if bias is not None:
            logits = logits + bias.repeat(len(query) // len(bias), 1, 1)
        weights = logits.softmax(-1).to(query.dtype).tensor_split(len(keys), -1)
        mixed = weights[0] @ values[0]
        for weight, value in zip(weights[1:], values[1:], strict=True):
            mixed = torch.baddbmm(mixed, weight, value)
        return mixed

    def finish(self, maps: Tensor, normal: Tensor, tokens: Tensor) -> Tensor:
        """Join the tokens, apply the output convolution, and add the residual."""
        mixed: Tensor = self.output(self.grid.join(tokens, maps.shape))
        return (maps if self.local else maps + normal) + mixed
