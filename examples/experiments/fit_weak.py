#!/usr/bin/env python3
"""Fit the regression that finds weak noise behind a codec (vidrestore/noise/weak.json), from training clips
with such noise, and without noise.

    fit_weak.py samples SAMPLES.pkl --kind noisy|clean --count 300 [--seed 1] [--held-out]
    fit_weak.py fit SAMPLES.pkl [SAMPLES.pkl ...] [--check SAMPLES.pkl ...]

A sample is a window in which the other regressions find no noise: what is measured of its luma, and the
errors of `denoise` (its first estimate) for some values of sigma. The bundled file was fitted to 529 noisy
and 1,600 clean windows, some with log odds down to -4.5 (LOOKED_AT_AGAIN in vidrestore/noise/meter.py was
that then); that file's limits were chosen on samples of held-out clips and on drawn text.
"""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fit_noise import LOOKS, clean_window, commands, cut, footage_of
from fit_odds import Training, fitted, side_by_side, write
from noise_clips import through_encoder
from noise_mix import Planes, coded_by_x264
from torch import Tensor

from vidrestore.degrade.coloured_noise import blurred, white
from vidrestore.degrade.draws import log_uniform
from vidrestore.media.recompress import recompress_pictures
from vidrestore.models.patch_positions import ClipPositions
from vidrestore.noise import meter
from vidrestore.noise.features import plane_features
from vidrestore.noise.meter import FRAMES_SEEN, OFFSET, Measured, weak_input
from vidrestore.noise.white import NoiseEstimator
from vidrestore.options import RestoreOptions
from vidrestore.restorers.denoise import DenoiseRestorer

SIZES = ((192, 256), (208, 320), (352, 640))  # of windows, at most
WEAK = (2.0, 13.0)  # sigma of the noise
COARSE_SHARE, COARSE = 0.3, (0.3, 0.7)  # of windows whose noise is blurred, and by how many pixels
H264, MOTION_JPEG, H265 = 0.6, 0.15, 0.15  # shares of codecs; the rest is MPEG-4
QUANTISERS = (2, 10)
ALTERED, CODED = 0.4, 0.75  # shares of clean windows: `clean_window`; of the others, coded
DARK = 0.2  # share of windows that are darkened
TRIED, TRIED_FRAMES = (1.8, 2.7, 4.0, 6.0, 9.0, 13.0), slice(5, 15)
WORTH = 0.4  # dB gained from which there is noise
UNSEEN = 0.3  # grey levels squared, added to errors
CLEAN_WEIGHT = 1.5
HIDDEN, NETWORKS, STEPS, JITTER = 16, 3, 2000, 0.3
PULL = 30.0  # on the slopes of sigma


@dataclass(frozen=True)
class Sample:
    """`errors`: mean squared errors by sigma, none for a clean window."""

    luma: Measured
    errors: dict[float, float]

    @property
    def gain(self) -> float:
        """The dB that `denoise` gains at the best sigma."""
        return 10 * math.log10((self.errors[0.0] + UNSEEN) / (min(self.errors.values()) + UNSEEN))

    @property
    def best(self) -> float:
        """Logarithm of the best sigma, between those that were tried by a parabola."""
        sigmas = sorted(self.errors)[1:]
        found = np.log([self.errors[each] + UNSEEN for each in sigmas])
        places = np.log(np.array(sigmas) + OFFSET)
        at = int(np.clip(found.argmin(), 1, len(sigmas) - 2))
        bend, slope, _ = np.polyfit(places[at - 1 : at + 2], found[at - 1 : at + 2], 2)
        return float(np.clip(-slope / (2 * bend), *places[[at - 1, at + 1]]) if bend > 0 else places[at])


def samples(kind: str, count: int, seed: int, *, held_out: bool) -> Iterator[Sample]:
    footage, restorer = footage_of(20, held_out=held_out), DenoiseRestorer(RestoreOptions())
    rng = np.random.default_rng(seed)
    while count:
        window = cut(footage.window(rng, 160), rng, SIZES[rng.integers(len(SIZES))])
        if window is None:
            continue
        if rng.random() < DARK:
            share = rng.uniform(0.3, 0.9)
            levels = zip(window, (16, 128, 128), strict=True)
            window = tuple((level + (plane - level) * share).round() for plane, level in levels)
        seen = weakly_noisy(window, rng) if kind == "noisy" else without_noise(window, rng)
        luma = measured(seen[0])
        if luma is None or meter.estimate(luma, luma).sigma or not meter.is_open(luma):
            continue
        errors = tried(seen[0][TRIED_FRAMES], window[0][TRIED_FRAMES], restorer) if kind == "noisy" else {}
        found = Sample(luma, errors)
        if kind == "clean" or found.gain > WORTH:
            yield found
            count -= 1


def weakly_noisy(clean: Planes, rng: np.random.Generator) -> Planes:
    sigma = log_uniform(rng, WEAK)
    size = rng.uniform(*COARSE) if rng.random() < COARSE_SHARE else 0.0
    noise = [white(plane, rng) for plane in clean]
    if size:
        noise = [blurred(plane, size, size, same=True) for plane in noise]
    noisy = zip(clean, noise, strict=True)
    return coded(tuple((plane + sigma * part).round().clamp(0, 255) for plane, part in noisy), rng)


def without_noise(clean: Planes, rng: np.random.Generator) -> Planes:
    """As filmed, coded more often than not; or sharpened, smaller, drawn and coded as in `clean_window`."""
    if rng.random() < ALTERED:
        return clean_window(clean, rng).seen
    return coded(clean, rng) if rng.random() < CODED else clean


def coded(planes: Planes, rng: np.random.Generator) -> Planes:
    """Through H.264, Motion JPEG, H.265 or MPEG-4 and back."""
    kind = rng.random()
    if kind < H264:
        return coded_by_x264(planes, rng)
    frames = [tuple(part.to(torch.uint8).numpy() for part in frame) for frame in zip(*planes, strict=True)]
    if kind < H264 + MOTION_JPEG:
        back = recompress_pictures(frames, int(rng.integers(*QUANTISERS)))
    elif kind < H264 + MOTION_JPEG + H265:
        options = {
            "crf": f"{rng.uniform(18, 30):.1f}",
            "preset": "fast",
            "x265-params": "log-level=none:pools=1",
        }
        back = through_encoder(frames, "libx265", options)
    else:
        back = through_encoder(
            frames, "mpeg4", {"global_quality": str(118 * int(rng.integers(2, 9))), "flags": "+qscale"}
        )
    return tuple(torch.from_numpy(np.stack(plane)).float() for plane in zip(*back, strict=True))


def measured(luma: Tensor) -> Measured | None:
    frames = [frame.numpy() for frame in luma]
    looks = [plane_features([(frame,) for frame in frames[at : at + FRAMES_SEEN]])[0] for at in LOOKS]
    formula = NoiseEstimator()
    for at in LOOKS:
        formula.add(frames[at])
    known = [look.seen for look in looks if look is not None]
    return Measured(np.median(known, axis=0), formula.sigma(), False) if len(known) == len(looks) else None


def tried(seen: Tensor, clean: Tensor, restorer: DenoiseRestorer) -> dict[float, float]:
    """Mean squared errors by sigma, first without denoising."""
    positions = ClipPositions(seen, restorer.patch, follow=True)
    errors = {0.0: float((seen - clean).square().mean())}
    with torch.inference_mode():
        for sigma in TRIED:
            restored = restorer.restored_plane(seen, sigma, positions, "auto").clamp(0, 255)
            errors[sigma] = float((restored - clean).square().mean())
    return errors


def fit(every: list[Sample]) -> None:
    """Fit the odds by small networks and sigma by a linear map, and write them as one, hidden layers side by
    side; positive and negative parts of the inputs carry the linear map through them.
    """
    given = torch.tensor(np.array([weak_input(each.luma) for each in every])).float()
    mean, spread = given.mean(0), given.std(0) + 1e-3
    inputs = (given - mean) / spread
    noise = torch.tensor([float(bool(each.errors)) for each in every])
    weights = torch.tensor([min(2.0, each.gain) if each.errors else CLEAN_WEIGHT for each in every])
    how = Training(HIDDEN, STEPS, JITTER, 256)
    networks = [fitted(inputs, noise, weights, seed, how) for seed in range(NETWORKS)]
    (weight, bias), (last, last_bias) = side_by_side(networks)
    slope, offset = fitted_sigma(inputs, every)
    outputs = torch.zeros(2, last.shape[1] + 2)
    outputs[0, :-2], outputs[1, -2:] = last[0], torch.tensor([1.0, -1.0])
    layers = [
        (mean, spread),
        (torch.cat([weight, torch.stack((slope, -slope))]), torch.cat([bias, torch.zeros(2)])),
        (outputs, torch.stack([last_bias[0], offset])),
    ]
    write(Path(meter.__file__).parent / "weak.json", layers)


def fitted_sigma(inputs: Tensor, every: list[Sample]) -> tuple[Tensor, Tensor]:
    """Slopes and offset of the logarithm of sigma, by least squares with slopes kept small."""
    noisy = [at for at, each in enumerate(every) if each.errors]
    wanted = torch.tensor([every[at].best for at in noisy]).float()
    chosen, offset = inputs[noisy], wanted.mean()
    middle = chosen.mean(0)
    centred = chosen - middle
    slope = torch.linalg.solve(
        centred.T @ centred + PULL * torch.eye(inputs.shape[1]), centred.T @ (wanted - offset)
    )
    return slope, offset - middle @ slope


def table(every: list[Sample]) -> None:
    """Print how many windows are called noisy, and what is lost on noisy ones without and with that."""
    meter.regression.cache_clear()
    found = [meter.weak_noise(each.luma).sigma for each in every]
    sys.stdout.write("| windows | number | called noisy | dB lost without | with |\n|---|---|---|---|---|\n")
    for name, noisy in (("clean", False), ("noisy", True)):
        rows = [(each, at) for each, at in zip(every, found, strict=True) if bool(each.errors) == noisy]
        lost = [(loss(each, 0.0), loss(each, at)) for each, at in rows] if noisy else []
        cells = " | ".join(f"{value:.2f}" for value in np.mean(lost, 0)) if lost else " | "
        sys.stdout.write(f"| {name} | {len(rows)} | {sum(at > 0 for _, at in rows)} | {cells} |\n")


def loss(sample: Sample, sigma: float) -> float:
    """dB lost at a sigma against the best of those that were tried, by straight lines."""
    sigmas = sorted(sample.errors)
    decibels = 10 * np.log10(np.array([sample.errors[each] for each in sigmas]) + UNSEEN)
    places = np.log(np.array(sigmas) + OFFSET)
    return float(np.interp(math.log(sigma + OFFSET), places, decibels) - decibels.min())


def main() -> None:
    parser, make, learn = commands(__doc__)
    make.add_argument("--kind", choices=("noisy", "clean"), required=True)
    make.add_argument("--held-out", action="store_true")
    learn.add_argument("samples", type=Path, nargs="+")
    learn.add_argument("--check", type=Path, nargs="*", default=[], help="samples to show, not to fit to")
    given = parser.parse_args()
    if given.command == "samples":
        made = list(samples(given.kind, given.count, given.seed, held_out=given.held_out))
        given.output.write_bytes(pickle.dumps(made))
        return
    fit(loaded(given.samples))
    table(loaded(given.samples))
    if given.check:
        table(loaded(given.check))


def loaded(paths: list[Path]) -> list[Sample]:
    return [each for path in paths for each in pickle.loads(path.read_bytes())]


if __name__ == "__main__":
    main()
