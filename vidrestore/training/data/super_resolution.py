"""Clips to train super-resolution on, and frames to train its flow on: RGB crops, made small or warped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade import gaussian_blurred, imresize
from vidrestore.models.spynet import warp
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.training.data.batches import WHOLE, Share, Source
from vidrestore.training.data.compressed import drawn_compression
from vidrestore.training.data.footage import Footage
from vidrestore.training.data.pairs import as_stored
from vidrestore.training.data_config import ClipDataConfig, FlowDataConfig

BLUR, BLURRED = (0.2, 2.4), 0.85  # sigma in pixels of the large frame, and the share of clips
NOISE, NOISY = (0.5, 6.0), 0.6  # sigma on the 0-255 scale, and the share of clips
COMPRESSED = 0.93  # share of clips


@dataclass(frozen=True)
class HeldOutClips:
    """Clips (N, T, 3, S, S) and what they should become (N, T, 3, 4S, 4S), both uint8."""

    small: Tensor
    large: Tensor


@dataclass(frozen=True)
class HeldOutFrames:
    """Neighbouring frames (N, 3, S, S) uint8 of real clips."""

    reference: Tensor
    supporting: Tensor


class ClipSource(Source):
    """Batches of clips small and large."""

    def __init__(self, footage: Footage, config: ClipDataConfig, seed: int) -> None:
        self.footage, self.config, self.seed = footage, config, seed

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Small (size, T, 3, S, S) and large (size, T, 3, 4S, 4S), float32 in [0, 1]."""
        draws = (
            np.random.default_rng((self.seed, 0, step, number)) for number in range(size)[share.of(size)]
        )
        small, large = zip(*(drawn_clip(self.footage, self.config, draw) for draw in draws), strict=True)
        return torch.stack(small), torch.stack(large)


def drawn_clip(footage: Footage, config: ClipDataConfig, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """One clip small (T, 3, S, S) and large, both as 8 bits hold them; mirrored, turned and reversed in time
    at random.
    """
    large = footage.rgb_crop(draw, SCALE * config.crop, config.frames)
    large = as_stored(drawn_symmetry(draw)(large))
    return (practical_small(large, draw) if config.practical else bicubic_small(large)), large


def drawn_symmetry(draw: np.random.Generator) -> Callable[[Tensor], Tensor]:
    """One of sixteen ways to mirror and transpose the frames of a clip (T, 3, S, S) and to reverse it in
    time, for all sizes alike.
    """
    mirrored = [axis for axis in (0, 2, 3) if draw.random() < 0.5]
    transposed = draw.random() < 0.5
    return lambda clip: (
        clip.flip(mirrored).transpose(2, 3).contiguous() if transposed else clip.flip(mirrored)
    )


def bicubic_small(large: Tensor) -> Tensor:
    """(T, 3, H, W) -> (T, 3, H / 4, W / 4) as super-resolution papers make it: bicubic with antialiasing, in
    8 bits.
    """
    return as_stored(imresize(large, 1 / SCALE).clamp(0, 1))


def practical_small(large: Tensor, draw: np.random.Generator) -> Tensor:
    """The same as users' videos are: through a soft lens, noisy, and compressed by a real encoder, each of a
    drawn strength.

    Blur, resizing, noise and compression follow one another as in K. Chan et al., "Investigating Tradeoffs in
    Real-World Video Super-Resolution", CVPR 2022. Some clips are not blurred, some have no noise, and a few
    are not compressed.
    """
    blurred = gaussian_blurred(large, draw.uniform(*BLUR)) if draw.random() < BLURRED else large
    small = drawn_resizing(draw)(blurred)
    if draw.random() < NOISY:
        noise = torch.from_numpy(draw.standard_normal(small.shape, dtype=np.float32))
        small = small + noise * draw.uniform(*NOISE) / 255
    small = as_stored(small.clamp(0, 1))
    return drawn_compression(small, draw) if draw.random() < COMPRESSED else small


def drawn_resizing(draw: np.random.Generator) -> Callable[[Tensor], Tensor]:
    """One of the ways in which frames are made four times smaller: mostly bicubic, also by means of 4x4
    pixels, or bilinear.
    """
    kind = draw.choice(["bicubic", "area", "bilinear"], p=[0.6, 0.2, 0.2])
    if kind == "bicubic":
        return lambda large: imresize(large, 1 / SCALE)
    if kind == "area":
        return lambda large: F.avg_pool2d(large, SCALE)
    return lambda large: F.interpolate(large, scale_factor=1 / SCALE, mode="bilinear", antialias=True)


def held_out_clips(footage: Footage, config: ClipDataConfig, count: int) -> HeldOutClips:
    """`count` clips, the same for every run of a configuration."""
    clips = [drawn_clip(footage, config, np.random.default_rng((1, number))) for number in range(count)]
    small, large = (torch.stack(part).mul(255).round().to(torch.uint8) for part in zip(*clips, strict=True))
    return HeldOutClips(small, large)


class FlowSource(Source):
    """Batches of frames and the flow between them."""

    def __init__(self, footage: Footage, config: FlowDataConfig, seed: int) -> None:
        self.footage, self.config, self.seed = footage, config, seed

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, Tensor, Tensor]:
        """Reference and supporting frames (size, 3, S, S) in [0, 1], and the flow (size, 2, S, S) in pixels
        between them.
        """
        draws = (
            np.random.default_rng((self.seed, 0, step, number)) for number in range(size)[share.of(size)]
        )
        reference, supporting, flow = zip(
            *(drawn_motion(self.footage, self.config, draw) for draw in draws), strict=True
        )
        return torch.stack(reference), torch.stack(supporting), torch.stack(flow)


def drawn_motion(
    footage: Footage, config: FlowDataConfig, draw: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """One frame, sampled by a drawn flow from a crop of footage; that crop; and the flow. All of the crop's
    size.

    The crop is cut from a larger one, so that nothing is missing at the borders.
    """
    margin = int(config.reach) + 4
    scene = footage.rgb_crop(draw, config.crop + 2 * margin, 1)
    flow = drawn_flow(config.crop + 2 * margin, config.reach, draw)
    inside = slice(margin, margin + config.crop)
    reference = warp(scene, flow[None], border="border")[0, :, inside, inside]
    return as_stored(reference), as_stored(scene[0, :, inside, inside]), flow[:, inside, inside]


def drawn_flow(side: int, reach: float, draw: np.random.Generator) -> Tensor:
    """(2, side, side), x then y, in pixels: a shift, a linear part (turn, zoom, shear) and a smooth field,
    each of a drawn strength.

    No vector is longer than `reach` in either direction.
    """
    columns = torch.linspace(-1, 1, side).expand(side, side)
    place = torch.stack([columns, columns.mT])
    linear = torch.from_numpy(draw.normal(0, 0.02, (2, 2))).float() * side / 2
    grid = torch.from_numpy(draw.normal(0, 1, (1, 2, *draw.integers(3, 8, 2)))).float()
    smooth = F.interpolate(grid, size=(side, side), mode="bicubic", align_corners=True)[0]
    shift = torch.from_numpy(draw.normal(0, draw.choice([0.3, 2, 5]), 2)).float()[:, None, None]
    flow: Tensor = (
        shift + torch.tensordot(linear, place, 1) * draw.uniform(0, 1) + smooth * draw.uniform(0, 2)
    )
    return flow.clamp(-reach, reach)


def held_out_frames(footage: Footage, side: int, count: int) -> HeldOutFrames:
    """`count` pairs of neighbouring frames, the same for every run of a configuration."""
    clips = torch.stack(
        [footage.rgb_crop(np.random.default_rng((1, number)), side, 2) for number in range(count)]
    )
    stored = clips.mul(255).round().to(torch.uint8)
    return HeldOutFrames(stored[:, 0], stored[:, 1])
