#!/usr/bin/env python3
"""Fit the gains of non-local Bayes (vidrestore/models/bayes_gains.safetensors) on training clips and photos.

    fit_bayes.py GAINS.safetensors [--kinds clips,photos] [--count 160] [--seed 1]

Half of the windows are in white noise whose sigma is known; in the others noise is measured: of many kinds in
clips (noise_mix.py), a camera's in photos. With photos that a camera smooths, sharpens and codes, too
(finished_noise.py), luma of real pairs is 0.2 dB worse. An estimate is linear in the gains, and these are
straight lines over the noise level, so that one solution of least squares gives the twelve numbers of an
estimate, one estimate after the other. The error of a plane counts relative to that of the estimate before.
Sets of other kinds stay as they are in the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fit_noise import Sources, cut, footage_of
from noise_mix import Planes, noisy_window, whole
from safetensors.torch import load_file, save_file
from torch import Tensor

from vidrestore.colour import OPPONENT_NORMS, rgb_to_opponent
from vidrestore.degrade import DEGRADATIONS
from vidrestore.degrade.counters import log_uniform
from vidrestore.models.dust_sigma import noise_level
from vidrestore.models.grouping import GROUP
from vidrestore.models.nonlocal_bayes import SIGMA_RANGE, Gains, nonlocal_bayes
from vidrestore.noise.features import FRAMES_SEEN
from vidrestore.noise.meter import NoiseMeter
from vidrestore.options import RestoreOptions
from vidrestore.restorers import denoise
from vidrestore.restorers.denoise import DenoiseRestorer

LOOKS = (0, 8, 16)  # first frames by which the noise of a clip is measured
SCALE, SIDE = (0.4, 1.9), 192  # of photos
LEAST_ERROR = 0.05  # squared grey levels, added to errors
STAGES = 3


class Window(NamedTuple):
    """Planes (T, H, W) in noise and without it, and the sigma of each."""

    noisy: Planes
    clean: Planes
    sigma: tuple[float, ...]
    measured: bool


def clips(rng: np.random.Generator) -> Iterator[Window]:
    """Yield windows of training clips."""
    footage = footage_of(GROUP, held_out=False)
    while True:
        clean = cut(footage.window(rng, 128), rng, (144, 176))
        if clean is None or len(clean[0]) < GROUP:
            continue
        yield in_white_noise(clean, rng)
        noisy = noisy_window(clean, rng)
        if noisy.sigma != (0.0,) * 3:
            yield Window(noisy.seen, noisy.clean, measured_sigma(noisy.seen), measured=True)


def photos(rng: np.random.Generator) -> Iterator[Window]:
    """Yield training photos, R, G, B as luma and colour differences."""
    sources = Sources(rng, held_out=False)
    while True:
        picture = sources.photo(SCALE, SIDE)
        clean = tuple((255 * picture).unbind(1))
        rgb = in_white_noise(clean, rng)
        sigma = tuple(level * norm for level, norm in zip(rgb.sigma, OPPONENT_NORMS, strict=True))
        yield Window(rgb_to_opponent(rgb.noisy), rgb_to_opponent(clean), sigma, measured=False)
        camera = rgb_to_opponent(whole(tuple((255 * DEGRADATIONS["noise"](picture, rng)).unbind(1))))
        yield Window(camera, rgb_to_opponent(clean), measured_sigma(camera), measured=True)


def in_white_noise(clean: Planes, rng: np.random.Generator) -> Window:
    """Return a window in white noise of the same sigma on all planes."""
    sigma = log_uniform(rng, SIGMA_RANGE)
    drawn = [torch.from_numpy(rng.standard_normal(tuple(plane.shape), np.float32)) for plane in clean]
    noisy = whole(tuple(plane + sigma * noise for plane, noise in zip(clean, drawn, strict=True)))
    return Window(noisy, clean, (sigma,) * len(clean), measured=False)


def measured_sigma(noisy: Planes) -> tuple[float, ...]:
    """Return the sigma of each plane as `denoise` takes it; single frames are R, G, B."""
    meter = NoiseMeter(len(noisy), colour=True)
    frames = [tuple(part.numpy() for part in planes) for planes in zip(*noisy, strict=True)]
    for look in LOOKS if len(frames) > 1 else LOOKS[:1]:
        meter.add(frames[look : look + FRAMES_SEEN])
    luma, chroma = meter.prior(frames[0][0]) if len(frames) == 1 else (0.0, 0.0)
    least = (level * norm for level, norm in zip((luma, chroma, chroma), OPPONENT_NORMS, strict=True))
    return tuple(max(plane.sigma, level) for plane, level in zip(meter.noise(), least, strict=True))


@dataclass
class Fit:
    """The normal equations of an estimate by kind, and the values (2, 6) of the estimates before it: constant
    and slope of each gain. The methods replace functions that the restorer calls.
    """

    values: dict[str, list[Tensor]] = field(default_factory=dict)
    equations: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    window: Window | None = None

    def bayes_gains(self, kind: str, stage: int, sigma: float, _: torch.device) -> tuple[str, int, float]:
        low, high = SIGMA_RANGE
        return kind, stage, noise_level(min(max(sigma, low), high))

    def nonlocal_bayes(
        self, noisy: Tensor, estimate: Tensor, tracks: Tensor, side: int, noise: Any, gains: Any, *how: Any
    ) -> Tensor:
        """Return an estimate by the values so far; collect the equations of the first one without."""
        (kind, stage, level), known = gains, self.values.setdefault(gains[0], [])

        def by(factors: Tensor) -> Tensor:
            return nonlocal_bayes(noisy, estimate, tracks, side, noise, Gains(*factors), *how)

        if stage < len(known):
            return by(known[stage][0] + level * known[stage][1])
        if stage == len(known):
            assert self.window is not None
            (clean,) = (clean for plane, clean in zip(*self.window[:2], strict=True) if plane is noisy)
            parts = torch.stack([by(unit) - estimate for unit in torch.eye(6)]).flatten(1).double()
            self._collect(kind, torch.cat((parts, level * parts)), (clean - estimate).flatten().double())
        return estimate

    def _collect(self, kind: str, parts: Tensor, wanted: Tensor) -> None:
        weight = 1 / (wanted.square().sum() + LEAST_ERROR * len(wanted))
        zero = torch.zeros(12, 12).double(), torch.zeros(12).double()
        products, sums = self.equations.get(kind, zero)
        self.equations[kind] = products + weight * parts @ parts.mT, sums + weight * parts @ wanted

    def solve(self, stage: int) -> None:
        """Add the values of the next estimate."""
        for kind, (products, sums) in self.equations.items():
            self.values[kind].append(torch.linalg.solve(products, sums).float().view(2, 6))
            print(kind, stage, self.values[kind][-1].tolist(), flush=True)
        self.equations.clear()


def fit(windows: list[Window]) -> dict[str, Tensor]:
    """Return the gains (stages, 2, 6) of every kind."""
    state, restorer = Fit(), DenoiseRestorer(RestoreOptions())
    denoise.nonlocal_bayes, denoise.bayes_gains = state.nonlocal_bayes, state.bayes_gains  # type: ignore
    for stage in range(STAGES):
        for window in windows:
            state.window = window
            with torch.inference_mode():
                restorer.restore(window.noisy, window.sigma, measured=window.measured)
        state.solve(stage)
    return {kind: torch.stack(values) for kind, values in state.values.items()}


KINDS: dict[str, Callable[[np.random.Generator], Iterator[Window]]] = {"clips": clips, "photos": photos}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gains", type=Path)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--count", type=int, default=160, help="windows of a kind")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    gains = load_file(given.gains) if given.gains.exists() else {}
    for kind in given.kinds:
        windows = KINDS[kind](np.random.default_rng(given.seed))
        gains |= fit(list(islice(windows, given.count)))
    save_file(gains, given.gains, metadata={"script": "examples/experiments/fit_bayes.py"})


if __name__ == "__main__":
    main()
