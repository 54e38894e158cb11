"""VSR-Transformer: frames four times larger, restored from a window of frames.

J. Cao, Y. Li, K. Zhang, J. Liang, L. Van Gool, "Video Super-Resolution Transformer", arXiv 2106.06847.
Numbers of equations and tables are the paper's. Where paper and release differ, the release stands, so that
its checkpoints can be run:
- norms come before each layer (paper: after, Eq. 8 and 13), over a whole map of 64x64 pixels with a weight
for each value, which ties the
  networks to that size;
- positions: see `positional_encoding`; attention: see `Attention`;
- the branches of the feed-forward layer are fused by a 1x1 convolution of both, not of their sum (Eq. 14);
- the leaky slope is 0.1 (appendix: 0.01), residual blocks have a plain ReLU (tables: leaky);
- behind the pixel shuffles come two convolutions, with a leaky ReLU between them only (Table 5: one, and a
leaky ReLU behind it);
- frames are enlarged bilinearly under the residual (the paper doesn't say how).

Compact networks (`local`) are ours, of the same class: any size that is a multiple of the patch. Layer norms
have one weight per channel; attention is among windows of neighbouring frames, with a learned bias for their
distance instead of positions; neighbours' maps are warped as they are, not normalised; both layers begin near
the identity, and attention adds no normalised input (as in the paper); a frame at the end of a clip takes
itself unwarped for the missing neighbour; and the tail can be one sub-pixel convolution. With `shared`
features attention is part of the feed-forward layer: see `MatchedAttention`.

Inside, the T frames of B clips are one batch (T * B, C, H, W), frame by frame, channels last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast.maps import Span, strip_spans
from vidrestore.models.spynet import Spynet, SpynetConfig, warp

# settings of the parts that see single frames
FRAME_SETTINGS = ("features", "extraction", "reconstruction", "tail")
# those of a network that gives its weights to one with attention as well
ALIGNED_SETTINGS = (*FRAME_SETTINGS, "blocks", "propagation", "shared", "alignment", "local", "flow")
SCALE = 4
SIDE = 64  # pixels; the released networks only take 64x64
SLOPE = 0.1  # of the leaky ReLUs
# Factor on the initial weights of residual branches, so that a deep stack starts near the identity.
GAIN = 0.1


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


@dataclass(frozen=True)
class VsrConfig:
    """Sizes of a network; the defaults are those released for REDS. Raises ValueError for impossible sizes.

    `frames`: T, the longest window that the released form has positions for. `features`: C. `blocks`: pairs
    of an attention and a feed-forward layer. `extraction`, `propagation` and `reconstruction` count residual
    blocks: of the extractor, of each direction of a feed-forward layer, of the reconstruction. `tail`:
    features of the enlarged maps; 0 is one convolution to the pixels of x4. `shared`: number of features that
    are warped from neighbours in a compact network, whose feed-forward layers then join both directions; 0:
    all. `distances`: number of frames from a frame to its neighbours, for each block of a compact network; if
    empty, 1. `slope`: what residual blocks multiply negative values by; with 0 a channel that is never
    positive gets no gradients and stays so for ever. `local`: the neighbourhood of a token in a compact
    network; None is the released form.

    Table 6 removes parts: without `attention` (STCSA) a block is its feed-forward layer alone; without
    `alignment` (BOFF) that layer is replaced by as many residual blocks on single frames, and there is no
    flow. A network without both works on single frames.
    """

    frames: int = 5
    features: int = 64
    blocks: int = 5
    heads: int = 1
    patch: int = 8
    extraction: int = 5
    propagation: int = 30
    reconstruction: int = 30
    tail: int = 64
    shared: int = 0
    distances: tuple[int, ...] = ()
    attention: bool = True
    alignment: bool = True
    slope: float = 0.0
    local: Locality | None = None
    flow: SpynetConfig = field(default_factory=SpynetConfig)

    def __post_init__(self) -> None:
        if not (isinstance(self.attention, bool) and isinstance(self.alignment, bool)):
            raise ValueError(
                f"attention and alignment must be true or false, got {self.attention} and {self.alignment}"
            )
        counts = (self.frames, self.features, self.blocks, self.heads, self.patch)
        if (
            min(counts) < 1
            or min(self.extraction, self.propagation, self.reconstruction, self.tail, self.shared) < 0
        ):
            raise ValueError(
                "frames, features, blocks, heads and patch must be at least 1, the others at least 0, got "
                f"{self}"
            )
        if not 0 <= self.slope < 1:
            raise ValueError(f"slope must be at least 0 and below 1, got {self.slope}")
        if self.features % self.heads:
            raise ValueError(f"features must be a multiple of heads, got {self.features} and {self.heads}")
        if self.local is None and self.shared:
            raise ValueError(f"shared must be 0 in the released form, got {self.shared}")
        if self.local is None and self.distances:
            raise ValueError(f"distances must be empty in the released form, got {self.distances}")
        if self.distances and (len(self.distances) != self.blocks or min(self.distances) < 1):
            raise ValueError(
                f"distances must be {self.blocks} numbers from 1 on, one for each block, got {self.distances}"
            )
        if self.local is None and SIDE % self.patch:
            raise ValueError(
                f"patch must divide {SIDE}, the side that the released form is tied to, got {self.patch}"
            )

    @property
    def radius(self) -> int:
        """Number of frames before and after that a restored frame depends on; in the released form that of
        its window.
        """
        if not (self.attention or self.alignment):
            return 0
        if self.local is None:
            return self.frames // 2
        reach = self.blocks * self.local.reach if self.attention and not self.shared else 0
        return reach + self.alignment * sum(self.distance(block) for block in range(self.blocks))

    def distance(self, block: int) -> int:
        """Return the number of frames from a frame to its neighbours in a block, counted from 0."""
        return self.distances[block] if self.distances else 1


# `reds` and `vimeo` are the released sizes (32.6 and 43.8 million parameters). S is for GPUs. T and C are for
# CPUs: T takes about 65 GFLOP for a frame of 180x320 pixels, S ten times as much. C has no attention: it is
# the network without STCSA of Table 6, and most of its work is on single frames.
SIZES = {
    "reds": VsrConfig(),
    "vimeo": VsrConfig(frames=7, blocks=7),
    "s": VsrConfig(blocks=3, extraction=5, propagation=8, reconstruction=15, tail=32, local=Locality()),
    "t": VsrConfig(
        features=32,
        blocks=1,
        extraction=4,
        propagation=3,
        reconstruction=15,
        tail=0,
        local=Locality(),
        flow=SpynetConfig(levels=5, widths=(24, 24, 24, 16), kernel=3),
    ),
    "c": VsrConfig(
        features=64,
        blocks=2,
        patch=1,
        extraction=3,
        propagation=1,
        reconstruction=7,
        tail=0,
        shared=24,
        attention=False,
        local=Locality(),
        flow=SpynetConfig(levels=5, finest=1, widths=(24, 24, 24, 16), kernel=3),
    ),
}
SIZES["n"] = replace(SIZES["c"], attention=True, distances=(1, 2), slope=0.05)


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
    """Spatial-temporal convolutional self-attention (Section 4.1).

    forward: maps (T * B, C, H, W) of T frames, frame by frame -> the same.

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


class ResidualBlock(nn.Module):
    """x + conv(ReLU(conv(x))); negative values are multiplied by `slope`."""

    def __init__(self, features: int, slope: float) -> None:
        super().__init__()
        self.slope = slope
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)
        for conv in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(conv.weight)
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            with torch.no_grad():
                conv.weight *= GAIN

    def forward(self, maps: Tensor) -> Tensor:
        change: Tensor = self.conv2(F.leaky_relu(self.conv1(maps), self.slope, inplace=True))
        return change.add_(maps)


def residual_blocks(count: int, features: int, slope: float) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(features, slope) for _ in range(count)))


class Direction(nn.Module):
    """One direction of a feed-forward layer, R of Eq. 14: frames (B, 3, H, W) and features warped onto them
    -> features.
    """

    def __init__(self, given: int, features: int, depth: int, slope: float) -> None:
        super().__init__()
        self.head = nn.Conv2d(given + 3, features, 3, padding=1)
        self.stack = residual_blocks(depth, features, slope)

    def forward(self, frames: Tensor, warped: Tensor) -> Tensor:
        joined = torch.cat((frames, warped), 1).contiguous(memory_format=torch.channels_last)
        maps: Tensor = self.stack(F.leaky_relu(self.head(joined), SLOPE, inplace=True))
        return maps


class FeedForward(nn.Module):
    """Bidirectional flow-based feed-forward layer (Eq. 11-14): each frame uses the next and the previous one,
    warped onto it.
    """

    def __init__(self, features: int, depth: int, local: Locality | None, slope: float) -> None:
        super().__init__()
        self.norm = None if local else layer_norm(features, local)
        self.later = Direction(features, features, depth, slope)
        self.earlier = Direction(features, features, depth, slope)
        self.fusion = nn.Conv2d(2 * features, features, 1)
        if local:
            near_zero(self.fusion)

    def shared(self, maps: Tensor) -> Tensor:
        """Return the part of maps (B, C, H, W) for neighbours: normalised maps, in compact networks the maps
        themselves.
        """
        return normalised(maps, self.norm) if self.norm else maps

    def forward(self, maps: Tensor, frames: Tensor, later: Tensor, earlier: Tensor) -> Tensor:
        """Map maps (B, C, H, W), their frames and their neighbours' shared parts, warped, to maps."""
        both = torch.cat((self.later(frames, later), self.earlier(frames, earlier)), 1)
        return maps + F.leaky_relu(self.fusion(both), SLOPE, inplace=True)


class MatchedAttention(nn.Module):
    """Attention of each pixel of a frame to those of a neighbouring frame near where the flow points (Section
    4.1, with pixels as patches and few keys), and to itself, for what the neighbour doesn't show.

    Queries and keys are 1x1 and depthwise 3x3 convolutions, and unit vectors; their products are weighed by a
    learnt factor, and have a learnt bias for each place, which at first favours where the flow points.
    """

    KEYS = 16
    WINDOW = 3  # pixels along its side
    FACTOR = 4.0
    FAVOUR = 4.0

    def __init__(self, features: int) -> None:
        super().__init__()
        self.query, self.key = self._projection(features), self._projection(features)
        self.factor = nn.Parameter(torch.tensor(self.FACTOR))
        bias = torch.full((self.WINDOW**2 + 1,), -self.FAVOUR / 2)
        bias[self.WINDOW**2 // 2] = self.FAVOUR / 2
        self.bias = nn.Parameter(bias)

    @classmethod
    def _projection(cls, features: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(features, cls.KEYS, 1), nn.Conv2d(cls.KEYS, cls.KEYS, 3, padding=1, groups=cls.KEYS)
        )

    def forward(self, query: Tensor, own: KeysAndValues, neighbour: KeysAndValues) -> Tensor:
        """Return values (B, V, H, W) for queries (B, K, H, W), from the frame's own and the neighbour's,
        warped; all in float32, plane by plane, which takes a third of the time of bfloat16.
        """
        reach = self.WINDOW // 2
        keys, values = (F.pad(part, (reach,) * 4, mode="replicate") for part in neighbour)
        height, width = query.shape[-2:]
        places = [
            (slice(row, row + height), slice(column, column + width))
            for row in range(self.WINDOW)
            for column in range(self.WINDOW)
        ]
        logits = [(query * keys[..., rows, columns]).sum(1, keepdim=True) for rows, columns in places]
        logits.append((query * own.key).sum(1, keepdim=True))
        weights = (torch.cat(logits, 1) + self.bias.to(query.dtype)[:, None, None]).softmax(1)
        mixed = weights[:, -1:] * own.value
        for weight, (rows, columns) in zip(weights.split(1, 1), places, strict=False):
            mixed = mixed + weight * values[..., rows, columns]
        return mixed


class JointFeedForward(nn.Module):
    """A smaller form: a few features of each neighbour are warped, and one stack takes both and the frame's
    own. With attention the warped features are mixed by `MatchedAttention` first.
    """

    def __init__(self, features: int, depth: int, shared: int, slope: float, *, attention: bool) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(features, shared, 1)
        self.attention = MatchedAttention(features) if attention else None
        self.both = Direction(features + 2 * shared, features, depth, slope)
        self.fusion = nn.Conv2d(features, features, 1)
        near_zero(self.fusion)

    def shared(self, maps: Tensor) -> Tensor:
        """Return the part of maps (B, C, H, W) for neighbours: values, and behind them keys for attention."""
        squeezed: Tensor = self.squeeze(maps)
        return torch.cat((squeezed, self.attention.key(maps)), 1) if self.attention else squeezed

    def forward(self, maps: Tensor, frames: Tensor, later: Tensor, earlier: Tensor) -> Tensor:
        """Map maps (B, C, H, W), their frames and their neighbours' shared parts, warped, to maps."""
        if self.attention:
            query = self.attention.factor * unit_vectors(self.attention.query(maps))
            own, *others = (self._tokens(part) for part in (self.shared(maps), later, earlier))
            later, earlier = (self.attention(query, own, other).to(maps.dtype) for other in others)
        change: Tensor = self.fusion(self.both(frames, torch.cat((maps, later, earlier), 1)))
        return maps + change

    def _tokens(self, shared: Tensor) -> KeysAndValues:
        """Return the unit keys and the values of a frame's shared part."""
        value, key = shared.split((self.squeeze.out_channels, MatchedAttention.KEYS), 1)
        return KeysAndValues(unit_vectors(key), in_planes(value))


def unit_vectors(maps: Tensor) -> Tensor:
    """Normalise the channels of each pixel of maps (B, C, H, W) to a length of 1, `in_planes`."""
    return F.normalize(in_planes(maps), dim=1)


def in_planes(maps: Tensor) -> Tensor:
    """Return maps (B, C, H, W) plane by plane, in float32 or better."""
    return maps.to(torch.promote_types(maps.dtype, torch.float32)).contiguous()


class Block(nn.Module):
    """Attention and feed-forward, called one by one. Networks without alignment have `alone` in place of the
    latter.
    """

    def __init__(self, config: VsrConfig, index: int) -> None:
        super().__init__()
        self.attention: Attention | None = None
        self.feed_forward: FeedForward | JointFeedForward | None = None
        if config.attention and not config.shared:
            self.attention = Attention(
                config.features, config.heads, config.patch, config.local, shifted=index % 2 == 1
            )
        if config.alignment and config.shared:
            self.feed_forward = JointFeedForward(
                config.features,
                config.propagation,
                config.shared,
                config.slope,
                attention=config.attention,
            )
        elif config.alignment:
            self.feed_forward = FeedForward(config.features, config.propagation, config.local, config.slope)
        else:
            self.alone = residual_blocks(2 * config.propagation, config.features, config.slope)

    def feed_alone(self, maps: Tensor) -> Tensor:
        """Transform maps (B, C, H, W) frame by frame."""
        fed: Tensor = self.alone(maps)
        return fed


class Extractor(nn.Sequential):
    """Frames (B, 3, H, W) -> features (B, C, H, W)."""

    def __init__(self, features: int, depth: int, slope: float) -> None:
        super().__init__(
            nn.Conv2d(3, features, 3, padding=1),
            nn.LeakyReLU(SLOPE, inplace=True),
            residual_blocks(depth, features, slope),
        )


class Tail(nn.Sequential):
    """Features (B, C, H, W) -> RGB (B, 3, 4H, 4W), to be added to the enlarged frame."""

    HALO = 2  # rows above and below that a row depends on: 1 + 1/2 + 1/4 + 1/4

    def __init__(self, features: int, tail: int) -> None:
        if tail:
            super().__init__(
                *_enlarged(features, tail),
                *_enlarged(tail, tail),
                *(nn.Conv2d(tail, tail, 3, padding=1), nn.LeakyReLU(SLOPE, inplace=True)),
                nn.Conv2d(tail, 3, 3, padding=1),
            )
        else:
            super().__init__(nn.Conv2d(features, 3 * SCALE**2, 3, padding=1), nn.PixelShuffle(SCALE))

    def in_strips(self, maps: Tensor, spans: Sequence[Span]) -> Tensor:
        """Compute the tail for rows `spans` one after the other, because enlarged maps take the most
        memory.
        """
        strips = []
        for start, stop in spans:
            first = max(0, start - self.HALO)
            enlarged = self(maps[..., first : stop + self.HALO, :])
            strips.append(enlarged[..., SCALE * (start - first) : SCALE * (stop - first), :])
        return torch.cat(strips, -2)


def _enlarged(features: int, outputs: int) -> tuple[nn.Module, ...]:
    """Return layers that double the size. The leaky ReLU is before the shuffle, where it reads memory in
    order.
    """
    return (
        nn.Conv2d(features, 4 * outputs, 3, padding=1),
        nn.LeakyReLU(SLOPE, inplace=True),
        nn.PixelShuffle(2),
    )


def neighbours(maps: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return maps (T * B, ...) of B = `count` clips shifted to the frame after and before; end frames are
    repeated.
    """
    return torch.cat((maps[count:], maps[-count:])), torch.cat((maps[:count], maps[:-count]))


class VsrTransformer(nn.Module):
    """forward: clips (B, T, 3, H, W), RGB in [0, 1] -> all frames (B, T, 3, 4H, 4W), not clamped.

    The released form takes 64x64 pixels and at most `frames` frames; compact ones any number, and sides that
    are multiples of the patch. `VsrClip` restores single frames of a clip and computes shared results once.
    """

    def __init__(self, config: VsrConfig) -> None:
        super().__init__()
        self.config = config
        self.flow = Spynet(config.flow) if config.alignment else None
        self.extractor = Extractor(config.features, config.extraction, config.slope)
        self.blocks = nn.ModuleList(Block(config, index) for index in range(config.blocks))
        self.reconstruction = residual_blocks(config.reconstruction, config.features, config.slope)
        self.tail = Tail(config.features, config.tail)

    def initialise(self) -> None:
        """Make the network a bilinear interpolation: the last convolution, whose output is added to that, is
        zero.

        Weights are in channels-last order, like the feature maps.
        """
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = [part for part in self.tail if isinstance(part, nn.Conv2d)][-1]
        for parameter in last.parameters():
            nn.init.zeros_(parameter)

    def parts_of(self, given: nn.Module) -> dict[str, Tensor] | None:
        """Return the parameters of `given` by their names here, if it is a flow network, which may have fewer
        levels, or has the same parts but for attention, or, if it takes single frames, but for both layers of
        blocks; else None.
        """
        found = given.state_dict()
        if isinstance(given, Spynet):
            if not self.flow or given.config.finest > self.config.flow.finest:
                return None
            same = replace(given.config, finest=self.config.flow.finest) == self.config.flow
            return {f"flow.{name}": found[name] for name in self.flow.state_dict()} if same else None
        if not isinstance(given, VsrTransformer):
            return None
        names = ALIGNED_SETTINGS if given.config.radius else FRAME_SETTINGS
        same = all(getattr(given.config, name) == getattr(self.config, name) for name in names)
        return found if same and found.keys() <= self.state_dict().keys() else None

    def forward(self, clips: Tensor) -> Tensor:
        count, frames = clips.shape[:2]
        self.check_size(frames, *clips.shape[-2:])
        pictures = clips.transpose(0, 1).flatten(0, 1).contiguous(memory_format=torch.channels_last)
        small = pictures.to(self.dtype)
        maps = self.extract(small)
        if self.config.local is None:
            maps = torch.cat(
                [
                    own + wave
                    for own, wave in zip(maps.split(count), self.positions(frames, maps), strict=True)
                ]
            )
        distances = {self.config.distance(depth) for depth in range(self.config.blocks)}
        flows = {
            distance: self.flows(pictures, distance * count)
            for distance in distances
            if self.config.alignment
        }
        for depth in range(self.config.blocks):
            block, distance = self.block(depth), self.config.distance(depth)
            maps = block.attention(maps, frames) if block.attention else maps
            if layer := block.feed_forward:
                neighbours = self.aligned(layer.shared(maps), flows[distance], distance * count)
                maps = layer(maps, small, *neighbours)
            else:
                maps = block.feed_alone(maps)
        restored: Tensor = self.finish(maps, pictures).unflatten(0, (frames, count))
        return restored.transpose(0, 1)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of features; flow and frames are in float32 or better."""
        return next(self.extractor.parameters()).dtype

    def extract(self, pictures: Tensor) -> Tensor:
        """Return features (B, C, H, W) of frames (B, 3, H, W) in the network's precision."""
        features: Tensor = self.extractor(pictures)
        return features

    def block(self, depth: int) -> Block:
        """Return one of the blocks, counted from 0."""
        return cast("Block", self.blocks[depth])

    def for_inference(self, dtype: torch.dtype = torch.float32) -> Self:
        """Convert this network, except the flow, to `dtype` and set it to evaluation; return itself."""
        for part in self.children():
            part.to(torch.float32 if part is self.flow else dtype)
        if next(self.parameters()).is_cuda:  # oneDNN reorders weights on a CPU anyway
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self.eval()

    def check_size(self, frames: int, height: int, width: int) -> None:
        """Raise ValueError for a window that the network can't take."""
        config = self.config
        if config.local is None and ((height, width) != (SIDE, SIDE) or frames > config.frames):
            raise ValueError(
                f"this network takes {SIDE}x{SIDE} pixels and at most {config.frames} frames, got "
                f"{width}x{height} and {frames} frames"
            )
        if height % config.patch or width % config.patch:
            raise ValueError(f"sides must be multiples of {config.patch}, got {width}x{height}")

    def positions(self, frames: int, like: Tensor) -> list[Tensor]:
        """Return the positional encoding of each frame of a window, for features `like` (B, C, H, W) of the
        released form.
        """
        return [wave.to(like) for wave in positional_encoding(self.config.frames, *like.shape[1:])[:frames]]

    def flows(self, pictures: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the flows from each frame to the next and to the previous one (Eq. 12), which are `count`
        pictures apart: the number of clips, times the distance of neighbours.

        At the ends of a clip the released form pairs a frame with itself: (T * B, 2, H, W). Compact ones have
        no flow there: ((T - distance) * B, 2, H, W).
        """
        if self.config.local is None:
            after, before = neighbours(pictures, count)
            return self.pair_flow(pictures, after), self.pair_flow(pictures, before)
        first, second = pictures[:-count], pictures[count:]
        return self.pair_flow(first, second), self.pair_flow(second, first)

    def aligned(self, shared: Tensor, flows: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
        """Return the shared parts (T * B, ...) of the next and the previous frame, warped onto each frame.

        In compact networks a frame at an end of a clip uses its own, unwarped.
        """
        later, earlier = flows
        if self.config.local is None:
            after, before = neighbours(shared, count)
            return warp(after, later), warp(before, earlier)
        if not len(later):
            return shared, shared
        after, before = warp(shared[count:], later), warp(shared[:-count], earlier)
        return torch.cat((after, shared[-count:])), torch.cat((shared[:count], before))

    def pair_flow(self, reference: Tensor, supporting: Tensor) -> Tensor:
        """Return the flow (B, 2, H, W) between frames (B, 3, H, W), never in half precision."""
        assert self.flow is not None, "a network without alignment has no flow"
        if not len(reference):
            return reference.new_zeros(0, 2, *reference.shape[-2:])
        with torch.autocast(reference.device.type, enabled=False):
            flow: Tensor = self.flow(reference, supporting)
        return flow

    def finish(self, maps: Tensor, pictures: Tensor) -> Tensor:
        """Return frames (B, 3, 4H, 4W) from the last block's output and the input frames."""
        maps = self.reconstruction(maps)
        enlarged = F.interpolate(pictures, scale_factor=float(SCALE), mode="bilinear", align_corners=False)
        # values per pixel of the maps before and after a shuffle
        widest = 2 * SCALE**2 * max(3, self.config.tail)
        spans = [(0, maps.shape[-2])] if torch.is_grad_enabled() else strip_spans(maps, widest)
        return enlarged + self.tail.in_strips(maps, spans)


def build(config: dict[str, Any]) -> VsrTransformer:
    """Build the network from the configuration in its weights file: `size`, one of SIZES (default "reds"),
    and other fields.

    Raises ValueError for an unknown size.
    """
    settings = dict(config)
    size = settings.pop("size", "reds")
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; there are {', '.join(SIZES)}")
    settings = asdict(SIZES[size]) | settings
    settings["local"] = Locality(**settings["local"]) if settings["local"] else None
    settings["distances"] = tuple(settings["distances"])
    settings["flow"] = SpynetConfig(**settings["flow"])
    return VsrTransformer(VsrConfig(**settings))


def config_of(network: VsrTransformer) -> dict[str, Any]:
    """Return the settings from which `build` rebuilds the network, independent of SIZES."""
    return asdict(network.config)
