#!/usr/bin/env python3
"""Fit the regression that tells how strong the noise of luma is (vidrestore/noise/strength.json), from
training clips with noise of many kinds.

    fit_strength.py samples SAMPLES.pkl --count 3000 [--seed 1] [--held-out]
    fit_strength.py fit STRENGTH.json SAMPLES.pkl [SAMPLES.pkl ...]

A sample is a window with the features of its blocks, scaled until the noise is equally strong at every
brightness, and the sigma of the power where most of the noise is, as in fit_noise.py, after a codec, too:
tried with the whole of `denoise`, nothing between 0.6 and 1.6 times that was better on average, neither of
raw noise nor of coded noise. 140 samples a minute on one core; 5,000 did as well as 18,000.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import fit_weak
import numpy as np
import torch.nn.functional as F
from fit_noise import LOOKS, Recipe, Sample, commands, cut, fit, footage_of, strengths
from noise_mix import Noisy, Planes, camera_noise, coded_by_x264, noisy_window, whole

from vidrestore.degrade.coloured_noise import coloured_noise, processed, white
from vidrestore.degrade.draws import log_uniform
from vidrestore.noise.features import plane_features
from vidrestore.noise.meter import FRAMES_SEEN
from vidrestore.noise.white import NoiseEstimator

RECIPE = Recipe(networks=1, hidden=(96, 24), steps=8000, jitter=0.03)
FRAMES = 20
SIZES = ((160, 160), (208, 320), (208, 320), (272, 480))
EACH = 3  # draws of noise for a window
MIX, WHITE, CODED_WHITE = 0.35, 0.1, 0.1  # shares of draws; the others are a camera's or coloured
STRENGTHS = (2.0, 35.0)
DARKER, DARKEST = 0.25, 0.3  # share of windows; least contrast
LEAST = 0.7  # sigma of samples


def samples(count: int, seed: int, held_out: bool) -> Iterator[list[Sample]]:
    """Yield samples of one window after the other."""
    rng, footage = np.random.default_rng(seed), footage_of(FRAMES, held_out=held_out)
    while count > 0:
        size = SIZES[int(rng.integers(len(SIZES)))]
        window = cut(footage.window(rng, 160), rng, size)
        if window is None or len(window[0]) < FRAMES:
            continue
        if rng.random() < DARKER:
            window = dimmed(window, rng.uniform(DARKEST, 0.9))
        made = [sample(noisy(window, rng)) for _ in range(EACH)]
        yield [each for each in made if each is not None and each.sigma >= LEAST]
        count -= len(made)


def dimmed(planes: Planes, contrast: float) -> Planes:
    luma, *chroma = planes
    return (16 + (luma - 16) * contrast, *(128 + (plane - 128) * contrast for plane in chroma))


def noisy(clean: Planes, rng: np.random.Generator) -> Noisy:
    """Noise of a drawn kind on a window."""
    kind = rng.random()
    if kind < MIX:
        drawn = noisy_window(clean, rng)
        return Noisy(drawn.seen, clean, coded=drawn.coded)
    if kind < MIX + WHITE + CODED_WHITE:
        sigma = log_uniform(rng, STRENGTHS)
        seen = whole(tuple(plane + sigma * white(plane, rng) for plane in clean))
        coded = kind >= MIX + WHITE
        return Noisy(coded_by_x264(seen, rng) if coded else seen, clean, coded=coded)
    bright = (clean[0], *(F.avg_pool2d(clean[0], 2) for _ in clean[1:]))
    noise = camera_noise(clean, rng) if rng.random() < 0.6 else coloured_noise(bright, rng)
    if rng.random() < 0.4:
        noise = processed(noise, rng)
    seen = whole(tuple(plane + part for plane, part in zip(clean, noise, strict=True)))
    if rng.random() < 0.5:
        return Noisy(seen, clean)
    coded_by = coded_by_x264 if rng.random() < 0.5 else fit_weak.coded
    return Noisy(coded_by(seen, rng), clean, coded=True)


def sample(noisy: Noisy) -> Sample | None:
    frames = [tuple(part.numpy() for part in planes) for planes in zip(*noisy.seen, strict=True)]
    formula, looks = NoiseEstimator(), []
    for first in LOOKS:
        formula.add(frames[first][0])
        found = plane_features(frames[first : first + FRAMES_SEEN])[0]
        if found is None or found.evened is None:
            return None
        looks.append(found.evened)
    sigma, rms = strengths(noisy, 0)
    return Sample(looks, formula.sigma(), sigma, min(rms, sigma), False, {})


def main() -> None:
    parser, make, learn = commands(__doc__)
    make.add_argument("--held-out", action="store_true", help="from the clips that are not fitted to")
    learn.add_argument("output", type=Path)
    learn.add_argument("samples", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "fit":
        fit(given.output, given.samples, RECIPE)
    else:
        given.output.write_bytes(pickle.dumps(list(samples(given.count, given.seed, given.held_out))))


if __name__ == "__main__":
    main()
