"""Crops of the papers' datasets to train on: pairs of pictures, and clips at low and at high resolution."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vidrestore.errors import DatasetError
from vidrestore.lab.degrade import imresize
from vidrestore.lab.papers.dataset_files import (
    FrameSequence,
    PairedImages,
    Sequences,
    read_frames,
    read_pair,
)
from vidrestore.lab.papers.datasets import find
from vidrestore.lab.papers.rgb_protocols import picture_psnr
from vidrestore.lab.run_config import ClipSetConfig, PairSetConfig, SetConfig
from vidrestore.lab.training.data.batches import WHOLE_BATCH, BatchSource, Share
from vidrestore.lab.training.data.footage import back_and_forth
from vidrestore.lab.training.data.pairs import (
    HeldOutPictures,
    quantised,
    stacked_bytes,
    turned,
)
from vidrestore.lab.training.data.super_resolution import HeldOutClips, random_symmetry
from vidrestore.models.vsr_transformer import SCALE

# low-resolution pixels around a crop that bicubic resizing depends on
RESIZING_MARGIN = 2
THREADS = min(8, os.cpu_count() or 1)  # for decoding pictures


class SetSource(BatchSource):
    """Batches of pairs of crops, degraded or small, and clean or large; `draw` makes one pair."""

    def __init__(
        self, draw: Callable[[np.random.Generator], tuple[Tensor, Tensor]], seed: int
    ) -> None:
        self.draw = draw
        self.seed = seed

    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Tensor, Tensor]:
        """Return both crops of each pair, (size, ...) float32 in [0, 1] each."""
        draws = (
            np.random.default_rng((self.seed, 0, step, number))
            for number in range(size)[share.of(size)]
        )
        with ThreadPoolExecutor(THREADS) as pool:
            degraded, clean = zip(*pool.map(self.draw, draws), strict=True)
        return torch.stack(degraded), torch.stack(clean)


def set_data(
    config: SetConfig, folder: Path, task: str, seed: int, count: int
) -> tuple[SetSource, HeldOutPictures | HeldOutClips]:
    """Return training data, and held-out data, the same for every run: the pictures of every validation set,
    or without one `count` of the training set; or half as many crops of clips. Raises DatasetError.
    """
    root = folder / config.folder
    training: Any = find(config.dataset, root, config.split)
    validation: list[Any] = [
        find(name, root, split) for name, split in config.validation_sets
    ] or [training]
    if isinstance(config, ClipSetConfig):
        clips = []
        for number in range(count // 2):
            rng = np.random.default_rng((1, number))
            clips.append(
                random_set_clip(validation[number % len(validation)], config, rng)
            )
        return SetSource(
            partial(random_set_clip, training, config), seed
        ), HeldOutClips(*_stored(clips))
    assert isinstance(config, PairSetConfig)
    _check_separate(config, training, validation)
    source = SetSource(partial(random_set_pair, training, config.crop), seed)
    most = config.validation_pictures if config.validation else count
    return source, whole_pictures(validation, task, most)


def _check_separate(
    config: SetConfig, training: PairedImages, validation: Sequence[PairedImages]
) -> None:
    """Raise DatasetError for a test set that would be read from the pictures of the training set, as if its
    own were missing.
    """
    trained = {training.root / degraded for degraded, _ in training.files}
    for pictures in validation:
        # the training set may be named itself
        if (pictures.name, pictures.split) == (config.dataset, config.split):
            continue
        shared = trained & {pictures.root / degraded for degraded, _ in pictures.files}
        if shared:
            raise DatasetError(
                f"{min(shared)}: would be trained on as {config.dataset} and judged on as {pictures.name}; "
                "name the folder that holds both sets, each in a folder of its own, or other sets with "
                "`data.validation`"
            )


def whole_pictures(
    datasets: Sequence[PairedImages], task: str, most: int
) -> HeldOutPictures:
    """Return the pictures of test sets, at most `most` of each unless that is 0, and their PSNR as the tables
    of the papers have it for a task.
    """
    # pictures spread evenly over each test set
    pairs = {}
    for dataset in datasets:
        count = min(most or len(dataset), len(dataset))
        spread = [index * len(dataset) // count for index in range(count)]
        pairs[f"{dataset.name} {dataset.split}"] = [dataset[index] for index in spread]
    counts = {name: len(pictures) for name, pictures in pairs.items()}
    return HeldOutPictures(
        counts,
        lambda name, index: read_pair(pairs[name][index]),
        partial(picture_psnr, task),
    )


def _stored(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return all first and all second crops as uint8."""
    one, other = map(stacked_bytes, zip(*pairs, strict=True))
    return one, other


def random_set_pair(
    pairs: PairedImages, side: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return a crop (3, side, side) in [0, 1] of both pictures of a random pair, turned alike; smaller ones
    are reflected at the right and bottom.
    """
    # both pictures are cropped and turned alike
    pair = torch.stack(read_pair(pairs[int(rng.integers(len(pairs)))]))
    height, width = pair.shape[2:]
    top, left = (int(rng.integers(max(size - side, 0) + 1)) for size in (height, width))
    rows = torch.from_numpy(back_and_forth(top + np.arange(side), height))
    columns = torch.from_numpy(back_and_forth(left + np.arange(side), width))
    crops = pair[:, :, rows][..., columns]
    degraded, clean = turned(crops.float().div_(255), rng)
    return degraded, clean


def random_set_clip(
    clips: Sequences, config: ClipSetConfig, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return a random clip (T, 3, S, S) and (T, 3, 4S, 4S), float32 in [0, 1], rounded to 8 bits, mirrored,
    transposed and reversed in time at random. Raises DatasetError for too few or too small frames, and for
    low-resolution frames that are not a quarter of the others' size.
    """
    clip = clips[int(rng.integers(len(clips)))]
    # a place that both sizes have
    _check_frames(clip, config)
    first = int(rng.integers(len(clip) - config.frames + 1))
    span = slice(first, first + config.frames)
    large = read_frames(clip.clean[span])
    small = read_frames(clip.degraded[span]) if config.read_small else None
    height, width = _small_size(clip, config.crop, large, small)
    top = int(rng.integers(height - config.crop + 1))
    left = int(rng.integers(width - config.crop + 1))
    # the release's own small frames, or ours
    low_resolution = (
        _downscaled_crop(large, top, left, config.crop)
        if small is None
        else _cut(small, top, left, config.crop) / 255
    )
    turn = random_symmetry(rng)
    return turn(low_resolution), turn(
        _cut(large, SCALE * top, SCALE * left, SCALE * config.crop) / 255
    )


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


def _small_size(
    clip: FrameSequence, crop: int, large: Tensor, small: Tensor | None
) -> tuple[int, int]:
    """Return the rows and columns of the low-resolution frames."""
    height, width = (size // SCALE for size in large.shape[2:])
    size = f"{large.shape[3]}x{large.shape[2]}"
    if small is not None and tuple(small.shape[2:]) != (height, width):
        raise DatasetError(
            f"{clip.degraded_folder}: frames of {small.shape[3]}x{small.shape[2]}, but those of "
            f"{clip.clean_folder} are {size}; expected a quarter of that, {width}x{height}"
        )
    if min(height, width) < crop:
        raise DatasetError(
            f"{clip.clean_folder}: a quarter of {size} is smaller than a crop of {crop}x{crop}"
        )
    return height, width


def _cut(frames: Tensor, top: int, left: int, side: int) -> Tensor:
    return frames[:, :, top : top + side, left : left + side]


def _downscaled_crop(large: Tensor, top: int, left: int, side: int) -> Tensor:
    """Return a bicubically downscaled crop, 8 bits in [0, 1], without downscaling whole frames."""
    # with a margin, so that the crop's own border is right
    rows, columns = (max(0, place - RESIZING_MARGIN) for place in (top, left))
    stop_row, stop_column = (
        SCALE * (place + side + RESIZING_MARGIN) for place in (top, left)
    )
    window = large[:, :, SCALE * rows : stop_row, SCALE * columns : stop_column] / 255
    return _cut(
        quantised(imresize(window, 1 / SCALE).clamp(0, 1)),
        top - rows,
        left - columns,
        side,
    )
