"""VSR-Transformer N: x4 super-resolution whose frames hand on what they became, in both directions of time.

The two ideas of J. Cao et al., "Video Super-Resolution Transformer" (arXiv 2106.06847), in a form for two
cores. Every frame is first enlarged by itself. Then a bidirectional flow-based layer (Eq. 11-14) goes from
the last frame to the first and from the first to the last, and each frame takes from its neighbour what the
layer made of that, so that details reach it from any distance. What is handed over are enlarged frames, which
motion moves by fractions of a small pixel without blurring them, as it would the features of small pixels.
Attention (Section 4.1, with few keys) decides what is taken: a patch of 4x4 large pixels attends to the
patches of the neighbour where the flow points and one large pixel beside it, or to none, where the neighbour
doesn't show the same.

Flow is `alignment.subpixel_motion`: nothing learned, and 6 to 9 dB better at these sizes (PSNR of the warped
neighbour) than the small flow networks that came before it.

Inside, maps are (B, C, H, W), channels last, one for each frame of B clips; large pictures in patches are
(B, 48, H, W).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.alignment import subpixel_motion
from vidrestore.models.spynet import warp
from vidrestore.models.vsr_transformer import SCALE, Direction, Extractor, near_zero, residual_blocks

PATCH = 3 * SCALE**2  # values of a patch
# places that a patch attends to, in large pixels right of and below the end of the flow
PLACES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
CENTRE = 1.5  # initial preference for the first place
LIKENESS = 3.0  # initial logarithm of the weight of the squared difference of two patches
DIFFERENCES = (
    20.0  # by which mean squared differences in [0, 1] are multiplied, so that rates suit their weight
)
KEY_GAIN = 4.0
LEAST_SQUARE = 1e-4  # that is added before logarithms
MOST_STRAY = 4.0  # squared pixels
TAKEN = 0.2  # initial share of the difference to what is taken that is added
CHANGE_GAIN = 8.0  # differences are small; convolutions see them as large as features
FLOW_PIXELS = 1 << 17  # of the frames whose flow is found at once on a CPU


@dataclass(frozen=True)
class RecurrentConfig:
    """Sizes. Raises ValueError for impossible ones.

    `features`: of a frame. `extraction`, `layers` and `reconstruction` count the residual blocks of the
    extractor, the layers behind it that see the frame again, and the residual blocks behind those. `shared`:
    features that stay with an enlarged frame. `keys`: of the attention. `hidden`: features of what is taken.
    `context`: frames before and after those wanted that a clip should have.

    For ablations: without `attention` the neighbour is taken where the flow points; without `motion` there is
    no flow; without `neighbours` each frame is restored by itself.
    """

    features: int = 64
    extraction: int = 3
    layers: int = 2
    reconstruction: int = 7
    shared: int = 16
    keys: int = 8
    hidden: int = 32
    context: int = 3
    attention: bool = True
    motion: bool = True
    neighbours: bool = True

    def __post_init__(self) -> None:
        if min(self.features, self.shared, self.keys, self.hidden) < 1:
            raise ValueError(f"features, shared, keys and hidden must be at least 1, got {self}")
        if min(self.extraction, self.layers, self.reconstruction, self.context) < 0:
            raise ValueError(f"extraction, layers, reconstruction and context must be at least 0, got {self}")

    @property
    def radius(self) -> int:
        """Number of frames before and after the frames wanted that a clip should have."""
        return self.context if self.neighbours else 0


class Layer(nn.Module):
    """maps + fusion(stack(frame, maps)): a residual layer that sees the frame again."""

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
    preference b of the place; the difference is that of brightness, over 3x3 patches. That of none is a
    convolution over what makes a neighbour doubtful: the logarithms of the squared difference and of the
    variance of a patch, and where a pixel comes out that goes along the flow and back.
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

    def forward(
        self, large: Tensor, patches: Tensor, shared: Tensor, neighbour: Tensor, stray: Tensor
    ) -> Tensor:
        """Return the difference (B, 3, 4H, 4W) of what is taken to a large frame, which is also given in
        `patches` (B, 48, H, W), with `shared` features, from its aligned large neighbour. Where nothing is
        taken it is 0. `stray` (B, 1, H, W) is the squared distance, in small pixels, that the way along the
        flow and back leads away.
        """
        differences = at_places(neighbour) - large
        grey = at_places(neighbour.mean(1, keepdim=True)) - large.mean(1, keepdim=True)
        unlike = mean_of_nine(F.avg_pool2d(grey.flatten(0, 1).square(), SCALE))
        unlike = unlike.unflatten(0, (len(PLACES), -1))
        mean = patches.mean(1, keepdim=True)
        query = self.query(torch.cat(((patches - mean).to(shared.dtype), shared), 1))
        key = self.key(differences.flatten(0, 1).to(shared.dtype)).unflatten(0, (len(PLACES), -1))
        variance = mean_of_nine((patches - mean).square().mean(1, keepdim=True))
        logits = KEY_GAIN * (query * key).to(large.dtype).sum(2, keepdim=True)
        logits = logits - DIFFERENCES * self.likeness.exp() * unlike + self.place.view(-1, 1, 1, 1, 1)
        doubts = [(part + LEAST_SQUARE).log() / 4 for part in (unlike[0], variance)] + [stray]
        nothing = self.doubt(torch.cat([shared, *(part.to(shared.dtype) for part in doubts)], 1))
        weights = torch.cat((logits, nothing[None].to(logits.dtype))).softmax(0)[:-1]
        shares = F.interpolate(weights.flatten(0, 1), scale_factor=float(SCALE), mode="nearest")
        taken: Tensor = (shares.unflatten(0, weights.shape[:2]) * differences).sum(0)
        return taken


def at_places(pictures: Tensor) -> Tensor:
    """Return pictures (B, C, H, W) as seen from each of PLACES (P, B, C, H, W); the border goes on."""
    height, width = pictures.shape[-2:]
    wide = F.pad(pictures, (1, 1, 1, 1), mode="replicate")
    return torch.stack([wide[..., 1 + y : 1 + y + height, 1 + x : 1 + x + width] for x, y in PLACES])


def mean_of_nine(maps: Tensor) -> Tensor:
    """Return the mean over 3x3 pixels of maps (B, C, H, W), whose border goes on."""
    return F.avg_pool2d(F.pad(maps, (1, 1, 1, 1), mode="replicate"), 3, 1)


class Neighbour(NamedTuple):
    """A large frame (B, 3, 4H, 4W) to take from, the flow (B, 2, H, W) from the small frame to its, and that
    back.
    """

    large: Tensor
    flow: Tensor
    back: Tensor


class Handover(nn.Module):
    """One direction of the feed-forward layer: a large frame takes from its neighbour."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(config.features, config.shared, 1)
        self.attention = PatchAttention(config.shared, config.keys) if config.attention else None
        self.gate = nn.Conv2d(PATCH, PATCH, 1)
        self.inner = nn.Conv2d(PATCH + config.shared, config.hidden, 3, padding=1)
        self.outer = nn.Conv2d(config.hidden, PATCH, 3, padding=1)
        with torch.no_grad():
            self.gate.weight.copy_(TAKEN * torch.eye(PATCH)[..., None, None])
            for part in (self.gate.bias, self.outer.weight, self.outer.bias):
                part.zero_()  # type: ignore[union-attr]

    def forward(self, large: Tensor, shared: Tensor, neighbour: Neighbour | None) -> Tensor:
        """Return the large frame (B, 3, 4H, 4W) after the layer, from its squeezed features and its
        neighbour, if there is one.
        """
        if neighbour is None:
            taken = F.pixel_unshuffle(torch.zeros_like(large), SCALE)
        else:
            aligned = large_warp(neighbour.large, neighbour.flow)
            if self.attention:
                away = neighbour.flow + warp(neighbour.back, neighbour.flow, border="border")
                stray = away.square().sum(1, keepdim=True).clamp(max=MOST_STRAY)
                patches = F.pixel_unshuffle(large, SCALE)
                difference = self.attention(large, patches, shared, aligned, stray)
            else:
                difference = aligned - large
            taken = F.pixel_unshuffle(difference, SCALE)
        given = torch.cat(((CHANGE_GAIN * taken).to(shared.dtype), shared), 1)
        change = self.outer(F.silu(self.inner(given))) + self.gate(taken.to(shared.dtype))
        return large + F.pixel_shuffle(change.to(large.dtype), SCALE)


class VsrRecurrent(nn.Module):
    """forward: clips (B, T, 3, H, W), RGB in [0, 1] -> all frames (B, T, 3, 4H, 4W), float32, not clamped.

    Any size and any number of frames.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.extractor = Extractor(config.features, config.extraction)
        self.layers = nn.ModuleList(Layer(config.features) for _ in range(config.layers))
        self.reconstruction = residual_blocks(config.reconstruction, config.features)
        self.tail = nn.Conv2d(config.features, PATCH, 3, padding=1)
        if config.neighbours:
            self.to_earlier, self.to_later = Handover(config), Handover(config)

    def initialise(self) -> None:
        """Make a network of single frames a bilinear interpolation: what is added to that is zero.

        Weights are in channels-last order, like the feature maps.
        """
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for parameter in self.tail.parameters():
            nn.init.zeros_(parameter)

    def parts_of(self, given: nn.Module) -> dict[str, Tensor] | None:
        """Return the parameters of `given` by their names here, if it is such a network that has as many
        features and blocks, perhaps without attention or neighbours; else None.
        """
        sizes = ("features", "extraction", "layers", "reconstruction", "shared", "keys", "hidden")
        if not isinstance(given, VsrRecurrent):
            return None
        found = given.state_dict()
        same = all(getattr(given.config, name) == getattr(self.config, name) for name in sizes)
        return found if same and found.keys() <= self.state_dict().keys() else None

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
        return torch.stack(list(self.frames(clips.unbind(1), (0, clips.shape[1]))), 1)

    def frames(self, clip: Sequence[Tensor], keep: tuple[int, int]) -> Iterator[Tensor]:
        """Yield frames [first, stop) of a clip of frames (B, 3, H, W): each (B, 3, 4H, 4W), float32.

        All frames are seen, those before and behind as context.
        """
        if not self.config.neighbours:
            for frame in clip[keep[0] : keep[1]]:
                yield self.enlarged(frame)[0]
            return
        later, earlier = self._flows(clip)
        # half of the memory, and exact to a sixteenth of a grey level
        stored = torch.float16 if self.dtype == torch.bfloat16 else self.dtype
        kept: list[tuple[Tensor, Tensor]] = []
        handed = None
        for at in range(len(clip) - 1, -1, -1):
            large, maps = self.enlarged(clip[at])
            given = None if handed is None else Neighbour(handed, later[at], earlier[at])
            handed = self.to_earlier(large, self.to_earlier.squeeze(maps), given)
            kept.append((handed.to(stored), self.to_later.squeeze(maps)))
        handed = None
        for at in range(keep[1]):
            large, shared = kept.pop()
            given = None if handed is None else Neighbour(handed, earlier[at - 1], later[at - 1])
            handed = self.to_later(large.to(torch.promote_types(stored, torch.float32)), shared, given)
            if at >= keep[0]:
                yield handed

    def enlarged(self, frame: Tensor) -> tuple[Tensor, Tensor]:
        """Return a frame (B, 3, H, W) enlarged by itself (B, 3, 4H, 4W), float32, and its features."""
        small = frame.contiguous(memory_format=torch.channels_last).to(self.dtype)
        maps = self.extractor(small)
        for layer in self.layers:
            maps = layer(maps, small)
        maps = self.reconstruction(maps)
        frame = frame.to(torch.promote_types(frame.dtype, torch.float32))
        smooth = F.interpolate(frame, scale_factor=float(SCALE), mode="bilinear", align_corners=False)
        return smooth + F.pixel_shuffle(self.tail(maps).to(smooth.dtype), SCALE), maps

    def _flows(self, clip: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the flows from each frame to the next, and those from each next frame back to it."""
        still = torch.zeros_like(clip[0][:, :2], dtype=torch.float32)
        if not self.config.motion or len(clip) == 1:
            return [still] * (len(clip) - 1), [still] * (len(clip) - 1)
        pairs = len(clip) if still.is_cuda else max(1, FLOW_PIXELS // still[:, 0].numel())  # at once
        later, earlier = list[Tensor](), list[Tensor]()
        with torch.no_grad(), torch.autocast(still.device.type, enabled=False):
            for at in range(0, len(clip) - 1, pairs):
                here = torch.cat([*clip[at : at + pairs]][: len(clip) - 1 - at])
                there = torch.cat([*clip[at + 1 : at + 1 + pairs]])
                later += subpixel_motion(here, there).split(len(still))
                earlier += subpixel_motion(there, here).split(len(still))
        return later, earlier


def large_warp(large: Tensor, flow: Tensor) -> Tensor:
    """Return what a large frame (B, 3, 4H, 4W) shows at the ends of the flow (B, 2, H, W) of small pixels."""
    fine = F.interpolate(flow, scale_factor=float(SCALE), mode="bilinear", align_corners=False)
    with torch.autocast(large.device.type, enabled=False):
        return warp(large.contiguous(), SCALE * fine, border="border")


def build(config: dict[str, Any]) -> VsrRecurrent:
    """Build the network from fields of `RecurrentConfig`. Raises ValueError for impossible ones."""
    return VsrRecurrent(RecurrentConfig(**config))
