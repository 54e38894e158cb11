"""Measure the strength of a scene's noise, plane by plane, as a denoiser for white noise needs it.

White noise is equally strong at every frequency, and a formula estimates it from the highest ones (white.py).
Other noise is coarse, smeared along lines, smoothed and sharpened by a camera, thinned out by a codec or
copied by it from frame to frame. For that a small network, fitted to many kinds of noise and to pictures
without noise (examples/experiments/fit_noise.py), maps features of the blocks (features.py) to the odds of
noise, the sigma that denoises best, and the noise's own strength. For developed photographs that sigma is
many times the strength.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from vidrestore.noise.features import (
    BETWEEN_ROW,
    FRAMES_SEEN,
    HALVED_ROW,
    WITHIN_ROW,
    Array,
    Planes,
    halved,
    plane_features,
)
from vidrestore.noise.white import (
    BLOCK_SIDE,
    NoiseEstimator,
    flat_blocks,
    flat_powers,
    flat_strength,
    noise_like_share,
    skewness_in_light,
)

LOOKS_KEPT = 32  # most looks of a scene; beyond that every second is dropped
OFFSET = 0.3  # grey levels added to sigma before taking its logarithm
# Change of the logarithm below which the formula's result is used: it is more accurate for white noise.
SAME = 0.2
COARSE = 1.25  # ratio of sigma to root mean square above which noise is called coarse
# grey levels by which some colour difference varies; less is that of a black and white picture
TINT = 1.5
# standard deviations from the mean to which inputs of the network are clipped
FARTHEST = 6.0


@dataclass(frozen=True)
class BarLines:
    """How lines of bars beside a picture differ from it, in grey levels."""

    black: float = 24.0  # highest median of a black bar's line
    # most by which a sample that counts as even differs from the line's median
    tolerance: float = 0.5
    # least share of even samples in a black bar's line; others are text
    even_in_black: float = 0.5
    # the same in another bar's line; others are traces of compression
    even_in_bars: float = 0.95


BAR_LINES = BarLines()
# share of blocks of one value from which a picture counts as drawn, or coded beyond noise
EVEN_SHARE = 0.01
# white noise of luma below which there is none but that of rounding
LEAST_RESIDUAL = 0.35
# sigma that no picture holds, since 0 and 255 lie this far from their middle: black and white patterns
MOST_NOISE = 127.5
BOUNDS = (20.0, 232.0)  # grey levels between which a value isn't clipped


@dataclass(frozen=True)
class PlaneNoise:
    """A plane's noise (0-255): `sigma` of white noise to denoise it as, and its root mean square."""

    sigma: float
    rms: float
    is_sure: bool = True  # False if there is likely none

    @property
    def tempered(self) -> float:
        """Sigma halfway, by logarithms, to the root mean square: where most of coarse noise is, much of the
        picture is, too.
        """
        return math.sqrt(self.sigma * self.rms)

    def __str__(self) -> str:
        coarse = ", coarse" if self.sigma > COARSE * self.rms else ""
        return f"{self.rms:.1f}{coarse}" if self.sigma and self.rms else "none"


@dataclass(frozen=True)
class PhotoNoise:
    """How the noise of a photograph is judged, on the 0-255 scale of R, G, B or of luma; chosen by 110 real
    and 40 drawn noisy ones, 40 clean ones and 30 textures (examples/experiments/noise_table.py textures).
    """

    # log odds of noise below which a photograph has none; users denoise noisy ones
    unlikely: float = -2.2
    unsure: float = 4.0  # most sigma of luma at odds below 1
    # least sigma of coarse noise, and of colour differences beside noise of luma
    coarse: float = 6.0
    # sigma of white noise up to which it may be stronger than the flattest blocks
    white: float = 8.0
    strong: float = 14.0  # sigma of coarse noise above which it is tempered
    # sigmas of colour over noise of luma between which luma's becomes a camera's; below it is texture, as of
    # paper. Real noise has 0.21 and more, behind JPEG, too; weaves 0 to 0.1 in two of three photographs.
    colourless: tuple[float, float] = (0.1, 0.2)
    # share of the power of luma, and of luma at half the size, that noise can have; less is a weave's. It is
    # 0.7 and more in coarse, smeared, sharpened and most real noise, 0.06 to 0.56 for threads up to 6 pixels
    # apart.
    noise_like: float = 0.7
    # skewness of flat blocks as light, between which relief becomes noise: that of paper is -0.2 to -1.7, of
    # real noise -0.1 and more
    skewness: tuple[float, float] = (-0.5, -0.15)


PHOTO_NOISE = PhotoNoise()


def noise_in_words(sigma: Sequence[float], rms: Sequence[float]) -> str:
    """Describe noise that was measured: "luma 9.6, coarse; chroma 14.1", or one value for a single plane."""
    planes = [
        str(PlaneNoise(*values)) for values in zip(sigma, rms or sigma, strict=True)
    ]
    if len(planes) == 1:
        return planes[0]
    stronger = max((1, 2), key=lambda index: sigma[index])
    return f"luma {planes[0]}; chroma {planes[stronger]}"


class NoiseMeter:
    """Measures a scene's noise from looks in order: a frame and some that follow it, on the 0-255 scale."""

    def __init__(
        self, planes: int, *, colour: bool, norms: Sequence[float] = ()
    ) -> None:
        """Set the number of planes; with `colour` those after the first are colour differences. Noise is
        divided by the `norms` of the planes, 1 unless they are given.
        """
        self._colour, self._tint, self._hues = colour, 0.0, 0.0
        self._norms = norms or (1.0,) * planes
        self._white = [NoiseEstimator() for _ in range(planes)]
        self._looks: list[list[Array | None]] = []
        self._stride, self._seen = 1, 0

    def add(self, frames: list[Planes]) -> None:
        """Add the next look; all its frames have the same planes. Bars at their borders don't count."""
        frames = without_bars(frames)
        for estimator, plane in zip(self._white, frames[0], strict=True):
            estimator.add(plane)
        self._tint = max(
            self._tint, *(float(plane[::4].std()) for plane in frames[0][1:]), 0.0
        )
        hues = (deviation_beside(frames[0][0], plane) for plane in frames[0][1:])
        self._hues = max(self._hues, 0.0, *hues)
        if self._seen % self._stride == 0:
            self._looks.append(plane_features(frames[:FRAMES_SEEN]))
        if len(self._looks) > LOOKS_KEPT:
            self._looks = self._looks[::2]
            self._stride *= 2
        self._seen += 1

    def noise(self, least_odds: float = 0.0) -> tuple[PlaneNoise, ...]:
        """Return the noise measured so far, plane by plane; none where its log odds are less than these. Luma
        of a black and white picture is measured without regard to its empty colour, beside which grain passes
        for texture.
        """
        # one row of features a plane: the median over the looks
        planes = []
        for index, estimator in enumerate(self._white):
            looks = [
                features
                for look in self._looks
                if (features := look[index]) is not None
            ]
            median = np.median(np.array(looks), axis=0) if looks else None
            planes.append(PlaneFeatures(median, estimator.sigma()))
        # then the estimate, in which planes explain each other
        tinted = self._tint >= TINT
        estimates = []
        for index, norm in enumerate(self._norms):
            colour = self._colour and (tinted or index > 0)
            noise = estimate(planes, index, colour=colour, least_odds=least_odds)
            if max(noise.sigma, noise.rms) > MOST_NOISE:
                noise = PlaneNoise(0.0, 0.0, is_sure=False)
            estimates.append(
                PlaneNoise(noise.sigma / norm, noise.rms / norm, noise.is_sure)
            )
        return tuple(estimates)

    def noise_of_photograph(self, luma: NDArray[np.float32]) -> tuple[PlaneNoise, ...]:
        """Return the noise of a single frame with this luma (0-255), where fine texture looks like noise:
        white noise is no stronger than the flattest blocks, and coarse noise that is very strong likely less.
        Where a picture that isn't drawn or rendered has some noise, faint grain and colour count as more.
        """
        (inner,) = without_bars([(luma,)])[0]
        is_drawn = (
            even_share(_blocks_of(inner)) >= EVEN_SHARE
            or self._white[0].sigma() < LEAST_RESIDUAL
        )
        first, *colours = self.noise(0.0 if is_drawn else PHOTO_NOISE.unlikely)
        if self._hues >= TINT:
            first = _camera_share(first, colours, self._norms[0])
        blocks = flat_blocks(inner)
        powers = flat_powers(blocks)
        sigma = _sigma_of_luma(first, powers, self._norms[0], is_drawn=is_drawn)
        weave = noise_like_share(powers)
        # thick threads are seen at half the size
        if min(inner.shape) >= 2 * BLOCK_SIDE:
            thick = noise_like_share(flat_powers(flat_blocks(halved(inner))))
            weave = min(weave, thick)
        relief, even = PHOTO_NOISE.skewness
        shadows = (skewness_in_light(blocks) - relief) / (even - relief)
        sigma *= min(1.0, weave / PHOTO_NOISE.noise_like, max(0.0, shadows))
        noise = [PlaneNoise(sigma, min(first.rms, sigma))]
        least = PHOTO_NOISE.coarse if sigma and not is_drawn else 0.0
        for colour in colours:
            sure = colour if colour.is_sure else PlaneNoise(0.0, 0.0)
            noise.append(replace(sure, sigma=max(sure.sigma, least)))
        return tuple(noise)


def _camera_share(
    luma: PlaneNoise, colours: Sequence[PlaneNoise], norm: float
) -> PlaneNoise:
    """Return the noise of luma in the units of R, G, B. A camera's is independent in these, so that it has
    colour, too, and luma, the mean of three, shows `norm` of it; all of what has no colour is seen in luma.
    """
    least, most = PHOTO_NOISE.colourless
    strongest = max(noise.sigma * noise.is_sure for noise in colours)
    colour = strongest / max(luma.rms, LEAST_RESIDUAL)
    share = min(1.0, max(0.0, (colour - least) / (most - least)))
    factor = norm + share * (1 - norm)
    return replace(luma, sigma=factor * luma.sigma, rms=factor * luma.rms)


def deviation_beside(luma: NDArray[np.float32], colour: NDArray[np.float32]) -> float:
    """Return the standard deviation of a colour difference about its best parabola over luma, in grey levels:
    near 0 in black and white or toned pictures; 0 if the planes differ in size.
    """
    if luma.shape != colour.shape:
        return 0.0
    brightness, values = luma[::4, ::4].ravel() / 255, colour[::4, ::4].ravel()
    powers = np.stack((np.ones_like(brightness), brightness, brightness**2), 1)
    fit = np.linalg.lstsq(powers, values, rcond=None)[0]
    return float((values - powers @ fit).std())


def _sigma_of_luma(
    noise: PlaneNoise, powers: Array, norm: float, *, is_drawn: bool
) -> float:
    """Return the sigma that a photograph's luma is denoised with."""
    if not noise.is_sure:
        return min(noise.sigma, PHOTO_NOISE.unsure)
    if noise.sigma <= COARSE * noise.rms:
        return min(noise.sigma, max(PHOTO_NOISE.white, flat_strength(powers) / norm))
    if noise.sigma > PHOTO_NOISE.strong:
        return max(PHOTO_NOISE.strong, noise.tempered)
    return noise.sigma if is_drawn else max(noise.sigma, PHOTO_NOISE.coarse)


def _blocks_of(luma: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the blocks (N, size^2) that lie side by side in a plane."""
    rows, columns = (side // BLOCK_SIDE for side in luma.shape)
    covered = luma[: rows * BLOCK_SIDE, : columns * BLOCK_SIDE]
    blocks = covered.reshape(rows, BLOCK_SIDE, columns, BLOCK_SIDE)
    return blocks.swapaxes(1, 2).reshape(-1, BLOCK_SIDE**2)


def even_share(blocks: NDArray[np.float32]) -> float:
    """Return the share of blocks (N, size^2) of one value among those without clipped values (0-255), 1
    without such blocks.
    """
    low, high = blocks.min(1), blocks.max(1)
    inner = (low > BOUNDS[0]) & (high < BOUNDS[1])
    return float((low == high)[inner].mean()) if inner.any() else 1.0


def without_bars(frames: list[Planes]) -> list[Planes]:
    """Return the frames without the black or even bars around the first one's picture: bars have no noise, so
    that a scene with them would pass for clean. A frame with almost nothing between them isn't cropped.
    """
    luma = frames[0][0]
    bounds = [_picture_span(luma[:, ::4]), _picture_span(luma[::4].T)]

    def inner(plane: NDArray[np.float32]) -> NDArray[np.float32]:
        # bounds are those of luma; subsampled planes begin and end at the next sample inside
        spans = []
        for (begin, end), luma_side, side in zip(
            bounds, luma.shape, plane.shape, strict=True
        ):
            step = round(luma_side / side)
            spans.append(slice(-(-begin // step), -(-end // step)))
        return plane[tuple(spans)]

    return [tuple(map(inner, planes)) for planes in frames]


def _picture_span(lines: NDArray[np.float32]) -> tuple[int, int]:
    """Return the span [begin, end) of the picture between bars, from lines (L, samples) parallel to the bars.
    Up to half of a black bar's line may be text.
    """
    medians = np.median(lines, axis=1, keepdims=True)
    even_shares = (np.abs(lines - medians) <= BAR_LINES.tolerance).mean(1)
    is_bright = medians[:, 0] > BAR_LINES.black
    least_shares = np.where(is_bright, BAR_LINES.even_in_bars, BAR_LINES.even_in_black)
    indices = np.flatnonzero(even_shares < least_shares)
    # too few lines to measure
    if not len(indices) or indices[-1] - indices[0] < 2 * BLOCK_SIDE:
        return 0, len(lines)
    return int(indices[0]), int(indices[-1]) + 1


@dataclass(frozen=True)
class PlaneFeatures:
    """The medians of a plane's features over the looks, or None, and sigma by the formula."""

    features: Array | None
    white: float


def estimate(
    planes: Sequence[PlaneFeatures],
    index: int,
    *,
    colour: bool,
    least_odds: float = 0.0,
) -> PlaneNoise:
    """Return the noise of a plane, none at log odds below the least; with `colour` planes after the first are
    colour differences.
    """
    plane = planes[index]
    inputs = network_input(planes, index, colour=colour)
    if inputs is None:
        return PlaneNoise(plane.white, plane.white)
    odds, *changes = network_output(inputs)
    if odds < least_odds:
        return PlaneNoise(0.0, 0.0)
    # where the network hardly changes the formula's result, that result is used
    differs = np.clip((np.abs(changes[0]) - SAME) / SAME, 0, 1)
    logarithms = np.log(plane.white + OFFSET) + differs * np.array(changes)
    sigma, rms = (max(0.0, float(np.exp(value)) - OFFSET) for value in logarithms)
    return PlaneNoise(sigma, min(rms, sigma), is_sure=bool(odds >= 0))


def network_input(
    planes: Sequence[PlaneFeatures], index: int, *, colour: bool
) -> Array | None:
    """Return the network's inputs for a plane: its features, some of luma beside a colour difference or of
    colour beside luma, the results of the formula for both, a flag for a colour difference, and a flag for
    differences between frames. None if its features aren't known.
    """
    plane = planes[index]
    if plane.features is None:
        return None
    # luma is seen beside the mean of the colours, a colour beside luma, and a lone plane beside itself
    partners = planes[:1] if index else planes[1:]
    if not colour:
        partners = ()
    pairs = [
        (partner.features, partner.white)
        for partner in partners
        if partner.features is not None
    ]
    pairs = pairs or [(plane.features, plane.white)]
    context = np.mean(
        [features[[WITHIN_ROW, HALVED_ROW]] for features, _ in pairs], axis=0
    )
    own_white = np.log(plane.white + OFFSET)
    other_white = np.mean([np.log(level + OFFSET) for _, level in pairs])
    changes = not np.array_equal(
        plane.features[WITHIN_ROW], plane.features[BETWEEN_ROW]
    )
    scalars = [own_white, other_white, float(colour and index > 0), float(changes)]
    return np.concatenate([plane.features.ravel(), context.ravel(), scalars])


def network_output(inputs: Array) -> Array:
    """Return the log odds of noise, and two corrections of the logarithm of the formula's sigma: the first
    gives the sigma that denoises best, the second the noise's root mean square.
    """
    (mean, spread), *hidden, (weight, bias) = network()
    values = np.clip((inputs - mean) / spread, -FARTHEST, FARTHEST)
    for matrix, offset in hidden:
        values = np.maximum(matrix @ values + offset, 0)
    return np.asarray(weight @ values + bias)


@cache
def network() -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the mean and spread of the input, then weight and bias of every layer."""
    tensors = load(files("vidrestore.noise").joinpath("noise.safetensors").read_bytes())
    names = ("input", "first", "second", "last")
    double = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    return [(double[f"{name}.weight"], double[f"{name}.bias"]) for name in names]
