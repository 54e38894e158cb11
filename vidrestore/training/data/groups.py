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

from vidrestore.degrade import add_gaussian_noise
from vidrestore.models.matching import Grid, fixed_places, gather, matched_places
from vidrestore.training.config import DataConfig
from vidrestore.training.data.batches import WHOLE, Share, Source, in_order
from vidrestore.training.data.footage import Footage, Window

NEAR = 1.2  # a batch of one noise level takes groups that were matched at up to so many times more or less


@dataclass(frozen=True)
class WindowGroups:
    """Clean groups (P, T, N) uint8 of the window `number` of a run, and the noise level that their places
    were found at.
    """

    number: int
    sigma: float
    groups: Tensor


class GroupPool(Source):
    """The groups of some windows, renewed little by little, and batches drawn from them.

    A batch takes groups of nearly one noise level, so that the network is worked out for one level at a time.
    Every group is trained on about `reuse` times, each time with other noise, then a new window takes the
    place of the oldest.

    Nothing here depends on what was drawn before: a window follows from the seed and its number, a batch from
    the seed and its step. So a pool that is asked for step 5000 first, as when a run is resumed, makes the
    windows of that step and gives the same batch.
    """

    def __init__(
        self, footage: Footage, config: DataConfig, sigma: tuple[float, ...], patch: int, seed: int
    ) -> None:
        self.footage, self.config, self.sigma, self.patch, self.seed = footage, config, sigma, patch, seed
        self.capacity = config.pool // config.groups_per_window
        self.windows: list[WindowGroups] = []  # the latest, oldest first
        self._made: Generator[WindowGroups] | None = None  # by other processes

    def batches(
        self, steps: range, size: int, workers: int = 0, share: Share = WHOLE
    ) -> Generator[tuple[Any, ...]]:
        """As `Source.batches`; the processes make windows, which is what takes long."""
        if workers and steps:
            numbers = range(self._wanted(steps[0] * size).start, self._wanted(steps[-1] * size).stop)
            self._made = in_order(self._window, numbers, workers)
        try:
            yield from super().batches(steps, size, 0, share)
        finally:
            if self._made is not None:
                self._made.close()

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, float]:
        """(size, T, N) float clean groups on the 0-255 scale, flipped and turned at random, and their noise
        level.

        It is the whole batch for every process: the noise of one's share can only be drawn with that of the
        others.
        """
        self.advance(step * size)
        draw = np.random.default_rng((self.seed, 1, step))
        sigma = self.windows[draw.integers(len(self.windows))].sigma
        near = [window.groups for window in self.windows if sigma / NEAR <= window.sigma <= sigma * NEAR]
        chosen = [near[number] for number in draw.integers(len(near), size=size)]
        groups = torch.stack([groups[draw.integers(len(groups))] for groups in chosen])
        return turned(groups.float(), self.patch, draw), sigma

    def advance(self, drawn: int) -> None:
        """Bring the pool to where it stands once `drawn` groups were drawn: it begins a quarter full."""
        wanted = self._wanted(drawn)
        ready = {window.number: window for window in self.windows if window.number in wanted}
        self.windows = [ready.get(number) or self._next(number) for number in wanted]

    def _wanted(self, drawn: int) -> range:
        """Numbers of the windows that the pool holds then."""
        stop = max(1, self.capacity // 4) + drawn // (self.config.reuse * self.config.groups_per_window)
        return range(max(0, stop - self.capacity), stop)

    def _next(self, number: int) -> WindowGroups:
        if self._made is None:
            return self._window(number)
        return next(window for window in self._made if window.number == number)  # a step may pass over some

    def _window(self, number: int) -> WindowGroups:
        draw = np.random.default_rng((self.seed, 0, number))
        low, high = self.sigma[0], self.sigma[-1]
        sigma = math.exp(draw.uniform(math.log(low), math.log(high))) if high > low else low
        window = self.footage.window(draw, self.patch)
        return WindowGroups(number, sigma, window_groups(window, sigma, self.config, self.patch, draw))


def window_groups(
    window: Window, sigma: float, config: DataConfig, patch: int, draw: np.random.Generator
) -> Tensor:
    """(P, T, N) uint8 clean groups of one window, their places found in its luma with noise of `sigma`.

    P is `config.groups_per_window`, or as many as a small window has.
    """
    luma, chroma = window[0].float(), window[1:]
    noisy = add_gaussian_noise(luma, sigma, int(draw.integers(2**62)))
    matched, stride = draw.random() < config.match_share, int(draw.choice(config.strides))
    count = config.groups_per_window
    share = round(config.chroma_share * count) if chroma and min(chroma[0].shape[1:]) >= patch else 0
    groups = [_drawn(window[0], noisy, stride, matched, patch, count - share, draw)]
    if share:
        plane = chroma[int(draw.integers(len(chroma)))]
        guide = F.interpolate(noisy[None], size=plane.shape[1:], mode="area")[0]
        groups.append(_drawn(plane, guide, stride, matched, patch, share, draw))
    return torch.cat(groups)


def _drawn(
    plane: Tensor,
    guide: Tensor,
    stride: int,
    matched: bool,
    patch: int,
    count: int,
    draw: np.random.Generator,
) -> Tensor:
    """Up to `count` groups (P, T, N) of a plane (T, H, W), their places found in a guide of its size."""
    grid = Grid(plane.shape[1], plane.shape[2], patch, stride)
    places = matched_places(guide, grid) if matched else fixed_places(len(plane), grid)
    chosen = draw.permutation(places.shape[1])[:count]
    return gather(plane, places[:, torch.from_numpy(chosen)], patch)


def held_out_groups(footage: Footage, config: DataConfig, patch: int, count: int) -> Tensor:
    """(count, T, N) uint8 groups to judge a network by, their places found at sigma 20: the same for every
    run of a configuration.
    """
    draw = np.random.default_rng(1)
    groups: list[Tensor] = []
    while sum(map(len, groups)) < count:
        groups.append(window_groups(footage.window(draw, patch), 20.0, config, patch, draw))
    return torch.cat(groups)[:count]


def turned(groups: Tensor, patch: int, draw: np.random.Generator) -> Tensor:
    """The whole batch (B, T, N) mirrored and transposed at random (the eight symmetries of a square), and
    reversed in time.
    """
    squares = groups.unflatten(-1, (patch, patch))
    squares = squares.flip([axis for axis in (1, 2, 3) if draw.random() < 0.5])
    transposed: Tensor = squares.transpose(2, 3) if draw.random() < 0.5 else squares
    return transposed.flatten(2)
