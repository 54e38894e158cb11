"""Groups of patches of the DUST paper's datasets to train on, by its Section IV-A.

Frames are gray, Avenue's and ShanghaiTech's with 160 lines, the first 200 of each clip. Patches stay at their
places, `stride` pixels apart, and are cut into groups of `frames` patches side by side in time; the frames
that remain at a clip's end are left out. The paper doesn't say which fifth of the clips it holds out: here
clips are drawn at random, the same for every run. An epoch has every group once, in random order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vidrestore.errors import ConfigError, DatasetError
from vidrestore.lab.papers.dataset_files import FrameSequence
from vidrestore.lab.papers.datasets import datasets, find
from vidrestore.lab.papers.sensed_patches import gray_video
from vidrestore.lab.papers.training_sets import THREADS
from vidrestore.lab.run_config import GroupSetConfig, RunConfig, TrainingConfig
from vidrestore.lab.training.data.batches import WHOLE_BATCH, BatchSource, Share
from vidrestore.lab.training.data.sources import Reading
from vidrestore.models.grouping import GroupNetwork
from vidrestore.models.matching import Grid


class ClipGroups:
    """All groups of some clips (T, H, W) uint8, by number: clip by clip, then in time, then by place."""

    def __init__(
        self, clips: Sequence[Tensor], patch: int, stride: int, frames: int
    ) -> None:
        self.clips = clips
        self.patch = patch
        self.frames = frames
        self.corners = [
            Grid(clip.shape[1], clip.shape[2], patch, stride).corners()
            for clip in clips
        ]
        counts = [
            len(clip) // frames * len(places)
            for clip, places in zip(clips, self.corners, strict=True)
        ]
        self.ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def group(self, number: int) -> Tensor:
        """Return one group, (frames, N) uint8."""
        # the clip, then the place in it, by how many groups come before
        index = int(np.searchsorted(self.ends, number, side="right"))
        clip = self.clips[index]
        places = self.corners[index]
        part, place = divmod(
            number - int(self.ends[index - 1] if index else 0), len(places)
        )
        row, column = places[place].tolist()
        span = slice(part * self.frames, (part + 1) * self.frames)
        square = clip[span, row : row + self.patch, column : column + self.patch]
        return square.reshape(self.frames, -1)

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield all groups in order, (size, frames, N) uint8; the last part may be smaller."""
        for first in range(0, len(self), size):
            numbers = range(first, min(first + size, len(self)))
            yield torch.stack([self.group(number) for number in numbers])


class EpochSource(BatchSource):
    """Batches of groups: every epoch has each group once, in an order that depends on the seed."""

    def __init__(self, groups: ClipGroups, sigma: tuple[float, ...], seed: int) -> None:
        self.groups = groups
        self.sigma = sigma
        self.seed = seed

    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Tensor, float]:
        """Return clean groups (size, T, N) on the 0-255 scale and their noise level, for all processes alike,
        as `GroupPool.batch` does.
        """
        # the level of noise and the groups follow from the step
        rng = np.random.default_rng((self.seed, 1, step))
        low = self.sigma[0]
        high = self.sigma[-1]
        sigma = (
            math.exp(rng.uniform(math.log(low), math.log(high))) if high > low else low
        )
        count = len(self.groups)
        places = (
            divmod(position, count)
            for position in range(step * size, (step + 1) * size)
        )
        groups = [
            self.groups.group(int(_order(self.seed, epoch, count)[index]))
            for epoch, index in places
        ]
        return torch.stack(groups).float(), sigma


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the order of the groups in an epoch."""
    return np.random.default_rng((seed, 3, epoch)).permutation(count)


def set_groups(
    config: RunConfig, network: nn.Module, reading: Reading
) -> tuple[EpochSource, ClipGroups]:
    """Return training and held-out groups of a dataset. Raises ConfigError for a stride larger than the
    network's patch, DatasetError for missing clips, and for ones shorter than a group.
    """
    # the same patch for the data and the network
    data = cast("GroupSetConfig", config.data)
    training = cast("TrainingConfig", config.training)
    patch = cast("GroupNetwork", network).config.patch
    if data.stride > patch:
        raise ConfigError(
            f"{config.path}, [data]: stride must be at most the patch's {patch} pixels, found {data.stride}"
        )
    # clips of the splits that are named, or a share of those to train on
    root = config.folder / data.folder
    training_clips: Any = find(data.dataset, root, data.split)
    held_out: list[Any] = [
        clip for name, part in data.validation_sets for clip in find(name, root, part)
    ]
    if not held_out:
        training_clips, held_out = divided(training_clips, data.validation_share)
    groups, held_out_groups = (
        _groups_of(clips, data, patch)
        for clips in (training_clips, held_out or training_clips)
    )
    epoch = len(groups) / training.batch
    trained = (
        f"{len(groups):,} groups of {data.frames} frames in {len(training_clips)} clips"
    )
    reading.notice(
        f"{trained}: an epoch is {epoch:,.0f} steps; {len(held_out_groups):,} groups in {len(held_out)} "
        "clips are held out"
    )
    return EpochSource(groups, training.sigma, training.seed), held_out_groups


def divided(
    clips: Sequence[FrameSequence], share: float
) -> tuple[list[FrameSequence], list[FrameSequence]]:
    """Return the clips to train on and a share of them, rounded, to hold out; of two or more clips, unless
    the share is 0, at least one to each.
    """
    # at least one on each side, the same in every run
    count = min(max(round(share * len(clips)), int(share > 0)), len(clips) - 1)
    held_out = set(np.random.default_rng(0).permutation(len(clips))[:count].tolist())
    parts: tuple[list[FrameSequence], list[FrameSequence]] = [], []
    for number, clip in enumerate(clips):
        parts[number in held_out].append(clip)
    return parts


def _groups_of(
    clips: Sequence[FrameSequence], data: GroupSetConfig, patch: int
) -> ClipGroups:
    lines = datasets()[data.dataset].lines if data.lines is None else data.lines

    def read(clip: FrameSequence) -> Tensor:
        video = gray_video(clip, lines, data.most_frames)
        if len(video) < data.frames:
            raise DatasetError(
                f"{clip.clean_folder}: {clip.name} has {len(video)} frames, but [data] frames is "
                f"{data.frames}; set fewer"
            )
        return video

    with ThreadPoolExecutor(THREADS) as pool:
        return ClipGroups(list(pool.map(read, clips)), patch, data.stride, data.frames)
