"""Clips to train super-resolution on from the papers' datasets: the same crop of large frames and of small
ones.
"""

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
from vidrestore.training.data.paired_sets import at_once
from vidrestore.training.data.pairs import as_stored
from vidrestore.training.data.super_resolution import HeldOutClips, drawn_symmetry
from vidrestore.training.data_config import ClipSetConfig

MARGIN = 2  # small pixels around a crop that bicubic resizing sees


class ClipSetSource(Source):
    """Batches of clips small and large."""

    def __init__(self, clips: Sequences, config: ClipSetConfig, seed: int) -> None:
        self.clips, self.config, self.seed = clips, config, seed

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Small (size, T, 3, S, S) and large (size, T, 3, 4S, 4S), float32 in [0, 1]. Raises as
        `drawn_set_clip` does.
        """
        draws = (
            np.random.default_rng((self.seed, 0, step, number)) for number in range(size)[share.of(size)]
        )
        small, large = zip(
            *at_once(lambda draw: drawn_set_clip(self.clips, self.config, draw), draws), strict=True
        )
        return torch.stack(small), torch.stack(large)


def drawn_set_clip(
    clips: Sequences, config: ClipSetConfig, draw: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """One clip small (T, 3, S, S) and large, both as 8 bits hold them; mirrored, turned and reversed in time
    at random.

    Raises DatasetError for a clip with too few or too small frames, and for small frames of another size than
    a quarter.
    """
    clip = clips[int(draw.integers(len(clips)))]
    _check_frames(clip, config)
    first = int(draw.integers(len(clip) - config.frames + 1))
    chosen = slice(first, first + config.frames)
    large = datasets.read_frames(clip.clean[chosen])
    small = datasets.read_frames(clip.degraded[chosen]) if config.read_small else None
    height, width = _small_size(clip, config.crop, large, small)
    top, left = int(draw.integers(height - config.crop + 1)), int(draw.integers(width - config.crop + 1))
    shrunk = (
        _made_small(large, top, left, config.crop)
        if small is None
        else _cut(small, top, left, config.crop) / 255
    )
    turn = drawn_symmetry(draw)
    return turn(shrunk), turn(_cut(large, SCALE * top, SCALE * left, SCALE * config.crop) / 255)


def _check_frames(clip: FrameSequence, config: ClipSetConfig) -> None:
    if clip.video:
        raise DatasetError(f"{clip.clean[0]}: is a video file; train on such by clips = its folder in [data]")
    if len(clip) < config.frames:
        raise DatasetError(
            f"{clip.clean_folder}: {len(clip)} frames, but frames = {config.frames} in [data]; ask for fewer"
        )
    if config.read_small and not clip.degraded:
        raise DatasetError(
            f"{clip.clean_folder}: has no small frames beside it; leave out read_small in [data], and they "
            "are made"
        )


def _small_size(clip: FrameSequence, crop: int, large: Tensor, small: Tensor | None) -> tuple[int, int]:
    """Rows and columns of the small frames."""
    height, width = (size // SCALE for size in large.shape[2:])
    if small is not None and tuple(small.shape[2:]) != (height, width):
        raise DatasetError(
            f"{clip.degraded_folder}: frames of {small.shape[3]}x{small.shape[2]}, but those of "
            f"{clip.clean_folder} are"
            f" {large.shape[3]}x{large.shape[2]}; expected a quarter of that, {width}x{height}"
        )
    if min(height, width) < crop:
        raise DatasetError(
            f"{clip.clean_folder}: a quarter of {large.shape[3]}x{large.shape[2]} holds no crop of "
            f"{crop}x{crop}"
        )
    return height, width


def _cut(frames: Tensor, top: int, left: int, side: int) -> Tensor:
    return frames[:, :, top : top + side, left : left + side]


def _made_small(large: Tensor, top: int, left: int, side: int) -> Tensor:
    """The crop that whole frames resized (bicubic, antialiased, in 8 bits) have at a place; in [0, 1]."""
    rows, columns = (max(0, place - MARGIN) for place in (top, left))
    stop_row, stop_column = (SCALE * (place + side + MARGIN) for place in (top, left))
    around = large[:, :, SCALE * rows : stop_row, SCALE * columns : stop_column] / 255
    return _cut(as_stored(imresize(around, 1 / SCALE).clamp(0, 1)), top - rows, left - columns, side)


def clip_set_data(
    config: ClipSetConfig, folder: Path, seed: int, count: int
) -> tuple[ClipSetSource, HeldOutClips]:
    """Return training data, and `count` held-out clips of what is judged, the same for every run. Raises
    DatasetError.
    """
    root = folder / config.folder
    trained = _found(config.dataset, root, config.split)
    judged = [_found(name, root, split) for name, split in config.judged] or [trained]
    clips = [
        drawn_set_clip(judged[number % len(judged)], config, np.random.default_rng((1, number)))
        for number in range(count)
    ]
    small, large = (torch.stack(part).mul(255).round().to(torch.uint8) for part in zip(*clips, strict=True))
    return ClipSetSource(trained, config, seed), HeldOutClips(small, large)


def _found(name: str, root: Path, split: str) -> Sequences:
    found = datasets.find(name, root, split)
    assert isinstance(found, Sequences)
    return found
