"""The strength of a scene's noise, plane by plane, as a denoiser for white noise needs it.

White noise is as strong at every frequency, and a formula reads it off the highest ones (white.py). Other
noise is coarse, smeared along lines, thinned out by a codec or copied by it from frame to frame. For that a
small regression, fitted on training clips in noise of many kinds (examples/experiments/fit_noise.py), goes
from features of the blocks (features.py) to the sigma that loses least: that of the power where most of the
noise is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from vidrestore.noise.features import (
    DISTANCES,
    Array,
    Planes,
    bands_alone,
    concentration,
    plane_features,
    strength_between,
)
from vidrestore.noise.white import NoiseEstimator

LOOKS_KEPT = 32  # of a scene; above that every second is dropped
FRAMES_SEEN = max(DISTANCES) + 1  # by one look
OFFSET = 0.3  # grey levels: below, logarithms of sigma stop to matter
NONE_BELOW = 0.9  # sigma: a video with less noise is left alone
# of logarithms: up to there the regression says what the formula says, which is the surer one for white noise
SAME = 0.15
# concentrations from which weak noise is texture, on coarse and on fine frequencies of a frame; and of the
# fine ones of differences, from which it is what a codec left of noise
TEXTURE, CODED = (1.025, 1.065), 1.2
WEAK = 15.0  # sigma: stronger noise is never taken for texture
MOST = 1.35  # of what differences between frames show: luma has more noise only if the formula says so
# noise of colour differences beside noisy luma: below the first share of what differences show, the second is
# taken, as codecs thin it out
THINNED, RESTORED = 0.85, 1.7
COARSE = 1.25  # of sigma over root mean square: from there on noise is called coarse


@dataclass(frozen=True)
class PlaneNoise:
    """`sigma` of the white noise that a plane's is to be taken for, and the noise's own root mean square, on
    the 0-255 scale.
    """

    sigma: float
    rms: float

    def __str__(self) -> str:
        coarse = ", coarse" if self.sigma > COARSE * self.rms else ""
        return f"{self.rms:.1f}{coarse}" if self.sigma else "none"


def noise_in_words(sigma: Sequence[float], rms: Sequence[float]) -> str:
    """Of a scene's planes: "luma 9.6, coarse; chroma 14.1", or one after the other where they are no luma and
    colour differences.
    """
    planes = [str(PlaneNoise(*values)) for values in zip(sigma, rms or sigma, strict=True)]
    if len(planes) == 1:
        return planes[0]
    stronger = max((1, 2), key=lambda index: sigma[index])
    return f"luma {planes[0]}; chroma {planes[stronger]}"


class NoiseMeter:
    """Noise of the planes of one scene. Give it looks in order: a frame with some that follow it, on the
    0-255 scale.
    """

    def __init__(self, planes: int, *, colour: bool) -> None:
        """`colour`: the planes after the first are colour differences."""
        self._colour = [colour and index > 0 for index in range(planes)]
        self._white = [NoiseEstimator() for _ in range(planes)]
        self._looks: list[list[Array | None]] = []
        self._stride, self._seen = 1, 0

    def add(self, frames: list[Planes]) -> None:
        """Take the next look; all its frames have the same planes."""
        for estimator, plane in zip(self._white, frames[0], strict=True):
            estimator.add(plane)
        if self._seen % self._stride == 0:
            self._looks.append(plane_features(frames[:FRAMES_SEEN]))
        if len(self._looks) > LOOKS_KEPT:
            self._looks = self._looks[::2]
            self._stride *= 2
        self._seen += 1

    def noise(self) -> tuple[PlaneNoise, ...]:
        """What was measured up to now."""
        planes = [self._plane(index) for index in range(len(self._white))]
        return tuple(
            beside_luma(plane, self._features(index)) if self._colour[index] and planes[0].sigma else plane
            for index, plane in enumerate(planes)
        )

    def _plane(self, index: int) -> PlaneNoise:
        white, features = self._white[index].sigma(), self._features(index)
        if features is None:
            return PlaneNoise(white, white)
        return estimate(features, white, colour=self._colour[index])

    def _features(self, index: int) -> Array | None:
        """The medians of a plane's features over the looks."""
        known = [look[index] for look in self._looks if look[index] is not None]
        return np.median(np.array(known), axis=0) if known else None


def estimate(features: Array, white: float, *, colour: bool) -> PlaneNoise:
    """The noise of a plane from the medians of its features and what the formula for white noise says.

    A second regression, fitted to keep clean videos as they are, has the last word on whether there is noise.
    """
    given = regression_input(features, white, colour=colour)
    doubted, _ = _regressed("doubt", given)
    sigma, rms = _regressed("regression", given)
    if min(sigma, doubted) < NONE_BELOW:
        return PlaneNoise(0.0, 0.0)
    if not colour:
        if sigma < WEAK and abs(np.log((sigma + OFFSET) / (white + OFFSET))) > SAME and is_texture(features):
            return PlaneNoise(0.0, 0.0)
        sigma = min(sigma, max(MOST * strength_between(features), white))
    return PlaneNoise(sigma, min(rms, sigma))


def is_texture(features: Array) -> bool:
    """Return True if power is concentrated as in texture, and not as in what a codec leaves of noise."""
    (coarse, fine), (_, fine_between) = concentration(features)[:2]
    return bool(coarse > TEXTURE[0] and fine > TEXTURE[1] and fine_between < CODED)


def beside_luma(found: PlaneNoise, features: Array | None) -> PlaneNoise:
    """The noise of colour differences whose luma is noisy."""
    seen = 0.0 if features is None else strength_between(features)
    if found.sigma >= THINNED * seen or RESTORED * seen < NONE_BELOW:
        return found
    return PlaneNoise(RESTORED * seen, max(found.rms, seen))


def _regressed(name: str, given: Array) -> tuple[float, float]:
    """Sigma and root mean square."""
    layers = regression(name)
    values = (given - layers[0][0]) / layers[0][1]
    for weight, bias in layers[1:-1]:
        values = np.maximum(weight @ values + bias, 0)
    change = layers[-1][0] @ values + layers[-1][1]
    change = change * np.clip((np.abs(change[0]) - SAME) / SAME, 0, 1)
    sigma, rms = (max(0.0, float(np.exp(value)) - OFFSET) for value in given[-2] + change)
    return sigma, rms


def regression_input(features: Array, white: float, *, colour: bool) -> NDArray[np.float64]:
    return np.concatenate([bands_alone(features), [np.log(white + OFFSET), float(colour)]])


@cache
def regression(name: str) -> list[tuple[Array, Array]]:
    """Mean and spread of the input, then weight and bias of every layer; the result adds to the logarithm of
    the formula's sigma.
    """
    stored = json.loads(files("vidrestore.noise").joinpath(f"{name}.json").read_text())
    return [(np.array(first), np.array(second)) for first, second in stored["layers"]]
