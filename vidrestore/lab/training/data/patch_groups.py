"""Groups of clean patches to train on, chosen as the denoiser chooses them: by matching in noisy video."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade import add_gaussian_noise
from vidrestore.lab.run_config import DataConfig
from vidrestore.lab.training.data.batches import (
    WHOLE_BATCH,
    BatchSource,
    Share,
    in_order,
)
from vidrestore.lab.training.data.footage import Footage, Window
from vidrestore.models.grouping import origins_of, patches_at
from vidrestore.models.matching import Grid, fixed_positions, matched_positions

# a batch takes groups that were matched at its noise level within this factor
SIGMA_RATIO = 1.2


@dataclass(frozen=True)
class WindowGroups:
    """Clean groups (P, T, N) uint8 of window `number` of a run, matched at noise level `sigma`."""

    number: int
    sigma: float
    groups: Tensor


class GroupPool(BatchSource):
    """The groups of a number of windows, renewed one window at a time, and batches drawn from them.

    A batch takes groups of nearly one noise level, because the network is prepared for one level at a time.
    Every group is used about `reuse` times, each time with other noise; then a new window replaces the
    oldest.

    A window depends only on the seed and its number, a batch only on the seed and its step, not on earlier
    draws. So a pool that is asked for step 5000 first, as in a resumed run, makes the windows of that step
    and returns the same batch.
    """

    def __init__(
        self,
        footage: Footage,
        config: DataConfig,
        sigma: tuple[float, ...],
        patch: int,
        seed: int,
    ) -> None:
        self.footage = footage
        self.config = config
        self.sigma = sigma
        self.patch = patch
        self.seed = seed
        self.capacity = config.pool // config.groups_per_window
        self.windows: list[WindowGroups] = []  # the latest, oldest first
        self._prefetched: Generator[WindowGroups] | None = None  # by other processes

    def batches(
        self, steps: range, size: int, workers: int = 0, share: Share = WHOLE_BATCH
    ) -> Generator[tuple[Any, ...]]:
        """Yield batches as `BatchSource.batches` does; workers make windows, which takes most of the time."""
        if workers and steps:
            # the windows of all steps are known before
            first, last = (
                self._window_numbers(step * size) for step in (steps[0], steps[-1])
            )
            numbers = range(first.start, last.stop)
            self._prefetched = in_order(self._window, numbers, workers)
        try:
            yield from super().batches(steps, size, 0, share)
        finally:
            if self._prefetched is not None:
                self._prefetched.close()

    def batch(
        self, step: int, size: int, share: Share = WHOLE_BATCH
    ) -> tuple[Tensor, float]:
        """Return clean groups (size, T, N) on the 0-255 scale, flipped and transposed at random, and their
        noise level.

        Every process gets the whole batch, because the noise of one's share can only be drawn with that of
        the others.
        """
        # the pool of this step, then one level and groups near it
        self.advance(step * size)
        rng = np.random.default_rng((self.seed, 1, step))
        sigma = self.windows[rng.integers(len(self.windows))].sigma
        lowest, highest = sigma / SIGMA_RATIO, sigma * SIGMA_RATIO
        choices = [
            window.groups
            for window in self.windows
            if lowest <= window.sigma <= highest
        ]
        windows = [choices[number] for number in rng.integers(len(choices), size=size)]
        groups = torch.stack([groups[rng.integers(len(groups))] for groups in windows])
        return turned(
            groups.float(), self.patch, rng, upright=self.config.upright
        ), sigma

    def advance(self, count: int) -> None:
        """Update the windows to those after `count` groups were drawn; the pool begins a quarter full."""
        # windows are renewed one by one, so that most of the pool stays
        numbers = self._window_numbers(count)
        ready = {
            window.number: window for window in self.windows if window.number in numbers
        }
        self.windows = [ready.get(number) or self._next(number) for number in numbers]

    def _window_numbers(self, count: int) -> range:
        """Return the numbers of the windows in the pool after `count` groups were drawn."""
        stop = max(1, self.capacity // 4) + count // (
            self.config.reuse * self.config.groups_per_window
        )
        return range(max(0, stop - self.capacity), stop)

    def _next(self, number: int) -> WindowGroups:
        if self._prefetched is None:
            return self._window(number)
        # a step may skip some
        return next(window for window in self._prefetched if window.number == number)

    def _window(self, number: int) -> WindowGroups:
        rng = np.random.default_rng((self.seed, 0, number))
        # everything about a window follows from its number
        low = self.sigma[0]
        high = self.sigma[-1]
        sigma = (
            math.exp(rng.uniform(math.log(low), math.log(high))) if high > low else low
        )
        window = self.footage.window(rng, self.patch)
        return WindowGroups(
            number, sigma, window_groups(window, sigma, self.config, self.patch, rng)
        )


def window_groups(
    window: Window,
    sigma: float,
    config: DataConfig,
    patch: int,
    rng: np.random.Generator,
) -> Tensor:
    """Return (P, T, N) uint8 clean groups of one window, matched in its luma with noise of `sigma`.

    P is `config.groups_per_window`, or fewer if the window is small.
    """
    # matched by noisy luma, as the denoiser matches
    luma = window[0].float()
    chroma = window[1:]
    noisy = add_gaussian_noise(luma, sigma, int(rng.integers(2**62)))
    matched = rng.random() < config.match_share
    stride = int(rng.choice(config.strides))
    count = config.groups_per_window
    # some groups are of chroma, matched by luma of its size
    share = (
        round(config.chroma_share * count)
        if chroma and min(chroma[0].shape[1:]) >= patch
        else 0
    )
    groups = [
        _random_groups(window[0], noisy, stride, matched, patch, count - share, rng)
    ]
    if share:
        plane = chroma[int(rng.integers(len(chroma)))]
        guide = F.interpolate(noisy[None], size=plane.shape[1:], mode="area")[0]
        groups.append(_random_groups(plane, guide, stride, matched, patch, share, rng))
    return torch.cat(groups)


def _random_groups(
    plane: Tensor,
    guide: Tensor,
    stride: int,
    matched: bool,
    patch: int,
    count: int,
    rng: np.random.Generator,
) -> Tensor:
    """Return up to `count` groups (P, T, N) of a plane (T, H, W), matched in a guide of its size."""
    # a random part of all groups of the plane
    grid = Grid(plane.shape[1], plane.shape[2], patch, stride)
    positions = (
        matched_positions(guide, grid) if matched else fixed_positions(len(plane), grid)
    )
    indices = torch.from_numpy(rng.permutation(positions.shape[1])[:count])
    origins = origins_of(positions[:, indices], plane.shape[1], plane.shape[2])
    return patches_at(plane.contiguous(), origins, patch)


def held_out_groups(
    footage: Footage, config: DataConfig, patch: int, count: int
) -> Tensor:
    """Return (count, T, N) uint8 groups for validation, matched at sigma 20; every run has the same."""
    rng = np.random.default_rng(1)
    groups: list[Tensor] = []
    while sum(map(len, groups)) < count:
        groups.append(
            window_groups(footage.window(rng, patch), 20.0, config, patch, rng)
        )
    return torch.cat(groups)[:count]


def turned(
    groups: Tensor, patch: int, rng: np.random.Generator, *, upright: bool = False
) -> Tensor:
    """Mirror and, unless `upright`, transpose (B, T, N) at random, by the eight symmetries of the square, and
    reverse time.
    """
    squares = groups.unflatten(-1, (patch, patch))
    squares = squares.flip([axis for axis in (1, 2, 3) if rng.random() < 0.5])
    transposed: Tensor = (
        squares.transpose(2, 3) if rng.random() < 0.5 and not upright else squares
    )
    return transposed.flatten(2)
