"""The second estimate: what it takes off, what it leaves, and what the gains of its filter change."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from vidrestore.models.dust import Transform
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.grouping import origins_of
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.models.nonlocal_bayes import Gains as BayesGains
from vidrestore.models.nonlocal_bayes import Noise, nonlocal_bayes
from vidrestore.models.second_estimate import (
    KNOTS,
    RANKS,
    Gains,
    filtered_change,
    gains_of,
    in_pairs,
    refine,
    wiener_gains,
)
from vidrestore.restorers.denoise import PRESETS

SIDE = 8
FRAMES = 12  # of groups with gains


def transform(dtype: torch.dtype = torch.float32) -> Transform:
    return Transform(SIDE, dtype, PackedLinear, torch.device("cpu"))


def values() -> Tensor:
    return torch.rand(4, 2, RANKS, len(KNOTS), generator=torch.Generator().manual_seed(0))


def groups(seed: int) -> Tensor:
    return 20 * torch.randn(2, 1, FRAMES, SIDE**2, generator=torch.Generator().manual_seed(seed))


def tracks(frames: int, height: int, width: int, stride: int = SIDE) -> Tensor:
    grid = Grid(height, width, SIDE, stride)
    return origins_of(fixed_positions(frames, grid), height, width)[:, None]


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def picture(frames: int = 6, height: int = 64, width: int = 64) -> Tensor:
    return (100 + 60 * torch.sin(torch.arange(width) / 3)).expand(frames, height, width).contiguous()


def test_the_transform_is_orthonormal():
    patches = noise(5, SIDE**2)
    coefficients = transform().forward(patches)
    torch.testing.assert_close(coefficients.norm(dim=1), patches.norm(dim=1))
    torch.testing.assert_close(transform().back(coefficients), patches, atol=1e-4, rtol=0)


def test_the_filter_is_wieners_with_the_first_estimate_as_the_picture():
    first, taken = 10 * noise(2, 1, 4, SIDE**2), noise(2, 1, 4, SIDE**2).flip(0)
    change = filtered_change(first, taken, torch.tensor(9.0), transform())
    kept = first.mean((2, 3), keepdim=True)
    for group, rest, mean, found in zip(first, taken, kept, change.view_as(first), strict=True):
        centred = (group - mean)[0]
        left, _, _ = torch.linalg.svd(centred)
        a, d = (transform().forward(left.mT @ each) for each in (centred, rest[0]))
        expected = left @ transform().back((a + d) * a**2 / (a**2 + 9)) - centred
        torch.testing.assert_close(found[0], expected, atol=1e-2, rtol=0)


def by_wiener(noisy: Tensor, first: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return refine(noisy, first, 10.0, tracks(*first.shape, stride=4), transform(dtype), first)


def by_bayes(noisy: Tensor, first: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    published = BayesGains(*torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]))
    origins = tracks(*first.shape, stride=4)[:, 0]
    return nonlocal_bayes(noisy, first, origins, SIDE, Noise(10.0, first), published, 10, dtype)


FILTERS = pytest.mark.parametrize("filtered", [by_wiener, by_bayes])


@FILTERS
def test_a_rough_first_estimate_comes_nearer_to_the_picture(filtered):
    clean = picture()
    noisy = clean + 10 * noise(*clean.shape)
    first = clean + 0.4 * (noisy - clean)
    assert (filtered(noisy, first) - clean).square().mean() < 0.7 * (first - clean).square().mean()


@FILTERS
def test_half_precision_hardly_shows(filtered):
    clean = picture()
    noisy, first = clean + 10 * noise(*clean.shape), clean + 4 * noise(*clean.shape).flip(1)
    half = filtered(noisy, first, torch.bfloat16)
    torch.testing.assert_close(half, filtered(noisy, first), atol=0.15, rtol=0)


@FILTERS
def test_an_estimate_that_is_not_finite_stays_so(filtered):
    first = picture(2)
    first[0, 3, 3] = torch.nan
    assert filtered(picture(2), first)[0, 3, 3].isnan()


def test_what_no_group_holds_stays_as_first_estimated():
    clean = picture(2)
    first, noisy = clean + noise(*clean.shape), clean + 5 * noise(*clean.shape)
    second = refine(noisy, first, 5.0, tracks(*clean.shape)[:1], transform(), first)
    changed = (second != first).nonzero()
    assert changed.amax(0).tolist() == [1, SIDE - 1, SIDE - 1]


@pytest.mark.parametrize("count, expected", [(4, [[0, 1], [2, 3]]), (3, [[0, 1], [2, 2]]), (1, [[0, 0]])])
def test_neighbouring_tracks_make_pairs(count, expected):
    made = in_pairs(torch.arange(count).view(-1, 1, 1).expand(-1, 1, 3))
    assert made[..., 0].tolist() == expected
    assert made.shape == (len(expected), 2, 3)


def change(made: Gains | None) -> Tensor:
    return filtered_change(groups(0), groups(1), torch.tensor(400.0), transform(), made)


def test_a_factor_is_a_straight_line_between_knots_of_frequency_and_in_the_logarithm_of_sigma():
    given, sigma = values(), 20.0
    made = gains_of(given, sigma, FRAMES, 16)
    level = math.log(sigma / 15) / 1.5
    for frame, down, across in ((11, 0, 0), (11, 3, 4), (5, 15, 15), (0, 0, 7)):
        rank = min(FRAMES - 1 - frame, RANKS - 1)  # components come in ascending order
        for factor, of_factor in zip(made, given.numpy(), strict=True):
            at_knots = of_factor[0, rank] + level * of_factor[1, rank]
            wanted = np.interp(math.hypot(down, across), KNOTS, at_knots)
            assert factor[frame, down * 16 + across].item() == pytest.approx(wanted, abs=1e-5)


def test_patches_of_half_the_side_have_the_factors_of_the_same_frequencies_in_the_picture():
    large, small = (gains_of(values(), 9.0, FRAMES, side).returned for side in (16, 8))
    torch.testing.assert_close(
        small.view(FRAMES, 8, 8), large.view(FRAMES, 16, 16)[:, ::2, ::2], atol=1e-5, rtol=0
    )


def test_factors_of_one_are_wieners_filter():
    one, none = torch.ones(FRAMES, SIDE**2), torch.zeros(FRAMES, SIDE**2)
    torch.testing.assert_close(change(Gains(one, none, one, none)), change(None), atol=1e-4, rtol=0)


def test_without_both_terms_the_first_estimate_stays():
    none = torch.zeros(FRAMES, SIDE**2)
    assert change(Gains(none, none, none, none)).abs().max() == 0


def test_the_slopes_count_where_the_first_estimate_is_strong():
    one, none = torch.ones(FRAMES, SIDE**2), torch.zeros(FRAMES, SIDE**2)
    strong, weak = (
        filtered_change(
            size * groups(0), groups(1), torch.tensor(400.0), transform(), Gains(none, one, none, none)
        )
        for size in (300, 1e-3)
    )
    # t is 1 for nearly all coefficients, or 0, and the change d t t
    assert (strong.view_as(groups(1)) - groups(1)).square().mean() < 0.02 * groups(1).square().mean()
    assert weak.abs().max() < 1e-3


def test_sigmas_beyond_those_fitted_have_the_factors_of_the_nearest():
    for inside, beyond in ((5.0, 1.0), (40.0, 75.0)):
        assert torch.equal(gains_of(values(), inside, 12, 16)[0], gains_of(values(), beyond, 12, 16)[0])


@pytest.mark.parametrize("quality", PRESETS)
def test_every_quality_has_gains_for_luma_and_for_colour_differences(quality):
    for name in (quality, f"{quality} colour"):
        made = wiener_gains(name, 0, 20.0, FRAMES, 16, torch.device("cpu"))
        assert all(each.shape == (FRAMES, 256) and each.isfinite().all() for each in made)
