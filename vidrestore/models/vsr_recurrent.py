"""VSR-Transformer N: recurrent x4 super-resolution, in both directions of time.

The two ideas of J. Cao et al., "Video Super-Resolution Transformer" (arXiv 2106.06847), in a form for two
cores. Every frame is first enlarged by itself. Then a bidirectional flow-based layer (Eq. 11-14) runs from
the last frame to the first and from the first to the last, and each frame takes details from its already
restored neighbour, so that they reach it from any distance. Enlarged frames are propagated instead of
features, because motion by fractions of a small pixel would blur features. Attention (Section 4.1, with few
keys) decides what is taken: a patch of 4x4 large pixels attends to the patches of the neighbour where the
flow points and one large pixel beside it, or to none, where the neighbour doesn't show the same. A frame
takes brightness alone: colours of what has passed would stay as crumbs, and few details differ in colour.

Flow is `alignment.subpixel_motion`: nothing is learned, and it is 6 to 9 dB better at these sizes (PSNR of
the warped neighbour) than small flow networks.

Inside, maps are (B, C, H, W), channels last, one for each frame of B clips; large pictures in patches are
(B, 48, H, W).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.cores import dealt
from vidrestore.models.alignment import luma_of, subpixel_motion
from vidrestore.models.fast_maps import in_one_piece, is_traced, spans
from vidrestore.models.grouping import frames_at_once
from vidrestore.models.spynet import SpynetConfig, sampled, sampling_grid, warp
from vidrestore.models.vsr_transformer import (
    SCALE,
    SIZES,
    Direction,
    Extractor,
    VsrConfig,
    VsrTransformer,
    near_zero,
    residual_blocks,
)
from vidrestore.working import check_stop, steps

PATCH = 3 * SCALE**2  # values of a patch
# places that a patch attends to, in large pixels right of and below the end of the flow
PLACES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
CENTRE = 1.5  # initial preference for the first place
# initial logarithm of the weight of the squared difference of two patches
LIKENESS = 3.0
# factor of mean squared differences in [0, 1], so that rates suit their weight
DIFFERENCES = 20.0
KEY_GAIN = 4.0
LEAST_SQUARE = 1e-4  # added before logarithms
MOST_STRAY = 4.0  # squared pixels
TAKEN = 0.2  # initial share of the difference to what is taken that is added
CHANGE_GAIN = 8.0  # differences are small; convolutions see them as large as features
# Pixels of a small frame around a sample whose range it keeps, and how far a sample may lie outside it
RANGE_SIDE, OVERSHOOT = 31, 8 / 255
# shares of the time of a clip: flow, frames backwards, and forwards (on a CPU)
PASSES = 1, 4, 2
# rows of a part of a small frame that takes from its neighbour, and those around it that convolutions see
STRIP, HALO = 48, 5
FLOW_PIXELS = 1 << 17  # pixels of the frames whose flow is found at once on a CPU


@dataclass(frozen=True)
class RecurrentConfig:
    """Sizes of a network. Raises ValueError for impossible ones."""

    features: int = 64  # of a frame
    extraction: int = 3  # residual blocks of the extractor
    layers: int = 2  # after the extractor, which also take the frame
    reconstruction: int = 7  # residual blocks after the layers
    shared: int = 16  # features that stay with an enlarged frame
    keys: int = 8  # of the attention
    hidden: int = 32  # features that are taken from a neighbour
    # frames that a clip should have before and after the restored ones
    context: int = 3
    neighbours: bool = True  # False: each frame is restored by itself

    def __post_init__(self) -> None:
        if min(self.features, self.shared, self.keys, self.hidden) < 1:
            raise ValueError(
                f"features, shared, keys and hidden must be at least 1, got {self}"
            )
        if min(self.extraction, self.layers, self.reconstruction, self.context) < 0:
            raise ValueError(
                f"extraction, layers, reconstruction and context must be at least 0, got {self}"
            )

    @property
    def radius(self) -> int:
        """Number of frames that a clip should have before and after the restored ones."""
        return self.context if self.neighbours else 0


class Layer(nn.Module):
    """maps + fusion(stack(frame, maps)): a residual layer that also takes the frame."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.both = Direction(features, features, 1)
        self.fusion = nn.Conv2d(features, features, 1)
        near_zero(self.fusion)

    def forward(self, maps: Tensor, frames: Tensor) -> Tensor:
        change: Tensor = self.fusion(self.both(frames, maps))
        return maps + change


class PatchAttention(nn.Module):
    """Attention of each patch of a large frame to those of its neighbour around the end of the flow, or to
    none.

    The logit of a place is query * key - a |difference|^2 + b, with a learned weight a and a learned
    preference b of the place; the difference is that of brightness, over 3x3 patches. The logit of none is a
    convolution over signs of an unreliable neighbour: the logarithms of the squared difference and of the
    variance of a patch, and the distance between a pixel and the end of its way along the flow and back.
    """

    def __init__(self, shared: int, keys: int) -> None:
        super().__init__()
        self.query = nn.Conv2d(PATCH + shared, keys, 3, padding=1)
        self.key = nn.Conv2d(3, keys, SCALE, stride=SCALE)
        self.place = nn.Parameter(torch.tensor([CENTRE] + [0.0] * (len(PLACES) - 1)))
        self.likeness = nn.Parameter(torch.tensor(LIKENESS))
        self.doubt = nn.Conv2d(shared + 3, 1, 3, padding=1)
        with torch.no_grad():
            self.doubt.weight.zero_()
            self.doubt.weight[:, -1, 1, 1] = 1  # a pixel of the way and back
            self.doubt.bias.zero_()  # type: ignore[union-attr]

    def queries(
        self, patches: Tensor, shared: Tensor, stray: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the queries of frames, and two signs of unreliable neighbours (B, 2, H, W): the logarithm
        of the variance of patches, and `stray`.

        Frames are patches (B, 48, H, W) and `shared` features; `stray` (B, 1, H, W) is the squared distance,
        in small pixels, between a pixel and where the flow and the flow back take it.
        """
        deviations = patches - patches.mean(1, keepdim=True)
        query = self.query(torch.cat((deviations.to(shared.dtype), shared), 1))
        variance = mean_of_nine(deviations.square().mean(1, keepdim=True))
        return query, torch.cat(((variance + LEAST_SQUARE).log() / 4, stray), 1)

    def forward(self, context: FrameContext, aligned: Tensor) -> Tensor:
        """Return the difference (B, 48, H, W) of what is taken from aligned large neighbours (B, 3, 4H, 4W)
        to the patches of frames. Where nothing is taken it is 0.
        """
        compared, shared, doubt = context.compared, context.shared, context.doubt
        # (P, B, 48, H, W)
        differences = at_places(aligned.to(compared.dtype)) - compared
        grey = differences.unflatten(2, (3, SCALE**2)).mean(2)
        unlike = mean_of_nine(
            grey.square().mean(2, keepdim=True).flatten(0, 1).to(doubt.dtype)
        )
        unlike = unlike.unflatten(0, (len(PLACES), -1))
        key = self._keys(differences, context.query.dtype)
        alike = (context.query * key).sum(2, keepdim=True, dtype=doubt.dtype)
        unlikely = (
            self.place.view(-1, 1, 1, 1, 1) - DIFFERENCES * self.likeness.exp() * unlike
        )
        logits = torch.add(unlikely, alike, alpha=KEY_GAIN)
        doubt = torch.cat(((unlike[0] + LEAST_SQUARE).log() / 4, doubt), 1)
        nothing = self.doubt(torch.cat((shared, doubt.to(shared.dtype)), 1))
        weights = torch.cat((logits, nothing[None].to(logits.dtype))).softmax(0)[:-1]
        details: Tensor = (weights.to(compared.dtype) * differences).sum(0)
        return details

    def _keys(self, differences: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the keys (P, B, K, H, W) of differences (P, B, 48, H, W), computed in `dtype` or fp16."""
        if differences.dtype != torch.float16:
            differences = differences.to(dtype)
        # (P * B, 48, H * W)
        dtype, columns = differences.dtype, differences.flatten(0, 1).flatten(2)
        weight = self.key.weight.flatten(1).to(dtype)
        bias = self.key.bias[:, None].to(dtype)  # type: ignore[index]
        # faster than a convolution
        keys = torch.baddbmm(bias, weight.expand(len(columns), -1, -1), columns)
        return keys.view(*differences.shape[:2], -1, *differences.shape[3:])


def at_places(pictures: Tensor) -> Tensor:
    """Return the patches (P, B, 48, H, W) of pictures (B, 3, 4H, 4W) at PLACES; the border is replicated."""
    wide = F.pad(pictures, (1, 1, 1, 1), mode="replicate")
    corners = [(1 + x, 1 + y) for x, y in PLACES]
    if is_traced():  # an exporter has no `unfold` of any size; this takes longer
        height, width = pictures.shape[-2:]
        shifted = (
            wide[..., top : top + height, left : left + width] for left, top in corners
        )
        return torch.stack([F.pixel_unshuffle(picture, SCALE) for picture in shifted])
    windows = (
        wide.unfold(2, SCALE + 2, SCALE)
        .unfold(3, SCALE + 2, SCALE)
        .permute(0, 1, 4, 5, 2, 3)
    )
    patches = [
        windows[:, :, top : top + SCALE, left : left + SCALE] for left, top in corners
    ]
    return torch.stack(patches).flatten(2, 4)


def mean_of_nine(maps: Tensor) -> Tensor:
    """Return the mean over 3x3 pixels of maps (B, C, H, W); the border is replicated."""
    return F.avg_pool2d(F.pad(maps, (1, 1, 1, 1), mode="replicate"), 3, 1)


class FrameContext(NamedTuple):
    """Large frames, and all that depends on them and their flow alone."""

    patches: Tensor  # (B, 48, H, W)
    compared: Tensor  # the same in the number format of comparisons
    shared: Tensor  # squeezed features
    grid: Tensor  # (B, 4H, 4W, 2), where the neighbours are sampled
    query: Tensor  # of the attention
    doubt: Tensor

    def one_by_one(self, batch: int) -> list[FrameContext]:
        """Split the context by frame: `batch` clips each."""
        frames = zip(*(part.split(batch) for part in self), strict=True)
        return [FrameContext(*parts) for parts in frames]

    def rows(self, start: int, stop: int) -> FrameContext:
        """Return the context of rows [start, stop) with HALO more on either side."""
        top, bottom = max(0, start - HALO), min(stop + HALO, self.patches.shape[2])
        grid = self.grid[:, SCALE * top : SCALE * bottom]
        maps = (grid if part is self.grid else part[:, :, top:bottom] for part in self)
        return FrameContext(*maps)


class Propagation(nn.Module):
    """One direction of the feed-forward layer: a large frame takes from its neighbour."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(config.features, config.shared, 1)
        self.attention = PatchAttention(config.shared, config.keys)
        self.gate = nn.Conv2d(PATCH, PATCH, 1)
        self.inner = nn.Conv2d(PATCH + config.shared, config.hidden, 3, padding=1)
        self.outer = nn.Conv2d(config.hidden, PATCH, 3, padding=1)
        with torch.no_grad():
            self.gate.weight.copy_(TAKEN * torch.eye(PATCH)[..., None, None])
            for part in (self.gate.bias, self.outer.weight, self.outer.bias):
                part.zero_()  # type: ignore[union-attr]

    def context_of(
        self, patches: Tensor, shared: Tensor, flow: Tensor, back: Tensor
    ) -> FrameContext:
        """Return the context of frames that doesn't depend on their neighbours, from patches (B, 48, H, W),
        squeezed features, the flow (B, 2, H, W) to their neighbours, and that back.
        """
        # its memory bounds a GPU; fp16 holds large frames to a sixteenth of a grey level, but few gradients
        half = (
            shared.is_cuda and shared.dtype.itemsize == 2 and not shared.requires_grad
        )
        compared = patches.half() if half else patches
        round_trip = flow + warp(back, flow, border="border")
        stray = round_trip.square().sum(1, keepdim=True).clamp(max=MOST_STRAY)
        return FrameContext(
            patches,
            compared,
            shared,
            large_grid(flow),
            *self.attention.queries(patches, shared, stray),
        )

    def forward(self, context: FrameContext, neighbour: Tensor | None) -> Tensor:
        """Return the patches (B, 48, H, W) of frames that take from large neighbours (B, 3, 4H, 4W)."""
        rows = spans(context.patches.shape[2], STRIP)
        if (
            neighbour is None
            or len(rows) == 1
            or in_one_piece()
            or neighbour.device.type != "cpu"
        ):
            return self._restored(context, neighbour)

        def restored(span: tuple[int, int]) -> Tensor:
            strip, first = context.rows(*span), max(0, span[0] - HALO)
            return self._restored(strip, neighbour)[
                :, :, span[0] - first : span[1] - first
            ]

        return torch.cat([*dealt(restored, rows)], 2)

    def _restored(self, context: FrameContext, neighbour: Tensor | None) -> Tensor:
        if neighbour is None:
            details = torch.zeros_like(context.patches, dtype=context.shared.dtype)
        else:
            aligned = sampled(neighbour.contiguous(), context.grid, border="border")
            details = self.attention(context, aligned).to(context.shared.dtype)
        inputs = torch.cat((CHANGE_GAIN * details, context.shared), 1)
        change: Tensor = self.outer(F.silu(self.inner(inputs))) + self.gate(details)
        return context.patches + luma_of(change.unflatten(1, (3, -1)))[:, 0].repeat(
            1, 3, 1, 1
        )


class VsrRecurrent(nn.Module):
    """forward: clips (B, T, 3, H, W), RGB in [0, 1] -> all frames (B, T, 3, 4H, 4W), float32.

    Any size and any number of frames.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.extractor = Extractor(config.features, config.extraction)
        self.layers = nn.ModuleList(
            Layer(config.features) for _ in range(config.layers)
        )
        self.reconstruction = residual_blocks(config.reconstruction, config.features)
        self.tail = nn.Conv2d(config.features, PATCH, 3, padding=1)
        if config.neighbours:
            self.to_earlier, self.to_later = Propagation(config), Propagation(config)

    def initialise(self) -> None:
        """Make a network of single frames a bilinear interpolation: what is added to that is zero.

        Weights are in channels-last order, like the feature maps.
        """
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for parameter in self.tail.parameters():
            nn.init.zeros_(parameter)

    def parts_of(self, network: nn.Module) -> dict[str, Tensor] | None:
        """Return the parameters of `network` by their names here, if it is a network of this family with as
        many features and blocks, with or without neighbours; else None.
        """
        sizes = (
            "features",
            "extraction",
            "layers",
            "reconstruction",
            "shared",
            "keys",
            "hidden",
        )
        if not isinstance(network, VsrRecurrent):
            return None
        parameters = network.state_dict()
        same = all(
            getattr(network.config, name) == getattr(self.config, name)
            for name in sizes
        )
        return (
            parameters
            if same and parameters.keys() <= self.state_dict().keys()
            else None
        )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of features; flow and frames are in float32."""
        return self.tail.weight.dtype

    def for_inference(self, dtype: torch.dtype = torch.float32) -> Self:
        """Convert this network to `dtype` and set it to evaluation; return itself."""
        self.to(dtype)
        if next(self.parameters()).is_cuda:  # oneDNN reorders weights on a CPU anyway
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self.eval()

    def forward(self, clips: Tensor) -> Tensor:
        at_once = frames_at_once(clips.transpose(0, 1))
        return torch.stack(
            list(self.frames(clips.unbind(1), (0, clips.shape[1]), at_once)), 1
        )

    def frames(
        self, clip: Sequence[Tensor], keep: tuple[int, int], at_once: int = 1
    ) -> Iterator[Tensor]:
        """Yield frames [first, stop) of a clip of frames (B, 3, H, W): each (B, 3, 4H, 4W), float32.

        The other frames are context. Results that don't depend on neighbours are computed for `at_once`
        frames together.
        """
        if not self.config.neighbours:
            for start in steps(range(keep[0], keep[1], at_once)):
                frames = joined(clip[start : min(start + at_once, keep[1])])
                large = F.pixel_shuffle(self.enlarged(frames)[0], SCALE)
                yield from within_range(large, frames).split(len(clip[0]))
            return
        passes = steps(("flow", "backwards", "forwards"), PASSES)
        next(passes)
        later, earlier = self._flows(clip, at_once)
        widest, batch = torch.promote_types(clip[0].dtype, torch.float32), len(clip[0])
        # half of the memory, and exact to a sixteenth of a grey level
        compact = torch.float16 if self.dtype == torch.bfloat16 else widest
        # the last frame first
        backward_results: list[tuple[Tensor, Tensor] | None] = []
        handed: Tensor | None = None

        def backward_contexts(stop: int) -> list[tuple[FrameContext, Tensor]]:
            """Return the contexts of frames before `stop`, and features for the other direction."""
            first = max(0, stop - at_once)
            patches, maps = self.enlarged(joined(clip[first:stop]))
            flow, back = (
                joined(flows[first + 1 : stop + 1]) for flows in (later, earlier)
            )
            context = self.to_earlier.context_of(
                patches, self.to_earlier.squeeze(maps), flow, back
            )
            shared = self.to_later.squeeze(maps).split(batch)
            return list(
                zip(reversed(context.one_by_one(batch)), reversed(shared), strict=True)
            )

        def forward_contexts(first: int) -> list[FrameContext]:
            """Return the contexts of frames from `first` on; their results of the other direction go."""
            stop = min(first + at_once, keep[1])
            places = [len(clip) - 1 - index for index in range(first, stop)]
            results = [
                result
                for place in places
                if (result := backward_results[place]) is not None
            ]
            for place in places:
                backward_results[place] = None
            patches, shared = map(joined, zip(*results, strict=True))
            flow, back = (joined(flows[first:stop]) for flows in (earlier, later))
            return self.to_later.context_of(
                patches.to(widest), shared, flow, back
            ).one_by_one(batch)

        def forwards() -> Iterator[tuple[Tensor, Tensor]]:
            """Yield the large frames that are kept, with the small ones."""
            handed: Tensor | None = None
            contexts = chain.from_iterable(
                dealt(forward_contexts, range(0, keep[1], at_once))
            )
            for index, context in enumerate(contexts):
                handed = F.pixel_shuffle(self.to_later(context, handed), SCALE)
                if index >= keep[0]:
                    yield handed, clip[index]

        next(passes)
        for contexts in dealt(backward_contexts, range(len(clip), 0, -at_once)):
            for frame_context, features in contexts:
                patches = self.to_earlier(frame_context, handed)
                handed = F.pixel_shuffle(patches, SCALE)
                backward_results.append((patches.to(compact), features))
        next(passes)
        yield from dealt(clamped, forwards())

    def enlarged(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Return patches (B, 48, H, W), float32, of frames (B, 3, H, W) enlarged alone, and features."""
        small = frames.contiguous(memory_format=torch.channels_last).to(self.dtype)
        maps = self.extractor(small)
        for layer in self.layers:
            check_stop()
            maps = layer(maps, small)
        maps = self.reconstruction(maps)
        frames = frames.to(torch.promote_types(frames.dtype, torch.float32))
        smooth = F.interpolate(
            frames, scale_factor=float(SCALE), mode="bilinear", align_corners=False
        )
        return F.pixel_unshuffle(smooth, SCALE) + self.tail(maps), maps

    def _flows(
        self, clip: Sequence[Tensor], at_once: int = 1
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the flows from the frame before each frame, and to that; zero beyond the ends."""
        count, batch = len(clip), len(clip[0])
        still = torch.zeros_like(clip[0][:, :2], dtype=torch.float32)
        if count == 1:
            return [still] * (count + 1), [still] * (count + 1)
        firsts, seconds = [*clip[:-1], *clip[1:]], [*clip[1:], *clip[:-1]]
        pairs = max(2 * at_once - 1, FLOW_PIXELS // still[:, 0].numel())
        flows: list[Tensor] = []
        with torch.no_grad(), torch.autocast(still.device.type, enabled=False):

            def motion(start: int) -> Tensor:
                return subpixel_motion(
                    *(
                        torch.cat(frames[start : start + pairs])
                        for frames in (firsts, seconds)
                    )
                )

            for found in dealt(motion, range(0, len(firsts), pairs)):
                flows += found.split(batch)
        return [still, *flows[: count - 1], still], [still, *flows[count - 1 :], still]


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Return tensors one after the other, a single one without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat([*parts])


def clamped(frames: tuple[Tensor, Tensor]) -> Tensor:
    """Return `within_range` of a pair of large and small frames."""
    return within_range(*frames)


def within_range(large: Tensor, frames: Tensor) -> Tensor:
    """Clamp large frames (B, 3, 4H, 4W) to the range of the small frames (B, 3, H, W) around each pixel, so
    that thin lines and text stay as bright or dark as they were drawn.
    """
    # a minimum is the negative of the negatives' maximum
    bounds = torch.cat((frames, -frames))
    # a square, along one axis after the other
    for side in ((RANGE_SIDE, 1), (1, RANGE_SIDE)):
        bounds = F.max_pool2d(bounds, side, 1, (side[0] // 2, side[1] // 2))
    highest, negated_lowest = F.interpolate(
        bounds + OVERSHOOT, scale_factor=float(SCALE)
    ).chunk(2)
    return large.clamp(-negated_lowest, highest)


def large_grid(flow: Tensor) -> Tensor:
    """Return places (B, 4H, 4W, 2) in a large frame at the ends of the flow (B, 2, H, W) of small pixels."""
    return sampling_grid(
        F.interpolate(
            SCALE * flow,
            scale_factor=float(SCALE),
            mode="bilinear",
            align_corners=False,
        )
    )


def build(config: dict[str, Any]) -> nn.Module:
    """Build a network of this family from the configuration in its weights file: `size`, "n" or one of SIZES
    (default "reds"), and other fields. `frames` without `blocks` has as many blocks, as the paper says.

    Raises ValueError for an unknown size or impossible fields.
    """
    settings = dict(config)
    size = settings.pop("size", "reds")
    if size == "n":
        # fields of older files
        if not all(settings.pop(name, True) for name in ("attention", "motion")):
            raise ValueError(
                "a network without attention or motion can't be built any more"
            )
        return VsrRecurrent(RecurrentConfig(**settings))
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; there are {', '.join((*SIZES, 'n'))}")
    blocks = {"blocks": settings["frames"]} if "frames" in settings else {}
    settings = asdict(SIZES[size]) | blocks | settings
    settings["flow"] = SpynetConfig(**settings["flow"])
    return VsrTransformer(VsrConfig(**settings))


def config_of(network: Any) -> dict[str, Any]:
    """Return the settings from which `build` rebuilds a network of this family, independent of SIZES."""
    form = {} if isinstance(network, VsrTransformer) else {"size": "n"}
    return form | asdict(network.config)
