#!/usr/bin/env python3
"""Fit the network that measures noise (vidrestore/noise/noise.safetensors), from training clips and photos
with noise of many kinds, and without noise.

    fit_noise.py samples SAMPLES.pkl --count 500 [--seed 1] [--kinds photo,drawing]
    fit_noise.py fit NOISE.safetensors SAMPLES.pkl [SAMPLES.pkl ...]

A sample is a window: the features of its planes, in several looks, in one, and in a single frame, and the
errors of a denoiser for some values of sigma. Where noise is added to video and altered by no camera, the
best sigma is that of the power where most of the noise is, sqrt(mean(S^2) / mean(S)) over the frequencies of
8 x 8 blocks, and errors around it are typical ones. Else the denoiser is tried: `--quality fast` without
non-local Bayes, whose best sigma is within a tenth of the default's, at a fifth of the time. 100 samples take
a minute. A tenth of photos and clips is held out; the fit prints what it loses there.
"""

from __future__ import annotations

import argparse
import math
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from finished_noise import as_jpeg, drawn, planes_of, random_camera, rgb_of, yuv
from noise_mix import (
    Planes,
    clean_window,
    coded_by_any,
    noise_of_any_kind,
    noisy_window,
    whole,
)
from safetensors.numpy import save_file
from torch import Tensor, nn

from vidrestore.lab.degrade.counters import log_uniform
from vidrestore.lab.training.data.footage import (
    CLIP_SUFFIXES,
    STILL_SUFFIXES,
    Footage,
    find_footage,
)
from vidrestore.media.reading.pictures import read_picture
from vidrestore.noise.features import FRAMES_SEEN, Array, plane_features
from vidrestore.noise.meter import FARTHEST, OFFSET, PlaneFeatures, network_input
from vidrestore.noise.white import NoiseEstimator, dct_basis
from vidrestore.pixels.colour import OPPONENT_NORMS, rgb_to_opponent
from vidrestore.pixels.linear_light import to_light
from vidrestore.restorers import denoise
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.settings.options import RestoreOptions

SHARED = Path(__file__).parents[3] / "shared" / "data"
HELD_OUT = (
    "davis_libby.mp4",
    "davis_goat.mp4",
    "davis_scooter-black.mp4",
    "sam2_cups.mp4",
)
HELD_OUT_SHARE = 0.12  # of samples
LOOKS = (0, 8, 16)
# of a window, its looks, and a trial
FRAMES, STARTS, TRIED_FRAMES = 10, (0, 6), slice(3, 8)
SIZES = ((160, 160), (208, 320))
TRIED_SIDE, TRIED_ALONE = 128, 144  # of what is tried, in a clip and in a single frame
SIGMAS = (1.2, 2.0, 3.2, 5.0, 8.0, 12.5, 20.0, 32.0, 50.0, 80.0)
# share of the sigma
TYPICAL = {0.15: 0.85, 0.3: 0.6, 0.55: 0.3, 0.9: 0.16, 1: 0.15, 1.4: 0.18, 2.5: 0.3}
# that was right -> share of the noise's power that is left
DRAWN = 0.3  # share of windows with known noise
STILL_SHARE = 0.15  # of windows, in `footage_of`
UNSEEN = 0.1  # grey levels squared, added to errors
WORTH = 0.2  # dB gained that make noise
# of windows without noise; the others weigh what they gain, in dB
CLEAN_WEIGHT, WEIGHTS = 2.5, (0.15, 3.0)
WHITE = 1.08  # ratio of sigma to root mean square up to which known noise is white
WHITE_WEIGHT = 3.0  # of the strength of white noise
# logarithms of sigma in tables of losses
PLACES = np.log(np.geomspace(0.4, 110, 33) + OFFSET)
HIDDEN, NETWORKS, STEPS, BATCH, JITTER = (64, 24), 3, 4000, 256, 0.12
MOST_LOST = 3.0  # dB: errors of the strength beyond hardly count


@dataclass(frozen=True)
class Window:
    """`seen`: whole numbers, R, G, B (T, H, W) if `rgb`, else Y, U, V; `exact`: what a denoiser should return
    of the `TRIED_FRAMES`, None if there is no noise. `strengths`: sigma and root mean square of the planes if
    they are known.
    """

    seen: Planes
    exact: Planes | None = None
    rgb: bool = False
    strengths: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Sample:
    """Of a window: what was measured of its planes, look by look; of every plane the mean squared errors by
    sigma, 0 included, none for a window without noise, and the noise's root mean square.
    """

    looks: list[list[PlaneFeatures]]
    errors: list[dict[float, float]]
    rms: list[float]
    held_out: bool
    kind: str


class Sources:
    """Draws windows of clips and photos, either held out or not."""

    def __init__(self, rng: np.random.Generator, *, held_out: bool) -> None:
        folders = (SHARED / name for name in ("photos", "photos_by_sa", "stills"))
        photos = sorted(
            path
            for folder in folders
            for path in find_footage(folder, (), STILL_SUFFIXES)
        )
        self.photos = [
            path for at, path in enumerate(photos) if (at % 10 == 3) == held_out
        ]
        self.footage, self.rng = footage_of(FRAMES, held_out=held_out), rng

    def clip(self) -> Planes:
        while True:
            size = SIZES[int(self.rng.integers(len(SIZES)))]
            window = cut(self.footage.window(self.rng, 160), self.rng, size)
            if window is not None and len(window[0]) == FRAMES:
                return window

    def photo(self, scale: tuple[float, float], most: int = 448) -> Tensor:
        """R'G'B' (1, 3, H, W) of a part of a photo, scaled and darkened at random."""
        planes = read_picture(self.photos[self.rng.integers(len(self.photos))])
        y, *colours = (
            torch.from_numpy(plane.copy()).float()[None, None] for plane in planes
        )
        sizes = [
            F.interpolate(plane, y.shape[2:], mode="bilinear") for plane in colours
        ]
        rgb = rgb_of(
            torch.cat((y / 255, *((plane - 127.5) / 255 for plane in sizes)), 1)
        ).clamp(0, 1)
        factor = log_uniform(self.rng, scale)
        rgb = self._part(rgb, math.ceil(most / factor))
        size = [max(64, 2 * round(factor * side / 2)) for side in rgb.shape[2:]]
        mode = "bicubic" if factor > 1 else "bilinear"
        scaled = F.interpolate(rgb, size, mode=mode, antialias=factor < 1).clamp(0, 1)
        return scaled if self.rng.random() < 0.6 else scaled * self.rng.uniform(0.25, 1)

    def _part(self, rgb: Tensor, most: int) -> Tensor:
        height, width = (min(most, side) // 2 * 2 for side in rgb.shape[2:])
        top, left = (
            int(self.rng.integers(side - size + 1))
            for side, size in zip(rgb.shape[2:], (height, width), strict=True)
        )
        return rgb[:, :, top : top + height, left : left + width]


def footage_of(frames: int, *, held_out: bool) -> Footage:
    """Return the clips that networks are trained on and photos, or the clips that are held out."""
    found = [
        path
        for part in ("train", "train_more")
        for path in find_footage(SHARED / part, (), CLIP_SUFFIXES)
    ]
    clips = [path for path in found if (path.name in HELD_OUT) == held_out]
    photos = [] if held_out else find_footage(SHARED / "stills", (), STILL_SUFFIXES)
    return Footage(clips, photos, frames, STILL_SHARE)


def cut(
    planes: Planes, rng: np.random.Generator, size: tuple[int, int] = (192, 256)
) -> Planes | None:
    """`size` pixels of 4:2:0 from a random place; None of other layouts and of much smaller pictures."""
    height, width = planes[0].shape[1:]
    half = [height // 2, width // 2]
    if (
        len(planes) != 3
        or list(planes[1].shape[1:]) != half
        or min(height, width) < 128
    ):
        return None
    rows, columns = (
        min(side, most) // 16 * 16
        for side, most in zip((height, width), size, strict=True)
    )
    top = 2 * int(rng.integers((height - rows) // 2 + 1))
    left = 2 * int(rng.integers((width - columns) // 2 + 1))
    chroma = (
        plane[:, top // 2 : (top + rows) // 2, left // 2 : (left + columns) // 2]
        for plane in planes[1:]
    )
    return tuple(
        plane.float()
        for plane in (planes[0][:, top : top + rows, left : left + columns], *chroma)
    )


def photo_with_noise(sources: Sources, rng: np.random.Generator) -> Window:
    """A finished photo; the truth is what its camera makes of light alone, or the mean of exposures."""
    light = to_light(sources.photo((0.4, 1.9), int(rng.choice([224, 288, 384, 448]))))
    camera = random_camera(light, rng)
    exposures = [camera.exposed(light, rng) for _ in range(5)]
    exact = sum(exposures[1:]) / 4 if rng.random() < 0.5 else camera.developed(light)
    return stored(exposures[0], rng, exact)


def clean_photo(sources: Sources, rng: np.random.Generator) -> Window:
    """As it is, scaled, or finished by a camera that adds hardly any noise."""
    kind = rng.random()
    if kind < 0.6:
        return stored(sources.photo((1.0, 1.0) if kind < 0.25 else (0.35, 1.3)), rng)
    light = to_light(sources.photo((0.4, 0.8)))
    return stored(random_camera(light, rng, level=1e-4).developed(light), rng)


def stored(
    rgb: Tensor, rng: np.random.Generator, exact: Tensor | None = None
) -> Window:
    """A photo in R, G, B or Y, U, V, after JPEG more often than not."""
    as_rgb, coded = rng.random() < 0.45, rng.random() < 0.65
    seen = planes_of(rgb, halved=rng.random() < 0.7 and (coded or not as_rgb))
    if coded:
        seen = as_jpeg(seen, int(rng.choice([1, 1, 2, 2, 2, 3, 4, 5, 7])))
    if as_rgb:
        shown = _in_rgb(seen) if coded else whole(_channels(rgb))
        return Window(shown, None if exact is None else _channels(exact), rgb=True)
    if exact is None:
        return Window(seen)
    y, *colours = yuv(exact).unbind(1)
    colours = [
        F.interpolate(plane[None], seen[1].shape[1:], mode="area")[0]
        for plane in colours
    ]
    return Window(seen, (255 * y, *(127.5 + 255 * plane for plane in colours)))


def _channels(rgb: Tensor) -> Planes:
    return tuple(255 * rgb[:, channel] for channel in range(3))


def _in_rgb(planes: Planes) -> Planes:
    y = planes[0] / 255
    colours = [
        F.interpolate(plane[None], y.shape[1:], mode="bilinear")[0]
        for plane in planes[1:]
    ]
    rgb = rgb_of(torch.stack((y, *((plane - 127.5) / 255 for plane in colours)), 1))
    return whole(_channels(rgb.clamp(0, 1)))


def finished_clip(sources: Sources, rng: np.random.Generator) -> Window:
    """A clip as a camera finishes it, smoothed over time now and then, coded more often than not."""
    y, *colours = sources.clip()
    u, v = (
        F.interpolate(plane[:, None], y.shape[1:], mode="bilinear")[:, 0]
        for plane in colours
    )
    rgb = rgb_of(
        torch.stack(((y - 16) / 219, (u - 128) / 224, (v - 128) / 224), 1)
    ).clamp(0, 1)
    light = to_light(rgb if rng.random() < 0.6 else rgb * rng.uniform(0.25, 1))
    camera = random_camera(light, rng)
    seen = camera.exposed(light, rng)
    if rng.random() < 0.2:
        share = rng.uniform(0.2, 0.6)
        for at in range(1, len(seen)):
            seen[at] = share * seen[at - 1] + (1 - share) * seen[at]
    part = light[TRIED_FRAMES]
    exact = camera.developed(part)
    if rng.random() < 0.3:
        exact = torch.stack([camera.exposed(part, rng) for _ in range(3)]).mean(0)
    height, width = (side // 16 * 16 for side in seen.shape[2:])
    shown, clean = (_limited(each[:, :, :height, :width]) for each in (seen, exact))
    return Window(
        coded_by_any(whole(shown), rng) if rng.random() < 0.65 else whole(shown), clean
    )


def _limited(rgb: Tensor) -> Planes:
    """Y, U, V of 4:2:0 in limited range."""
    y, *colours = yuv(rgb).unbind(1)
    return (
        16 + 219 * y,
        *(128 + 224 * F.avg_pool2d(plane[:, None], 2)[:, 0] for plane in colours),
    )


def noisy_clip(sources: Sources, rng: np.random.Generator) -> Window:
    noisy = noisy_window(sources.clip(), rng)
    return Window(noisy.seen, tuple(plane[TRIED_FRAMES] for plane in noisy.clean))


def clip_with_known_noise(sources: Sources, rng: np.random.Generator) -> Window:
    """Noise whose sigma and root mean square are calculated, not tried; none that is weak. Clips, or drawn
    pictures that move.
    """
    while True:
        is_drawn = rng.random() < DRAWN
        clean = (
            whole(_limited(drawn(rng, FRAMES, 208, 320)))
            if is_drawn
            else sources.clip()
        )
        noisy = noise_of_any_kind(clean, rng)
        found = [
            strengths(seen - clean)
            for seen, clean in zip(noisy.seen, noisy.clean, strict=True)
        ]
        if max(rms for _, rms in found) > 1.2:
            return Window(noisy.seen, noisy.clean, strengths=tuple(found))


def strengths(noise: Tensor) -> tuple[float, float]:
    """Sigma, that of the power where most of the noise is, and root mean square."""
    height, width = noise.shape[1:]
    blocks = (
        noise[:, : height // 8 * 8, : width // 8 * 8]
        .unfold(1, 8, 8)
        .unfold(2, 8, 8)
        .reshape(-1, 64)
    )
    power = (blocks @ torch.from_numpy(dct_basis(8)).T).square().mean(0)
    sigma = float((power.square().mean() / power.mean().clamp(min=1e-6)).sqrt())
    return sigma, float(power.mean().sqrt())


def clean_clip(sources: Sources, rng: np.random.Generator) -> Window:
    return Window(clean_window(sources.clip(), rng))


def drawing(_: Sources, rng: np.random.Generator) -> Window:
    """A drawn picture or text, which moves or is a single frame."""
    height, width = ((208, 320), (272, 480), (320, 320))[rng.integers(3)]
    if rng.random() < 0.5:
        return stored(drawn(rng, 1, height, width), rng)
    seen = whole(_limited(drawn(rng, FRAMES, height, width)))
    return Window(coded_by_any(seen, rng) if rng.random() < 0.7 else seen)


# kinds of windows and their shares
KINDS: dict[str, tuple[Callable[[Sources, np.random.Generator], Window], float]] = {
    "photo": (photo_with_noise, 0.25),
    "clean photo": (clean_photo, 0.13),
    "finished clip": (finished_clip, 0.07),
    "noisy clip": (noisy_clip, 0.12),
    "known noise": (clip_with_known_noise, 0.28),
    "clean clip": (clean_clip, 0.12),
    "drawing": (drawing, 0.03),
}


def samples(count: int, seed: int, kinds: list[str]) -> Iterator[Sample]:
    rng, restorer = (
        np.random.default_rng(seed),
        DenoiseRestorer(RestoreOptions(quality="fast")),
    )
    restorer.further_estimates = lambda plane, estimate, *how, **options: estimate  # type: ignore[method-assign]
    sources = {held_out: Sources(rng, held_out=held_out) for held_out in (False, True)}
    shares = np.array([KINDS[kind][1] for kind in kinds])
    while count:
        kind, held_out = (
            kinds[rng.choice(len(kinds), p=shares / shares.sum())],
            rng.random() < HELD_OUT_SHARE,
        )
        window = KINDS[kind][0](sources[held_out], rng)
        looks = measured(window)
        if looks:
            errors, rms = (
                known(window) if window.strengths else tried(window, rng, restorer)
            )
            yield Sample(looks, errors, rms, held_out, kind)
            count -= 1


def measured(window: Window) -> list[list[PlaneFeatures]]:
    """The planes as they are measured in all looks, in the first one, and in one frame; nothing of those that
    are too small.
    """
    frames = [
        _planes(tuple(plane[at] for plane in window.seen), window.rgb)
        for at in range(len(window.seen[0]))
    ]
    arrays = [tuple(plane.numpy() for plane in frame) for frame in frames]
    single = len(arrays) == 1
    looks = [
        plane_features(arrays[first : first + FRAMES_SEEN])
        for first in (STARTS[:1] if single else STARTS)
    ]
    if any(features is None for look in looks for features in look):
        return []
    medians: list[Array | None] = list(np.median(np.array(looks), axis=0))
    seen = [(medians, [arrays[0]] if single else [arrays[first] for first in STARTS])]
    if not single:
        seen += [
            (looks[0], arrays[:1]),
            (plane_features(arrays[STARTS[1] :][:1]), arrays[STARTS[1] :][:1]),
        ]
    return [
        [
            PlaneFeatures(each, white([frame[plane] for frame in shown]))
            for plane, each in enumerate(features)
        ]
        for features, shown in seen
    ]


def _planes(frame: Planes, rgb: bool) -> Planes:
    return rgb_to_opponent(frame) if rgb else frame


def white(planes: list[np.ndarray]) -> float:
    formula = NoiseEstimator()
    for plane in planes:
        formula.add(plane)
    return formula.sigma()


def known(window: Window) -> tuple[list[dict[float, float]], list[float]]:
    """Typical errors around the sigma that is right."""
    errors = [
        {0.0: rms**2}
        | {share * sigma: left * rms**2 for share, left in TYPICAL.items()}
        for sigma, rms in window.strengths
    ]
    return errors, [rms for _, rms in window.strengths]


def tried(
    window: Window, rng: np.random.Generator, restorer: DenoiseRestorer
) -> tuple[list[dict[float, float]], list[float]]:
    """The denoiser's errors on a part of a window, at rising sigmas until they rise in all planes."""
    if window.exact is None:
        return [], []
    single = len(window.seen[0]) == 1
    frames = slice(0, 1) if single else TRIED_FRAMES
    given = _planes(tuple(plane[frames] for plane in window.seen), window.rgb)
    exact = _planes(window.exact, window.rgb)
    rms = [
        float((seen - clean).square().mean().sqrt())
        for seen, clean in zip(given, exact, strict=True)
    ]
    norms = OPPONENT_NORMS if window.rgb else (1.0,) * len(given)
    given, exact = _same_part(
        (given, exact), TRIED_ALONE if single else TRIED_SIDE, rng
    )
    errors = [
        {0.0: float((seen - clean).square().mean())}
        for seen, clean in zip(given, exact, strict=True)
    ]
    least = 0.55 * min(
        each[0.0] ** 0.5 / norm for each, norm in zip(errors, norms, strict=True)
    )
    for sigma in [each for each in SIGMAS if each >= least] or [SIGMAS[-1]]:
        levels = tuple(sigma * norm for norm in norms)
        with torch.inference_mode():
            restored = restorer.restore(given, levels, measured=True)
        for each, level, found, clean in zip(
            errors, levels, restored, exact, strict=True
        ):
            each[level] = float((found - clean).square().mean())
        if all(
            each[level] > 1.35 * min(each.values()) + 0.1
            for each, level in zip(errors, levels, strict=True)
        ):
            break
    return errors, rms


def _same_part(
    pair: tuple[Planes, Planes], side: int, rng: np.random.Generator
) -> tuple[Planes, Planes]:
    height, width = pair[0][0].shape[1:]
    top, left = (
        2 * int(rng.integers(max(0, most - side) // 2 + 1)) for most in (height, width)
    )

    def part(plane: Tensor) -> Tensor:
        down = 1 if plane.shape[1] == height else 2
        cut = plane[
            :, top // down : (top + side) // down, left // down : (left + side) // down
        ]
        return cut.contiguous()

    seen, exact = (tuple(part(plane) for plane in planes) for planes in pair)
    return seen, exact


@dataclass(frozen=True)
class Table:
    """Of every row: the network's input, the logarithm of the formula's sigma, dB lost at `PLACES`, the
    weight of what is said of its strength, 0 if there is none, the weight of the odds, and the logarithm of
    the noise's root mean square.
    """

    inputs: Tensor
    formula: Tensor
    lost: Tensor
    noise: Tensor
    weights: Tensor
    rms: Tensor

    def __getitem__(self, chosen: Tensor) -> Table:
        return Table(*(each[chosen] for each in vars(self).values()))

    def loss(self, found: Tensor) -> Tensor:
        """Of outputs: wrong odds, dB lost by a wrong sigma, and a little for a wrong root mean square."""
        odds, sigma, rms = found.unbind(1)
        unlikely = F.binary_cross_entropy_with_logits(
            odds, (self.noise > 0).float(), reduction="none"
        )
        decibels = MOST_LOST * torch.tanh(
            self.lost_at(sigma + self.formula) / MOST_LOST
        )
        off = F.smooth_l1_loss(rms + self.formula, self.rms, beta=0.2, reduction="none")
        return (self.weights * unlikely + self.noise * (decibels + 0.5 * off)).mean()

    def lost_at(self, logarithms: Tensor) -> Tensor:
        """dB lost at sigmas, by straight lines."""
        places, at = torch.tensor(PLACES).float(), logarithms.clamp(-1, 5.2)
        above = torch.searchsorted(places, at.detach().contiguous()).clamp(
            1, len(places) - 1
        )
        before, after = (
            self.lost.gather(1, each[:, None])[:, 0] for each in (above - 1, above)
        )
        share = (at - places[above - 1]) / (places[above] - places[above - 1])
        return before + (after - before) * share


def table_of(every: list[Sample]) -> Table:
    """Rows of every look and plane; luma of half of the windows once more as if there were no colour."""
    rows = []
    for number, sample in enumerate(every):
        for at, planes in enumerate(sample.looks):
            for index in range(3):
                inputs = network_input(planes, index, colour=True)
                rows.append((inputs, planes[index].white, *wanted(sample, index)))
            if not at or number % 2 == 0:
                alone = network_input(planes[:1], 0, colour=False)
                rows.append((alone, planes[0].white, *wanted(sample, 0)))
    columns = [
        torch.from_numpy(np.array(column)).float() for column in zip(*rows, strict=True)
    ]
    inputs, formula, lost, noise, weights, rms = columns
    return Table(
        inputs, (formula + OFFSET).log(), lost, noise, weights, (rms + OFFSET).log()
    )


def wanted(sample: Sample, plane: int) -> tuple[Array, float, float, float]:
    """dB lost at `PLACES`, the weights of the noise's strength and of the odds, and its root mean square."""
    fewer = len(sample.looks) ** -0.5
    if not sample.errors or not any(sample.errors[plane].values()):
        return np.zeros(len(PLACES)), 0.0, CLEAN_WEIGHT * fewer, 0.0
    sigmas = sorted(sample.errors[plane])
    places = np.log(np.array(sigmas) + OFFSET)
    decibels = 10 * np.log10(
        np.array([sample.errors[plane][sigma] for sigma in sigmas]) + UNSEEN
    )
    gain = float(decibels[0] - decibels.min())
    slope = (
        2.0
        if len(sigmas) < 3
        else max(1.0, np.diff(decibels)[-1] / np.diff(places)[-1])
    )
    beyond = np.clip(PLACES - places[-1], 0, None) * slope
    lost = np.interp(PLACES, places, decibels) + beyond - decibels.min()
    is_white = (
        sample.kind == "known noise"
        and sigmas[-1] < WHITE * max(TYPICAL) * sample.rms[plane]
    )
    strength = (WHITE_WEIGHT if is_white else 1.0) * float(gain > WORTH)
    return lost, strength, float(np.clip(gain, *WEIGHTS)) * fewer, sample.rms[plane]


class Networks(nn.Module):
    """Some small networks, whose outputs are averaged."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        first, second = HIDDEN
        self.each = nn.ModuleList(
            nn.Sequential(
                nn.Linear(inputs, first),
                nn.ReLU(),
                nn.Linear(first, second),
                nn.ReLU(),
                nn.Linear(second, 3),
            )
            for _ in range(NETWORKS)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([network(inputs) for network in self.each]).mean(0)


def fit(path: Path, sources: list[Path]) -> None:
    every = [each for source in sources for each in pickle.loads(source.read_bytes())]
    held_out_count = sum(each.held_out for each in every)
    if not 0 < held_out_count < len(every):
        sys.exit(
            f"fit_noise.py: {held_out_count} of {len(every)} samples are held out, where some must be; "
            f"each is with a probability of {HELD_OUT_SHARE:.0%}: make more samples, 40 at least"
        )
    fitted_to, judged = (
        table_of([each for each in every if each.held_out == held_out])
        for held_out in (False, True)
    )
    torch.manual_seed(0)
    mean, spread = fitted_to.inputs.mean(0), fitted_to.inputs.std(0) + 1e-3
    networks = Networks(fitted_to.inputs.shape[1])
    optimiser = torch.optim.AdamW(networks.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, STEPS)
    for _ in range(STEPS):
        rows = fitted_to[torch.randint(len(fitted_to.inputs), (BATCH,))]
        given = ((rows.inputs - mean) / spread).clamp(-FARTHEST, FARTHEST)
        given = given + JITTER * torch.randn(given.shape)
        loss = torch.stack(
            [rows.loss(network(given)) for network in networks.each]
        ).sum()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(networks.parameters(), 5.0)
        optimiser.step()
        schedule.step()
    for name, rows in (("fitted", fitted_to), ("held out", judged)):
        with torch.no_grad():
            found = networks(((rows.inputs - mean) / spread).clamp(-FARTHEST, FARTHEST))
        report(name, rows, found)
    save_file(side_by_side(networks, mean, spread), path)


def report(name: str, rows: Table, found: Tensor) -> None:
    """Print how often noise is missed or found in clean planes, and what is lost on noisy ones."""
    odds, sigma, _ = found.unbind(1)
    noisy, called = rows.noise > 0, odds > 0
    left = rows.lost[:, 0]  # nearly that of no denoising at all
    lost = torch.where(called, rows.lost_at(sigma + rows.formula), left)[noisy].mean()
    shares = [float(each.float().mean()) for each in (~called[noisy], called[~noisy])]
    sys.stdout.write(
        f"{name}: {int(noisy.sum())} planes with noise, {shares[0]:.1%} missed, {lost:.2f} dB lost of "
        f"{left[noisy].mean():.2f}; {int((~noisy).sum())} without, {shares[1]:.1%} called noisy\n"
    )


def side_by_side(
    networks: Networks, mean: Tensor, spread: Tensor
) -> dict[str, np.ndarray]:
    """One network whose output is the mean of these, and its input's mean and spread."""
    first, second, last = zip(
        *(
            [layer for layer in network if isinstance(layer, nn.Linear)]
            for network in networks.each
        ),
        strict=True,
    )
    tensors = {
        "input.weight": mean,
        "input.bias": spread,
        "first.weight": torch.cat([layer.weight for layer in first]),
        "first.bias": torch.cat([layer.bias for layer in first]),
        "second.weight": torch.block_diag(*(layer.weight for layer in second)),
        "second.bias": torch.cat([layer.bias for layer in second]),
        "last.weight": torch.cat([layer.weight for layer in last], 1) / NETWORKS,
        "last.bias": torch.stack([layer.bias for layer in last]).mean(0),
    }
    return {
        name: each.detach().numpy().astype(np.float16) for name, each in tensors.items()
    }


def commands(text: str | None) -> tuple[argparse.ArgumentParser, ...]:
    """Return the parser of a script described by `text`, and those of its commands `samples` and `fit`."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    both = parser.add_subparsers(dest="command", required=True)
    make = both.add_parser("samples")
    make.add_argument("output", type=Path)
    make.add_argument("--count", type=int, required=True)
    make.add_argument("--seed", type=int, default=1)
    return parser, make, both.add_parser("fit")


def main() -> None:
    parser, make, learn = commands(__doc__)
    make.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    learn.add_argument("output", type=Path)
    learn.add_argument("samples", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "fit":
        fit(given.output, given.samples)
        return
    denoise.LEVELS_KEPT = 64
    given.output.write_bytes(
        pickle.dumps(list(samples(given.count, given.seed, given.kinds)))
    )


if __name__ == "__main__":
    main()
