"""Noise that is not white is measured too, and what is no noise isn't."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from held_out_noise import blurred
from numpy.typing import NDArray

from vidrestore.media.recompress import recompress
from vidrestore.noise import meter
from vidrestore.noise.features import (
    COUNT,
    FLOOR,
    PART,
    PlaneFeatures,
    band_index,
    plane_features,
    strength_between,
)
from vidrestore.noise.meter import Measured, NoiseMeter, PlaneNoise, beside_luma, noise_in_words
from vidrestore.noise.motion import motion_of
from vidrestore.noise.white import NoiseEstimator

Picture = NDArray[np.float32]


def scene(count: int = 4, height: int = 128, width: int = 160) -> list[Picture]:
    """Smooth shapes that move a little."""
    rows, columns = np.mgrid[:height, :width].astype(float)
    return [
        (110 + 50 * np.sin((rows + 2 * t) / 17) * np.cos((columns - 3 * t) / 23)).astype(np.float32)
        for t in range(count)
    ]


def with_noise(frames: list[Picture], sigma: float, blur: float = 0.0) -> list[Picture]:
    rng = np.random.default_rng(0)
    noise = [
        blurred(rng.normal(size=frame.shape), blur, blur) if blur else rng.normal(size=frame.shape)
        for frame in frames
    ]
    return [
        np.clip(np.rint(frame + sigma * part), 0, 255).astype(np.float32)
        for frame, part in zip(frames, noise, strict=True)
    ]


def measured(frames: list[Picture], **noise: float) -> tuple[float, float]:
    gauge = NoiseMeter(1, colour=False)
    gauge.add([(frame,) for frame in (with_noise(frames, **noise) if noise else frames)])
    (found,) = gauge.noise()
    return found.sigma, found.rms


@pytest.mark.parametrize("sigma", [3.0, 10.0, 30.0])
def test_white_noise_is_measured_as_it_is(sigma: float) -> None:
    assert measured(scene(), sigma=sigma) == pytest.approx((sigma, sigma), rel=0.1)


@pytest.mark.parametrize("sigma", [5.0, 12.0])
def test_coarse_noise_counts_for_more_than_its_strength(sigma: float) -> None:
    found, rms = measured(scene(), sigma=sigma, blur=1.0)
    assert found > 1.25 * sigma
    assert rms == pytest.approx(sigma, rel=0.35)


def test_a_smooth_picture_has_no_noise() -> None:
    assert measured([np.rint(frame) for frame in scene()])[0] == 0


def test_there_is_a_figure_for_single_frames_and_for_repeated_ones() -> None:
    (frame,) = with_noise(scene(1), 10.0)
    for frames in ([frame], [frame] * 4):
        assert measured(frames)[0] == pytest.approx(10, rel=0.3)


def test_one_frame_has_hardly_more_noise_than_the_formula_for_white_noise_finds() -> None:
    """Coarse noise looks like texture there; differences between frames tell them apart."""
    frames, formula = with_noise(scene(), 12.0, blur=1.0), NoiseEstimator()
    formula.add(frames[0])
    assert measured(frames)[0] > 3 * formula.sigma()
    for alone in (frames[:1], frames[:1] * 4):
        assert 0 < measured(alone)[0] <= 1.6 * formula.sigma() + 1e-6


@pytest.mark.parametrize("shape", [(1, 1), (5, 40), (12, 12), (33, 17)])
def test_the_smallest_planes_give_a_number(shape: tuple[int, int]) -> None:
    gauge = NoiseMeter(2, colour=True)
    rng = np.random.default_rng(0)
    gauge.add([tuple(rng.normal(100, 5, shape).astype(np.float32) for _ in range(2)) for _ in range(4)])
    assert all(0 <= plane.sigma < 255 for plane in gauge.noise())


def test_features_are_as_many_for_every_plane() -> None:
    planes = [(frame, frame[::2, ::2].copy()) for frame in with_noise(scene(), 5.0)]
    luma, chroma = plane_features(planes)
    assert luma is not None and luma.evened is not None and chroma is not None
    assert luma.seen.shape == luma.evened.shape == chroma.seen.shape == (COUNT,)
    assert chroma.evened is None


def test_blocks_are_found_where_they_went() -> None:
    picture = np.random.default_rng(0).uniform(0, 255, (160, 200)).astype(np.float32)
    corners, motion = motion_of(picture, np.roll(picture, (5, -9), (0, 1)), most=50)
    assert len(corners) > 20
    assert np.median(motion, axis=0).tolist() == [5, -9]


@pytest.mark.parametrize(
    "sigma, rms, words",
    [
        ((12.0, 14.2, 13.0), (9.6, 14.1, 12.0), "luma 9.6; chroma 14.1"),
        ((15.0, 0.0, 0.0), (9.6, 0.0, 0.0), "luma 9.6, coarse; chroma none"),
        ((3.0,), (), "3.0"),
    ],
)
def test_noise_is_put_into_words(sigma: tuple[float, ...], rms: tuple[float, ...], words: str) -> None:
    assert noise_in_words(sigma, rms) == words


def answers(
    monkeypatch: pytest.MonkeyPatch,
    sigma: float,
    odds: float = 9.0,
    stronger: float = 0.0,
    cautious: float = 9.0,
    weak: tuple[float, float] = (-9.0, 1.0),
) -> None:
    """Make the regressions say `sigma`, for a formula that says 5, log odds, how much to raise colour, and
    log odds and sigma of weak noise.
    """
    change = np.log((sigma + meter.OFFSET) / (5 + meter.OFFSET))
    doubt = np.log((cautious + meter.OFFSET) / (5 + meter.OFFSET))
    said = {
        "regression": [change] * 2,
        "strength": [change] * 2,
        "doubt": [doubt] * 2,
        "odds": [odds],
        "colour": [stronger],
    }
    said["weak"] = [weak[0], np.log(weak[1] + meter.OFFSET)]
    monkeypatch.setattr(NoiseEstimator, "sigma", lambda self: 5.0)
    monkeypatch.setattr(meter, "_is_familiar", lambda inputs: True)
    monkeypatch.setattr(meter, "_output", lambda name, given: np.array(said[name]))


def estimated(features: NDArray[np.float64], *, colour: bool = False) -> float:
    plane = Measured(features, 5.0, colour)
    return meter.estimate(plane, Measured(features, 5.0, False)).sigma


@pytest.mark.parametrize(
    "odds, cautious, expected", [(-0.6, 9, 0), (1.4, 0.5, 0), (1.4, 2, 8), (1.6, 0.5, 8)]
)
def test_the_odds_of_noise_decide_and_where_they_are_even_a_cautious_regression(
    odds: float, cautious: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, 8.0, odds, cautious=cautious)
    assert estimated(with_strength(8.0)) == pytest.approx(expected)
    assert estimated(with_strength(8.0), colour=True) == pytest.approx(expected)


def behind_x264(frames: list[Picture], crf: float) -> list[Picture]:
    grey = np.full([side // 2 for side in frames[0].shape], 128, np.uint8)
    coded = recompress([(frame.astype(np.uint8), grey, grey) for frame in frames], crf)
    return [luma.astype(np.float32) for luma, *_ in coded]


@pytest.mark.parametrize("sigma, crf", [(4.0, 23), (6.0, 26)])
def test_weak_noise_is_found_behind_a_codec_and_not_in_the_same_picture_without_it(
    sigma: float, crf: float
) -> None:
    clean = scene(20, 208, 320)
    for frames, least, most in ((with_noise(clean, sigma), 0.5 * sigma, sigma), (clean, 0.0, 0.0)):
        gauge, coded = NoiseMeter(1, colour=False), behind_x264(frames, crf)
        for first in (0, 8, 16):
            gauge.add([(frame,) for frame in coded[first : first + 4]])
        (found,) = gauge.noise()
        assert least <= found.sigma <= most


def gauged(features: NDArray[np.float64]) -> tuple[float, ...]:
    """Sigma of luma with these features, and of a colour difference with the same."""
    gauge = NoiseMeter(2, colour=True)
    gauge._looks = [[PlaneFeatures(features, features), PlaneFeatures(features, None)]]
    return tuple(plane.sigma for plane in gauge.noise())


@pytest.mark.parametrize(
    "odds, weak, found",
    [
        (0.0, (1.1, 4.0), 4.0),
        (-2.9, (1.1, 4.0), 4.0),
        (0.0, (0.9, 4.0), 0.0),
        (-3.1, (9.0, 4.0), 0.0),
        (0.0, (9.0, 0.8), 0.0),
    ],
)
def test_luma_that_seems_clean_is_looked_at_again_unless_noise_is_very_unlikely(
    odds: float, weak: tuple[float, float], found: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, 8.0, odds, cautious=0.5, weak=weak)
    assert gauged(with_strength(0.4)) == pytest.approx((found, 0.0))


def test_weak_noise_is_not_looked_for_where_noise_was_found_or_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, 8.0, odds=1.6, weak=(9.0, 4.0))
    assert gauged(with_strength(8.0))[0] == pytest.approx(8)
    answers(monkeypatch, 8.0, odds=0.0, cautious=0.5, weak=(9.0, 4.0))
    assert gauged(np.tile(with_strength(8.0)[:PART], COUNT // PART)) == (0, 0)


@pytest.mark.parametrize("off", [-6.6, 6.6])
def test_nothing_is_said_of_what_differs_from_all_that_was_learnt_from(off: float) -> None:
    mean, spread = meter.regression("weak")[0]
    unusual = mean.copy()
    unusual[3] += off * spread[3]
    assert meter._is_familiar(mean) and not meter._is_familiar(unusual)


STROKES = [(row, slice(None)) for row in (0, 3, 6)] + [
    (rows, column) for rows in (slice(0, 4), slice(3, 7)) for column in (0, 4)
]


def test_small_text_that_scrolls_is_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, letters = np.random.default_rng(0), np.zeros((26, 7, 5), bool)
    for letter in letters:
        for stroke in rng.permutation(len(STROKES))[: rng.integers(2, 6)]:
            letter[STROKES[stroke]] = True
    letters[:3] = False  # spaces
    letters = np.pad(letters, ((0, 0), (0, 5), (0, 2)))
    lines = [np.concatenate(letters[rng.integers(26, size=60)], axis=1) for _ in range(30)]
    page = np.where(np.concatenate(lines), 20, 240).astype(np.float32)
    gauge = NoiseMeter(1, colour=False)
    for first in (0, 8, 16):
        gauge.add([(page[at : at + 208, :320],) for at in range(first, first + 4)])
    assert gauge.noise()[0].sigma == 0
    monkeypatch.setattr(meter, "_is_familiar", lambda inputs: True)
    assert gauge.noise()[0].sigma > 2


def test_less_suffices_for_colour_beside_noisy_luma(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 8.0, odds=0.5, cautious=0.5)
    plane = Measured(with_strength(8.0), 5.0, True)
    found = [meter.estimate(plane, plane, likely).sigma for likely in (meter.LIKELY, meter.BESIDE_NOISY)]
    assert found == pytest.approx([0, 8])


def test_the_odds_alone_do_not_suffice_without_differences_between_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, 8.0, odds=9.0, cautious=0.5)
    features = with_strength(8.0).reshape(-1, PART)
    features[:] = features[1]
    assert estimated(features.reshape(-1)) == 0


def test_colour_that_a_codec_altered_is_taken_for_stronger(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 8.0, stronger=0.5)
    assert estimated(with_strength(8.0), colour=True) == pytest.approx(8 * np.exp(0.5))
    assert estimated(with_strength(8.0)) == pytest.approx(8)
    answers(monkeypatch, 8.0, stronger=9.0)
    assert estimated(with_strength(8.0), colour=True) == pytest.approx(8 * np.exp(0.8))
    answers(monkeypatch, 5.0, stronger=0.5)  # the formula says the same: white noise
    assert estimated(with_strength(5.0), colour=True) == pytest.approx(5)


def test_texture_favours_a_few_frequencies_and_noise_none() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 5, (1, 96, 128)).astype(np.float32)
    rows, columns = np.mgrid[:8, :8]
    waves = [
        np.cos(np.pi * (2 * rows + 1) * rng.integers(1, 8) / 16)
        * np.cos(np.pi * (2 * columns + 1) * rng.integers(1, 8) / 16)
        for _ in range(12 * 16)
    ]
    texture = np.block([waves[16 * row : 16 * row + 16] for row in range(12)])[None].astype(np.float32) * 20
    quiet, busy = (plane_features([tuple(planes)])[0].seen[PART - 2 : PART] for planes in (noise, texture))  # type: ignore[union-attr]
    assert (busy > quiet + 0.15).all()


@pytest.mark.parametrize(
    "coarse, fine, between, odds, expected",
    [
        (1.06, 1.1, 1.0, 1.0, 0.0),
        (1.0, 1.1, 1.0, 1.0, 8.0),
        (1.06, 1.0, 1.0, 1.0, 8.0),
        (1.06, 1.1, 1.3, 1.0, 8.0),
        (1.06, 1.1, 1.0, 2.0, 8.0),
    ],
)
def test_weak_noise_that_is_concentrated_as_texture_counts_as_none_unless_it_is_likely(
    coarse: float, fine: float, between: float, odds: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, 8.0, odds)
    features = with_strength(8.0)
    features.reshape(-1, PART)[0, -2:] = coarse, fine
    features.reshape(-1, PART)[1, -1] = between
    assert estimated(features) == pytest.approx(expected)
    answers(monkeypatch, 5.0, odds)
    assert estimated(features) == pytest.approx(5)  # the formula says it, too


def test_luma_has_hardly_more_noise_than_differences_show(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 30.0)
    assert estimated(with_strength(10.0)) == pytest.approx(meter.MOST * 10, rel=1e-3)
    assert estimated(with_strength(10.0), colour=True) == pytest.approx(30)
    assert estimated(with_strength(1.0)) == pytest.approx(5)  # the formula's


@pytest.mark.parametrize("seen, before, after", [(4.0, 0.0, 6.8), (4.0, 3.9, 3.9), (0.4, 0.0, 0.0)])
def test_colour_beside_noisy_luma_has_what_differences_show(seen: float, before: float, after: float) -> None:
    assert beside_luma(PlaneNoise(before, before), with_strength(seen)).sigma == pytest.approx(
        after, rel=1e-3
    )


def with_strength(sigma: float) -> NDArray[np.float64]:
    """Features of blocks whose differences between neighbouring frames show white noise of this sigma."""
    sizes = np.bincount(band_index()[1:], minlength=9)
    features = np.zeros((COUNT // PART, PART))
    quantiles = sigma**2 * (1 - 2 / (9 * sizes) + NormalDist().inv_cdf(0.1) * (2 / (9 * sizes)) ** 0.5) ** 3
    features[1, 9:18] = np.log(quantiles + FLOOR)
    return features.reshape(-1)


@pytest.mark.parametrize("sigma", [4.0, 20.0])
def test_differences_show_white_noise_as_strong_as_it_is(sigma: float) -> None:
    (found,) = plane_features([(frame,) for frame in with_noise(scene(), sigma)])
    assert found is not None
    assert strength_between(found.seen) == pytest.approx(sigma, rel=0.15)
