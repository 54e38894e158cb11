"""Groups of clean patches to train on, chosen as the denoiser will choose them: by matching in noisy video."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.degrade import add_gaussian_noise
from vidrestore.models.matching import Grid, fixed_places, gather, matched_places
from vidrestore.training.config import DataConfig
from vidrestore.training.footage import Footage, Window


class GroupPool:
    """Clean groups (P, T, N) uint8 with the noise level they were matched at, kept sorted by it; renewed little by little.

    A batch takes groups of nearly one noise level, so that the network is worked out for one level at a time. Every group is trained on
    about `reuse` times, each time with other noise, then a window of new ones takes the place of the oldest.
    """

    def __init__(self, footage: Footage, config: DataConfig, sigma: tuple[float, ...], patch: int, seed: int) -> None:
        self.footage, self.config, self.sigma, self.patch = footage, config, sigma, patch
        self.draw = np.random.default_rng(seed)
        self.groups = torch.empty(0, footage.frames, patch**2, dtype=torch.uint8)
        self.levels = torch.empty(0)
        self.ages = torch.empty(0)
        self.taken = 0
        self.windows = 0

    def fill(self, groups: int) -> None:
        while len(self.groups) < min(groups, self.config.pool):
            self._renew()

    def batch(self, size: int) -> tuple[Tensor, float]:
        """(size, T, N) float clean groups, flipped and turned at random, and their noise level."""
        while self.taken >= self.config.reuse * self.config.groups_per_window or not len(self.groups):
            self._renew()
            self.taken -= self.config.reuse * self.config.groups_per_window
        self.taken += size
        span = min(len(self.groups), max(size, len(self.groups) // 40))
        first = int(self.draw.integers(len(self.groups) - span + 1))
        chosen = torch.from_numpy(first + self.draw.integers(span, size=size))
        level = float(self.levels[first + span // 2])
        return turned(self.groups[chosen].float(), self.patch, self.draw), level

    def _renew(self) -> None:
        """Add the groups of one window; drop the oldest beyond the pool's size; sort by noise level."""
        level = self._level()
        fresh = window_groups(self.footage.window(self.draw), level, self.config, self.patch, self.draw)
        self.windows += 1
        groups, levels = torch.cat([self.groups, fresh]), torch.cat([self.levels, torch.full((len(fresh),), level)])
        ages = torch.cat([self.ages, torch.full((len(fresh),), float(self.windows))])
        if len(groups) > self.config.pool:
            kept = torch.argsort(ages, descending=True, stable=True)[: self.config.pool]
            groups, levels, ages = groups[kept], levels[kept], ages[kept]
        order = torch.argsort(levels, stable=True)
        self.groups, self.levels, self.ages = groups[order], levels[order], ages[order]

    def _level(self) -> float:
        low, high = self.sigma[0], self.sigma[-1]
        return math.exp(self.draw.uniform(math.log(low), math.log(high))) if high > low else low


def window_groups(window: Window, sigma: float, config: DataConfig, patch: int, draw: np.random.Generator) -> Tensor:
    """(P, T, N) uint8 clean groups of one window, their places found in its luma with noise of `sigma`."""
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


def _drawn(plane: Tensor, guide: Tensor, stride: int, matched: bool, patch: int, count: int, draw: np.random.Generator) -> Tensor:
    grid = Grid(plane.shape[1], plane.shape[2], patch, stride)
    places = matched_places(guide, grid) if matched else fixed_places(len(plane), grid)
    chosen = draw.permutation(places.shape[1])[:count]
    return gather(plane, places[:, torch.from_numpy(chosen)], patch)


def turned(groups: Tensor, patch: int, draw: np.random.Generator) -> Tensor:
    """The whole batch mirrored and transposed at random (the eight symmetries of a square), and reversed in time."""
    squares = groups.unflatten(-1, (patch, patch))
    flips = [axis for axis in (1, 2, 3) if draw.random() < 0.5]
    squares = squares.flip(flips)
    turned_over: Tensor = squares.transpose(2, 3) if draw.random() < 0.5 else squares
    return turned_over.flatten(2)
