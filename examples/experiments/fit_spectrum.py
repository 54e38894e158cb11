#!/usr/bin/env python3
"""Fit the regression that tells the spectrum of noise (vidrestore/models/noise_spectrum.safetensors), from
training clips with noise of many kinds.

    fit_spectrum.py samples SAMPLES.pt --count 300 [--seed 1] [--quality default] [--held-out]
    fit_spectrum.py fit SPECTRUM.safetensors SAMPLES.pt [SAMPLES.pt ...] [--judge HELD_OUT.pt]

A sample is a plane of a clip: the powers that `noise_model.powers` finds with DUST's
estimate at the sigma that `denoise` measures, and the power of the noise itself in every band.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from fit_noise import commands, cut, footage_of
from noise_mix import Noisy, noisy_window
from safetensors.torch import save_file
from torch import Tensor, nn

from vidrestore.models.dust import Transform
from vidrestore.models.fast_linear import PackedLinear
from vidrestore.models.noise_model import BANDS, LEAST, inputs_of, powers
from vidrestore.noise.features import FRAMES_SEEN
from vidrestore.noise.meter import NoiseMeter
from vidrestore.restorers.denoise import GRIDS, PRESETS, ClipPositions, DenoiseRestorer
from vidrestore.settings.options import RestoreOptions

FRAMES = 12  # of a window
LOOKS = FRAMES - FRAMES_SEEN + 1
HIDDEN, STEPS, BATCH = (24, 24), 4000, 24

# powers, logarithm of sigma squared, logarithms of the noise's powers
Sample = tuple[Tensor, float, Tensor]


def samples(
    count: int, seed: int, quality: str, held_out: bool
) -> Iterator[list[Sample]]:
    """Yield the samples of one window after the other."""
    footage = footage_of(FRAMES, held_out=held_out)
    rng, restorer = (
        np.random.default_rng(seed),
        DenoiseRestorer(RestoreOptions(quality=quality)),
    )
    while count:
        window = cut(footage.window(rng, 128), rng)
        made = window and window_samples(noisy_window(window, rng), restorer)
        if made:
            yield made
            count -= 1


def window_samples(noisy: Noisy, restorer: DenoiseRestorer) -> list[Sample]:
    """The samples of the planes with noise of a window."""
    meter = NoiseMeter(len(noisy.seen), colour=True)
    frames = [
        tuple(part.numpy() for part in planes)
        for planes in zip(*noisy.seen, strict=True)
    ]
    for first in range(LOOKS):
        meter.add(frames[first : first + FRAMES_SEEN])
    sigmas = [plane.sigma for plane in meter.noise()]
    transform = Transform(restorer.patch, torch.float32, PackedLinear, restorer.device)
    seen, clean = noisy.seen, noisy.clean
    positions = ClipPositions(seen[0], restorer.patch, follow=True)
    made = []
    with torch.inference_mode():
        for number, sigma in enumerate(sigmas):
            if not sigma:
                continue
            estimate = restorer.restored_plane(seen[number], sigma, positions, "auto")
            groups = positions.origins(
                estimate.shape, restorer.preset.stride, 1 if number else GRIDS
            )
            found = powers(seen[number], estimate, groups, transform)
            made.append(
                (
                    found,
                    2 * math.log(sigma),
                    true_powers(seen[number] - clean[number], transform),
                )
            )
    return made


def true_powers(noise: Tensor, transform: Transform) -> Tensor:
    """(BANDS^2,): logarithms of the noise's mean powers over patches side by side."""
    side = transform.side
    patches = noise.unfold(1, side, side).unfold(2, side, side).flatten(0, 2).flatten(1)
    power = transform.forward(patches).square().mean(0).view(1, 1, side, side)
    return F.adaptive_avg_pool2d(power, (BANDS, BANDS)).flatten().add(LEAST).log()


def table(sources: list[Path]) -> tuple[Tensor, Tensor]:
    """(N, BANDS^2, inputs) and (N, BANDS^2): inputs, and logarithms of the powers over sigma squared."""
    every = [
        each for source in sources for window in torch.load(source) for each in window
    ]
    inputs = torch.stack([inputs_of(found, level) for found, level, _ in every])
    return inputs, torch.stack([true - level for _, level, true in every])


def fit(path: Path, sources: list[Path], judge: Path | None) -> None:
    inputs, wanted = table(sources)
    mean, spread = inputs.flatten(0, 1).mean(0), inputs.flatten(0, 1).std(0) + 1e-3
    torch.manual_seed(0)
    widths = (inputs.shape[2], *HIDDEN, 1)
    layers = [
        layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())
    ]
    network = nn.Sequential(*layers[:-1])
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        chosen = torch.randint(len(inputs), (BATCH,))
        found = network((inputs[chosen] - mean) / spread)[..., 0]
        loss = F.smooth_l1_loss(found, wanted[chosen], beta=0.5)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    stored = {"mean": mean, "spread": spread}
    for number, layer in enumerate(linear):
        stored |= {
            f"layers.{number}.weight": layer.weight.data,
            f"layers.{number}.bias": layer.bias.data,
        }
    save_file(stored, path, metadata={"script": "examples/experiments/fit_spectrum.py"})
    for name, chosen in (("fitted", sources), ("held out", [judge] if judge else [])):
        if chosen:
            given, true = table(chosen)
            with torch.no_grad():
                off = (
                    (network((given - mean) / spread)[..., 0] - true)
                    .square()
                    .mean()
                    .sqrt()
                )
            white = true.square().mean().sqrt()
            print(
                f"{name}: {len(given)} planes, error of logarithms {off:.3f}, of white noise {white:.3f}"
            )


def main() -> None:
    parser, make, learn = commands(__doc__)
    make.add_argument("--quality", choices=tuple(PRESETS), default="default")
    make.add_argument(
        "--held-out", action="store_true", help="from the clips that are not fitted to"
    )
    learn.add_argument("output", type=Path)
    learn.add_argument("samples", type=Path, nargs="+")
    learn.add_argument("--judge", type=Path)
    given = parser.parse_args()
    if given.command == "fit":
        fit(given.output, given.samples, given.judge)
    else:
        torch.save(
            list(samples(given.count, given.seed, given.quality, given.held_out)),
            given.output,
        )


if __name__ == "__main__":
    main()
