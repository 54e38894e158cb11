"""The second estimate: what it takes off, and what it leaves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.grouping import origins_of
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.models.second_pass import (
    Transform,
    filtered_change,
    in_pairs,
    refine,
)

SIDE = 8


def transform(dtype: torch.dtype = torch.float32) -> Transform:
    return Transform(SIDE, dtype, PackedLinear, torch.device("cpu"))


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


def test_a_rough_first_estimate_comes_nearer_to_the_picture():
    clean = picture()
    noisy = clean + 10 * noise(*clean.shape)
    first = clean + 0.4 * (noisy - clean)
    second = refine(noisy, first, 10.0, tracks(*clean.shape, stride=4), transform(), first)
    assert (second - clean).square().mean() < 0.7 * (first - clean).square().mean()


def test_half_precision_hardly_shows():
    clean = picture()
    noisy, first = clean + 10 * noise(*clean.shape), clean + 4 * noise(*clean.shape).flip(1)
    full, half = (
        refine(noisy, first, 10.0, tracks(*clean.shape, stride=4), transform(dtype), first)
        for dtype in (torch.float32, torch.bfloat16)
    )
    torch.testing.assert_close(half, full, atol=0.15, rtol=0)


def test_what_no_group_holds_stays_as_first_estimated():
    clean = picture(2)
    first, noisy = clean + noise(*clean.shape), clean + 5 * noise(*clean.shape)
    second = refine(noisy, first, 5.0, tracks(*clean.shape)[:1], transform(), first)
    changed = (second != first).nonzero()
    assert changed.amax(0).tolist() == [1, SIDE - 1, SIDE - 1]


def test_an_estimate_that_is_not_finite_stays_so():
    first = picture(2)
    first[0, 3, 3] = torch.nan
    assert refine(picture(2), first, 5.0, tracks(2, 64, 64), transform(), first)[0, 3, 3].isnan()


@pytest.mark.parametrize("count, expected", [(4, [[0, 1], [2, 3]]), (3, [[0, 1], [2, 2]]), (1, [[0, 0]])])
def test_neighbouring_tracks_make_pairs(count, expected):
    made = in_pairs(torch.arange(count).view(-1, 1, 1).expand(-1, 1, 3))
    assert made[..., 0].tolist() == expected
    assert made.shape == (len(expected), 2, 3)
