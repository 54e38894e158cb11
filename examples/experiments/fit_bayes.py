#!/usr/bin/env python3
"""Fit the gains of non-local Bayes (vidrestore/models/bayes_gains.json) to training clips in white noise.

    fit_bayes.py GAINS.json --quality default [--count 140] [--steps 420] [--seed 1]

Windows of 20 frames are denoised up to the second estimate of luma; then the gains of one estimate after the
other are fitted by gradients to the error of the whole window. GAINS.json keeps what it has of other
qualities. PSNR of clips that were not fitted to is printed beside that of non-local Bayes as published.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fit_noise import short
from fit_second import JUDGED, loss_of, noisy_windows, psnr
from torch import Tensor

from vidrestore.models.bayes_gains import SIGMA_RANGE, Gains, factors
from vidrestore.models.nonlocal_bayes import nonlocal_bayes
from vidrestore.options import RestoreOptions
from vidrestore.restorers import dust_restorer
from vidrestore.restorers.dust_restorer import PRESETS

RATE, WARM_UP = 0.04, 20  # of the optimiser
SIDE = 16  # of a patch
CHUNK = 200  # tracks filtered at once: gradients take all of them in memory anyway


class Sample(NamedTuple):
    """Luma in white noise, its latest estimate, and all else that `nonlocal_bayes` is given by stage."""

    clean: Tensor
    noisy: Tensor
    estimate: Tensor
    given: list[Any]  # tracks, noise and samples of every stage


def samples(count: int, seed: int, quality: str, *, held_out: bool) -> Iterator[Sample]:
    """Yield windows, recording what non-local Bayes is called with while it leaves the estimate as it is."""
    restorer = dust_restorer.DenoiseRestorer(RestoreOptions(quality=quality, sigma=20.0))
    seen: list[tuple[Any, ...]] = []

    def record(*given: Any) -> Tensor:
        seen.append(given)
        estimate: Tensor = given[1]
        return estimate

    dust_restorer.nonlocal_bayes = record
    for clean, noisy, sigma in noisy_windows(count, seed, SIGMA_RANGE, held_out=held_out):
        seen.clear()
        restorer.restore(noisy[:1], (sigma,))
        given = [(tracks, noise, patches) for _, _, tracks, _, noise, _, patches, *_ in seen]
        yield Sample(clean[0], noisy[0], seen[0][1], given)


def estimated(sample: Sample, stage: int, values: Tensor) -> Tensor:
    """Return the estimate that follows, with gains of `values`."""
    tracks, noise, patches = sample.given[stage]
    made = Gains(*factors(values, noise.sigma))
    return nonlocal_bayes(sample.noisy, sample.estimate, tracks, SIDE, noise, made, patches, chunk=CHUNK)


def published() -> Tensor:
    """Return the values of non-local Bayes as published: a and c are 1, all others 0."""
    return torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [0.0] * 6])


def fit(fitted: list[Sample], stage: int, start: Tensor, steps: int) -> Tensor:
    """Return the values that are best for the samples."""
    values = start.clone().requires_grad_()
    optimiser, rng = torch.optim.Adam([values], lr=RATE), np.random.default_rng(stage)
    order: list[int] = []
    for step in range(steps):
        order = order or rng.permutation(len(fitted)).tolist()
        sample = fitted[order.pop()]
        falling = (1 + math.cos(math.pi * step / steps)) / 2
        optimiser.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / WARM_UP) * falling
        optimiser.zero_grad()
        loss_of(estimated(sample, stage, values), sample.clean).backward()
        optimiser.step()
    return values.detach()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gains", type=Path)
    parser.add_argument("--quality", choices=tuple(PRESETS), required=True)
    parser.add_argument("--count", type=int, default=140, help="windows that are fitted to")
    parser.add_argument("--steps", type=int, default=420)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    fitted = list(samples(given.count, given.seed, given.quality, held_out=False))
    judged = list(samples(JUDGED, given.seed, given.quality, held_out=True))
    stages: list[Tensor] = []
    for stage in range(len(fitted[0].given)):
        stages.append(fit(fitted, stage, stages[-1] if stages else published(), given.steps))
        with torch.no_grad():
            before, best = (
                np.mean([psnr(estimated(each, stage, values), each.clean) for each in judged])
                for values in (published(), stages[-1])
            )
            print(f"stage {stage}: {before:.2f} dB as published, {best:.2f} fitted", flush=True)
            fitted, judged = (
                [each._replace(estimate=estimated(each, stage, stages[-1])) for each in part]
                for part in (fitted, judged)
            )
    stored = json.loads(given.gains.read_text()) if given.gains.exists() else {}
    stored[given.quality] = short([stage.tolist() for stage in stages])
    given.gains.write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
