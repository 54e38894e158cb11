"""Pairs to train image networks on: clean RGB crops of clips and photos, and the same crops degraded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vidrestore.degrade import DEGRADATIONS, mean_light
from vidrestore.training.config import PairDataConfig
from vidrestore.training.data.batches import WHOLE, Share, Source
from vidrestore.training.data.footage import Footage

EXPOSURES = (3, 5, 7)  # frames that one blurred frame is the mean of
MEAN_SHARE = 0.25  # of blurred crops, which are such means; the others are blurred along a drawn way


@dataclass(frozen=True)
class HeldOutPairs:
    """Crops to judge a network by, (N, 3, S, S) uint8 each, by degradation."""

    degraded: dict[str, Tensor]
    clean: dict[str, Tensor]


class PairSource(Source):
    """Batches of pairs."""

    def __init__(self, footage: Footage, config: PairDataConfig, seed: int) -> None:
        self.footage, self.config, self.seed = footage, config, seed

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Degraded and clean, (size, 3, S, S) float32 in [0, 1], each crop with a degradation of its own."""
        pairs = [self._pair(np.random.default_rng((self.seed, 0, step, number))) for number in range(size)[share.of(size)]]
        degraded, clean = zip(*pairs, strict=True)
        return torch.stack(degraded), torch.stack(clean)

    def _pair(self, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
        name = self.config.degradations[draw.integers(len(self.config.degradations))]
        return drawn_pair(self.footage, name, self.config.crop, draw, self.config.widest)


def drawn_pair(footage: Footage, name: str, side: int, draw: np.random.Generator, widest: int | None = None) -> tuple[Tensor, Tensor]:
    """One crop (3, side, side) degraded and clean, in [0, 1], both as 8 bits hold them.

    The clean crop is mirrored and turned before: rain still falls, and haze still lies behind.
    """
    exposed = name == "blur" and draw.random() < MEAN_SHARE
    frames = int(draw.choice(EXPOSURES)) if exposed else 1
    clip = turned(footage.rgb_crop(draw, side, frames, widest), draw)
    degraded = mean_light(clip) if exposed else DEGRADATIONS[name](clip, draw)
    return as_stored(degraded[0]), as_stored(clip[frames // 2])


def held_out_pairs(footage: Footage, config: PairDataConfig, side: int, count: int) -> HeldOutPairs:
    """`count` pairs of every degradation, the same for every run of a configuration."""
    degraded, clean = {}, {}
    for name in config.degradations:
        pairs = [drawn_pair(footage, name, side, np.random.default_rng((1, number)), config.widest) for number in range(count)]
        degraded[name], clean[name] = (torch.stack(part).mul(255).round().to(torch.uint8) for part in zip(*pairs, strict=True))
    return HeldOutPairs(degraded, clean)


def turned(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """Square frames (T, 3, S, S) mirrored and transposed at random: the eight symmetries of a square."""
    mirrored = clip.flip([axis for axis in (2, 3) if draw.random() < 0.5])
    return mirrored.transpose(2, 3).contiguous() if draw.random() < 0.5 else mirrored


def as_stored(picture: Tensor) -> Tensor:
    """Rounded to 8 bits, still in [0, 1]."""
    return picture.mul(255).round_().div_(255)
