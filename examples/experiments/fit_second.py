#!/usr/bin/env python3
"""Fit the gains of DUST's second estimate (vidrestore/models/second_gains.safetensors) to training clips in
white noise.

    fit_second.py GAINS.safetensors --quality default [--count 60] [--steps 120] [--seed 1]

Windows of 20 frames are denoised up to the first estimate; then the gains of luma and of colour differences,
of one estimate after the other, are fitted by gradients to the error of the whole window. GAINS.safetensors
keeps what it has of other qualities. PSNR of clips that were not fitted to is printed beside that of Wiener's
filter.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from fit_noise import cut, footage_of
from safetensors.torch import load_file, save_file
from torch import Tensor

from vidrestore.models.dust import Transform
from vidrestore.models.fast.linear import PlainLinear
from vidrestore.models.grouping import GROUP
from vidrestore.models.second_estimate import KNOTS, RANKS, SIDE, SIGMA_RANGE, gains_of, refine
from vidrestore.options import RestoreOptions
from vidrestore.restorers.denoise import PRESETS, DenoiseRestorer, FurtherEstimates, Refinement

RATE, WARM_UP = 0.02, 20  # of the optimiser
UNSEEN = 0.05  # squared grey levels: errors that much smaller hardly count
# Share of the fitted differences from Wiener's filter that is kept: clips that weren't fitted to are restored
# as well, those with fine texture better.
KEPT = 0.7
JUDGED = 12  # windows that are not fitted to
CHUNK = 200  # tracks filtered at once: gradients take all of them in memory anyway


class Sample(NamedTuple):
    """A plane in white noise, its latest estimate, and how it is estimated again: tracks and all else."""

    clean: Tensor
    noisy: Tensor
    estimate: Tensor
    tracks: list[Tensor]
    work: Refinement


class Recorder(FurtherEstimates):
    """Keeps what the second estimate would be made of, and leaves the first."""

    seen: list[tuple[Tensor, Tensor, list[Tensor], Refinement]]

    def refine_luma(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor:
        self.seen.append((plane, estimate, [work.grids[0, :, None]], work))
        return estimate

    def refine_colour(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor:
        self.seen.append((plane, estimate, self.colour_tracks(work, in_turn=True), work))
        return estimate


AnyRecorder = TypeVar("AnyRecorder", bound=FurtherEstimates)


def recorded(kind: type[AnyRecorder], options: RestoreOptions) -> tuple[DenoiseRestorer, AnyRecorder]:
    """Return a restorer whose further estimates are made, and kept, by a recorder."""
    restorer = DenoiseRestorer(options)
    usual = restorer.further
    recorder = kind(usual.quality, usual.patch, usual.device)
    restorer.further = recorder
    return restorer, recorder


def noisy_windows(
    count: int, seed: int, sigmas: tuple[float, float], *, held_out: bool
) -> Iterator[tuple[list[Tensor], tuple[Tensor, ...], float]]:
    """Yield the clean planes of windows, the same in white noise, and its sigma."""
    footage, rng = footage_of(GROUP, held_out=held_out), np.random.default_rng(seed)
    lowest, highest = (math.log(each) for each in sigmas)
    while count:
        window = cut(footage.window(rng, 128), rng)
        if window is None or len(window[0]) < GROUP:
            continue
        sigma = math.exp(rng.uniform(lowest, highest))
        clean = [plane.float() for plane in window]
        noisy = tuple(
            (plane + sigma * torch.from_numpy(rng.standard_normal(tuple(plane.shape), np.float32)))
            .round()
            .clamp(0, 255)
            for plane in clean
        )
        yield clean, noisy, sigma
        count -= 1


def samples(count: int, seed: int, quality: str, *, held_out: bool) -> Iterator[list[Sample]]:
    """Yield the samples of the three planes of one window after the other."""
    restorer, recorder = recorded(Recorder, RestoreOptions(quality=quality, sigma=20.0))
    for clean, noisy, sigma in noisy_windows(count, seed, SIGMA_RANGE, held_out=held_out):
        recorder.seen = []
        restorer.restore(noisy, (sigma,) * len(noisy))
        yield [Sample(plane, *kept) for plane, kept in zip(clean, recorder.seen, strict=True)]


def estimated(sample: Sample, stage: int, values: Tensor, transform: Transform) -> Tensor:
    """Return the estimate that follows, with gains of `values`."""
    work = sample.work
    return refine(
        sample.noisy,
        sample.estimate,
        work.sigma,
        sample.tracks[stage],
        transform,
        None,
        CHUNK,
        gains=gains_of(values, work.sigma, len(sample.noisy), transform.side),
    )


def loss_of(estimate: Tensor, clean: Tensor) -> Tensor:
    """Return the logarithm of the mean squared error."""
    return ((estimate.clamp(0, 255) - clean).square().mean() + UNSEEN).log()


def wieners() -> Tensor:
    """Return the values of Wiener's filter: b0 and c0 are 1, all others 0."""
    values = torch.zeros(4, 2, RANKS, len(KNOTS))
    values[[0, 2], 0] = 1
    return values


class Fitting(NamedTuple):
    """What is fitted: the values of the filter as published, the optimiser's rate, and the estimate that
    follows a sample's, by its stage and values. Samples have `clean` and `estimate`.
    """

    published: Tensor
    rate: float
    estimated: Callable[[Any, int, Tensor], Tensor]


def fit(fitted: list[Any], stage: int, start: Tensor, steps: int, fitting: Fitting) -> Tensor:
    """Return the values that are best for the samples."""
    values = start.clone().requires_grad_()
    optimiser, rng = torch.optim.Adam([values], lr=fitting.rate), np.random.default_rng(stage)
    order: list[int] = []
    for step in range(steps):
        order = order or rng.permutation(len(fitted)).tolist()
        sample = fitted[order.pop()]
        falling = (1 + math.cos(math.pi * step / steps)) / 2
        optimiser.param_groups[0]["lr"] = fitting.rate * min(1.0, (step + 1) / WARM_UP) * falling
        optimiser.zero_grad()
        loss_of(fitting.estimated(sample, stage, values), sample.clean).backward()
        optimiser.step()
    return values.detach()


def fit_in_turn(
    fitted: list[Any], judged: list[Any], count: int, steps: int, fitting: Fitting
) -> list[Tensor]:
    """Return the values of one stage after the other, each fitted to what the one before made."""
    stages: list[Tensor] = []
    for stage in range(count):
        start = stages[-1] if stages else fitting.published
        stages.append(fit(fitted, stage, start, steps, fitting))
        with torch.no_grad():
            before, best = (
                np.mean([psnr(fitting.estimated(each, stage, values), each.clean) for each in judged])
                for values in (fitting.published, stages[-1])
            )
            print(f"  stage {stage}: {before:.2f} dB as published, {best:.2f} fitted", flush=True)
            fitted, judged = (
                [each._replace(estimate=fitting.estimated(each, stage, stages[-1])) for each in part]
                for part in (fitted, judged)
            )
    return stages


def store(path: Path, tensors: dict[str, Tensor], script: str) -> None:
    """Write fitted tensors, with the name of their script, beside those that the file has."""
    kept = load_file(path) if path.exists() else {}
    metadata = {"script": f"examples/experiments/{Path(script).name}"}
    save_file(kept | tensors, path, metadata=metadata)


def psnr(estimate: Tensor, clean: Tensor) -> float:
    return 10 * math.log10(255**2 / math.exp(loss_of(estimate, clean)))


def arguments(doc: str | None, count: int, steps: int) -> argparse.Namespace:
    """Return what is given on the command line; `count` and `steps` are defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gains", type=Path)
    parser.add_argument("--quality", choices=tuple(PRESETS), required=True)
    parser.add_argument("--count", type=int, default=count, help="windows that are fitted to")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    given = arguments(__doc__, count=60, steps=120)
    transform = Transform(SIDE, torch.float32, PlainLinear, torch.device("cpu"))
    fitting = Fitting(wieners(), RATE, partial(estimated, transform=transform))
    fitted = list(samples(given.count, given.seed, given.quality, held_out=False))
    judged = list(samples(JUDGED, given.seed, given.quality, held_out=True))
    for colour in (False, True):
        name = f"{given.quality} colour" if colour else given.quality
        print(name)
        parts = (
            [each for window in part for each in window if (each.work.luma is not None) == colour]
            for part in (fitted, judged)
        )
        count = PRESETS[given.quality].second_colour.grids if colour else 1
        stages = fit_in_turn(*parts, count, given.steps, fitting)
        kept = [torch.lerp(wieners(), stage, KEPT) for stage in stages]
        store(given.gains, {name: torch.stack(kept)}, __file__)


if __name__ == "__main__":
    main()
