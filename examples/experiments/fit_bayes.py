#!/usr/bin/env python3
"""Fit the gains of non-local Bayes (vidrestore/models/bayes_gains.safetensors) to training clips in noise.

    fit_bayes.py GAINS.safetensors [--count 160] [--steps 400] [--seed 1]

Windows of 20 frames are denoised up to the first estimate, half of them in white noise and half in measured
noise (`noise_mix.py`); then the gains of one estimate of luma after the other are fitted by gradients to the
error of the whole window. PSNR of clips that were not fitted to is printed beside that of non-local Bayes as
published.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from fit_noise import cut, footage_of
from noise_mix import Noisy, noisy_window
from safetensors.torch import save_file
from torch import Tensor

from vidrestore.models.grouping import GROUP
from vidrestore.models.nonlocal_bayes import SIGMA_RANGE, Gains, Noise, gains_of, nonlocal_bayes
from vidrestore.noise.features import FRAMES_SEEN
from vidrestore.noise.meter import NoiseMeter
from vidrestore.options import RestoreOptions
from vidrestore.restorers.denoise import LEAST_SAMPLES, PRESETS, DenoiseRestorer, FurtherEstimates, Refinement

RATE, WARM_UP = 0.04, 20  # of the optimiser
UNSEEN = 0.05  # squared grey levels: errors that much smaller hardly count
JUDGED = 24  # windows that are not fitted to
CHUNK = 200  # tracks filtered at once: gradients take all of them in memory anyway
SIDE = 16  # of a patch
LOOKS = (0, 8, 16)  # first frames by which noise is measured


class Sample(NamedTuple):
    """A clean plane, the same in noise, its latest estimate, that noise, and the tracks of each stage."""

    clean: Tensor
    noisy: Tensor
    estimate: Tensor
    noise: Noise
    tracks: Tensor


class Recorder(FurtherEstimates):
    """Keeps what non-local Bayes would be given, and leaves the first estimate."""

    seen: list[tuple[Tensor, Tensor, Noise, Tensor]]

    def nonlocal_estimate(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor:
        noise, tracks = self.noise(estimate, work), self.nonlocal_tracks(work)
        self.seen.append((plane, estimate, noise, tracks))
        return estimate


def samples(count: int, seed: int, *, held_out: bool) -> list[Sample]:
    """Return samples of `count` windows."""
    footage, rng = footage_of(GROUP, held_out=held_out), np.random.default_rng(seed)
    made: list[Sample] = []
    for white in (True, False):
        restorer = DenoiseRestorer(RestoreOptions())
        usual = restorer.further
        recorder = Recorder("default", usual.patch, usual.device)
        restorer.further, windows = recorder, 0
        while windows < count // 2:
            window = cut(footage.window(rng, 128), rng)
            if window is None or len(window[0]) < GROUP:
                continue
            noisy = in_white_noise(window, rng) if white else noisy_window(window, rng)
            sigma = noisy.sigma if white and noisy.sigma else found_sigma(noisy)
            if not sigma[0] or (not white and noisy.sigma and not any(noisy.sigma)):
                continue
            windows, recorder.seen = windows + 1, []
            with torch.inference_mode():
                restorer.restore(noisy.seen, sigma, measured=not white)
            clean = [plane for plane, level in zip(noisy.clean, sigma, strict=True) if level]
            kept = [Sample(plane, *seen) for plane, seen in zip(clean, recorder.seen, strict=True)]
            made.append(kept[0])
    return [Sample(*(each.clone() if isinstance(each, Tensor) else each for each in one)) for one in made]


def in_white_noise(clean: tuple[Tensor, ...], rng: np.random.Generator) -> Noisy:
    """Return a window in white noise of the same sigma on all planes."""
    sigma = math.exp(rng.uniform(*(math.log(each) for each in SIGMA_RANGE)))
    drawn = [torch.from_numpy(rng.standard_normal(tuple(plane.shape), np.float32)) for plane in clean]
    seen = tuple(
        (plane + sigma * noise).round().clamp(0, 255) for plane, noise in zip(clean, drawn, strict=True)
    )
    return Noisy(seen, tuple(plane.float() for plane in clean), (sigma,) * len(clean))


def found_sigma(noisy: Noisy) -> tuple[float, ...]:
    """Return the sigma of each plane as `denoise` measures it."""
    meter = NoiseMeter(3, colour=True)
    frames = [tuple(plane.numpy() for plane in planes) for planes in zip(*noisy.seen, strict=True)]
    for look in LOOKS:
        meter.add(frames[look : look + FRAMES_SEEN])
    return tuple(each.sigma for each in meter.noise())


def estimated(sample: Sample, stage: int, values: Tensor) -> Tensor:
    """Return the estimate that follows a sample's, with gains of `values`."""
    made, tracks = Gains(*gains_of(values, sample.noise.sigma)), sample.tracks[stage]
    return nonlocal_bayes(
        sample.noisy, sample.estimate, tracks, SIDE, sample.noise, made, LEAST_SAMPLES, chunk=CHUNK
    )


def published() -> Tensor:
    """Return the values of non-local Bayes as published: a and c are 1, all others 0."""
    return torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [0.0] * 6])


def loss_of(estimate: Tensor, clean: Tensor) -> Tensor:
    """Return the logarithm of the mean squared error."""
    return ((estimate.clamp(0, 255) - clean).square().mean() + UNSEEN).log()


def fit(fitted: Sequence[Sample], stage: int, start: Tensor, steps: int) -> Tensor:
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


@torch.no_grad()
def moved(part: Sequence[Sample], stage: int, values: Tensor) -> list[Sample]:
    """Return samples with the estimates that follow."""
    return [each._replace(estimate=estimated(each, stage, values)) for each in part]


def stages(fitted: list[Sample], judged: list[Sample], count: int, steps: int) -> Iterator[Tensor]:
    """Yield the values of one stage after the other, each fitted to what the one before made."""
    values = published()
    for stage in range(count):
        values = fit(fitted, stage, values, steps)
        before, best = (
            np.mean([psnr(each) for each in moved(judged, stage, tried)]) for tried in (published(), values)
        )
        print(f"  stage {stage}: {before:.2f} dB as published, {best:.2f} fitted", flush=True)
        fitted, judged = (moved(part, stage, values) for part in (fitted, judged))
        yield values


def psnr(sample: Sample) -> float:
    return 10 * math.log10(255**2 / math.exp(loss_of(sample.estimate, sample.clean)))


def store(path: Path, tensors: dict[str, Tensor], script: str) -> None:
    """Write fitted tensors with the name of their script."""
    save_file(tensors, path, metadata={"script": f"examples/experiments/{Path(script).name}"})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gains", type=Path)
    parser.add_argument("--count", type=int, default=160, help="windows that are fitted to")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    fitted = samples(given.count, given.seed, held_out=False)
    judged = samples(JUDGED, given.seed, held_out=True)
    count = PRESETS["default"].passes[0]
    found = list(stages(fitted, judged, count, given.steps))
    store(given.gains, {"gains": torch.stack(found)}, __file__)


if __name__ == "__main__":
    main()
