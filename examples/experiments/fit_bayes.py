#!/usr/bin/env python3
"""Fit the gains of non-local Bayes for single frames (vidrestore/models/bayes_gains.safetensors) on training
photos.

    fit_bayes.py GAINS.safetensors [--count 100] [--seed 1]

Half of the photos are in white noise whose sigma is known, the others in a camera's, which is measured. With
photos that a camera smooths, sharpens and codes, too (finished_noise.py), luma of real pairs is 0.2 dB worse.
An estimate is linear in the gains, and these are straight lines over the noise level, so that one solution of
least squares gives the twelve numbers of an estimate, one estimate after the other. The error of a plane
counts relative to that of the estimate before. The gains of clips stay as they are in the file; they were
fitted by gradients (this script in commit 65239a7), and least squares on 64 clips gave nothing on held-out
ones (31.54 dB by the old ones, 31.53; coarse noise 30.7 and 30.0).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fit_noise import Sources
from noise_mix import Planes, whole
from safetensors.torch import load_file, save_file
from torch import Tensor

from vidrestore.lab.degrade import DEGRADATIONS
from vidrestore.lab.degrade.counters import log_uniform
from vidrestore.models.dust_sigma import noise_level
from vidrestore.models.nonlocal_bayes import SIGMA_RANGES, Gains, nonlocal_bayes
from vidrestore.noise.meter import NoiseMeter
from vidrestore.pixels.colour import OPPONENT_NORMS, rgb_to_opponent
from vidrestore.restorers import denoise
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.settings.options import RestoreOptions

SCALE, SIDE = (0.4, 1.9), 192  # of photos
LEAST_ERROR = 0.05  # squared grey levels, added to errors
STAGES = 2


class Window(NamedTuple):
    """Planes (T, H, W) in noise and without it, and the sigma of each."""

    noisy: Planes
    clean: Planes
    sigma: tuple[float, ...]
    measured: bool


def photos(rng: np.random.Generator) -> Iterator[Window]:
    """Yield training photos, R, G, B as luma and colour differences."""
    sources = Sources(rng, held_out=False)
    while True:
        picture = sources.photo(SCALE, SIDE)
        clean = tuple((255 * picture).unbind(1))
        rgb = in_white_noise(clean, rng)
        sigma = tuple(
            level * norm for level, norm in zip(rgb.sigma, OPPONENT_NORMS, strict=True)
        )
        yield Window(
            rgb_to_opponent(rgb.noisy), rgb_to_opponent(clean), sigma, measured=False
        )
        camera = rgb_to_opponent(
            whole(tuple((255 * DEGRADATIONS["noise"](picture, rng)).unbind(1)))
        )
        yield Window(
            camera, rgb_to_opponent(clean), measured_sigma(camera), measured=True
        )


def in_white_noise(clean: Planes, rng: np.random.Generator) -> Window:
    """Return a window in white noise of the same sigma on all planes."""
    sigma = log_uniform(rng, SIGMA_RANGES["luma"])
    drawn = [
        torch.from_numpy(rng.standard_normal(tuple(plane.shape), np.float32))
        for plane in clean
    ]
    noisy = whole(
        tuple(plane + sigma * noise for plane, noise in zip(clean, drawn, strict=True))
    )
    return Window(noisy, clean, (sigma,) * len(clean), measured=False)


def measured_sigma(noisy: Planes) -> tuple[float, ...]:
    """Return the sigma of luma and colour differences as `denoise` takes it."""
    meter, planes = (
        NoiseMeter(len(noisy), colour=True),
        tuple(plane[0].numpy() for plane in noisy),
    )
    meter.add([planes])
    luma, chroma = meter.prior(planes[0])
    least = (
        level * norm
        for level, norm in zip((luma, chroma, chroma), OPPONENT_NORMS, strict=True)
    )
    return tuple(
        max(plane.sigma, level)
        for plane, level in zip(meter.noise(), least, strict=True)
    )


@dataclass
class Fit:
    """The normal equations of an estimate by kind, and the values (2, 6) of the estimates before it: constant
    and slope of each gain. The methods replace functions that the restorer calls.
    """

    values: dict[str, list[Tensor]] = field(default_factory=dict)
    equations: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    window: Window | None = None

    def bayes_gains(
        self, kind: str, stage: int, sigma: float, _: torch.device
    ) -> tuple[str, int, float]:
        low, high = SIGMA_RANGES[kind]
        return kind, stage, noise_level(min(max(sigma, low), high))

    def nonlocal_bayes(
        self,
        noisy: Tensor,
        estimate: Tensor,
        tracks: Tensor,
        side: int,
        noise: Any,
        gains: Any,
        *how: Any,
    ) -> Tensor:
        """Return an estimate by the values so far; collect the equations of the first one without."""
        (kind, stage, level), known = gains, self.values.setdefault(gains[0], [])

        def by(factors: Tensor) -> Tensor:
            return nonlocal_bayes(
                noisy, estimate, tracks, side, noise, Gains(*factors), *how
            )

        if stage < len(known):
            return by(known[stage][0] + level * known[stage][1])
        if stage == len(known):
            assert self.window is not None
            (clean,) = (
                clean
                for plane, clean in zip(*self.window[:2], strict=True)
                if plane is noisy
            )
            parts = (
                torch.stack([by(unit) - estimate for unit in torch.eye(6)])
                .flatten(1)
                .double()
            )
            self._collect(
                kind,
                torch.cat((parts, level * parts)),
                (clean - estimate).flatten().double(),
            )
        return estimate

    def _collect(self, kind: str, parts: Tensor, wanted: Tensor) -> None:
        weight = 1 / (wanted.square().sum() + LEAST_ERROR * len(wanted))
        zero = torch.zeros(12, 12).double(), torch.zeros(12).double()
        products, sums = self.equations.get(kind, zero)
        self.equations[kind] = (
            products + weight * parts @ parts.mT,
            sums + weight * parts @ wanted,
        )

    def solve(self, stage: int) -> None:
        """Add the values of the next estimate."""
        for kind, (products, sums) in self.equations.items():
            self.values[kind].append(
                torch.linalg.solve(products, sums).float().view(2, 6)
            )
            print(kind, stage, self.values[kind][-1].tolist(), flush=True)
        self.equations.clear()


def fit(windows: list[Window]) -> dict[str, Tensor]:
    """Return the gains (stages, 2, 6) of every kind."""
    state, restorer = Fit(), DenoiseRestorer(RestoreOptions())
    denoise.nonlocal_bayes, denoise.bayes_gains = (
        state.nonlocal_bayes,
        state.bayes_gains,
    )  # type: ignore
    for stage in range(STAGES):
        for window in windows:
            state.window = window
            with torch.inference_mode():
                restorer.restore(window.noisy, window.sigma, measured=window.measured)
        state.solve(stage)
    return {kind: torch.stack(values) for kind, values in state.values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gains", type=Path)
    parser.add_argument("--count", type=int, default=100, help="photos in noise")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    gains = load_file(given.gains) if given.gains.exists() else {}
    gains |= fit(list(islice(photos(np.random.default_rng(given.seed)), given.count)))
    save_file(
        gains, given.gains, metadata={"script": "examples/experiments/fit_bayes.py"}
    )


if __name__ == "__main__":
    main()
