"""Pairs to train image networks on: clean RGB crops of clips and photos, and the same crops degraded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vidrestore.degrade import means_of_light, motion
from vidrestore.errors import ConfigError
from vidrestore.training.config import TASK_OF
from vidrestore.training.data.batches import WHOLE, Share, Source
from vidrestore.training.data.footage import Footage
from vidrestore.training.data.mixed import Shares, degraded
from vidrestore.training.data_config import PairDataConfig

EXPOSURES = (3, 5, 7)  # frames that one blurred frame is the mean of
MEAN_SHARE = 0.25  # of blurred crops, which are such means; the others are blurred along a drawn way
# pixels that a clip may move from frame to frame for such means to show no steps; others are blurred along a
# way, too
STEADY = 2.0
ALONE = Shares()


@dataclass(frozen=True)
class HeldOutPairs:
    """Crops to judge a network by, uint8 (N, 3, S, S) each, by degradation.

    Degraded ones are (N, frames, 3, S, S) if the network sees several frames.
    `tasks` has the index of the task of each degradation if the network has tasks.
    """

    degraded: dict[str, Tensor]
    clean: dict[str, Tensor]
    tasks: dict[str, int] = field(default_factory=dict)


class PairSource(Source):
    """Batches of pairs, for a network with these `tasks`."""

    def __init__(
        self, footage: Footage, config: PairDataConfig, seed: int, tasks: Sequence[str] = ()
    ) -> None:
        self.footage, self.config, self.seed = footage, config, seed
        self.tasks = task_indices(config, tasks)

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, ...]:
        """Return degraded and clean crops, float32 in [0, 1], each with a degradation of its own.

        Both are (size, 3, S, S); degraded ones (size, frames, 3, S, S) if there are several frames, clean
        ones are of the middle frame. If the network has tasks, their indices (size,) come third: each crop's
        is that of the degradation drawn, also if the crop is left as it is.
        """
        pairs = [
            self._pair(np.random.default_rng((self.seed, 0, step, number)))
            for number in range(size)[share.of(size)]
        ]
        names, given, clean = zip(*pairs, strict=True)
        tasks = [torch.tensor([self.tasks[name] for name in names])] if self.tasks else []
        return torch.stack(given), torch.stack(clean), *tasks

    def _pair(self, draw: np.random.Generator) -> tuple[str, Tensor, Tensor]:
        """The degradation, and the degraded and the clean crop."""
        name = self.config.degradations[draw.integers(len(self.config.degradations))]
        config = self.config
        shares = Shares(config.untouched, config.combined, config.recompressed)
        return name, *drawn_pair(
            self.footage, name, config.crop, draw, config.widest, shares, frames=config.frames
        )


def task_indices(config: PairDataConfig, tasks: Sequence[str]) -> dict[str, int]:
    """Return the index among `tasks` of the task of each degradation; empty if there are none.

    Raise ConfigError for a degradation whose task is missing.
    """
    if not tasks:
        return {}
    if missing := [TASK_OF[name] for name in config.degradations if TASK_OF[name] not in tasks]:
        raise ConfigError(
            f"[model] tasks lacks {', '.join(missing)}, for data.degradations; change one of them"
        )
    return {name: tasks.index(TASK_OF[name]) for name in config.degradations}


def drawn_pair(
    footage: Footage,
    name: str,
    side: int,
    draw: np.random.Generator,
    widest: int | None = None,
    shares: Shares = ALONE,
    *,
    frames: int = 1,
) -> tuple[Tensor, Tensor]:
    """Return a degraded crop and its clean one (3, side, side), in [0, 1], both as 8 bits hold them.

    With several `frames` the degraded one is a clip (frames, 3, side, side), the clean one its middle frame.
    """
    given, clean = drawn_clips(footage, name, side, frames, draw, widest, shares)
    return given[0] if frames == 1 else given, clean[frames // 2]


def drawn_clips(
    footage: Footage,
    name: str,
    side: int,
    frames: int,
    draw: np.random.Generator,
    widest: int | None = None,
    shares: Shares = ALONE,
) -> tuple[Tensor, Tensor]:
    """A window (frames, 3, side, side) degraded and clean, in [0, 1], both as 8 bits hold them.

    The clean clip is mirrored and turned before: rain still falls, and haze still lies behind.
    """
    exposure = int(draw.choice(EXPOSURES)) if name == "blur" and draw.random() < MEAN_SHARE else 1
    clip = turned(footage.rgb_crop(draw, side, frames * exposure, widest), draw)
    clean = clip[exposure // 2 :: exposure]
    means = means_of_light(clip, exposure) if exposure > 1 and motion(clip) < STEADY else None
    return as_stored(degraded(clean, name, shares, draw, means)), as_stored(clean)


def held_out_pairs(
    footage: Footage, config: PairDataConfig, side: int, count: int, tasks: Sequence[str] = ()
) -> HeldOutPairs:
    """`count` pairs of every degradation, the same for every run of a configuration."""
    given, clean = {}, {}
    for name in config.degradations:
        draws = (np.random.default_rng((1, number)) for number in range(count))
        pairs = [drawn_pair(footage, name, side, draw, config.widest, frames=config.frames) for draw in draws]
        given[name], clean[name] = (
            torch.stack(part).mul(255).round().to(torch.uint8) for part in zip(*pairs, strict=True)
        )
    return HeldOutPairs(given, clean, task_indices(config, tasks))


def turned(clip: Tensor, draw: np.random.Generator) -> Tensor:
    """Square frames (T, 3, S, S) mirrored and transposed at random: the eight symmetries of a square."""
    mirrored = clip.flip([axis for axis in (2, 3) if draw.random() < 0.5])
    return mirrored.transpose(2, 3).contiguous() if draw.random() < 0.5 else mirrored


def as_stored(picture: Tensor) -> Tensor:
    """Rounded to 8 bits, still in [0, 1]."""
    return picture.mul(255).round_().div_(255)
