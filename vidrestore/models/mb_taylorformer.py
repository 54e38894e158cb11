"""MB-TaylorFormer V2: a multi-branch linear transformer that removes haze, rain, snow, blur and camera noise.

Z. Jin, Y. Qiu, K. Zhang, H. Li, W. Luo, "MB-TaylorFormer V2: Improved Multi-branch Linear Transformer
Expanded by Taylor Formula for Image Restoration". Equation and section numbers are the paper's. An encoder of
four levels (each half the size), a decoder of three, and a refinement at full size. At every level a chain of
deformable convolutions makes one map per branch, each with a larger receptive field than the last; every
branch has its own transformer; selective kernel fusion combines them.

The released code differs from the paper. It is the default here, because its weights need it;
`MBTaylorFormerConfig` and `AttentionRule` have an option for each difference. Three differences have none:
the decoder's last level and the refinement are twice as wide as Table I says, the feed-forward is Restormer's
gated one, and norms divide by the standard deviation of a pixel's channels without subtracting the mean.

Maps are channels_last. Without gradients, transformer blocks are computed in place and in strips of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.alignment import aligned
from vidrestore.models.deform_conv import DeformableEmbedding, FixedEmbedding
from vidrestore.models.fast_maps import (
    depthwise,
    in_one_piece,
    pointwise,
    shared_rows,
    weight,
)
from vidrestore.models.scattering import (
    OUTPUTS,
    Scattering,
    scattering_from,
    without_haze,
)
from vidrestore.models.taylor_attention import POSITION_WINDOWS, AttentionRule, Block

Levels = tuple[int, int, int, int]

# sides of the maps at level 1 are multiples of it, since three halvings follow
SIDE_MULTIPLE = 8


@dataclass(frozen=True)
class MBTaylorFormerConfig:
    """Sizes of the four levels, from full size to an eighth, and the differences of paper and release.

    The defaults are the released B. The decoder has the encoder's sizes; its last level and the refinement
    have the branches, blocks and heads of level 1 and the width of level 2. Raises ValueError for impossible
    values.
    """

    widths: Levels = (24, 48, 72, 96)
    blocks: Levels = (2, 3, 3, 4)
    branches: Levels = (2, 2, 2, 2)
    heads: Levels = (1, 2, 4, 8)
    # hidden channels of the feed-forward per channel, rounded down
    expansion: float = 2.66
    # lowest and highest offset of a tap in pixels; empty: no limit (the default of the release's code is 1)
    offset_limit: tuple[float, ...] = (-3.0, 3.0)
    # deformable: taps with offsets; plain: fixed taps; dilated: fixed taps b pixels apart in branch b
    embedding: Literal["deformable", "plain", "dilated"] = "deformable"
    # embeddings of a stage are in series ("-SP" in Table VIII); else all take the stage's input ("-P")
    chain: bool = True
    # encoder level 1 adds its input, as all others do; paper True
    first_residual: bool = False
    attention: AttentionRule = field(default_factory=AttentionRule)
    # The rest is ours, for CPUs; the defaults are those of paper and release.
    # input frames: the frame to restore in the middle of its neighbours
    frames: int = 1
    aligned: bool = False  # neighbours are warped onto the middle frame first
    # level 1 works at one over this of the size, by a pixel unshuffle before and a shuffle after
    unshuffle: int = 1
    # deviation (release): divide by the standard deviation alone; layer: subtract the mean as well
    norm: Literal["deviation", "layer"] = "deviation"
    # number of levels, from full size, with pairs of plain convolutions instead of transformers
    convolutional: int = 0
    slope: float = 0.0  # factor of negative values between two plain convolutions
    # the output is input (1 + gain) + residual, which suits haze, instead of input + residual
    gain: bool = False
    # the output is the input without the haze that the network finds in it (`scattering`)
    haze: bool = False
    # each has a learnt vector that is added before every stage; empty: one task
    tasks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # the sizes of the four levels
        sizes = {
            name: getattr(self, name)
            for name in ("widths", "blocks", "branches", "heads")
        }
        for name, values in sizes.items():
            if len(values) != 4 or min(values) < 1:
                raise ValueError(
                    f"{name} must be four numbers of at least 1, got {values}"
                )
        if self.widths[1] != 2 * self.widths[0] or any(
            width % 4 for width in self.widths[1:]
        ):
            raise ValueError(
                f"widths must double from level 1 to 2 and be multiples of 4 from there, got {self.widths}"
            )
        for width, heads in zip(
            (*self.widths, self.widths[1]), (*self.heads, self.heads[0]), strict=True
        ):
            if heads not in POSITION_WINDOWS or width % heads:
                raise ValueError(
                    f"heads must be {', '.join(map(str, POSITION_WINDOWS))} and divide the width, got "
                    f"{heads} for {width}"
                )
        # how patches are embedded, and which frames enter
        if self.offset_limit and (
            len(self.offset_limit) != 2 or self.offset_limit[0] >= self.offset_limit[1]
        ):
            raise ValueError(
                f"offset_limit must be two increasing numbers, or none for no limit, got {self.offset_limit}"
            )
        if self.embedding not in ("deformable", "plain", "dilated"):
            raise ValueError(
                f"embedding must be deformable, plain or dilated, got {self.embedding!r}"
            )
        if self.frames < 1 or self.frames % 2 == 0:
            raise ValueError(
                f"frames must be odd, so that one is in the middle, got {self.frames}"
            )
        if self.aligned and self.frames == 1:
            raise ValueError("aligned is for several frames, got 1")
        if self.unshuffle not in (1, 2, 4):
            raise ValueError(f"unshuffle must be 1, 2 or 4, got {self.unshuffle}")
        # what the blocks compute, and what leaves the network
        if self.norm not in ("deviation", "layer"):
            raise ValueError(f"norm must be deviation or layer, got {self.norm!r}")
        if not 0 <= self.convolutional <= 4:
            raise ValueError(
                f"convolutional must be 0 to 4 levels, got {self.convolutional}"
            )
        if not 0 <= self.slope < 1:
            raise ValueError(f"slope must be at least 0 and below 1, got {self.slope}")
        if self.haze and self.gain:
            raise ValueError("haze and gain are different outputs; choose one")
        if (
            not isinstance(self.tasks, tuple)
            or len(set(self.tasks)) < len(self.tasks)
            or not all(self.tasks)
        ):
            raise ValueError(f"tasks must be different names, got {self.tasks!r}")

    @property
    def pixel_memory(self) -> int:
        """Bytes per pixel at the peak, in the last level of the decoder: its maps, one per branch, two for
        queries and values, two temporary ones.

        Measured, with 48 MB of strips: 424 for T at 512x960 and 1239 for B at 256x480; this gives 352 and
        1267.
        """
        return (
            int(1.1 * 4 * self.widths[1] * (self.branches[0] + 4)) // self.unshuffle**2
        )

    @property
    def multiple(self) -> int:
        """The number that sides of pictures must be multiples of."""
        return SIDE_MULTIPLE * self.unshuffle


B = MBTaylorFormerConfig()
L = replace(B, blocks=(4, 6, 6, 8), branches=(2, 3, 3, 3))
XL = replace(L, widths=(28, 56, 112, 160))
# ours, for CPUs: few channels at full size, widths that fill the processor's vectors, and no tiny heads
T = MBTaylorFormerConfig(
    widths=(8, 16, 48, 80),
    blocks=(1, 2, 2, 4),
    branches=(1, 2, 2, 2),
    heads=(1, 1, 2, 4),
    expansion=2.0,
)
# ours, for CPUs: half the size, three input frames, and attention only in maps of an eighth or less
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


def embedding(channels: int, branch: int, config: MBTaylorFormerConfig) -> nn.Module:
    """Return the embedding of a branch, counted from 0."""
    if config.embedding == "deformable":
        return DeformableEmbedding(channels, config.offset_limit)
    return FixedEmbedding(channels, branch + 1 if config.embedding == "dilated" else 1)


class Fusion(nn.Module):
    """Selective kernel fusion (Section III-D): a sum of branches by their means over the picture."""

    def __init__(self, channels: int, branches: int) -> None:
        super().__init__()
        squeezed = max(channels // 8, 4)
        self.squeeze = weight(squeezed, channels, fan_in=channels)
        self.slope = nn.Parameter(torch.tensor([0.25]))
        self.excite = weight(branches, channels, squeezed, fan_in=squeezed)

    def forward(self, branches: list[Tensor]) -> Tensor:
        """Fuse (B, C, H, W) of each branch to one map; without gradients in the memory of the first."""
        mean = torch.stack([maps.mean((2, 3)) for maps in branches]).sum(0)
        squeezed = F.prelu(mean @ self.squeeze.transpose(-1, -2), self.slope)
        shares = (squeezed @ self.excite.transpose(-1, -2)).softmax(0)[
            ..., None, None
        ]  # (branches, B, C, 1, 1)
        fused = (
            branches[0] * shares[0] if in_one_piece() else branches[0].mul_(shares[0])
        )
        for maps, share in zip(branches[1:], shares[1:], strict=True):
            fused.addcmul_(maps, share)
        return fused


class TaskVectors(nn.Module):
    """Add a learnt vector per task to maps (B, C, H, W); zero at first, so all tasks start alike."""

    def __init__(self, count: int, channels: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(count, channels))

    def forward(self, maps: Tensor, tasks: Tensor) -> Tensor:
        """Add the vectors of the tasks with indices (B,) to the maps; in place without gradients."""
        added = self.vectors[tasks].to(maps.dtype)[:, :, None, None]
        return maps + added if in_one_piece() else maps.add_(added)


class TransformerStage(nn.Module):
    """One level: embeddings, one transformer per branch, fusion, and the input added (if `residual`).

    In a network with tasks the vector of the task is added first.
    """

    def __init__(
        self,
        level: int,
        channels: int,
        config: MBTaylorFormerConfig,
        residual: bool = True,
    ) -> None:
        super().__init__()
        heads, self.branches, self.residual = (
            config.heads[level],
            config.branches[level],
            residual,
        )
        self.chain, hidden = config.chain, int(channels * config.expansion)
        centred = config.norm == "layer"
        self.task = TaskVectors(len(config.tasks), channels) if config.tasks else None
        self.embeddings = nn.ModuleList(
            embedding(channels, branch, config) for branch in range(self.branches)
        )
        self.blocks = nn.ModuleList(
            Block(
                channels,
                heads,
                self.branches,
                hidden,
                config.attention,
                centred=centred,
            )
            for _ in range(config.blocks[level])
        )
        if self.branches > 1:
            self.fusion = Fusion(channels, self.branches)

    def forward(self, maps: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Map (B, C, H, W), and with tasks their indices (B,), to the same shape; in place with tasks and
        without gradients.
        """
        if self.task is not None:
            maps = self.task(maps, tasks)
        branches, blocks = (
            list(self.embedded(maps)),
            [cast("Block", block) for block in self.blocks],
        )
        if in_one_piece():
            for block in blocks:
                branches = [
                    block(branch, number) for number, branch in enumerate(branches)
                ]
        else:
            buffers = (
                torch.empty_like(branches[0]),
                torch.empty_like(branches[0]),
            )  # used by one branch at a time
            for number, branch in enumerate(branches):
                for block in blocks:
                    block.add_in_strips(branch, number, buffers)
        fused = self.fusion(branches) if self.branches > 1 else branches[0]
        if not self.residual:
            return fused
        return fused + maps if in_one_piece() else fused.add_(maps)

    def embedded(self, maps: Tensor) -> Iterator[Tensor]:
        """Yield one map per branch."""
        latest = maps
        for embed in self.embeddings:
            latest = embed(latest if self.chain else maps)
            yield latest


class ConvolutionPair(nn.Module):
    """x + conv(relu(conv(x))), 3x3 each: the residual block of EDSR (B. Lim et al., CVPRW 2017).

    Negative values are multiplied by `slope`. With 0 a channel that is never positive gets no gradients and
    stays so for ever.
    """

    def __init__(self, channels: int, slope: float = 0.0) -> None:
        super().__init__()
        self.slope = slope
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        added = shared_rows(self._added, maps, halo=2)
        return maps + added if in_one_piece() else added.add_(maps)

    def _added(self, maps: Tensor) -> Tensor:
        added: Tensor = self.second(
            F.leaky_relu(self.first(maps), self.slope, inplace=True)
        )
        return added


class ConvolutionStage(nn.Module):
    """A level of `pairs` blocks, cheap for CPUs, where maps are large; with tasks their vectors are added."""

    def __init__(
        self, channels: int, pairs: int, tasks: int, slope: float = 0.0
    ) -> None:
        super().__init__()
        self.task = TaskVectors(tasks, channels) if tasks else None
        self.pairs = nn.Sequential(
            *(ConvolutionPair(channels, slope) for _ in range(pairs))
        )
        self.pairs.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, maps: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Map maps as `TransformerStage.forward` does."""
        if self.task is not None:
            maps = self.task(maps, tasks)
        restored: Tensor = self.pairs(maps)
        return restored


def stage(
    level: int, channels: int, config: MBTaylorFormerConfig, residual: bool = True
) -> TransformerStage | ConvolutionStage:
    """Return the stage of a level with `channels`; convolution stages are residual by themselves."""
    if level < config.convolutional:
        return ConvolutionStage(
            channels, config.blocks[level], len(config.tasks), config.slope
        )
    return TransformerStage(level, channels, config, residual)


class Resample(nn.Module):
    """A depthwise and a 1x1 convolution, then a pixel unshuffle to half or a shuffle to double the size."""

    def __init__(self, channels: int, outputs: int, *, up: bool) -> None:
        super().__init__()
        self.up = up
        self.depthwise = weight(channels, 1, 3, 3, fan_in=9)
        self.pointwise = weight(
            4 * outputs if up else outputs // 4, channels, fan_in=channels
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, outputs, 2 H, 2 W) or (B, outputs, H / 2, W / 2)."""
        mixed = pointwise(depthwise(maps, self.depthwise), self.pointwise)
        moved = F.pixel_shuffle(mixed, 2) if self.up else F.pixel_unshuffle(mixed, 2)
        return moved.contiguous(memory_format=torch.channels_last)


class MBTaylorFormer(nn.Module):
    """Restore RGB pictures (B, 3, H, W) in [0, 1], or the middle frames of clips (B, frames, 3, H, W), to (B,
    3, H, W), not clamped.

    Sides must be multiples of `config.multiple`; ValueError for other shapes. Attention is over the whole
    picture, so every pixel depends a little on every other.
    """

    def __init__(self, config: MBTaylorFormerConfig) -> None:
        super().__init__()
        self.config, widths = config, config.widths
        # down through four levels, and up through three with what the way down has kept
        colours = 3 * config.unshuffle**2
        self.stem = weight(
            widths[0], config.frames * colours, 3, 3, fan_in=9 * config.frames * colours
        )
        residual = (config.first_residual, True, True, True)
        self.encoder = nn.ModuleList(
            stage(level, widths[level], config, residual[level]) for level in range(4)
        )
        self.down = nn.ModuleList(
            Resample(widths[level], widths[level + 1], up=False) for level in range(3)
        )
        self.up = nn.ModuleList(
            Resample(widths[level + 1], widths[level], up=True) for level in range(3)
        )
        self.reduce = nn.ParameterList(
            weight(widths[level], 2 * widths[level], fan_in=2 * widths[level])
            for level in (1, 2)
        )
        self.decoder = nn.ModuleList(
            stage(level, widths[max(level, 1)], config) for level in range(3)
        )
        self.refinement = stage(0, widths[1], config)
        # the maps that become a picture: those of the haze model, or a gain beside the colours
        maps = OUTPUTS if config.haze else 3 + config.gain
        self.head = weight(
            maps * config.unshuffle**2, widths[1], 3, 3, fan_in=9 * widths[1]
        )

    def initialise(self) -> None:
        """Make the network an identity: the last convolution, whose output is added to the input, is zero."""
        nn.init.zeros_(self.head)

    def parts_of(self, network: nn.Module) -> dict[str, Tensor] | None:
        """Return the parameters of `network` by their names here, if this network takes single frames and
        finds haze, and else they are alike; else None.

        Filters of several frames are added up, as for a frame that is its own neighbour. The last maps mean
        something else here, and tasks are left out.
        """
        if (
            not isinstance(network, MBTaylorFormer)
            or not self.config.haze
            or self.config.frames > 1
        ):
            return None
        config = self.config
        differing = {
            name: getattr(config, name)
            for name in ("frames", "aligned", "gain", "haze", "tasks", "slope")
        }
        if replace(network.config, **differing) != config:
            return None
        parameters = {
            name: tensor
            for name, tensor in network.state_dict().items()
            if name in self.state_dict()
        }
        stem = parameters["stem"].unflatten(1, (network.config.frames, -1)).sum(1)
        return parameters | {"stem": stem, "head": torch.zeros_like(self.head)}

    def forward(self, images: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Restore pictures or clips; `tasks` are the indices (B,) of their tasks if the network has tasks."""
        maps, middle = self._maps(images, tasks)
        if self.config.haze:
            return without_haze(middle, scattering_from(maps, middle))
        if self.config.gain:
            # in float32: near 1 half precision has steps of 1/128
            colours, gain = maps.float().split((3, 1), 1)
            restored: Tensor = middle + middle * gain + colours
            return restored
        return middle + maps

    def scattering(self, images: Tensor, tasks: Tensor | None = None) -> Scattering:
        """Return the haze that a network with `haze` finds in pictures or in the middle frames of clips."""
        return scattering_from(*self._maps(images, tasks))

    def _maps(self, images: Tensor, tasks: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the last maps at full size, and the pictures or middle frames."""
        check_tasks(tasks, self.config.tasks, len(images))
        channels, middle = self._checked(images)
        maps = F.conv2d(
            F.pixel_unshuffle(channels, self.config.unshuffle), self.stem, padding=1
        )
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
        # contiguous planes, as of the pictures that they are added to: half the time
        return F.pixel_shuffle(refined.contiguous(), self.config.unshuffle), middle

    def _checked(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return all frames as channels (B, 3 frames, H, W), and the middle ones (B, 3, H, W)."""
        frames, multiple = self.config.frames, self.config.multiple
        expected = (3,) if frames == 1 else (frames, 3)
        if images.shape[1:-2] != expected or any(
            side % multiple for side in images.shape[-2:]
        ):
            shape = "(B, 3, H, W)" if frames == 1 else f"(B, {frames}, 3, H, W)"
            raise ValueError(
                f"images must be {shape} with sides that are multiples of {multiple}, got "
                f"{tuple(images.shape)}"
            )
        if frames == 1:
            return images, images
        if self.config.aligned:
            with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
                images = aligned(images)
        return images.flatten(1, 2), images[:, frames // 2]


def check_tasks(tasks: Tensor | None, names: Sequence[str], batch: int) -> None:
    """Raise ValueError unless there is one index per picture, or None if the network has no tasks."""
    if not names:
        if tasks is not None:
            raise ValueError("tasks must be None: this network has no tasks")
        return
    if tasks is None:
        raise ValueError(
            f"tasks must be given: one index per picture into {', '.join(names)}"
        )
    if tasks.shape != (batch,) or tasks.dtype != torch.long:
        raise ValueError(
            f"tasks must be {batch} integers (int64), got {tuple(tasks.shape)} of {tasks.dtype}"
        )


def build(config: dict[str, Any]) -> MBTaylorFormer:
    """Build the network from the configuration in its weights file."""
    return MBTaylorFormer(config_from(config))


def config_from(settings: Mapping[str, Any]) -> MBTaylorFormerConfig:
    """Return the configuration of `settings`: `size`, one of SIZES (default "b"), and fields that differ from
    it, as JSON values.

    Raises ValueError for an unknown size.
    """
    values: dict[str, Any] = dict(settings)
    for key, value in settings.items():
        if isinstance(value, list):
            values[key] = tuple(value)
    size = values.pop("size", "b")
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; there are {', '.join(SIZES)}")
    if "attention" in values:
        values["attention"] = AttentionRule(**values["attention"])
    return replace(SIZES[size], **values)


def settings_of(config: MBTaylorFormerConfig) -> dict[str, Any]:
    """Return the settings from which `build` rebuilds the network, as JSON values, independent of SIZES."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(config).items()
    }
