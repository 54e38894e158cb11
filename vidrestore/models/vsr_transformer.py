"""VSR-Transformer: frames four times larger, restored from a window of frames.

J. Cao, Y. Li, K. Zhang, J. Liang, L. Van Gool, "Video Super-Resolution Transformer", arXiv 2106.06847.
Numbers of equations and tables are the paper's. Where paper and release differ, the release stands, so that
its checkpoints can be run:
- norms come before each layer (paper: after, Eq. 8 and 13), over a whole map of 64x64 pixels with a weight
  for each value, which ties the networks to that size;
- positions: see `positional_encoding`; attention: see `VsrAttention`;
- the branches of the feed-forward layer are fused by a 1x1 convolution of both, not of their sum (Eq. 14);
- the leaky slope is 0.1 (appendix: 0.01), residual blocks have a plain ReLU (tables: leaky);
- behind the pixel shuffles come two convolutions, with a leaky ReLU between them only (Table 5: one, and a
  leaky ReLU behind it);
- frames are enlarged bilinearly under the residual (the paper doesn't say how).

The bundled network is that of `models/vsr_recurrent.py`.

Inside, the T frames of B clips are one batch (T * B, C, H, W), frame by frame, channels last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast_maps import Span, shared_rows, strip_spans
from vidrestore.models.spynet import Spynet, SpynetConfig, warp

SCALE = 4
SIDE = 64  # pixels; the networks only take 64x64
SLOPE = 0.1  # slope of the leaky ReLUs
# Factor on the initial weights of residual branches, so that a deep stack starts near the identity.
GAIN = 0.1


@dataclass(frozen=True)
class VsrConfig:
    """Sizes of a network; the defaults are those released for REDS. Raises ValueError for impossible sizes.

    Table 6 removes parts: without `attention` (STCSA) a block is its feed-forward layer alone; without
    `alignment` (BOFF) that layer is replaced by as many residual blocks on single frames, and there is no
    flow. A network without both works on single frames.
    """

    frames: int = 5  # T, the longest window that the network has positions for
    features: int = 64  # C
    blocks: int = 5  # pairs of an attention and a feed-forward layer
    heads: int = 1
    patch: int = 8
    extraction: int = 5  # residual blocks of the extractor
    propagation: int = 30  # residual blocks of each direction of a feed-forward layer
    reconstruction: int = 30  # residual blocks of the reconstruction
    tail: int = 64  # features of the enlarged maps
    attention: bool = True
    alignment: bool = True
    flow: SpynetConfig = field(default_factory=SpynetConfig)

    def __post_init__(self) -> None:
        if not (isinstance(self.attention, bool) and isinstance(self.alignment, bool)):
            raise ValueError(
                f"attention and alignment must be true or false, got {self.attention} and {self.alignment}"
            )
        counts = (self.frames, self.features, self.blocks, self.heads, self.patch)
        if (
            min(*counts, self.tail) < 1
            or min(self.extraction, self.propagation, self.reconstruction) < 0
        ):
            raise ValueError(
                "frames, features, blocks, heads, patch and tail must be at least 1, the others at least 0, "
                f"got {self}"
            )
        if self.features % self.heads:
            raise ValueError(
                f"features must be a multiple of heads, got {self.features} and {self.heads}"
            )
        if SIDE % self.patch:
            raise ValueError(
                f"patch must divide {SIDE}, the side that the network is tied to, got {self.patch}"
            )

    @property
    def radius(self) -> int:
        """Number of frames before and after in the window that a frame is restored from."""
        return self.frames // 2 if self.attention or self.alignment else 0


# The released sizes, of 32.6 and 43.8 million parameters.
SIZES = {"reds": VsrConfig(), "vimeo": VsrConfig(frames=7, blocks=7)}


class MapNorm(nn.LayerNorm):
    """A norm over a whole map (B, C, H, W), with a weight for each value of (H, W, C)."""

    def __init__(self, features: int) -> None:
        super().__init__((SIDE, SIDE, features))

    def forward(self, maps: Tensor) -> Tensor:
        return super().forward(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def near_zero(conv: nn.Conv2d) -> None:
    """Scale a new convolution of a residual branch down, so that it adds little."""
    with torch.no_grad():
        conv.weight *= GAIN
        conv.bias.zero_()  # type: ignore[union-attr]


def frequencies(frames: int) -> Tensor:
    """Return the frequencies of `frames` frames along an axis (Eq. 10), in float32 as released."""
    count = -(-frames // 6)
    return 1 / 10000 ** (torch.arange(count).float() / count)


def positional_encoding(
    frames: int, channels: int, height: int, width: int
) -> list[Tensor]:
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


class VsrAttention(nn.Module):
    """Spatial-temporal convolutional self-attention (Section 4.1).

    forward: maps (T * B, C, H, W) of T frames, frame by frame -> the same.

    y = x + n + Conv(fold(attention of the patches of n)), n = norm(x). The paper (Eq. 8) normalises the sum
    instead, adds no n, does not scale the logits, and its Table 4 has a depthwise value convolution: the form
    here is the released one.
    """

    def __init__(self, features: int, heads: int, patch: int) -> None:
        super().__init__()
        self.patch, self.heads = patch, heads
        self.norm = MapNorm(features)
        self.query = nn.Conv2d(features, features, 3, padding=1, groups=features)
        self.key = nn.Conv2d(features, features, 3, padding=1, groups=features)
        self.value = nn.Conv2d(features, features, 3, padding=1)
        self.output = nn.Conv2d(features, features, 3, padding=1)

    def forward(self, maps: Tensor, frames: int) -> Tensor:
        normal = self.norm(maps)
        queries, keys, values = (
            tokens.tensor_split(frames)
            for tokens in (self.queries(normal), *self.prepare(normal))
        )
        mixed = [self.mix(query, keys, values) for query in queries]
        return self.finish(maps, normal, torch.cat(mixed))

    def prepare(self, normal: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (B * heads, tokens, d) of normalised maps (B, C, H, W)."""
        # compute both before cutting either, which fragments memory less
        key, value = (self.key(normal), self.value(normal))
        return self.cut(key), self.cut(value)

    def queries(self, normal: Tensor) -> Tensor:
        """Return queries (B * heads, tokens, d), scaled."""
        tokens = self.cut(self.query(normal))
        return tokens / math.sqrt(tokens.shape[-1])

    @staticmethod
    def mix(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
        """Return softmax(Q K^T) V of a frame's tokens (B * heads, tokens, d) and those of all frames.

        It is computed frame by frame: scaled_dot_product_attention needs all keys in one tensor, and copying
        them costs more than it saves (1.25 to 1.5 times the time on a CPU). There are few logits, since a
        token has thousands of values.
        """
        logits = torch.cat([query @ key.mT for key in keys], -1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        weights = logits.softmax(-1).to(query.dtype).tensor_split(len(keys), -1)
        mixed = weights[0] @ values[0]
        for weight, value in zip(weights[1:], values[1:], strict=True):
            mixed = torch.baddbmm(mixed, weight, value)
        return mixed

    def finish(self, maps: Tensor, normal: Tensor, tokens: Tensor) -> Tensor:
        """Join the tokens, apply the output convolution, and add the residual."""
        mixed: Tensor = self.output(self.joined(tokens, maps.shape))
        return maps + normal + mixed

    def cut(self, maps: Tensor) -> Tensor:
        """Cut (B, C, H, W) into (B * heads, tokens, d), patches split by channels among the heads. In a token
        the channel comes last.
        """
        count, channels, height, width = maps.shape
        rows, columns, depth = (
            height // self.patch,
            width // self.patch,
            channels // self.heads,
        )
        shape = (count, rows, self.patch, columns, self.patch, self.heads, depth)
        pieces = maps.permute(0, 2, 3, 1).reshape(shape).permute(0, 5, 1, 3, 2, 4, 6)
        return pieces.reshape(count * self.heads, rows * columns, self.patch**2 * depth)

    def joined(self, tokens: Tensor, shape: torch.Size) -> Tensor:
        """Join tokens to maps of `shape`: the inverse of `cut`."""
        count, channels, height, width = shape
        rows, columns = height // self.patch, width // self.patch
        pieces = tokens.view(
            count,
            self.heads,
            rows,
            columns,
            self.patch,
            self.patch,
            channels // self.heads,
        )
        maps = pieces.permute(0, 2, 4, 3, 5, 1, 6).reshape(
            count, height, width, channels
        )
        return maps.permute(0, 3, 1, 2)


class ResidualBlock(nn.Module):
    """x + conv(ReLU(conv(x)))."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)
        for conv in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(conv.weight)
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            with torch.no_grad():
                conv.weight *= GAIN

    def forward(self, maps: Tensor) -> Tensor:
        return shared_rows(self._change, maps, halo=2).add_(maps)

    def _change(self, maps: Tensor) -> Tensor:
        change: Tensor = self.conv2(F.relu(self.conv1(maps), inplace=True))
        return change


def residual_blocks(count: int, features: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(features) for _ in range(count)))


class Direction(nn.Module):
    """R of Eq. 14: frames (B, 3, H, W) and features warped onto them -> features."""

    def __init__(self, channels: int, features: int, depth: int) -> None:
        super().__init__()
        self.head = nn.Conv2d(channels + 3, features, 3, padding=1)
        self.stack = residual_blocks(depth, features)

    def forward(self, frames: Tensor, warped: Tensor) -> Tensor:
        joined = torch.cat((frames, warped), 1).contiguous(
            memory_format=torch.channels_last
        )
        maps: Tensor = self.stack(F.leaky_relu(self.head(joined), SLOPE, inplace=True))
        return maps


class VsrFeedForward(nn.Module):
    """Feed-forward layer (Eq. 11-14): a frame uses the next and the previous one, warped onto it."""

    def __init__(self, features: int, depth: int) -> None:
        super().__init__()
        self.norm = MapNorm(features)  # norm of the maps that neighbours take
        self.later = Direction(features, features, depth)
        self.earlier = Direction(features, features, depth)
        self.fusion = nn.Conv2d(2 * features, features, 1)

    def forward(
        self, maps: Tensor, frames: Tensor, later: Tensor, earlier: Tensor
    ) -> Tensor:
        """Map maps (B, C, H, W), their frames and their neighbours' normalised maps, warped, to maps."""
        directions = torch.cat(
            (self.later(frames, later), self.earlier(frames, earlier)), 1
        )
        return maps + F.leaky_relu(self.fusion(directions), SLOPE, inplace=True)


class VsrBlock(nn.Module):
    """Attention and feed-forward, called one by one. Networks without alignment have `alone` in place of the
    latter, residual blocks on single frames.
    """

    def __init__(self, config: VsrConfig) -> None:
        super().__init__()
        self.attention: VsrAttention | None = None
        self.feed_forward: VsrFeedForward | None = None
        if config.attention:
            self.attention = VsrAttention(config.features, config.heads, config.patch)
        if config.alignment:
            self.feed_forward = VsrFeedForward(config.features, config.propagation)
        else:
            self.alone = residual_blocks(2 * config.propagation, config.features)


class Extractor(nn.Sequential):
    """Frames (B, 3, H, W) -> features (B, C, H, W)."""

    def __init__(self, features: int, depth: int) -> None:
        super().__init__(
            nn.Conv2d(3, features, 3, padding=1),
            nn.LeakyReLU(SLOPE, inplace=True),
            residual_blocks(depth, features),
        )


class Tail(nn.Sequential):
    """Features (B, C, H, W) -> RGB (B, 3, 4H, 4W), to be added to the enlarged frame."""

    HALO = 2  # rows above and below that a row depends on: 1 + 1/2 + 1/4 + 1/4

    def __init__(self, features: int, tail: int) -> None:
        super().__init__(
            *_enlarged(features, tail),
            *_enlarged(tail, tail),
            *(nn.Conv2d(tail, tail, 3, padding=1), nn.LeakyReLU(SLOPE, inplace=True)),
            nn.Conv2d(tail, 3, 3, padding=1),
        )

    def in_strips(self, maps: Tensor, spans: Sequence[Span]) -> Tensor:
        """Compute the tail for rows `spans` in turn: enlarged maps take the most memory."""
        strips = []
        for start, stop in spans:
            first = max(0, start - self.HALO)
            enlarged = self(maps[..., first : stop + self.HALO, :])
            top, bottom = SCALE * (start - first), SCALE * (stop - first)
            strips.append(enlarged[..., top:bottom, :])
        return torch.cat(strips, -2)


def _enlarged(features: int, outputs: int) -> tuple[nn.Module, ...]:
    """Return layers that double the size; the leaky ReLU reads memory in order before the shuffle."""
    return (
        nn.Conv2d(features, 4 * outputs, 3, padding=1),
        nn.LeakyReLU(SLOPE, inplace=True),
        nn.PixelShuffle(2),
    )


def neighbours(maps: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return maps (T * B, ...) of B = `count` clips of the frames after and before; end frames repeat."""
    return torch.cat((maps[count:], maps[-count:])), torch.cat(
        (maps[:count], maps[:-count])
    )


class VsrTransformer(nn.Module):
    """forward: clips (B, T, 3, H, W), RGB in [0, 1] -> all frames (B, T, 3, 4H, 4W), not clamped.

    It takes 64x64 pixels and at most `frames` frames. `VsrClip` restores single frames of a clip and computes
    shared results once.
    """

    def __init__(self, config: VsrConfig) -> None:
        super().__init__()
        self.config = config
        self.flow = Spynet(config.flow) if config.alignment else None
        self.extractor = Extractor(config.features, config.extraction)
        self.blocks = nn.ModuleList(VsrBlock(config) for _ in range(config.blocks))
        self.reconstruction = residual_blocks(config.reconstruction, config.features)
        self.tail = Tail(config.features, config.tail)

    def initialise(self) -> None:
        """Make the network a bilinear interpolation: the last convolution, whose output is added to that, is
        zero. Weights are in channels-last order, like the feature maps.
        """
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = [part for part in self.tail if isinstance(part, nn.Conv2d)][-1]
        for parameter in last.parameters():
            nn.init.zeros_(parameter)

    def parts_of(self, network: nn.Module) -> dict[str, Tensor] | None:
        """Return the parameters of `network` by their names here, if it is the flow network; else None."""
        if (
            not isinstance(network, Spynet)
            or not self.flow
            or network.config != self.config.flow
        ):
            return None
        return {
            f"flow.{name}": parameter
            for name, parameter in network.state_dict().items()
        }

    def forward(self, clips: Tensor) -> Tensor:
        count, frames = clips.shape[:2]
        self.check_size(frames, *clips.shape[-2:])
        # features of each frame, with its place in space and time
        pictures = (
            clips.transpose(0, 1)
            .flatten(0, 1)
            .contiguous(memory_format=torch.channels_last)
        )
        small = pictures.to(self.dtype)
        maps = self.extractor(small)
        positions = self.positions(frames, maps)
        maps = torch.cat(
            [
                features + wave
                for features, wave in zip(maps.split(count), positions, strict=True)
            ]
        )
        # blocks of attention over all frames, then of convolution along the motion
        flows = self.flows(pictures, count) if self.config.alignment else None
        for depth in range(self.config.blocks):
            block = self.block(depth)
            maps = block.attention(maps, frames) if block.attention else maps
            if (layer := block.feed_forward) and flows:
                after, before = neighbours(layer.norm(maps), count)
                maps = layer(maps, small, warp(after, flows[0]), warp(before, flows[1]))
            else:
                maps = block.alone(maps)
        restored: Tensor = self.finish(maps, pictures).unflatten(0, (frames, count))
        return restored.transpose(0, 1)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of features; flow and frames are in float32 or better."""
        return next(self.extractor.parameters()).dtype

    def block(self, depth: int) -> VsrBlock:
        """Return one of the blocks, counted from 0."""
        return cast("VsrBlock", self.blocks[depth])

    def for_inference(self, dtype: torch.dtype = torch.float32) -> Self:
        """Convert this network, except the flow, to `dtype` and set it to evaluation; return itself."""
        for part in self.children():
            part.to(torch.float32 if part is self.flow else dtype)
        if next(self.parameters()).is_cuda:  # oneDNN reorders weights on a CPU anyway
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self.eval()

    def check_size(self, frames: int, height: int, width: int) -> None:
        """Raise ValueError for a window that the network can't take."""
        if (height, width) != (SIDE, SIDE) or frames > self.config.frames:
            raise ValueError(
                f"this network takes {SIDE}x{SIDE} pixels and at most {self.config.frames} frames, got "
                f"{width}x{height} and {frames} frames"
            )

    def positions(self, frames: int, like: Tensor) -> list[Tensor]:
        """Return the positional encoding of each frame of a window, for features `like` (B, C, H, W)."""
        return [
            wave.to(like)
            for wave in positional_encoding(self.config.frames, *like.shape[1:])[
                :frames
            ]
        ]

    def flows(self, pictures: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the flows (T * B, 2, H, W) from each frame of `count` clips to the next and to the previous
        one (Eq. 12); at the ends of a clip a frame is paired with itself.
        """
        after, before = neighbours(pictures, count)
        return self.pair_flow(pictures, after), self.pair_flow(pictures, before)

    def pair_flow(self, reference: Tensor, supporting: Tensor) -> Tensor:
        """Return the flow (B, 2, H, W) between frames (B, 3, H, W), never in half precision."""
        assert self.flow is not None, "a network without alignment has no flow"
        with torch.autocast(reference.device.type, enabled=False):
            flow: Tensor = self.flow(reference, supporting)
        return flow

    def finish(self, maps: Tensor, pictures: Tensor) -> Tensor:
        """Return frames (B, 3, 4H, 4W) from the last block's output and the input frames."""
        maps = self.reconstruction(maps)
        enlarged = F.interpolate(
            pictures, scale_factor=float(SCALE), mode="bilinear", align_corners=False
        )
        # values per pixel of the maps before and after a shuffle
        widest = 2 * SCALE**2 * self.config.tail
        spans = (
            [(0, maps.shape[-2])]
            if torch.is_grad_enabled()
            else strip_spans(maps, widest)
        )
        return enlarged + self.tail.in_strips(maps, spans)
