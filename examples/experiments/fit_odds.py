#!/usr/bin/env python3
"""Fit the regressions that say how likely noise is (vidrestore/noise/odds.json) and how much stronger that of
colour differences has to be taken after a codec (colour.json), from training clips with noise of many kinds.

    fit_odds.py samples SAMPLES.pkl --kind noisy|clean --count 300 [--seed 1]
    fit_odds.py fit SAMPLES.pkl [SAMPLES.pkl ...]

A sample is a plane of a window: its features and those of luma, and the errors of `denoise` there, both
estimates, for some values of sigma. The bundled files were fitted to 620 noisy windows, 256 of them with all
the values, and to 410 clean ones. The limits on the odds (UNLIKELY and LIKELY in vidrestore/noise/meter.py)
were chosen with the held-out clips in view, so what is measured on those flatters them a little.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from fit_noise import HELD_OUT, LOOKS, SHARED, clean_window, commands, cut, short, strengths
from noise_mix import Noisy, noisy_window
from torch import Tensor, nn

from vidrestore.noise import meter
from vidrestore.noise.features import Array, Planes, plane_features
from vidrestore.noise.meter import COMMON, FRAMES_SEEN, OFFSET, STRONGER, Measured, odds_input
from vidrestore.noise.white import NoiseEstimator
from vidrestore.options import RestoreOptions
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.training.data.footage import CLIP_SUFFIXES, STILL_SUFFIXES, Footage, find_footage

FRAMES, TRIED_FRAMES, TRIED_SIDE = 20, slice(5, 11), 144
FACTORS = (0.4, 0.65, 0.9, 1.2, 1.7, 2.3, 3.2)  # of the sigma of the noise
DARK = 0.3  # share of windows that are darkened
UNSEEN = 0.3  # grey levels squared, added to errors
WORTH, SEEN = 0.2, 0.3  # dB gained that make noise, and grey levels of change that harm a clean window
HIDDEN, NETWORKS, STEPS, JITTER = 24, 3, 3000, 0.4
USUAL_GAIN = 6.0  # dB: windows that gain more are so smooth that they count for less
MOST_LOST = 1.5  # dB: errors of the strength beyond hardly count


@dataclass(frozen=True)
class Sample:
    """`gain`: dB that `denoise` gains, minus grey levels of change for a clean window; `errors`: mean squared
    errors by sigma, none for a clean window.
    """

    looks: list[tuple[Measured, Measured]]  # the plane and luma
    gain: float
    errors: dict[float, float]


def samples(kind: str, count: int, seed: int) -> Iterator[list[Sample]]:
    """Yield the samples of one window after the other."""
    found = [
        path
        for part in ("train", "train_more")
        for path in find_footage(SHARED / part, HELD_OUT, CLIP_SUFFIXES)
    ]
    footage = Footage(found, find_footage(SHARED / "stills", (), STILL_SUFFIXES), FRAMES, 0.08)
    rng, restorer = np.random.default_rng(seed), DenoiseRestorer(RestoreOptions())
    while count:
        window = cut(footage.window(rng, 160), rng)
        if window is None:
            continue
        if rng.random() < DARK:
            share = rng.uniform(0.3, 0.9)
            window = tuple(
                (level + (plane - level) * share).round()
                for plane, level in zip(window, (16, 128, 128), strict=True)
            )
        noisy = clean_window(window, rng) if kind == "clean" else noisy_window(window, rng)
        yield window_samples(noisy, restorer, clean=kind == "clean" or noisy.sigma == (0.0,) * 3)
        count -= 1


def features_of(frames: list[Planes]) -> list[Array | None]:
    """The features of every plane as it is."""
    return [None if found is None else found.seen for found in plane_features(frames)]


def window_samples(noisy: Noisy, restorer: DenoiseRestorer, *, clean: bool) -> list[Sample]:
    """The planes whose features are known, seen at once, in single looks, and in one frame alone."""
    frames = [tuple(part.numpy() for part in planes) for planes in zip(*noisy.seen, strict=True)]
    every = [features_of(frames[first : first + FRAMES_SEEN]) for first in LOOKS]
    formulas = [NoiseEstimator() for _ in range(3)]
    for first in LOOKS:
        for formula, plane in zip(formulas, frames[first], strict=True):
            formula.add(plane)
    if any(plane is None for look in every for plane in look):
        return []
    median = [np.median([look[plane] for look in every], axis=0) for plane in range(3)]
    seen = [median, *every, features_of(frames[LOOKS[1] : LOOKS[1] + 1])]
    looks = [
        [Measured(features, formulas[plane].sigma(), plane > 0) for plane, features in enumerate(look)]
        for look in seen
    ]
    tried = trial(noisy, [each.regressed("regression")[0] for each in looks[0]], restorer, clean=clean)
    return [
        Sample([(look[plane], look[0]) for look in looks], gain, errors)
        for plane, (gain, errors) in enumerate(tried)
    ]


def trial(
    noisy: Noisy, regressed: list[float], restorer: DenoiseRestorer, *, clean: bool
) -> list[tuple[float, dict[float, float]]]:
    """Restore at several sigmas, or a clean window at the one that the regression says."""

    def part(planes: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            plane[TRIED_FRAMES, : TRIED_SIDE >> (at > 0), : TRIED_SIDE >> (at > 0)]
            for at, plane in enumerate(planes)
        )

    given, exact = part(noisy.seen), part(noisy.seen if clean else noisy.clean)
    base = [max(0.7, strengths(noisy, plane)[0]) for plane in range(3)]
    sigmas = [tuple(regressed)] if clean else [tuple(factor * each for each in base) for factor in FACTORS]
    errors: list[dict[float, float]] = [{} for _ in given]
    change = [0.0] * len(given)
    for sigma in [(0.0,) * len(given), *sigmas]:
        with torch.inference_mode():
            restored = restorer.restore(given, tuple(each if each > 0.5 else 0.0 for each in sigma))
        for plane, (found, wanted) in enumerate(zip(restored, exact, strict=True)):
            errors[plane][sigma[plane]] = float((found.clamp(0, 255) - wanted).square().mean())
            change[plane] = float((found - given[plane]).abs().mean())
    if clean:
        return [(-each, {}) for each in change]
    gains = [10 * math.log10((each[0.0] + UNSEEN) / (min(each.values()) + UNSEEN)) for each in errors]
    return list(zip(gains, errors, strict=True))


def fit(sources: list[Path]) -> None:
    every = [each for source in sources for window in pickle.loads(source.read_bytes()) for each in window]
    folder = Path(meter.__file__).parent
    write(folder / "odds.json", fitted_odds(every))
    write(folder / "colour.json", fitted_colour([each for each in every if each.looks[0][0].colour]))


Layers = list[tuple[Tensor, Tensor]]


def fitted_odds(every: list[Sample]) -> Layers:
    """Logistic regression by small networks, hidden layers side by side; a miss weighs what it loses."""
    rows = [(odds_input(*look), each.gain, not each.errors) for each in every for look in each.looks]
    given = torch.tensor(np.array([row for row, _, _ in rows])).float()
    noise = torch.tensor([float(gain > WORTH) for _, gain, _ in rows])
    weights = torch.tensor(
        [np.clip(-gain / SEEN, 0.3, 3) if clean else np.clip(abs(gain), 0.1, 3) for _, gain, clean in rows]
    ).float()
    mean, spread = given.mean(0), given.std(0) + 1e-3
    inputs = (given - mean) / spread
    networks = [
        fitted(inputs, noise, weights, seed, Training(HIDDEN, STEPS, JITTER, 384)) for seed in range(NETWORKS)
    ]
    return [(mean, spread), *side_by_side(networks)]


class Training(NamedTuple):
    """How a network is fitted: its hidden units, the steps, the noise added to inputs, rows in a step."""

    hidden: int
    steps: int
    jitter: float
    rows: int


def fitted(inputs: Tensor, noise: Tensor, weights: Tensor, seed: int, how: Training) -> nn.Sequential:
    """Logistic regression of `noise` by a network with one hidden layer."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(inputs.shape[1], how.hidden), nn.ReLU(), nn.Linear(how.hidden, 1))
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, how.steps)
    for _ in range(how.steps):
        chosen = torch.randint(len(inputs), (how.rows,))
        odds = network(inputs[chosen] + how.jitter * torch.randn(how.rows, inputs.shape[1]))[:, 0]
        lost = F.binary_cross_entropy_with_logits(odds, noise[chosen], reduction="none")
        optimiser.zero_grad()
        (weights[chosen] * lost).mean().backward()
        optimiser.step()
        schedule.step()
    return network


def side_by_side(networks: list[nn.Sequential]) -> Layers:
    """Return both layers of one network whose output is the mean of these."""
    first, last = zip(*((network[0], network[2]) for network in networks), strict=True)
    return [
        (torch.cat([layer.weight for layer in first]), torch.cat([layer.bias for layer in first])),
        (
            torch.cat([layer.weight for layer in last], 1) / len(networks),
            torch.stack([layer.bias for layer in last]).mean(0),
        ),
    ]


def fitted_colour(every: list[Sample]) -> Layers:
    """A linear map, for planes where the regression differs from the formula for white noise."""
    rows, logarithms, tables, weights = [], [], [], []
    for each in every:
        for plane, luma in each.looks[:-1]:
            sigma = plane.regressed("regression")[0]
            if each.errors and sigma > meter.NONE_BELOW and not np.isclose(sigma, plane.white, rtol=1e-6):
                rows.append(odds_input(plane, luma)[:COMMON])
                logarithms.append(math.log(sigma + OFFSET))
                tables.append(lost_by_sigma(each.errors))
                weights.append(1 / (1 + (each.gain / USUAL_GAIN) ** 2))
    given, start, weight = (torch.tensor(np.array(each)).float() for each in (rows, logarithms, weights))
    positions, lost = (torch.tensor(np.array([table[part] for table in tables])).float() for part in (0, 1))
    mean, spread = given.mean(0), given.std(0) + 1e-3
    inputs = (given - mean) / spread
    slope, offset = torch.zeros(COMMON, requires_grad=True), torch.tensor([0.15], requires_grad=True)
    optimiser = torch.optim.Adam([slope, offset], 0.02)
    for _ in range(800):
        raised = (inputs + 0.1 * torch.randn_like(inputs)) @ slope + offset
        there = start + raised.clamp(*STRONGER) + 0.05 * (raised - raised.clamp(*STRONGER))
        above = torch.searchsorted(positions, there.detach()[:, None]).clamp(1, positions.shape[1] - 1)
        (x0, x1), (y0, y1) = (
            (v.gather(1, above - 1)[:, 0], v.gather(1, above)[:, 0]) for v in (positions, lost)
        )
        decibels = y0 + (y1 - y0) * (there - x0) / (x1 - x0)
        loss = (weight * MOST_LOST * torch.tanh(decibels / MOST_LOST)).mean()
        optimiser.zero_grad()
        (loss + 0.02 * slope.square().sum()).backward()
        optimiser.step()
    return [(mean, spread), (slope[None], offset)]


def lost_by_sigma(errors: dict[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of sigma, and dB lost there."""
    decibels = 10 * np.log10(np.array(list(errors.values())) + UNSEEN)
    return np.log(np.array(list(errors)) + OFFSET), decibels - decibels.min()


def write(path: Path, layers: Layers) -> None:
    values = [[short(weight.tolist()), short(bias.tolist())] for weight, bias in layers]
    path.write_text(json.dumps({"layers": values}) + "\n")


def main() -> None:
    parser, make, learn = commands(__doc__)
    make.add_argument("--kind", choices=("noisy", "clean"), required=True)
    learn.add_argument("samples", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "fit":
        fit(given.samples)
    else:
        given.output.write_bytes(pickle.dumps(list(samples(given.kind, given.count, given.seed))))


if __name__ == "__main__":
    main()
