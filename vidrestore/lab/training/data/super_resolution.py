"""Draw clips to train super-resolution on: RGB crops, and the same downscaled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade import gaussian_blurred, imresize
from vidrestore.lab.degrade.counters import Counters
from vidrestore.lab.degrade.per_sample import degraded, one_by_one
from vidrestore.lab.degrade.resize import resizing_matrix
from vidrestore.lab.run_config import ClipDataConfig
from vidrestore.lab.training.data.batches import WHOLE_BATCH, Share
from vidrestore.lab.training.data.footage import Footage, PlaneSource
from vidrestore.lab.training.data.pairs import (
    quantised,
    random_compression,
    stacked_bytes,
)
from vidrestore.lab.training.data.planes import Camera
from vidrestore.models.vsr_transformer import SCALE

# sigma in high-resolution pixels, and the share of clips
BLUR, BLURRED_SHARE = (0.2, 2.4), 0.85
UNBLURRED = 0.01  # sigma that changes nothing
# sigma on the 0-255 scale, and the share of clips
NOISE_SIGMA, NOISY_SHARE = (0.5, 6.0), 0.6
COMPRESSED_SHARE = 0.93  # share of clips


@dataclass(frozen=True)
class HeldOutClips:
    """Clips at low (N, T, 3, S, S) and at high resolution (N, T, 3, 4S, 4S), both uint8."""

    small: Tensor
    large: Tensor


class ClipSource(PlaneSource):
    """Batches of clips at low and at high resolution."""

    def __init__(self, footage: Footage, config: ClipDataConfig, seed: int) -> None:
        camera = Camera(SCALE * config.crop, config.frames, native=config.native)
        super().__init__(footage, seed, camera)
        self.config = config

    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Tensor, Tensor]:
        """Return clips (size, T, 3, S, S) and (size, T, 3, 4S, 4S), float32 in [0, 1]."""
        samples = range(size)[share.of(size)]
        # one product downscales a whole batch
        large = quantised(
            self.crops(step, size, samples, self.config.frames).clamp(0, 1)
        )
        down = downscaling_matrices(self.camera.side)
        if not self.config.practical:
            return quantised((down[0] @ large @ down[0].mT).clamp(0, 1)), large
        return downscaled_practically(
            large, down, self.counters(step, samples, 1)
        ), large


def downscaled_practically(large: Tensor, matrices: Tensor, draws: Counters) -> Tensor:
    """Downscale clips (B, T, 3, H, H) by one of three matrices (3, H / 4, H), as `downscale_practically`."""
    # one of three ways to downscale, after a blur
    kind = draws.uniform()
    down = matrices[(kind >= 0.6).long() + (kind >= 0.8).long()]
    sigma = torch.where(draws.chance(BLURRED_SHARE), draws.uniform(*BLUR), UNBLURRED)[
        :, None, None
    ]
    line = torch.arange(large.shape[-1])
    blur = torch.exp((line[:, None] - line).square() / (-2 * sigma**2))
    down = (down @ (blur / blur.sum(-1, keepdim=True)))[:, None, None]
    small = down @ large @ down.mT
    # noise and compression, as small video has them
    strength = (
        torch.where(draws.chance(NOISY_SHARE), draws.uniform(*NOISE_SIGMA), 0.0) / 255
    )
    small = small + draws.normal(*small.shape[1:]) * strength.view(-1, 1, 1, 1, 1)
    small = quantised(small.clamp(0, 1))
    return degraded(
        small,
        draws.chance(COMPRESSED_SHARE),
        one_by_one(random_compression),
        draws.branch(),
    )


@cache
def downscaling_matrices(side: int) -> Tensor:
    """Return the ways to downscale `side` pixels by 4, (3, side / 4, side): bicubic, means, bilinear."""
    line = torch.eye(side)[None, None]
    bicubic = resizing_matrix(side, 1 / SCALE).float()
    means = F.avg_pool2d(line, (SCALE, 1))[0, 0]
    bilinear = F.interpolate(
        line, (side // SCALE, side), mode="bilinear", antialias=True
    )[0, 0]
    return torch.stack((bicubic, means, bilinear))


def random_symmetry(rng: np.random.Generator) -> Callable[[Tensor], Tensor]:
    """Return one of sixteen functions that mirror, transpose and reverse in time a clip (T, 3, S, S) of any
    S.
    """
    mirrored = [axis for axis in (0, 2, 3) if rng.random() < 0.5]
    transposed = rng.random() < 0.5
    return lambda clip: (
        clip.flip(mirrored).transpose(2, 3).contiguous()
        if transposed
        else clip.flip(mirrored)
    )


def downscale_bicubically(large: Tensor) -> Tensor:
    """Downscale (T, 3, H, W) by 4 as super-resolution papers do: bicubic with antialiasing, in 8 bits."""
    return quantised(imresize(large, 1 / SCALE).clamp(0, 1))


def downscale_practically(large: Tensor, rng: np.random.Generator) -> Tensor:
    """Downscale (T, 3, H, W) by 4 with blur, noise and compression of random strength, or none, one after
    another as in K. Chan et al., "Investigating Tradeoffs in Real-World Video Super-Resolution", CVPR 2022.
    """
    # blur, downscale, noise, compression: each may be absent
    blurred = (
        gaussian_blurred(large, rng.uniform(*BLUR))
        if rng.random() < BLURRED_SHARE
        else large
    )
    small = random_resizing(rng)(blurred)
    if rng.random() < NOISY_SHARE:
        noise = torch.from_numpy(rng.standard_normal(small.shape, dtype=np.float32))
        small = small + noise * rng.uniform(*NOISE_SIGMA) / 255
    small = quantised(small.clamp(0, 1))
    return random_compression(small, rng) if rng.random() < COMPRESSED_SHARE else small


def random_resizing(rng: np.random.Generator) -> Callable[[Tensor], Tensor]:
    """Return a random way of downscaling by 4: mostly bicubic, also means of 4x4 pixels, or bilinear."""
    kind = rng.choice(["bicubic", "area", "bilinear"], p=[0.6, 0.2, 0.2])
    if kind == "bicubic":
        return lambda large: imresize(large, 1 / SCALE)
    if kind == "area":
        return lambda large: F.avg_pool2d(large, SCALE)
    return lambda large: F.interpolate(
        large, scale_factor=1 / SCALE, mode="bilinear", antialias=True
    )


def held_out_clips(
    footage: Footage, config: ClipDataConfig, count: int
) -> HeldOutClips:
    """Return `count` clips, mirrored, transposed and reversed at random; every run has the same."""
    clips = []
    for rng in (np.random.default_rng((1, number)) for number in range(count)):
        large = footage.rgb_crop(rng, SCALE * config.crop, config.frames)
        large = quantised(random_symmetry(rng)(large))
        small = (
            downscale_practically(large, rng)
            if config.practical
            else downscale_bicubically(large)
        )
        clips.append((small, large))
    small, large = map(stacked_bytes, zip(*clips, strict=True))
    return HeldOutClips(small, large)
