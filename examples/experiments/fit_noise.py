#!/usr/bin/env python3
"""Fit the regression that tells whether there is noise (vidrestore/noise/doubt.json), from training clips
with noise of many kinds. The one that tells how strong it is (regression.json) was fitted to sigma itself by
this script at commit 5252417; its samples of noise served again. What it says of luma with noise gave way to
strength.json (fit_strength.py); the odds of noise still look at it.

    fit_noise.py samples SAMPLES.pkl --kind mixed|coded|clean --count 300 [--seed 1] [--clips DIR ...]
    [--photos DIR]
    fit_noise.py fit DOUBT.json SAMPLES.pkl [SAMPLES.pkl ...]

A sample is a window with the features of its planes and the error that a denoiser makes there for some values
of sigma. After a codec, which loses detail with the noise, DUST is tried, so this takes long: a few seconds
each. Of other noise the right sigma is known: of white noise its own, else that of the power where most of it
is, sqrt(mean(S^2) / mean(S)) over the frequencies of 8 x 8 blocks; errors around it are those of a typical
window. A clean window loses the more the larger the sigma. The regression is fitted to lose few dB.
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
from noise_mix import Noisy, clean_as_it_is, noisy_window
from torch import Tensor, nn

from vidrestore.media.recompress import recompress_pictures
from vidrestore.models.patch_positions import ClipPositions
from vidrestore.noise.features import Array, plane_features
from vidrestore.noise.meter import FRAMES_SEEN, OFFSET, regression_input
from vidrestore.noise.white import NoiseEstimator, dct_basis
from vidrestore.options import RestoreOptions
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.training.data.footage import CLIP_SUFFIXES, STILL_SUFFIXES, Footage, find_footage

SHARED = Path(__file__).parents[3] / "shared" / "data"
HELD_OUT = ("davis_libby.mp4", "davis_goat.mp4", "davis_scooter-black.mp4", "sam2_cups.mp4")
LOOKS = (0, 8, 16)
STILL_SHARE = 0.15  # of windows, in `footage_of`
TRIED = (0.0, 0.15, 0.3, 0.55, 0.9, 1.4)  # of the sigma of all that differs, after a codec
TYPICAL = {0: 1, 0.15: 0.85, 0.3: 0.6, 0.55: 0.3, 0.9: 0.16, 1: 0.15, 1.4: 0.18, 2.5: 0.3}  # share of the
# sigma that was right -> share of the noise's power that is left
TEXTURE = 0.35  # of sigma: what a denoiser takes from a textured window without noise, root mean square
UNSEEN = 0.3  # grey levels squared: errors that much smaller than this hardly count
PULL = 0.3  # dB for every factor e below no noise at all
CLEAN_WEIGHT, WHITE_WEIGHT = 1.0, 1.5  # of samples without noise, and with white noise


@dataclass(frozen=True)
class Recipe:
    """How a regression is trained: networks that are averaged, their widths, steps, and the standard
    deviation of what is added to the inputs, in units of their own.
    """

    networks: int = 3
    hidden: tuple[int, ...] = (24, 8)
    steps: int = 2500
    jitter: float = 0.07


@dataclass(frozen=True)
class Sample:
    """Of one plane: features of every look, what the formula for white noise says, the sigma wanted and the
    noise's root mean square; if they were tried, mean squared errors by sigma.
    """

    looks: list[np.ndarray]
    white: float
    sigma: float
    rms: float
    colour: bool
    errors: dict[float, float]


def samples(kind: str, count: int, seed: int, clips: list[Path], photos: Path) -> Iterator[list[Sample]]:
    """Yield the samples of one window after the other."""
    found = [path for folder in clips for path in find_footage(folder, HELD_OUT, CLIP_SUFFIXES)]
    footage = Footage(found, find_footage(photos, (), STILL_SUFFIXES), 20, 0.1)
    rng, restorer = np.random.default_rng(seed), DenoiseRestorer(RestoreOptions())
    while count:
        window = cut(footage.window(rng, 16), rng)
        noisy = window and (clean_window(window, rng) if kind == "clean" else noisy_window(window, rng))
        if noisy and (kind != "coded" or noisy.coded) and (kind != "mixed" or not noisy.coded):
            yield [sample(noisy, plane, restorer) for plane in (0, 1)]
            count -= 1


def footage_of(frames: int, *, held_out: bool) -> Footage:
    """Return the clips that networks are trained on and photos, or the clips that are held out."""
    found = [
        path for part in ("train", "train_more") for path in find_footage(SHARED / part, (), CLIP_SUFFIXES)
    ]
    clips = [path for path in found if (path.name in HELD_OUT) == held_out]
    photos = [] if held_out else find_footage(SHARED / "stills", (), STILL_SUFFIXES)
    return Footage(clips, photos, frames, STILL_SHARE)


def cut(
    planes: tuple[Tensor, ...], rng: np.random.Generator, size: tuple[int, int] = (192, 256)
) -> tuple[Tensor, ...] | None:
    """`size` pixels of 4:2:0 from a random place; None of other layouts and of much smaller pictures."""
    height, width = planes[0].shape[1:]
    if (
        len(planes) != 3
        or planes[1].shape[1] * 2 != height // 2 * 2
        or planes[1].shape[2] * 2 != width // 2 * 2
        or min(height, width) < 128
    ):
        return None
    rows, columns = (min(side, most) // 16 * 16 for side, most in zip((height, width), size, strict=True))
    top, left = (
        2 * int(rng.integers((height - rows) // 2 + 1)),
        2 * int(rng.integers((width - columns) // 2 + 1)),
    )
    chroma = (
        plane[:, top // 2 : (top + rows) // 2, left // 2 : (left + columns) // 2] for plane in planes[1:]
    )
    return tuple(plane.float() for plane in (planes[0][:, top : top + rows, left : left + columns], *chroma))


def clean_window(planes: tuple[Tensor, ...], rng: np.random.Generator) -> Noisy:
    """As filmed, made smaller, or in few flat colours as drawn pictures are; coded by x264 or JPEG more often
    than not.
    """
    kind = rng.random()
    if kind < 0.2:
        planes = tuple(F.avg_pool2d(plane, 2) for plane in planes)
    elif kind < 0.3:
        step, side = float(rng.choice([12, 24, 48])), int(rng.choice([1, 3, 5]))
        planes = tuple((F.avg_pool2d(plane, side, 1, side // 2) / step).round() * step for plane in planes)
    elif kind < 0.5:
        planes = tuple(plane + rng.uniform(0.3, 1.5) * (plane - smoothed(plane)) for plane in planes)
    whole = tuple(plane.round().clamp(0, 255) for plane in planes)
    if rng.random() < 0.6:
        return clean_as_it_is(whole, 0.5, rng)
    frames = [tuple(part.numpy().astype(np.uint8) for part in frame) for frame in zip(*whole, strict=True)]
    coded = recompress_pictures(frames, int(rng.integers(2, 10)))
    seen = tuple(torch.from_numpy(np.stack(plane)).float() for plane in zip(*coded, strict=True))
    return Noisy(seen, seen, (0.0,) * len(seen), True)


def smoothed(plane: Tensor) -> Tensor:
    return F.avg_pool2d(F.pad(plane[:, None], (1, 1, 1, 1), mode="replicate"), 3, 1)[:, 0]


def sample(noisy: Noisy, plane: int, restorer: DenoiseRestorer) -> Sample:
    frames = [tuple(part.numpy() for part in planes) for planes in zip(*noisy.seen, strict=True)]
    looks = [plane_features(frames[first : first + FRAMES_SEEN])[plane] for first in LOOKS]
    formula = NoiseEstimator()
    for first in LOOKS:
        formula.add(frames[first][plane])
    sigma, rms, errors = wanted(noisy, plane, restorer)
    known = [look.seen for look in looks if look is not None]
    return Sample(known, formula.sigma(), sigma, min(rms, sigma), plane > 0, errors)


def strengths(noisy: Noisy, plane: int) -> tuple[float, float]:
    """Sigma, that of the power where most of the noise is, and root mean square."""
    if noisy.sigma:
        return noisy.sigma[plane], noisy.sigma[plane]
    noise = noisy.seen[plane] - noisy.clean[plane]
    height, width = noise.shape[1:]
    blocks = noise[:, : height // 8 * 8, : width // 8 * 8].unfold(1, 8, 8).unfold(2, 8, 8).reshape(-1, 64)
    power = (blocks @ torch.from_numpy(dct_basis(8)).T).square().mean(0)
    rms = float(power.mean().sqrt())
    sigma = float((power.square().mean() / power.mean().clamp(min=1e-6)).sqrt())
    return sigma, rms


def wanted(noisy: Noisy, plane: int, restorer: DenoiseRestorer) -> tuple[float, float, dict[float, float]]:
    """Sigma, root mean square, and the errors that were tried."""
    sigma, rms = strengths(noisy, plane)
    if noisy.sigma or not noisy.coded:
        return sigma, rms, {}
    errors = tried(noisy, plane, max(sigma, 1.2), restorer)
    least = min(errors, key=errors.__getitem__)
    return least, rms * min(1.0, least / max(sigma, 1e-3)), errors


def tried(noisy: Noisy, plane: int, base: float, restorer: DenoiseRestorer) -> dict[float, float]:
    """DUST's errors for shares of a sigma."""
    seen, clean, guide = noisy.seen[plane][5:15], noisy.clean[plane][5:15], noisy.seen[0][5:15]
    positions = ClipPositions(guide, 16, follow=True)
    errors = {}
    with torch.inference_mode():
        for share in TRIED:
            restored = restorer.restored_plane(seen, share * base, positions, "auto") if share else seen
            errors[share * base] = float((restored.clamp(0, 255) - clean).square().mean())
    return errors


def losses(sample: Sample) -> tuple[Array, Array]:
    """(len(TYPICAL),) logarithms of sigma, and dB lost there; in between by straight lines."""
    if sample.errors:
        sigmas, errors = np.array(list(sample.errors)), np.array(list(sample.errors.values()))
    elif sample.sigma:
        sigmas = sample.sigma * np.array(list(TYPICAL))
        errors = sample.sigma**2 * np.array(list(TYPICAL.values()))
    else:
        sigmas = np.array([0, 0.7, 1.5, 3, 6, 12, 25, 50.0])
        errors = (TEXTURE * sigmas) ** 2
    decibels = 10 * np.log10(errors + UNSEEN)
    order = np.arange(len(TYPICAL)).clip(max=len(sigmas) - 1)
    positions = np.log(sigmas + OFFSET)[order]
    beyond = np.arange(len(TYPICAL)) - order  # the last line goes on
    slope = (decibels[-1] - decibels[-2]) / (positions[-1] - np.log(sigmas[-2] + OFFSET))
    return positions + beyond, (decibels - decibels.min())[order] + beyond * max(slope, 1.0)


def fit(path: Path, sources: list[Path], recipe: Recipe | None = None) -> None:
    """Fit some small networks and write them as one, hidden layers side by side."""
    recipe = recipe or Recipe()
    every = [
        each
        for source in sources
        for window in pickle.loads(source.read_bytes())
        for each in window
        if each.looks
    ]
    rows = [(look, each) for each in every for look in [np.median(each.looks, axis=0), *each.looks]]
    given = np.array([regression_input(look, each.white, colour=each.colour) for look, each in rows])
    strength = np.log(np.array([each.rms for _, each in rows]) + OFFSET)
    mean, spread = given.mean(0), given.std(0) + 1e-3
    inputs = torch.tensor((given - mean) / spread).float()
    tables = np.array([losses(each) for _, each in rows])
    positions, lost = (torch.tensor(tables[:, part]).float() for part in (0, 1))
    weights = torch.tensor([weight_of(each) for _, each in rows])
    targets = Targets(
        torch.tensor(given[:, -2]).float(), positions, lost, torch.tensor(strength).float(), weights
    )
    networks = [fitted(inputs, targets, seed, recipe) for seed in range(recipe.networks)]
    first, second, last = zip(
        *([layer for layer in network if isinstance(layer, nn.Linear)] for network in networks), strict=True
    )
    layers = [
        (torch.tensor(mean), torch.tensor(spread)),
        (torch.cat([layer.weight for layer in first]), torch.cat([layer.bias for layer in first])),
        (torch.block_diag(*(layer.weight for layer in second)), torch.cat([layer.bias for layer in second])),
        (
            torch.cat([layer.weight for layer in last], 1) / recipe.networks,
            torch.stack([layer.bias for layer in last]).mean(0),
        ),
    ]
    path.write_text(
        json.dumps({"layers": [[short(weight.tolist()), short(bias.tolist())] for weight, bias in layers]})
        + "\n"
    )


def weight_of(sample: Sample) -> float:
    return CLEAN_WEIGHT if sample.sigma == 0 else WHITE_WEIGHT if sample.sigma == sample.rms else 1.0


@dataclass(frozen=True)
class Targets:
    """Of every row: logarithms of the formula's sigma and of the root mean square, the losses, the weight."""

    formula: Tensor
    positions: Tensor
    lost: Tensor
    rms: Tensor
    weights: Tensor

    def loss(self, found: Tensor, chosen: Tensor) -> Tensor:
        """Mean dB lost, and a little for a wrong root mean square."""
        sigma, rms = (found + self.formula[chosen, None]).unbind(1)
        positions, lost = self.positions[chosen], self.lost[chosen]
        none = positions[:, 0]  # no noise; below, a slight pull back is all
        inside = torch.maximum(sigma, none)
        above = torch.searchsorted(positions, inside.detach()[:, None].contiguous()).clamp(
            1, positions.shape[1] - 1
        )
        (x0, x1), (y0, y1) = (
            (v.gather(1, above - 1)[:, 0], v.gather(1, above)[:, 0]) for v in (positions, lost)
        )
        decibels = y0 + (y1 - y0) * (inside - x0) / (x1 - x0) + PULL * (inside - sigma)
        off = F.smooth_l1_loss(rms, self.rms[chosen], beta=0.2, reduction="none")
        return (self.weights[chosen] * (decibels + off)).mean()


def fitted(inputs: Tensor, targets: Targets, seed: int, recipe: Recipe) -> nn.Sequential:
    torch.manual_seed(seed)
    widths = (inputs.shape[1], *recipe.hidden, 2)
    layers = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    network = nn.Sequential(*layers[:-1])
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, recipe.steps)
    for _ in range(recipe.steps):
        chosen = torch.randint(len(inputs), (256,))
        given = inputs[chosen] + recipe.jitter * torch.randn(256, inputs.shape[1])
        loss = targets.loss(network(given), chosen)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()
        schedule.step()
    return network


def short(values: object) -> object:
    """Numbers to four digits."""
    return [short(each) for each in values] if isinstance(values, list) else float(f"{values:.4g}")


def commands(text: str | None) -> tuple[argparse.ArgumentParser, ...]:
    """Return the parser of a script described by `text`, and those of its commands `samples` and `fit`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    both = parser.add_subparsers(dest="command", required=True)
    make = both.add_parser("samples")
    make.add_argument("output", type=Path)
    make.add_argument("--count", type=int, required=True)
    make.add_argument("--seed", type=int, default=1)
    return parser, make, both.add_parser("fit")


def main() -> None:
    parser, make, learn = commands(__doc__)
    make.add_argument("--kind", choices=("mixed", "coded", "clean"), required=True)
    make.add_argument("--clips", type=Path, nargs="+", default=[SHARED / "train", SHARED / "train_more"])
    make.add_argument("--photos", type=Path, default=SHARED / "stills")
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
