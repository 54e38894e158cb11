"""Pairs of the papers' datasets to train image networks on: the same crop of a degraded and a clean
picture.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vidrestore import datasets
from vidrestore.datasets import PairedImages
from vidrestore.training.data.batches import WHOLE, Share, Source
from vidrestore.training.data.footage import back_and_forth
from vidrestore.training.data.pairs import HeldOutPairs, turned
from vidrestore.training.data_config import PairSetConfig

T = TypeVar("T")
THREADS = min(8, os.cpu_count() or 1)  # for decoding pictures


class PairSetSource(Source):
    """Batches of degraded and clean crops."""

    def __init__(self, pairs: PairedImages, side: int, seed: int) -> None:
        self.pairs, self.side, self.seed = pairs, side, seed

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Return degraded and clean crops, (size, 3, S, S) float32 in [0, 1].

        Raises DatasetError or MediaError for a pair that can't be used.
        """
        draws = (
            np.random.default_rng((self.seed, 0, step, number)) for number in range(size)[share.of(size)]
        )
        crops = map_in_threads(lambda rng: random_set_pair(self.pairs, self.side, rng), draws)
        degraded, clean = zip(*crops, strict=True)
        return torch.stack(degraded), torch.stack(clean)


def random_set_pair(pairs: PairedImages, side: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return one crop (3, side, side) in [0, 1] of both pictures of a random pair, mirrored and transposed
    alike.

    Pictures smaller than the crop are reflected at the right and at the bottom.
    """
    both = torch.stack(datasets.read_pair(pairs[int(rng.integers(len(pairs)))]))
    places = (int(rng.integers(max(size - side, 0) + 1)) for size in both.shape[2:])
    rows, columns = (
        torch.from_numpy(back_and_forth(first + np.arange(side), size))
        for first, size in zip(places, both.shape[2:], strict=True)
    )
    degraded, clean = turned(both[:, :, rows][..., columns].float().div_(255), rng)
    return degraded, clean


def pair_set_data(
    config: PairSetConfig, folder: Path, seed: int, count: int
) -> tuple[PairSetSource, HeldOutPairs]:
    """Return training data, and `count` held-out crops of every validation set, the same for every run.
    Raises DatasetError.
    """
    root = folder / config.folder
    trained = _found(config.dataset, root, config.split)
    degraded, clean = {}, {}
    for validation in [_found(name, root, split) for name, split in config.validation_sets] or [trained]:
        crops = [
            random_set_pair(validation, config.crop, np.random.default_rng((1, number)))
            for number in range(count)
        ]
        stored = (torch.stack(part).mul(255).round().to(torch.uint8) for part in zip(*crops, strict=True))
        degraded[f"{validation.name} {validation.split}"], clean[f"{validation.name} {validation.split}"] = (
            stored
        )
    return PairSetSource(trained, config.crop, seed), HeldOutPairs(degraded, clean)


def _found(name: str, root: Path, split: str) -> PairedImages:
    found = datasets.find(name, root, split)
    assert isinstance(found, PairedImages)
    return found


def map_in_threads(work: Callable[[np.random.Generator], T], draws: Iterable[np.random.Generator]) -> list[T]:
    """Return `work` of every random generator, in order, computed in threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, draws))
