#!/usr/bin/env python3
"""Train the networks that correct the last estimates (vidrestore/models/finisher.safetensors) on training
clips.

    fit_finisher.py FINISHER.safetensors [--colour] [--count 1500] [--minutes 45] [--start WEIGHTS] [--seed 1]

Windows of 20 frames are denoised up to the last estimate: 40 % in white noise of known sigma, 40 % in the
noise of `noise_mix.py`, measured, and 20 % in white noise with `--best`. With `--colour`, white noise is
mostly on R, G and B, and colour differences are recorded instead of luma. A network is then trained on parts
of them. The gain in dB of windows that were not trained on is printed every 1,000 steps.
FINISHER.safetensors keeps the other network that it has.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from fit_noise import LOOKS, cut, footage_of
from fit_second import noisy_windows, recorded, store
from muon import Muon
from noise_mix import Noisy, Planes, noisy_window, rgb_of
from safetensors.torch import load_file
from torch import Tensor

from vidrestore.colour import rgb_to_opponent
from vidrestore.models.finisher import COLOUR, LUMA, Finisher, features, part_of
from vidrestore.models.grouping import GROUP
from vidrestore.noise.features import FRAMES_SEEN
from vidrestore.noise.meter import NoiseMeter
from vidrestore.options import RestoreOptions
from vidrestore.restorers.denoise import FurtherEstimates, Refinement

SIGMA_RANGE = (5.0, 55.0)  # of white noise
FRAMES = (1, 5, 9, 13, 17, 19)  # that are kept of a window
RATE, WARM_UP = 1.5e-3, 100  # of the optimiser, in steps
BATCH, SIDE = 16, 48
RGB = 0.6  # of windows for colour in white noise: on R, G, B; the others on 4:2:0 planes
NO_ERROR = 0.5  # squared grey levels: errors that much smaller hardly count
JUDGED = 140  # windows that are not trained on
SHARES = {"white": 0.4, "measured": 0.4, "best": 0.2}


class Sample(NamedTuple):
    """A clean, noisy and estimated plane, for colour also luma's estimate, (3 or 4, F, H, W) in half
    precision, and the sigma of its noise.
    """

    planes: Tensor
    sigma: float


class Recorder(FurtherEstimates):
    """Keeps what a network would be given, and leaves it as it is."""

    seen: list[tuple[Tensor, Tensor, float, Tensor | None]]

    def correct(self, plane: Tensor, estimate: Tensor, work: Refinement) -> Tensor:
        self.seen.append((plane, estimate, work.sigma, work.luma))
        return estimate


def recording(options: RestoreOptions) -> Callable[[Planes, Planes, tuple[float, ...]], list[Sample]]:
    """Return what makes samples of clean planes, noisy ones and sigmas: of the planes in which there is
    noise.
    """
    restorer, recorder = recorded(Recorder, options)

    def made(clean: Planes, noisy: Planes, sigma: tuple[float, ...]) -> list[Sample]:
        recorder.seen = []
        restorer.restore(noisy, sigma)
        restored = [plane for plane, level in zip(clean, sigma, strict=True) if level]
        kept = zip(restored, recorder.seen, strict=True)
        return [sample(target, *seen) for target, seen in kept]

    return made


def sample(clean: Tensor, noisy: Tensor, estimate: Tensor, sigma: float, luma: Tensor | None) -> Sample:
    planes = [plane for plane in (clean, noisy, estimate, luma) if plane is not None]
    return Sample(torch.stack(planes)[:, list(FRAMES)].half(), sigma)


def samples(count: int, seed: int, *, colour: bool, held_out: bool) -> list[Sample]:
    """Return the samples of `count` windows."""
    made = []
    for kind, share in SHARES.items():
        number = round(count * share)
        with torch.inference_mode():
            found = measured if kind == "measured" else white
            quality = "best" if kind == "best" else "default"
            made += list(found(number, seed, quality, colour=colour, held_out=held_out))
        print(f"  {number} windows: {kind}", flush=True)
    return [each for each in made if len(each.planes) == (COLOUR if colour else LUMA)]


def white(count: int, seed: int, quality: str, *, colour: bool, held_out: bool) -> Iterator[Sample]:
    """Yield samples of white noise."""
    record = recording(RestoreOptions(quality=quality, sigma=20.0))
    rng = np.random.default_rng(seed)
    for clean, noisy, sigma in noisy_windows(count, seed, SIGMA_RANGE, held_out=held_out):
        if not colour:
            yield from record((clean[0],), (noisy[0],), (sigma,))
        elif rng.random() < RGB:
            rgb = halved_rgb(clean)
            drawn = (torch.from_numpy(rng.standard_normal(tuple(part.shape), np.float32)) for part in rgb)
            seen = [
                (part + sigma * noise).round().clamp(0, 255) for part, noise in zip(rgb, drawn, strict=True)
            ]
            yield from record(rgb_to_opponent(rgb), rgb_to_opponent(seen), (sigma,) * 3)
        else:
            yield from record(tuple(clean), noisy, (sigma,) * 3)


def halved_rgb(planes: Sequence[Tensor]) -> list[Tensor]:
    """Return R, G, B of 4:2:0 planes at the size of the colour differences."""
    y, u, v = planes
    return [255 * each.clamp(0, 1) for each in rgb_of(F.avg_pool2d(y, 2), u, v)]


def measured(count: int, seed: int, quality: str, *, colour: bool, held_out: bool) -> Iterator[Sample]:
    """Yield samples of other noise, where some was found."""
    record = recording(RestoreOptions(quality=quality))
    footage, rng = footage_of(GROUP, held_out=held_out), np.random.default_rng(seed)
    planes = 3 if colour else 1
    while count:
        window = cut(footage.window(rng, 128), rng)
        if window is None or len(window[0]) < GROUP:
            continue
        noisy = noisy_window(window, rng)
        sigma = found_sigma(noisy)[:planes]
        if sigma[-1] and not (noisy.sigma and not any(noisy.sigma)):
            yield from record(noisy.clean[:planes], noisy.seen[:planes], sigma)
            count -= 1


def found_sigma(noisy: Noisy) -> tuple[float, ...]:
    """Return the sigma of each plane as `denoise` measures it."""
    meter = NoiseMeter(3, colour=True)
    frames = [tuple(plane.numpy() for plane in planes) for planes in zip(*noisy.seen, strict=True)]
    for look in LOOKS:
        meter.add(frames[look : look + FRAMES_SEEN])
    return tuple(each.sigma for each in meter.noise())


def batch(fitted: list[Sample], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return random parts (3 or 4, BATCH, SIDE, SIDE), mirrored at random, and their sigmas (BATCH,)."""
    parts, sigmas = [], []
    for index in rng.integers(len(fitted), size=BATCH):
        planes, sigma = fitted[index]
        top, left = (int(rng.integers(side - SIDE + 1)) for side in planes.shape[2:])
        part = planes[:, rng.integers(planes.shape[1]), top : top + SIDE, left : left + SIDE].float()
        if len(part) == COLOUR and rng.random() < 0.5:  # the opposite hue
            part[:3] = 255 - part[:3]
        for axis in (1, 2):
            part = part.flip(axis) if rng.random() < 0.5 else part
        parts.append(part.mT if rng.random() < 0.5 else part)
        sigmas.append(sigma)
    return torch.stack(parts, 1), torch.tensor(sigmas)


def corrected(network: Finisher, planes: Tensor, sigma: Tensor) -> Tensor:
    """Return the corrected estimates of planes (3 or 4, B, H, W)."""
    _, noisy, estimate, *luma = planes
    return estimate + sigma[:, None, None] * network(features(noisy, estimate, sigma, *luma))[:, 0]


def gain(network: Finisher, judged: list[Sample]) -> float:
    """Return the mean gain in dB."""
    gains = []
    with torch.no_grad():
        for planes, sigma in judged:
            clean, _, estimate, *_ = full = planes.float()
            found = corrected(network, full, torch.full((len(clean),), sigma)).clamp(0, 255)
            before, after = (float((each - clean).square().mean()) + 0.05 for each in (estimate, found))
            gains.append(10 * math.log10(before / after))
    return float(np.mean(gains))


def train(network: Finisher, fitted: list[Sample], judged: list[Sample], given: argparse.Namespace) -> None:
    """Train for the minutes given; the rate falls to 0."""
    optimiser, rng = Muon(network, RATE), np.random.default_rng(given.seed)
    began, step = time.monotonic(), 0
    while (passed := (time.monotonic() - began) / (60 * given.minutes)) < 1:
        step += 1
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, step / WARM_UP) * (1 + math.cos(math.pi * passed)) / 2
        planes, sigma = batch(fitted, rng)
        before, after = (
            (planes[0] - each).square().mean((1, 2)) + NO_ERROR
            for each in (planes[2], corrected(network, planes, sigma))
        )
        optimiser.zero_grad()
        (after / before).mean().backward()
        optimiser.step()
        if step % 1000 == 0:
            print(f"  step {step}: {gain(network, judged):.3f} dB", flush=True)
    print(f"  {step} steps: {gain(network, judged):.3f} dB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument("--colour", action="store_true", help="train the network for colour differences")
    parser.add_argument("--count", type=int, default=1500, help="windows that are trained on")
    parser.add_argument("--minutes", type=float, default=45, help="of training")
    parser.add_argument("--start", type=Path, help="weights to go on from, as FINISHER.safetensors")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    network = Finisher(COLOUR if given.colour else LUMA)
    prefix = "colour." if given.colour else "luma."
    if given.start:
        network.load_state_dict(part_of(load_file(given.start), prefix))
    kinds = {"seed": given.seed, "colour": given.colour}
    fitted, judged = samples(given.count, **kinds, held_out=False), samples(JUDGED, **kinds, held_out=True)
    train(network, fitted, judged, given)
    weights = {prefix + name: values.half() for name, values in network.state_dict().items()}
    store(given.weights, weights, __file__)


if __name__ == "__main__":
    main()
