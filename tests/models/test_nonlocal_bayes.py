"""Non-local Bayes: which patches are alike, what it takes off, and what it leaves."""

import math

import pytest
import torch
from stand_in import Rehearsal
from torch import Tensor

from vidrestore.models.dust import dct_dictionary
from vidrestore.models.fitted import fitted
from vidrestore.models.grouping import coverage, origins_of, patches_at
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.models.nonlocal_bayes import (
    SIGMA_RANGES,
    Gains,
    Noise,
    Sampling,
    _inverse,
    bayes_change,
    bayes_gains,
    inverse_covariance,
    nonlocal_bayes,
    similar,
)

CPU = torch.device("cpu")
SIDE = 8
PIXELS = SIDE**2
PUBLISHED = Gains(*torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]))


def tracks(frames: int, height: int, width: int, stride: int = SIDE) -> Tensor:
    grid = Grid(height, width, SIDE, stride)
    return origins_of(fixed_positions(frames, grid), height, width)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def picture(frames: int = 6, height: int = 64, width: int = 64) -> Tensor:
    return (
        (100 + 60 * torch.sin(torch.arange(width) / 3))
        .expand(frames, height, width)
        .contiguous()
    )


def groups(seed: int = 0, strength: float = 10.0) -> Tensor:
    """Patches that lie in few directions, as those of pictures do."""
    return 90 + strength * (
        noise(2, 12, 5, seed=seed) @ noise(2, 5, PIXELS, seed=seed + 1)
    )


@pytest.mark.parametrize(
    "spectrum", [None, torch.linspace(0.2, 4, PIXELS)], ids=["white", "coloured"]
)
def test_noise_is_removed_by_the_estimate_of_least_squared_error(spectrum):
    first, residual, variance = (
        groups(),
        3 * noise(2, 12, PIXELS, seed=7),
        torch.tensor([9.0, 25.0]),
    )
    basis = dct_dictionary(SIDE, PIXELS).double()
    of_noise = (
        torch.eye(PIXELS).double() if spectrum is None else (basis * spectrum) @ basis.T
    )
    whitener = None if spectrum is None else inverse_covariance(spectrum)
    change = bayes_change(first, residual, variance.view(2, 1, 1), PUBLISHED, whitener)
    for patches, rest, level, result in zip(
        first.double(), residual.double(), variance, change, strict=True
    ):
        mean, covariance = patches.mean(0), torch.cov(patches.T, correction=0)
        gain = covariance @ torch.linalg.inv(covariance + level * of_noise)
        expected = mean + (patches + rest - mean) @ gain.T
        torch.testing.assert_close(patches + result, expected, atol=2e-2, rtol=0)


def test_the_gains_weigh_both_terms_by_their_strength_in_the_first_estimate():
    output = Gains(*torch.tensor([1.2, 0.3, -0.6, 0.2, 1.4, -0.3]))
    first, residual = groups(), 3 * noise(2, 12, PIXELS, seed=7)
    change = bayes_change(first, residual, torch.full((2, 1, 1), 9.0), output)
    for patches, rest, result in zip(
        first.double(), residual.double(), change, strict=True
    ):
        centred = patches - patches.mean(0)
        left, strength, right = torch.linalg.svd(centred, full_matrices=False)
        weak = 9 / (strength**2 / 12 + 9)
        # the residual in the directions of the group, down its patches and across their pixels
        inside = left.T @ rest @ right.T
        factors = (1.2 + 0.3 * weak[None]) + weak[:, None] * (-0.6 + 0.2 * weak[None])
        taken = torch.diag(strength * weak * (1.4 - 0.3 * weak))
        expected = left @ (factors * inside * (1 - weak) - taken) @ right
        torch.testing.assert_close(result.double(), expected, atol=2e-2, rtol=0)


def test_patches_of_each_frame_are_estimated_for_the_noise_of_that_frame():
    first, residual = groups(), 3 * noise(2, 12, PIXELS, seed=7)
    frames = (0.5, 2.0, 0.0, 1.0)  # of 3 patches each
    change = bayes_change(
        first, residual, torch.full((2, 1, 1), 9.0), PUBLISHED, frames=frames
    )
    for patches, rest, estimate in zip(
        first.double(), residual.double(), change, strict=True
    ):
        mean, covariance = patches.mean(0), torch.cov(patches.T, correction=0)
        for frame, factor in enumerate(frames):
            rows = slice(3 * frame, 3 * frame + 3)
            gain = covariance @ torch.linalg.inv(
                covariance + 9 * factor**2 * torch.eye(PIXELS).double()
            )
            expected = (
                mean + ((patches + rest - mean) @ gain.T)[rows]
                if factor
                else patches[rows]
            )
            torch.testing.assert_close(
                patches[rows] + estimate[rows], expected, atol=2e-2, rtol=0
            )


@pytest.mark.parametrize("samples, reach", [(1, 1), (3, 1), (5, 2)])
def test_the_patches_nearest_to_the_mean_of_their_track_are_taken_in_every_frame(
    samples, reach
):
    estimate, height, width = 99 + 20 * noise(3, 24, 24), 24, 24
    # patches are compared by a few pixels; of a plane that is even in blocks of 4, these are all
    estimate = (
        estimate.repeat_interleave(4, 1)
        .repeat_interleave(4, 2)[:, :height, :width]
        .contiguous()
    )
    track = torch.tensor([[8 * 24 + 8, 576 + 8 * 24 + 8, 1152 + 5 * 24 + 6]])
    result = similar(estimate, track, 16, Sampling(samples))
    assert result.shape == (1, 3 * samples)
    compared = torch.arange(2, 16, 4)
    patches = patches_at(estimate, track, 16).view(3, 16, 16)[:, compared][
        :, :, compared
    ]
    mean = patches.mean(0)
    for frame, origin in enumerate(track[0].tolist()):
        row, column = divmod(origin - 576 * frame, 24)
        distances = {}
        top, left = (min(max(0, at - reach), 8 - 2 * reach) for at in (row, column))
        for y in range(top, top + 2 * reach + 1):
            for x in range(left, left + 2 * reach + 1):
                seen = estimate[frame, y : y + 16, x : x + 16][compared][:, compared]
                distances[576 * frame + 24 * y + x] = float(
                    (seen - mean).square().sum()
                )
        nearest = sorted(distances.values())[:samples]
        chosen = [
            distances[each] for each in result[0].tolist() if each // 576 == frame
        ]
        assert sorted(chosen) == pytest.approx(nearest, rel=1e-4)


@pytest.mark.parametrize("spacing", [1, 2, 3])
@pytest.mark.parametrize("height, width", [(8, 8), (9, 40), (30, 33)])
def test_no_patch_comes_twice_and_candidates_are_as_far_apart_as_asked_also_at_borders(
    spacing, height, width
):
    corners = [
        (0, 0),
        (height - 8, width - 8),
        ((height - 8) // 2, (width - 8) // 3),
        (1 % (height - 7), 0),
    ]
    track = torch.tensor([[row * width + column] for row, column in corners])
    chosen = similar(noise(1, height, width), track, SIDE, Sampling(40, spacing))
    assert chosen.shape[1] == 40 or height < 30
    for row in range(len(track)):
        places = chosen[row].tolist()
        assert len(set(places)) == len(places)
        for place, corner in zip(divmod(places[0], width), corners[row], strict=True):
            assert (place - corner) % spacing == 0
        assert all(
            at // width <= height - 8 and at % width <= width - 8 for at in places
        )


def test_tracks_are_filtered_alike_in_small_chunks_and_at_once():
    clean = picture()
    noisy, first = (
        clean + 10 * noise(*clean.shape),
        clean + 4 * noise(*clean.shape).flip(1),
    )
    small, large = (
        nonlocal_bayes(
            noisy,
            first,
            tracks(*clean.shape),
            SIDE,
            Noise(10.0),
            PUBLISHED,
            Sampling(3),
            chunk=chunk,
        )
        for chunk in (3, 1000)
    )
    torch.testing.assert_close(small, large, atol=1e-3, rtol=0)


def test_pixels_outside_all_groups_stay_as_first_estimated():
    clean = picture(2)
    first, noisy = clean + noise(*clean.shape), clean + 5 * noise(*clean.shape)
    second = nonlocal_bayes(
        noisy, first, tracks(*clean.shape)[:1], SIDE, Noise(5.0), PUBLISHED, Sampling(3)
    )
    changed = second != first
    assert changed[:, 1 : SIDE - 1, 1 : SIDE - 1].all()
    # a patch, and the nine that are nearest to it in its corner
    assert not changed[:, SIDE + 2 :].any() and not changed[:, :, SIDE + 2 :].any()


def filtered(
    noisy: Tensor, first: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    origins = tracks(*first.shape, stride=4)
    return nonlocal_bayes(
        noisy, first, origins, SIDE, Noise(10.0, first), PUBLISHED, Sampling(10), dtype
    )


def test_a_rough_first_estimate_is_improved():
    clean = picture()
    noisy = clean + 10 * noise(*clean.shape)
    first = clean + 0.4 * (noisy - clean)
    assert (filtered(noisy, first) - clean).square().mean() < 0.7 * (
        first - clean
    ).square().mean()


def test_half_precision_changes_the_estimate_little():
    clean = picture()
    noisy, first = (
        clean + 10 * noise(*clean.shape),
        clean + 4 * noise(*clean.shape).flip(1),
    )
    half = filtered(noisy, first, torch.bfloat16)
    torch.testing.assert_close(half, filtered(noisy, first), atol=0.15, rtol=0)


def test_an_estimate_that_is_not_finite_stays_so():
    first = picture(2)
    first[0, 3, 3] = torch.nan
    assert filtered(picture(2), first)[0, 3, 3].isnan()


@pytest.mark.parametrize("kind", SIGMA_RANGES)
def test_a_factor_is_a_straight_line_in_the_logarithm_of_sigma(kind):
    constant, slope = fitted("models/bayes_gains")[kind][0]
    expected = constant + math.log(20 / 15) / 1.5 * slope
    torch.testing.assert_close(torch.stack(bayes_gains(kind, 0, 20.0, CPU)), expected)


@pytest.mark.parametrize("kind", SIGMA_RANGES)
def test_estimates_after_the_last_that_was_fitted_have_its_factors(kind):
    first, last, later = (bayes_gains(kind, stage, 20.0, CPU) for stage in (0, 1, 7))
    assert first != last == later


def test_sigmas_beyond_those_fitted_have_the_factors_of_the_nearest():
    for kind, (low, high) in SIGMA_RANGES.items():
        for inside, beyond in ((low, 0.5), (high, 75.0)):
            assert bayes_gains(kind, 0, inside, CPU) == bayes_gains(
                kind, 0, beyond, CPU
            )


def test_a_gpu_inverts_by_products_what_a_cpu_inverts_by_its_library():
    groups = noise(7, 80, 20)
    products = groups @ groups.mT + torch.eye(80)
    factor = torch.linalg.cholesky(products)
    with Rehearsal() as device:
        result = _inverse(factor.to("cuda"))
        assert not device.counts["waits inside"]
        torch.testing.assert_close(result.cpu(), _inverse(factor), rtol=1e-4, atol=1e-5)


def test_a_cpu_counts_the_estimates_of_one_frame_at_a_time(monkeypatch):
    shapes, first = [], picture()

    def counted(places: Tensor, shape: tuple[int, int, int], side: int) -> Tensor:
        shapes.append(shape)
        return coverage(places, shape, side)

    monkeypatch.setattr("vidrestore.models.nonlocal_bayes.coverage", counted)
    filtered(first + 10 * noise(*first.shape), first)
    assert shapes == [(1, *first.shape[1:])] * len(first)
