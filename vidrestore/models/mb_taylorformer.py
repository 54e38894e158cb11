"""MB-TaylorFormer V2: a multi-branch linear transformer that removes haze, rain, snow, blur and camera noise.

Z. Jin, Y. Qiu, K. Zhang, H. Li, W. Luo, "MB-TaylorFormer V2: Improved Multi-branch Linear Transformer
Expanded by Taylor Formula for Image Restoration". Equation and section numbers are the paper's. An encoder of
four levels (each half the size), a decoder of three, and a refinement at full size. At every level a chain of
deformable convolutions makes one map per branch, each of wider reach than the last; every branch has a
transformer of its own; selective kernel fusion puts them together.

The released code differs from the paper. Its way is the default, for its weights need it;
`MBTaylorFormerConfig` and `AttentionRule` name each difference. Beyond options: the decoder's last level and
the refinement are twice as wide as Table I says, the feed-forward is Restormer's gated one, and norms divide
by the deviation of a pixel's channels but take no mean away.

Written for speed: maps are channels_last, and without gradients every block works in place through strips of
rows that stay in the processor's cache; one branch after the other, so no grouped convolution is needed and
only one branch's queries and values are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.convolution_stage import ConvolutionStage
from vidrestore.models.fast.strips import Span, strip_spans, window
from vidrestore.models.patch_embedding import DeformableEmbedding, FixedEmbedding
from vidrestore.models.pixel_maps import depthwise, maps_of, normalised, pointwise, tokens_of, weight, within
from vidrestore.models.task_vectors import TaskVectors, check_names, check_tasks
from vidrestore.models.taylor_attention import AttentionRule, Mixer, Sums

Levels = tuple[int, int, int, int]

HALVINGS = 8  # sides of the maps at level 1 are multiples of it: three halvings follow

# Heads -> (side of the window, heads that look through it), first heads first: the positional term (Eq. 12).
POSITION_WINDOWS = {1: ((3, 1),), 2: ((3, 2),), 4: ((3, 2), (5, 2)), 8: ((3, 2), (5, 3), (7, 3))}


@dataclass(frozen=True)
class MBTaylorFormerConfig:
    """Sizes for the four levels, from full size to an eighth, and how paper and release differ. The defaults
    are the released B.

    The decoder has the encoder's sizes; its last level and the refinement have the branches, blocks and heads
    of level 1 at the width of level 2.
    """

    widths: Levels = (24, 48, 72, 96)
    blocks: Levels = (2, 3, 3, 4)
    branches: Levels = (2, 2, 2, 2)
    heads: Levels = (1, 2, 4, 8)
    expansion: float = 2.66  # channels inside the feed-forward over those outside, rounded down
    # pixels a tap may move, any if empty (paper and release; their code's own default is 1)
    offset_limit: tuple[float, ...] = (-3.0, 3.0)
    # taps that move, or fixed ones; dilated: b pixels apart in branch b
    embedding: Literal["deformable", "plain", "dilated"] = "deformable"
    # each embedding of a stage follows the last ("-SP" in Table VIII); else all take the stage's input ("-P")
    chain: bool = True
    first_residual: bool = False  # whether encoder level 1 adds its input as all others do; paper yes
    attention: AttentionRule = field(default_factory=AttentionRule)
    # The rest is ours, for CPUs; the defaults are those of paper and release.
    frames: int = 1  # seen at once: the frame to restore in the middle of its neighbours
    # level 1 works at this fraction of the size: pixels move into channels before, and back after
    unshuffle: int = 1
    # release: divides by the deviation alone; layer: takes the mean away, too
    norm: Literal["deviation", "layer"] = "deviation"
    # levels, from full size on, made of pairs of plain convolutions: transformers stay where maps are small
    convolutional: int = 0
    # a pixel is also multiplied, as haze asks for: in (1 + gain) + added, instead of in + added
    gain: bool = False
    tasks: tuple[str, ...] = ()  # each has a learned vector that is added before every stage; empty: one task

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("widths", "blocks", "branches", "heads")}
        for name, values in sizes.items():
            if len(values) != 4 or min(values) < 1:
                raise ValueError(f"{name} must be four numbers of at least 1, got {values}")
        if self.widths[1] != 2 * self.widths[0] or any(width % 4 for width in self.widths[1:]):
            raise ValueError(
                f"widths must double from level 1 to 2 and be multiples of 4 from there, got {self.widths}"
            )
        for width, heads in zip((*self.widths, self.widths[1]), (*self.heads, self.heads[0]), strict=True):
            if heads not in POSITION_WINDOWS or width % heads:
                raise ValueError(
                    f"heads must be {', '.join(map(str, POSITION_WINDOWS))} and divide the width, got "
                    f"{heads} for {width}"
                )
        if self.offset_limit and (
            len(self.offset_limit) != 2 or self.offset_limit[0] >= self.offset_limit[1]
        ):
            raise ValueError(
                f"offset_limit must be two numbers that rise, or none for no limit, got {self.offset_limit}"
            )
        if self.embedding not in ("deformable", "plain", "dilated"):
            raise ValueError(f"embedding must be deformable, plain or dilated, got {self.embedding!r}")
        if self.frames < 1 or self.frames % 2 == 0:
            raise ValueError(f"frames must be odd, so that one is in the middle, got {self.frames}")
        if self.unshuffle not in (1, 2, 4):
            raise ValueError(f"unshuffle must be 1, 2 or 4, got {self.unshuffle}")
        if self.norm not in ("deviation", "layer"):
            raise ValueError(f"norm must be deviation or layer, got {self.norm!r}")
        if not 0 <= self.convolutional <= 4:
            raise ValueError(f"convolutional must be 0 to 4 levels, got {self.convolutional}")
        check_names(self.tasks)

    @property
    def multiple(self) -> int:
        """Sides of pictures are multiples of it."""
        return HALVINGS * self.unshuffle


B = MBTaylorFormerConfig()
L = replace(B, blocks=(4, 6, 6, 8), branches=(2, 3, 3, 3))
XL = replace(L, widths=(28, 56, 112, 160))
# ours, for CPUs: few channels at full size, none that leave a vector half empty, and heads that are not tiny
T = MBTaylorFormerConfig(
    widths=(8, 16, 48, 80), blocks=(1, 2, 2, 4), branches=(1, 2, 2, 2), heads=(1, 1, 2, 4), expansion=2.0
)
# ours, for CPUs: at half the size, with its neighbours, and attention where maps are an eighth or less
H = MBTaylorFormerConfig(
    widths=(32, 64, 96, 128),
    blocks=(2, 2, 1, 2),
    branches=(1, 1, 2, 2),
    heads=(1, 1, 2, 4),
    expansion=2.0,
    embedding="dilated",
    attention=AttentionRule(focus_power=4, position="convolution"),
    frames=3,
    unshuffle=2,
    norm="layer",
    convolutional=2,
    gain=True,
)
SIZES = {"t": T, "h": H, "b": B, "l": L, "xl": XL}


def expanded_strips(
    maps: Tensor, matrices: list[Tensor], strips: list[Span], *, centred: bool
) -> Iterator[tuple[Span, list[Tensor]]]:
    """Strips of products of the normalised maps by (O, C) matrices, as windows (B, O, rows + 2, W) of a strip
    and one row on either side.

    Every row is worked out once, however low the strips, and before the rows above it are handed out: they
    may be overwritten then. The windows are, too, by the next step. Not for gradients.
    """
    batch, _, height, width = maps.shape
    rows, done = max(stop - start for start, stop in strips) + 2, 0
    # row r of the map at r - start + 1
    buffers = [maps.new_zeros(batch, rows, width, len(matrix)) for matrix in matrices]
    for start, stop in strips:
        upto, shift = min(stop + 1, height), 1 - start
        if upto > done:
            fresh = tokens_of(normalised(maps[:, :, done:upto], centred=centred))
            for matrix, buffer in zip(matrices, buffers, strict=True):
                torch.bmm(
                    fresh,
                    matrix.mT.to(fresh.dtype).expand(batch, -1, -1),
                    out=buffer[:, done + shift : upto + shift].flatten(1, 2),
                )
        if stop == height:
            for buffer in buffers:
                buffer[:, stop + shift] = 0
        yield (start, stop), [buffer[:, : stop + shift + 1].permute(0, 3, 1, 2) for buffer in buffers]
        for buffer in buffers:
            buffer[:, :2] = buffer[:, stop + shift - 1 : stop + shift + 1].clone()
        done = upto


class Position(nn.Module):
    """The positional term of one block: convolutions of the values around a pixel, wider ones for later heads
    (Eq. 12, 13).

    Released: one filter with bias per head over all its channels; its sigmoid is added to every channel of
    the head. Paper: one filter per channel, added as it is.
    """

    def __init__(self, channels: int, heads: int, branches: int, rule: AttentionRule) -> None:
        super().__init__()
        self.per_head, width = rule.position == "gate", channels // heads
        self.windows = POSITION_WINDOWS[heads]
        self.halo = max(side for side, _ in self.windows) // 2
        shapes = [
            (count, width, side) if self.per_head else (count * width, 1, side)
            for side, count in self.windows
        ]
        self.weights = nn.ParameterList(
            weight(branches, *shape, shape[-1], fan_in=shape[1] * shape[2] ** 2) for shape in shapes
        )
        if self.per_head:
            fan_ins = (shape[1] * shape[2] ** 2 for shape in shapes)
            self.biases = nn.ParameterList(
                weight(branches, shape[0], fan_in=fan) for shape, fan in zip(shapes, fan_ins, strict=True)
            )
        self.widths = [count * width for _, count in self.windows]

    def forward(self, values: Tensor, branch: int) -> Tensor:
        """A window (B, C, rows + 2 halo, W) of values -> (B, heads or C, rows, W)."""
        parts = values.split(self.widths, 1)
        terms = [self._term(part, number, branch) for number, part in enumerate(parts)]
        return torch.cat(terms, 1).sigmoid() if self.per_head else torch.cat(terms, 1)

    def _term(self, values: Tensor, number: int, branch: int) -> Tensor:
        kernels: Tensor = self.weights[number][branch]
        rows, side = values.shape[2] - 2 * self.halo, kernels.shape[-1]
        if self.per_head:
            term: Tensor = few_filters(values, kernels) + self.biases[number][branch][:, None, None]
        else:
            term = F.conv2d(values, kernels, padding=side // 2, groups=len(kernels))
        return term[:, :, self.halo : self.halo + rows]


def few_filters(maps: Tensor, kernels: Tensor) -> Tensor:
    """(B, n d, H, W) by (n, d, side, side) kernels, each for d channels of its own -> (B, n, H, W), in a
    frame of zeros.

    A convolution with so few outputs keeps a processor's vectors empty. Here one product gives what every
    pixel adds to each place around it, and folding adds that up.
    """
    count, width, side, _ = kernels.shape
    taps = kernels.flip(2, 3).flatten(2).mT  # (n, side^2, d)
    added = taps @ maps.flatten(2).unflatten(1, (count, width))
    return F.fold(added.flatten(1, 2), maps.shape[2:], side, padding=side // 2)


class Attention(nn.Module):
    """x + T-MSA++(norm(x)), one set of weights per branch (Section III-C; the sums and products are in
    `taylor_attention`).
    """

    def __init__(
        self, channels: int, heads: int, branches: int, rule: AttentionRule, *, centred: bool = False
    ) -> None:
        super().__init__()
        self.rule, self.channels, self.heads, self.centred = rule, channels, heads, centred
        self.norm = nn.Parameter(torch.ones(branches, channels))
        self.qkv = weight(branches, 3 * channels, channels, fan_in=channels)
        self.qkv_depthwise = weight(branches, 3 * channels, 1, 3, 3, fan_in=9)
        self.project = weight(branches, channels, channels, fan_in=channels)
        self.remainder = nn.Parameter(
            torch.full((branches, heads), 1.0 if rule.remainder == "sigmoid" else 0.5)
        )
        if rule.temperature:
            self.temperature = nn.Parameter(torch.ones(branches, heads))
        # times N in the denominator; frozen, and so in released files
        self.one = nn.Parameter(torch.ones(1), requires_grad=False)
        self.position = None if rule.position == "none" else Position(channels, heads, branches, rule)
        self.halo = self.position.halo if self.position else 0

    def tokens(self, maps: Tensor) -> Tensor:
        """(B, C, rows, W) -> (B, N, heads, d), in float32 where the maps are in half precision."""
        wide = tokens_of(maps).to(torch.promote_types(maps.dtype, torch.float32)).contiguous()
        return wide.view(*wide.shape[:2], self.heads, -1)

    def mixer(self, sums: Sums, branch: int, pixels: int) -> Mixer:
        remainder = (
            self.remainder[branch].sigmoid() if self.rule.remainder == "sigmoid" else self.remainder[branch]
        )
        temperature = self.temperature[branch] if self.rule.temperature else torch.ones_like(remainder)
        wide = sums.values.dtype
        return Mixer(sums, self.rule, remainder.to(wide), temperature.to(wide), pixels * self.one.to(wide))

    def output(self, queries: Tensor, values: Tensor, mixer: Mixer, branch: int) -> Tensor:
        """Queries (B, C, rows, W) and a window of values -> what is added to the stream."""
        numerators, scale = mixer(self.tokens(queries))
        if self.position:
            # (B, heads, N, 1 or d)
            position = self.position(values, branch).flatten(2).unflatten(1, (self.heads, -1)).mT
            mixed = torch.addcmul(position.to(scale.dtype), numerators, scale)
        else:
            mixed = numerators * scale
        return maps_of(
            F.linear(mixed.transpose(1, 2).flatten(2).to(queries.dtype), self.project[branch]), queries
        )

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """(B, C, H, W) -> the same, all at once, with gradients."""
        whole = (0, maps.shape[2])
        expanded = pointwise(normalised(maps, centred=self.centred), self.qkv[branch] * self.norm[branch])
        queries, keys, values = depthwise(expanded, self.qkv_depthwise[branch]).chunk(3, 1)
        mixer = self.mixer(
            Sums.of(self.tokens(keys), self.tokens(values), self.rule), branch, maps[0, 0].numel()
        )
        return maps + self.output(queries, window(values, whole, self.halo), mixer, branch)

    def add_to(self, maps: Tensor, branch: int, scratch: tuple[Tensor, Tensor]) -> None:
        """The same in place, in strips; `scratch` are two maps for queries and values."""
        queries, values = scratch
        strips, matrix = strip_spans(maps, 3 * self.channels), self.qkv[branch] * self.norm[branch]
        total: Sums | None = None
        for (start, stop), [expanded] in expanded_strips(maps, [matrix], strips, centred=self.centred):
            q, k, v = within(expanded, self.qkv_depthwise[branch]).chunk(3, 1)
            queries[:, :, start:stop], values[:, :, start:stop] = q, v
            sums = Sums.of(self.tokens(k), self.tokens(values[:, :, start:stop]), self.rule)
            total = total + sums if total else sums
        assert total is not None
        mixer = self.mixer(total, branch, maps[0, 0].numel())
        for start, stop in strips:
            around = window(values, (start, stop), self.halo)
            maps[:, :, start:stop] += self.output(queries[:, :, start:stop], around, mixer, branch)


class FeedForward(nn.Module):
    """x + W (gelu(a) * b) with a and b from norm(x) by 1x1 and depthwise 3x3 convolutions, one set of weights
    per branch.
    """

    def __init__(self, channels: int, hidden: int, branches: int, *, centred: bool = False) -> None:
        super().__init__()
        self.hidden, self.spare, self.centred = hidden, -hidden % 8, centred
        self.norm = nn.Parameter(torch.ones(branches, channels))
        self.expand = weight(branches, 2 * hidden, channels, fan_in=channels)  # a, then b
        self.expand_depthwise = weight(branches, 2 * hidden, 1, 3, 3, fan_in=9)
        self.contract = weight(branches, channels, hidden, fan_in=hidden)

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """(B, C, H, W) -> the same, all at once, with gradients."""
        stream, (matrices, kernels, contract) = normalised(maps, centred=self.centred), self._filled(branch)
        a, b = (
            depthwise(pointwise(stream, matrix), kernel)
            for matrix, kernel in zip(matrices, kernels, strict=True)
        )
        return maps + pointwise(F.gelu(a) * b, contract)

    def add_to(self, maps: Tensor, branch: int) -> None:
        """The same in place, in strips."""
        matrices, kernels, contract = self._filled(branch)
        strips = strip_spans(maps, 2 * self.hidden)
        for (start, stop), expanded in expanded_strips(maps, matrices, strips, centred=self.centred):
            a, b = (within(part, kernel) for part, kernel in zip(expanded, kernels, strict=True))
            maps[:, :, start:stop] += pointwise(F.gelu(a).mul_(b), contract)

    def _filled(self, branch: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Matrices for a and b, kernels for both, and the matrix back, with channels of zeros that fill the
        processor's vectors.
        """
        matrices = [
            F.pad(part, (0, 0, 0, self.spare)) for part in (self.expand[branch] * self.norm[branch]).chunk(2)
        ]
        kernels = [
            F.pad(part, (0, 0, 0, 0, 0, 0, 0, self.spare)) for part in self.expand_depthwise[branch].chunk(2)
        ]
        return matrices, kernels, F.pad(self.contract[branch], (0, self.spare))


class Block(nn.Module):
    """One transformer block of all branches of a stage."""

    def __init__(self, channels: int, heads: int, branches: int, config: MBTaylorFormerConfig) -> None:
        super().__init__()
        centred = config.norm == "layer"
        self.attention = Attention(channels, heads, branches, config.attention, centred=centred)
        self.feed_forward = FeedForward(channels, int(channels * config.expansion), branches, centred=centred)

    def forward(self, maps: Tensor, branch: int) -> Tensor:
        """(B, C, H, W) of one branch -> the same."""
        return cast("Tensor", self.feed_forward(self.attention(maps, branch), branch))


def embedding(channels: int, branch: int, config: MBTaylorFormerConfig) -> nn.Module:
    """What makes the map of a branch, counted from 0."""
    if config.embedding == "deformable":
        return DeformableEmbedding(channels, config.offset_limit)
    return FixedEmbedding(channels, branch + 1 if config.embedding == "dilated" else 1)


class Fusion(nn.Module):
    """Selective kernel fusion: branches added up by weights that their means over the picture ask for
    (Section III-D).
    """

    def __init__(self, channels: int, branches: int) -> None:
        super().__init__()
        squeezed = max(channels // 8, 4)
        self.squeeze = weight(squeezed, channels, fan_in=channels)
        self.slope = nn.Parameter(torch.tensor([0.25]))
        self.excite = weight(branches, channels, squeezed, fan_in=squeezed)

    def forward(self, branches: list[Tensor]) -> Tensor:
        """(B, C, H, W) of each branch -> the same of them together; without gradients in the place of the
        first.
        """
        mean = torch.stack([maps.mean((2, 3)) for maps in branches]).sum(0)
        squeezed = F.prelu(mean @ self.squeeze.mT, self.slope)
        shares = (squeezed @ self.excite.mT).softmax(0)[..., None, None]  # (branches, B, C, 1, 1)
        fused = branches[0] * shares[0] if torch.is_grad_enabled() else branches[0].mul_(shares[0])
        for maps, share in zip(branches[1:], shares[1:], strict=True):
            fused.addcmul_(maps, share)
        return fused


class Stage(nn.Module):
    """All that happens at one level: embeddings in a chain, one transformer per branch, fusion, and the input
    added (if `residual`).

    In a network with tasks the vector of the task is added first.
    """

    def __init__(
        self, level: int, channels: int, config: MBTaylorFormerConfig, residual: bool = True
    ) -> None:
        super().__init__()
        heads, self.branches, self.residual = config.heads[level], config.branches[level], residual
        self.chain = config.chain
        self.task = TaskVectors(len(config.tasks), channels) if config.tasks else None
        self.embeddings = nn.ModuleList(
            embedding(channels, branch, config) for branch in range(self.branches)
        )
        self.blocks = nn.ModuleList(
            Block(channels, heads, self.branches, config) for _ in range(config.blocks[level])
        )
        if self.branches > 1:
            self.fusion = Fusion(channels, self.branches)

    def forward(self, maps: Tensor, tasks: Tensor | None = None) -> Tensor:
        """(B, C, H, W), and with tasks their indices (B,) -> the same; overwrites maps if there are tasks and
        no gradients.
        """
        if self.task is not None:
            maps = self.task(maps, tasks)
        branches = list(self.embedded(maps))
        if torch.is_grad_enabled():
            for block in self.transformer():
                branches = [block(branch, number) for number, branch in enumerate(branches)]
        else:
            self.transform(branches)
        fused = self.fusion(branches) if self.branches > 1 else branches[0]
        if not self.residual:
            return fused
        return fused + maps if torch.is_grad_enabled() else fused.add_(maps)

    def transformer(self) -> Iterable[Block]:
        return cast("Iterable[Block]", self.blocks)

    def embedded(self, maps: Tensor) -> Iterator[Tensor]:
        """One map per branch."""
        latest = maps
        for embed in self.embeddings:
            latest = embed(latest if self.chain else maps)
            yield latest

    def transform(self, branches: list[Tensor]) -> None:
        """Every block of every branch, in place."""
        scratch = torch.empty_like(branches[0]), torch.empty_like(branches[0])
        for number, branch in enumerate(branches):
            for block in self.transformer():
                block.attention.add_to(branch, number, scratch)
                block.feed_forward.add_to(branch, number)


def stage(
    level: int, channels: int, config: MBTaylorFormerConfig, residual: bool = True
) -> Stage | ConvolutionStage:
    """The stage of a level, of `channels`; convolutions are residual by themselves."""
    if level < config.convolutional:
        return ConvolutionStage(channels, config.blocks[level], len(config.tasks))
    return Stage(level, channels, config, residual)


class Resample(nn.Module):
    """A depthwise and a 1x1 convolution, then halves the sides by moving pixels into channels, or doubles
    them the other way.
    """

    def __init__(self, channels: int, wanted: int, *, up: bool) -> None:
        super().__init__()
        self.up = up
        self.depthwise = weight(channels, 1, 3, 3, fan_in=9)
        self.pointwise = weight(4 * wanted if up else wanted // 4, channels, fan_in=channels)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, wanted, 2 H, 2 W) or (B, wanted, H / 2, W / 2)."""
        mixed = pointwise(depthwise(maps, self.depthwise), self.pointwise)
        moved = F.pixel_shuffle(mixed, 2) if self.up else F.pixel_unshuffle(mixed, 2)
        return moved.contiguous(memory_format=torch.channels_last)


class MBTaylorFormer(nn.Module):
    """Restore RGB pictures (B, 3, H, W) in [0, 1], or the middle frames of clips (B, frames, 3, H, W) -> (B,
    3, H, W), not clamped.

    Sides must be multiples of `config.multiple`; ValueError for other shapes. Attention is over the whole
    picture, so every pixel of it counts a little for every other.
    """

    def __init__(self, config: MBTaylorFormerConfig) -> None:
        super().__init__()
        self.config, widths = config, config.widths
        colours = 3 * config.unshuffle**2
        self.stem = weight(widths[0], config.frames * colours, 3, 3, fan_in=9 * config.frames * colours)
        self.encoder = nn.ModuleList(
            stage(level, widths[level], config, level > 0 or config.first_residual) for level in range(4)
        )
        self.down = nn.ModuleList(Resample(widths[level], widths[level + 1], up=False) for level in range(3))
        self.up = nn.ModuleList(Resample(widths[level + 1], widths[level], up=True) for level in range(3))
        self.reduce = nn.ParameterList(
            weight(widths[level], 2 * widths[level], fan_in=2 * widths[level]) for level in (1, 2)
        )
        self.decoder = nn.ModuleList(stage(level, widths[max(level, 1)], config) for level in range(3))
        self.refinement = stage(0, widths[1], config)
        made = colours + config.unshuffle**2 if config.gain else colours
        self.head = weight(made, widths[1], 3, 3, fan_in=9 * widths[1])

    def forward(self, images: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Pictures or clips, and their tasks' indices (B,) if the network has tasks -> restored pictures."""
        check_tasks(tasks, self.config.tasks, len(images))
        given, middle = self._checked(images)
        maps = F.conv2d(F.pixel_unshuffle(given, self.config.unshuffle), self.stem, padding=1)
        maps = maps.contiguous(memory_format=torch.channels_last)
        skipped = []
        for level in range(3):
            skipped.append(self.encoder[level](maps, tasks))
            maps = self.down[level](skipped[-1])
        maps = self.encoder[3](maps, tasks)
        for level in (2, 1, 0):
            maps = torch.cat((self.up[level](maps), skipped.pop()), 1)
            if level:
                maps = pointwise(maps, self.reduce[level - 1])
            maps = self.decoder[level](maps, tasks)
        refined = F.conv2d(self.refinement(maps, tasks), self.head, padding=1)
        made = F.pixel_shuffle(refined, self.config.unshuffle)
        return middle * (1 + made[:, 3:]) + made[:, :3] if self.config.gain else middle + made

    def _checked(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """All frames as channels (B, 3 frames, H, W), and the middle ones (B, 3, H, W)."""
        frames, multiple = self.config.frames, self.config.multiple
        expected = (3,) if frames == 1 else (frames, 3)
        if images.shape[1:-2] != expected or any(side % multiple for side in images.shape[-2:]):
            shape = "(B, 3, H, W)" if frames == 1 else f"(B, {frames}, 3, H, W)"
            raise ValueError(
                f"images must be {shape} with sides that are multiples of {multiple}, got "
                f"{tuple(images.shape)}"
            )
        return (images, images) if frames == 1 else (images.flatten(1, 2), images[:, frames // 2])
