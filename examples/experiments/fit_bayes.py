#!/usr/bin/env python3
"""Fit the gains of non-local Bayes (vidrestore/models/bayes_gains.safetensors) to training clips in white
noise.

    fit_bayes.py GAINS.safetensors --quality default [--count 140] [--steps 420] [--seed 1]

Windows of 20 frames are denoised up to the second estimate of luma; then the gains of one estimate after the
other are fitted by gradients to the error of the whole window. GAINS.safetensors keeps what it has of other
qualities. PSNR of clips that were not fitted to is printed beside that of non-local Bayes as published.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from fit_second import CHUNK, JUDGED, Fitting, arguments, fit_in_turn, noisy_windows, recorded, store
from torch import Tensor

from vidrestore.models.nonlocal_bayes import SIGMA_RANGE, Gains, Noise, gains_of, nonlocal_bayes
from vidrestore.options import RestoreOptions
from vidrestore.restorers.denoise import PRESETS, FurtherEstimates, Refinement

RATE = 0.04  # of the optimiser
SIDE = 16  # of a patch


class Sample(NamedTuple):
    """Luma in white noise, its latest estimate, how it is estimated again, and the tracks by stage."""

    clean: Tensor
    noisy: Tensor
    estimate: Tensor
    work: Refinement
    tracks: Tensor


class Recorder(FurtherEstimates):
    """Keeps what non-local Bayes would be given, and leaves the estimate before it."""

    seen: tuple[Tensor, Tensor, Refinement, Tensor]

    def nonlocal_estimate(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor:
        self.seen = plane, estimate, work, self.nonlocal_tracks(work, len(plane))
        return estimate

    def correct(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor:
        return estimate


def samples(count: int, seed: int, quality: str, *, held_out: bool) -> Iterator[Sample]:
    """Yield the samples of the luma of one window after the other."""
    restorer, recorder = recorded(Recorder, RestoreOptions(quality=quality, sigma=20.0))
    for clean, noisy, sigma in noisy_windows(count, seed, SIGMA_RANGE, held_out=held_out):
        restorer.restore(noisy[:1], (sigma,))
        yield Sample(clean[0], *recorder.seen)


def estimated(sample: Sample, stage: int, values: Tensor, patches: int) -> Tensor:
    """Return the estimate that follows, with gains of `values`, from as many patches in every frame."""
    sigma = sample.work.sigma
    made = Gains(*gains_of(values, sigma))
    noise, tracks = Noise(sigma), sample.tracks[stage]
    return nonlocal_bayes(sample.noisy, sample.estimate, tracks, SIDE, noise, made, patches, chunk=CHUNK)


def published() -> Tensor:
    """Return the values of non-local Bayes as published: a and c are 1, all others 0."""
    return torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [0.0] * 6])


def main() -> None:
    given = arguments(__doc__, count=140, steps=420)
    second = PRESETS[given.quality].second
    fitting = Fitting(published(), RATE, partial(estimated, patches=second.samples))
    fitted = list(samples(given.count, given.seed, given.quality, held_out=False))
    judged = list(samples(JUDGED, given.seed, given.quality, held_out=True))
    stages = fit_in_turn(fitted, judged, second.estimates, given.steps, fitting)
    store(given.gains, {given.quality: torch.stack(stages)}, __file__)


if __name__ == "__main__":
    main()
