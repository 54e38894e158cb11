#!/usr/bin/env python3
"""Fit the regression that says how strong noise is (vidrestore/noise/regression.json), from training clips in
noise of many kinds.

    fit_noise.py samples SAMPLES.pkl --kind mixed|coded|clean --count 300 [--seed 1] [--clips DIR ...]
    [--photos DIR] fit_noise.py fit REGRESSION.json SAMPLES.pkl [SAMPLES.pkl ...]

A sample is a window with the features of its planes and the sigma they should lead to: of white noise its
own; of other noise that of the power where most of it is, sqrt(mean(S^2) / mean(S)) over the frequencies of 8
x 8 blocks; after a codec, which loses detail with the noise, the one with which DUST's error is least (tried,
so this takes long: a few seconds each); of clean windows 0.
"""

from __future__ import annotations

import argparse
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.places import ClipPlaces
from vidrestore.noise.features import plane_features
from vidrestore.noise.meter import FRAMES_SEEN, OFFSET, regression_input
from vidrestore.noise.white import NoiseEstimator, dct_basis
from vidrestore.options import RestoreOptions
from vidrestore.restorers.dust_restorer import DenoiseRestorer
from vidrestore.training.data.footage import CLIP_SUFFIXES, STILL_SUFFIXES, Footage, find_footage
from vidrestore.training.data.noise_mix import Noisy, clean_as_it_is, noisy_window

SHARED = Path(__file__).parents[3] / "shared" / "data"
HELD_OUT = ("davis_libby.mp4", "davis_goat.mp4", "davis_scooter-black.mp4", "sam2_cups.mp4")
LOOKS = (0, 8, 16)
TRIED = (0.0, 0.15, 0.3, 0.55, 0.9, 1.4)  # of the sigma of all that differs, after a codec
NETWORKS, HIDDEN, STEPS = 3, (24, 8), 1500  # that are averaged; widths; of training
# of samples without noise, whose small errors cost little, and with white noise
CLEAN_WEIGHT, WHITE_WEIGHT = (0.2, 1.5)


@dataclass(frozen=True)
class Sample:
    """Of one plane: features of every look, what the formula for white noise says, the sigma wanted and the
    noise's root mean square.
    """

    looks: list[np.ndarray]
    white: float
    sigma: float
    rms: float
    colour: bool


def samples(kind: str, count: int, seed: int, clips: list[Path], photos: Path) -> Iterator[list[Sample]]:
    """Yield the samples of one window after the other."""
    found = [path for folder in clips for path in find_footage(folder, HELD_OUT, CLIP_SUFFIXES)]
    footage = Footage(found, find_footage(photos, (), STILL_SUFFIXES), 20, 0.1)
    draw, restorer = np.random.default_rng(seed), DenoiseRestorer(RestoreOptions())
    while count:
        window = cut(footage.window(draw, 16), draw)
        noisy = window and (clean_window(window, draw) if kind == "clean" else noisy_window(window, draw))
        if noisy and (kind != "coded" or noisy.coded) and (kind != "mixed" or not noisy.coded):
            yield [sample(noisy, plane, restorer) for plane in (0, 1)]
            count -= 1


def cut(planes: tuple[Tensor, ...], draw: np.random.Generator) -> tuple[Tensor, ...] | None:
    """192 x 256 pixels of 4:2:0 from a random place; None of other layouts and of smaller pictures."""
    height, width = planes[0].shape[1:]
    if (
        len(planes) != 3
        or planes[1].shape[1] * 2 != height // 2 * 2
        or planes[1].shape[2] * 2 != width // 2 * 2
        or min(height, width) < 128
    ):
        return None
    rows, columns = min(height, 192) // 16 * 16, min(width, 256) // 16 * 16
    top, left = (
        2 * int(draw.integers((height - rows) // 2 + 1)),
        2 * int(draw.integers((width - columns) // 2 + 1)),
    )
    chroma = (
        plane[:, top // 2 : (top + rows) // 2, left // 2 : (left + columns) // 2] for plane in planes[1:]
    )
    return tuple(plane.float() for plane in (planes[0][:, top : top + rows, left : left + columns], *chroma))


def clean_window(planes: tuple[Tensor, ...], draw: np.random.Generator) -> Noisy:
    """As filmed, made smaller, or in few flat colours as drawn pictures are; coded more often than not."""
    kind = draw.random()
    if kind < 0.2:
        planes = tuple(F.avg_pool2d(plane, 2) for plane in planes)
    elif kind < 0.35:
        step, side = float(draw.choice([12, 24, 48])), int(draw.choice([1, 3, 5]))
        planes = tuple((F.avg_pool2d(plane, side, 1, side // 2) / step).round() * step for plane in planes)
    whole = tuple(plane.round().clamp(0, 255) for plane in planes)
    return clean_as_it_is(whole, 0.6, draw)


def sample(noisy: Noisy, plane: int, restorer: DenoiseRestorer) -> Sample:
    frames = [tuple(part.numpy() for part in planes) for planes in zip(*noisy.seen, strict=True)]
    looks = [plane_features(frames[first : first + FRAMES_SEEN])[plane] for first in LOOKS]
    formula = NoiseEstimator()
    for first in LOOKS:
        formula.add(frames[first][plane])
    sigma, rms = wanted(noisy, plane, restorer)
    return Sample(
        [look for look in looks if look is not None], formula.sigma(), sigma, min(rms, sigma), plane > 0
    )


def wanted(noisy: Noisy, plane: int, restorer: DenoiseRestorer) -> tuple[float, float]:
    """Sigma and root mean square."""
    if noisy.sigma:
        return noisy.sigma[plane], noisy.sigma[plane]
    noise = noisy.seen[plane] - noisy.clean[plane]
    height, width = noise.shape[1:]
    blocks = noise[:, : height // 8 * 8, : width // 8 * 8].unfold(1, 8, 8).unfold(2, 8, 8).reshape(-1, 64)
    power = (blocks @ torch.from_numpy(dct_basis(8)).T).square().mean(0)
    rms, sigma = (
        float(power.mean().sqrt()),
        float((power.square().mean() / power.mean().clamp(min=1e-6)).sqrt()),
    )
    if not noisy.coded:
        return sigma, rms
    least = best_tried(noisy, plane, max(sigma, 1.2), restorer)
    return least, rms * min(1.0, least / max(sigma, 1e-3))


def best_tried(noisy: Noisy, plane: int, base: float, restorer: DenoiseRestorer) -> float:
    """The sigma with which DUST's error is least, between those that were tried by a parabola through the
    logarithms.
    """
    seen, clean, guide = noisy.seen[plane][5:15], noisy.clean[plane][5:15], noisy.seen[0][5:15]
    places = ClipPlaces(guide, 16, follow=True)
    errors = []
    with torch.inference_mode():
        for share in TRIED:
            restored = restorer.restored_plane(seen, share * base, places, "auto") if share else seen
            errors.append(float((restored.clamp(0, 255) - clean).square().mean()))
    logs, at = np.log(np.array(errors) + 0.15), int(np.argmin(errors))
    if at < 2 or at == len(TRIED) - 1:
        return TRIED[at] * base
    shares = np.log(TRIED[at - 1 : at + 2])
    bend, slope, _ = np.polyfit(shares, logs[at - 1 : at + 2], 2)
    place = float(np.clip(-slope / 2 / bend, shares[0], shares[2])) if bend > 1e-6 else shares[1]
    return float(np.exp(place) * base)


def fit(path: Path, sources: list[Path]) -> None:
    """Fit some small networks and write them as one, hidden layers side by side."""
    every = [
        each
        for source in sources
        for window in pickle.loads(source.read_bytes())
        for each in window
        if each.looks
    ]
    rows = [(look, each) for each in every for look in [np.median(each.looks, axis=0), *each.looks]]
    given = np.array([regression_input(look, each.white, colour=each.colour) for look, each in rows])
    target = np.log(np.array([[each.sigma, each.rms] for _, each in rows]) + OFFSET) - given[:, -2:-1]
    mean, spread = given.mean(0), given.std(0) + 1e-3
    inputs, targets = torch.tensor((given - mean) / spread).float(), torch.tensor(target).float()
    weights = torch.tensor([weight_of(each) for _, each in rows])
    networks = [fitted(inputs, targets, weights, seed) for seed in range(NETWORKS)]
    first, second, last = zip(
        *([layer for layer in network if isinstance(layer, nn.Linear)] for network in networks), strict=True
    )
    layers = [
        (torch.tensor(mean), torch.tensor(spread)),
        (torch.cat([layer.weight for layer in first]), torch.cat([layer.bias for layer in first])),
        (torch.block_diag(*(layer.weight for layer in second)), torch.cat([layer.bias for layer in second])),
        (
            torch.cat([layer.weight for layer in last], 1) / NETWORKS,
            torch.stack([layer.bias for layer in last]).mean(0),
        ),
    ]
    path.write_text(
        json.dumps({"layers": [[short(weight.tolist()), short(bias.tolist())] for weight, bias in layers]})
        + "\n"
    )


def weight_of(sample: Sample) -> float:
    return CLEAN_WEIGHT if sample.sigma == 0 else WHITE_WEIGHT if sample.sigma == sample.rms else 1.0


def fitted(inputs: Tensor, targets: Tensor, weights: Tensor, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    widths = (inputs.shape[1], *HIDDEN, 2)
    layers = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    network = nn.Sequential(*layers[:-1])
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, STEPS)
    for _ in range(STEPS):
        chosen = torch.randint(len(inputs), (256,))
        found = network(inputs[chosen] + 0.07 * torch.randn(256, inputs.shape[1]))
        error = F.smooth_l1_loss(found, targets[chosen], beta=0.2, reduction="none")
        loss = (weights[chosen, None] * error).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return network


def short(values: object) -> object:
    """Numbers to four digits."""
    return [short(each) for each in values] if isinstance(values, list) else float(f"{values:.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("samples")
    make.add_argument("output", type=Path)
    make.add_argument("--kind", choices=("mixed", "coded", "clean"), required=True)
    make.add_argument("--count", type=int, required=True)
    make.add_argument("--seed", type=int, default=1)
    make.add_argument("--clips", type=Path, nargs="+", default=[SHARED / "train", SHARED / "train_more"])
    make.add_argument("--photos", type=Path, default=SHARED / "stills")
    learn = commands.add_parser("fit")
    learn.add_argument("output", type=Path)
    learn.add_argument("samples", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "fit":
        fit(given.output, given.samples)
    else:
        made = list(samples(given.kind, given.count, given.seed, given.clips, given.photos))
        given.output.write_bytes(pickle.dumps(made))


if __name__ == "__main__":
    main()
