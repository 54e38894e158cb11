"""Clips of the papers' datasets to train super-resolution on: the same crop at high and at low resolution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vidrestore import datasets
from vidrestore.datasets import DatasetError, FrameSequence, Sequences
from vidrestore.degrade import imresize
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.training.data.batches import WHOLE, Share, Source
from vidrestore.training.data.paired_sets import map_in_threads
from vidrestore.training.data.pairs import quantised
from vidrestore.training.data.super_resolution import HeldOutClips, random_symmetry
from vidrestore.training.data_config import ClipSetConfig

MARGIN = 2  # low-resolution pixels around a crop that bicubic resizing depends on


class ClipSetSource(Source):
    """Batches of clips at low and at high resolution."""

    def __init__(self, clips: Sequences, config: ClipSetConfig, seed: int) -> None:
        self.clips, self.config, self.seed = clips, config, seed

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Return low-resolution (size, T, 3, S, S) and high-resolution (size, T, 3, 4S, 4S) clips, float32 in
        [0, 1].

        Raises as `random_set_clip` does.
        """
        draws = (
            np.random.default_rng((self.seed, 0, step, number)) for number in range(size)[share.of(size)]
        )
        small, large = zip(
            *map_in_threads(lambda rng: random_set_clip(self.clips, self.config, rng), draws), strict=True
        )
        return torch.stack(small), torch.stack(large)


def random_set_clip(
    clips: Sequences, config: ClipSetConfig, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return a random clip at low (T, 3, S, S) and at high resolution (T, 3, 4S, 4S), float32 in [0, 1],
    rounded to 8 bits.

    It is mirrored, transposed and reversed in time at random. Raises DatasetError for a clip with too few or
    too small frames, and for low-resolution frames that are not a quarter of the others' size.
    """
    clip = clips[int(rng.integers(len(clips)))]
    _check_frames(clip, config)
    first = int(rng.integers(len(clip) - config.frames + 1))
    chosen = slice(first, first + config.frames)
    large = datasets.read_frames(clip.clean[chosen])
    small = datasets.read_frames(clip.degraded[chosen]) if config.read_small else None
    height, width = _small_size(clip, config.crop, large, small)
    top, left = int(rng.integers(height - config.crop + 1)), int(rng.integers(width - config.crop + 1))
    low_resolution = (
        _downscaled_crop(large, top, left, config.crop)
        if small is None
        else _cut(small, top, left, config.crop) / 255
    )
    turn = random_symmetry(rng)
    return turn(low_resolution), turn(_cut(large, SCALE * top, SCALE * left, SCALE * config.crop) / 255)


def _check_frames(clip: FrameSequence, config: ClipSetConfig) -> None:
    if clip.video:
        raise DatasetError(
            f"{clip.clean[0]}: is a video file; to train on video files, set clips = their folder in [data]"
        )
    if len(clip) < config.frames:
        raise DatasetError(
            f"{clip.clean_folder}: {len(clip)} frames, but [data] frames is {config.frames}; set fewer"
        )
    if config.read_small and not clip.degraded:
        raise DatasetError(
            f"{clip.clean_folder}: has no low-resolution frames beside it; remove read_small from [data] to "
            "downscale these"
        )


def _small_size(clip: FrameSequence, crop: int, large: Tensor, small: Tensor | None) -> tuple[int, int]:
    """Return the rows and columns of the low-resolution frames."""
    height, width = (size // SCALE for size in large.shape[2:])
    if small is not None and tuple(small.shape[2:]) != (height, width):
        raise DatasetError(
            f"{clip.degraded_folder}: frames of {small.shape[3]}x{small.shape[2]}, but those of "
            f"{clip.clean_folder} are {large.shape[3]}x{large.shape[2]}; expected a quarter of that, "
            f"{width}x{height}"
        )
    if min(height, width) < crop:
        raise DatasetError(
            f"{clip.clean_folder}: a quarter of {large.shape[3]}x{large.shape[2]} is smaller than a crop of "
            f"{crop}x{crop}"
        )
    return height, width


def _cut(frames: Tensor, top: int, left: int, side: int) -> Tensor:
    return frames[:, :, top : top + side, left : left + side]


def _downscaled_crop(large: Tensor, top: int, left: int, side: int) -> Tensor:
    """Return a crop of the frames downscaled (bicubic, antialiased, in 8 bits) without downscaling whole
    frames; in [0, 1].
    """
    rows, columns = (max(0, place - MARGIN) for place in (top, left))
    stop_row, stop_column = (SCALE * (place + side + MARGIN) for place in (top, left))
    around = large[:, :, SCALE * rows : stop_row, SCALE * columns : stop_column] / 255
    return _cut(quantised(imresize(around, 1 / SCALE).clamp(0, 1)), top - rows, left - columns, side)


def clip_set_data(
    config: ClipSetConfig, folder: Path, seed: int, count: int
) -> tuple[ClipSetSource, HeldOutClips]:
    """Return training data, and `count` held-out clips, which are the same for every run. Raises
    DatasetError.
    """
    root = folder / config.folder
    trained = _found(config.dataset, root, config.split)
    validation = [_found(name, root, split) for name, split in config.validation_sets] or [trained]
    clips = [
        random_set_clip(validation[number % len(validation)], config, np.random.default_rng((1, number)))
        for number in range(count)
    ]
    small, large = (torch.stack(part).mul(255).round().to(torch.uint8) for part in zip(*clips, strict=True))
    return ClipSetSource(trained, config, seed), HeldOutClips(small, large)


def _found(name: str, root: Path, split: str) -> Sequences:
    found = datasets.find(name, root, split)
    assert isinstance(found, Sequences)
    return found
