"""Measure the strength of a scene's noise, plane by plane, as a denoiser for white noise needs it.

White noise is equally strong at every frequency, and a formula estimates it from the highest ones (white.py).
Other noise is coarse, smeared along lines, thinned out by a codec or copied by it from frame to frame. For
that a small regression, fitted to training clips with many kinds of noise
(examples/experiments/fit_noise.py), maps features of the blocks (features.py) to the sigma that denoises
best: that of the power where most of the noise is. Two more say how likely it is that there is noise at all,
and how much stronger the noise of colour differences has to be taken after a codec. Where luma has noise, a
larger one (examples/experiments/fit_strength.py) tells its sigma from blocks that were scaled until the noise
is equally strong at every brightness. A last one, fitted to nothing but weak noise that a codec altered and
to clean video (examples/experiments/fit_weak.py), is asked where those leave luma without noise but aren't
sure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from vidrestore.noise.features import (
    DISTANCES,
    PART,
    QUANTILES,
    Array,
    PlaneFeatures,
    Planes,
    bands_alone,
    concentration,
    plane_features,
    strength_between,
)
from vidrestore.noise.white import NoiseEstimator

LOOKS_KEPT = 32  # most looks of a scene; beyond that every second is dropped
FRAMES_SEEN = max(DISTANCES) + 1  # frames of one look
OFFSET = 0.3  # grey levels added to sigma before taking its logarithm
NONE_BELOW = 0.9  # sigma below which a video counts as clean
# Change of the logarithm below which the formula's result is used: it is more accurate for white noise.
SAME = 0.15
# Concentrations on coarse and on fine frequencies above which weak noise is texture, and the concentration on
# fine frequencies of differences above which it is noise altered by a codec.
TEXTURE, CODED = (1.025, 1.065), 1.2
WEAK = 15.0  # sigma above which noise is never taken for texture
UNLIKELY, LIKELY = -0.5, 1.5  # log odds of noise below and above which nothing else counts
BESIDE_NOISY = 0.0  # the latter for colour differences beside noisy luma
# Log odds of noise from which luma without noise is looked at again, and those of weak noise that suffice.
LOOKED_AT_AGAIN, WEAKLY_LIKELY = -3.0, 1.0
# Standard deviations of the inputs of "weak" from their means beyond which it knows nothing; small text has
# 7.5 and more, noise in footage hardly ever over 6.
UNFAMILIAR = 6.5
# Limit on sigma relative to the formula's for a single frame, where texture looks like coarse noise.
ALONE = 1.6
MOST = 1.35  # limit on sigma relative to that of differences between frames, unless the formula's is higher
# Chroma noise beside noisy luma: below the first share of the strength in differences it is replaced by the
# second, because codecs thin it out.
THINNED, RESTORED = 0.85, 1.7
STRONGER = (0.0, 0.8)  # limits on the logarithm by which sigma of colour differences is raised
COMMON = 12  # first inputs of the odds, from which that is found
COARSE = 1.25  # ratio of sigma to root mean square above which noise is called coarse


@dataclass(frozen=True)
class PlaneNoise:
    """The noise of a plane, on the 0-255 scale: `sigma` of the white noise to denoise it as, and its root
    mean square.
    """

    sigma: float
    rms: float

    def __str__(self) -> str:
        coarse = ", coarse" if self.sigma > COARSE * self.rms else ""
        return f"{self.rms:.1f}{coarse}" if self.sigma else "none"


def noise_in_words(sigma: Sequence[float], rms: Sequence[float]) -> str:
    """Describe a scene's noise: "luma 9.6, coarse; chroma 14.1", or one value for a single plane."""
    planes = [str(PlaneNoise(*values)) for values in zip(sigma, rms or sigma, strict=True)]
    if len(planes) == 1:
        return planes[0]
    stronger = max((1, 2), key=lambda index: sigma[index])
    return f"luma {planes[0]}; chroma {planes[stronger]}"


class NoiseMeter:
    """Measures the noise of the planes of one scene from looks in order: a frame and some that follow it, on
    the 0-255 scale.
    """

    def __init__(self, planes: int, *, colour: bool) -> None:
        """Set the number of planes; with `colour` those after the first are colour differences."""
        self._colour = [colour and index > 0 for index in range(planes)]
        self._white = [NoiseEstimator() for _ in range(planes)]
        self._looks: list[list[PlaneFeatures | None]] = []
        self._stride, self._seen = 1, 0

    def add(self, frames: list[Planes]) -> None:
        """Add the next look; all its frames have the same planes."""
        for estimator, plane in zip(self._white, frames[0], strict=True):
            estimator.add(plane)
        if self._seen % self._stride == 0:
            self._looks.append(plane_features(frames[:FRAMES_SEEN]))
        if len(self._looks) > LOOKS_KEPT:
            self._looks = self._looks[::2]
            self._stride *= 2
        self._seen += 1

    def noise(self) -> tuple[PlaneNoise, ...]:
        """Return the noise measured so far, plane by plane."""
        measured = [self._measured(index) for index in range(len(self._white))]
        first = estimate(measured[0], measured[0])
        if not first.sigma:
            first = weak_noise(measured[0])
        likely = BESIDE_NOISY if first.sigma else LIKELY
        planes = [
            first,
            *(estimate(each, measured[0], likely if each.colour else LIKELY) for each in measured[1:]),
        ]
        return tuple(
            beside_luma(plane, each.features) if each.colour and planes[0].sigma else plane
            for plane, each in zip(planes, measured, strict=True)
        )

    def _measured(self, index: int) -> Measured:
        looks = [found for look in self._looks if (found := look[index]) is not None]
        seen = _median([look.seen for look in looks])
        evened = _median([look.evened for look in looks if look.evened is not None])
        return Measured(seen, self._white[index].sigma(), self._colour[index], evened)


def _median(features: list[Array]) -> Array | None:
    return np.median(np.array(features), axis=0) if features else None


@dataclass(frozen=True)
class Measured:
    """Of a plane: the medians of its features over the looks, None if there are none, sigma by the formula
    for white noise, and whether it is a colour difference. `evened`: of luma the medians of features of
    blocks that were scaled until the noise was equally strong at every brightness.
    """

    features: Array | None
    white: float
    colour: bool
    evened: Array | None = None

    def odds(self, luma: Measured) -> float:
        """Return the log odds of noise; `luma` is the first plane of the same frames, with features."""
        return float(_output("odds", odds_input(self, luma))[0])

    def regressed(self, name: str) -> tuple[float, float]:
        """Return sigma and root mean square by the regression `name`."""
        assert self.features is not None
        inputs = regression_input(self.features, self.white, colour=self.colour)
        change = _output(name, inputs)
        change = change * np.clip((np.abs(change[0]) - SAME) / SAME, 0, 1)
        sigma, rms = (max(0.0, float(np.exp(value)) - OFFSET) for value in inputs[-2] + change)
        return sigma, rms

    def of_even_noise(self) -> tuple[float, float]:
        """Return sigma and root mean square of luma in which there is noise."""
        assert self.evened is not None
        sigma, rms = replace(self, features=self.evened).regressed("strength")
        most = max(MOST * strength_between(self.evened), self.white)
        return min(max(sigma, NONE_BELOW), most), rms


def estimate(plane: Measured, luma: Measured, likely: float = LIKELY) -> PlaneNoise:
    """Return the noise of a plane; `luma` is the first plane of the same frames, `likely` the log odds that
    suffice.

    Where the odds of noise leave it open, a cautious regression and the look of texture decide.
    """
    if plane.features is None:
        return PlaneNoise(plane.white, plane.white)
    sigma, rms = plane.regressed("regression")
    if not _has_differences(plane.features):
        sigma = min(sigma, ALONE * plane.white)
    beside = luma if luma.features is not None else plane
    odds = plane.odds(beside)
    sure = odds > likely and _has_differences(plane.features)
    if sigma < NONE_BELOW or odds < UNLIKELY or (not sure and _looks_clean(plane, sigma)):
        return PlaneNoise(0.0, 0.0)
    if plane.evened is not None and _has_differences(plane.features):
        sigma, rms = plane.of_even_noise()
    elif not plane.colour:
        sigma = min(sigma, max(MOST * strength_between(plane.features), plane.white))
    elif not np.isclose(sigma, plane.white, rtol=1e-6):
        sigma *= float(np.exp(np.clip(_output("colour", odds_input(plane, beside)[:COMMON])[0], *STRONGER)))
    return PlaneNoise(sigma, min(rms, sigma))


def weak_noise(luma: Measured) -> PlaneNoise:
    """Return the noise of luma in which `estimate` found none."""
    if is_open(luma):
        inputs = weak_input(luma)
        odds, logarithm = _output("weak", inputs)
        sigma = float(np.exp(logarithm)) - OFFSET
        if odds > WEAKLY_LIKELY and sigma >= NONE_BELOW and _is_familiar(inputs):
            return PlaneNoise(sigma, sigma)
    return PlaneNoise(0.0, 0.0)


def is_open(luma: Measured) -> bool:
    """Return True if luma changes from frame to frame, and the odds neither exclude noise nor suffice."""
    if luma.features is None or not _has_differences(luma.features):
        return False
    return LOOKED_AT_AGAIN < luma.odds(luma) <= LIKELY


def _is_familiar(inputs: Array) -> bool:
    """Return True unless inputs of "weak" are far from all that it was fitted to."""
    mean, spread = regression("weak")[0]
    return bool((np.abs(inputs - mean) <= UNFAMILIAR * spread).all())


def weak_input(luma: Measured) -> Array:
    """Return the log odds of noise, the logarithms of sigma as the regressions, differences and the formula
    have it, the concentrations, and the bands relative to the formula's sigma.
    """
    assert luma.features is not None
    regressed = [luma.regressed(name)[0] for name in ("regression", "doubt")]
    strengths = np.log(np.array([*regressed, strength_between(luma.features), luma.white]) + OFFSET)
    shares = _strengths_of_bands(luma.features) - strengths[-1]
    return np.concatenate(
        [[luma.odds(luma)], strengths, concentration(luma.features).ravel(), shares.ravel()]
    )


def _strengths_of_bands(features: Array) -> Array:
    """Return (1 + len(DISTANCES), len(QUANTILES), 9): logarithms of the noise's strength by band."""
    bands = bands_alone(features).reshape(1 + len(DISTANCES), -1)[:, :-1]
    return bands.reshape(len(bands), len(QUANTILES), 9) / 2


def _looks_clean(plane: Measured, sigma: float) -> bool:
    assert plane.features is not None
    if plane.regressed("doubt")[0] < NONE_BELOW:
        return True
    differs = abs(np.log((sigma + OFFSET) / (plane.white + OFFSET))) > SAME
    return bool(not plane.colour and sigma < WEAK and differs and is_texture(plane.features))


def _has_differences(features: Array) -> bool:
    """Return False for a single frame or a repeated one, whose features serve as those of differences."""
    within, between, *_ = features.reshape(-1, PART)
    return not np.array_equal(within, between)


def is_texture(features: Array) -> bool:
    """Return True if power is concentrated as in texture, and not as in noise altered by a codec."""
    (coarse, fine), (_, fine_between) = concentration(features)[:2]
    return bool(coarse > TEXTURE[0] and fine > TEXTURE[1] and fine_between < CODED)


def odds_input(plane: Measured, luma: Measured) -> Array:
    """Return the logarithms of sigma as the regression, differences and the formula have it, of the plane and
    of luma, the plane's concentrations, its bands relative to sigma, and the concentrations of luma.
    """
    assert plane.features is not None and luma.features is not None
    strengths = []
    for each in (plane, luma):
        assert each.features is not None
        strengths += [each.regressed("regression")[0], strength_between(each.features), each.white]
    logarithms = np.log(np.array(strengths) + OFFSET)
    shares = _strengths_of_bands(plane.features) - logarithms[0]
    weak = QUANTILES.index(0.1)
    return np.concatenate(
        [
            logarithms,
            concentration(plane.features).ravel(),
            shares[:, weak].ravel(),
            np.delete(shares, weak, 1).ravel(),
            concentration(luma.features).ravel(),
            [float(plane.colour)],
        ]
    )


def beside_luma(found: PlaneNoise, features: Array | None) -> PlaneNoise:
    """Return the noise of colour differences beside noisy luma."""
    between = 0.0 if features is None else strength_between(features)
    if found.sigma >= THINNED * between or RESTORED * between < NONE_BELOW:
        return found
    return PlaneNoise(RESTORED * between, max(found.rms, between))


def _output(name: str, inputs: Array) -> Array:
    """Return what the regression `name` says of inputs."""
    layers = regression(name)
    values = (inputs - layers[0][0]) / layers[0][1]
    for weight, bias in layers[1:-1]:
        values = np.maximum(weight @ values + bias, 0)
    return np.asarray(layers[-1][0] @ values + layers[-1][1])


def regression_input(features: Array, white: float, *, colour: bool) -> NDArray[np.float64]:
    return np.concatenate([bands_alone(features), [np.log(white + OFFSET), float(colour)]])


@cache
def regression(name: str) -> list[tuple[Array, Array]]:
    """Return the mean and spread of the input, then weight and bias of every layer.

    The outputs of "regression", "doubt" and "strength" are added to the logarithm of the formula's sigma,
    that of "colour" to the logarithm of sigma; "odds" gives log odds, "weak" log odds and the logarithm of
    sigma.
    """
    stored = json.loads(files("vidrestore.noise").joinpath(f"{name}.json").read_text())
    return [(np.array(first), np.array(second)) for first, second in stored["layers"]]
