"""Planes at half their size, and the patches that need the full one."""

import pytest
import torch
import torch.nn.functional as F

from vidrestore.models.grouping import origins_of, restore_patches
from vidrestore.models.halfsize import DETAIL_NOISE, detailed_groups, double, halve
from vidrestore.models.matching import Grid, fixed_positions


def test_half_the_size_is_the_mean_of_what_there_is():
    plane = torch.arange(15.0).view(1, 3, 5)
    expected = [[[(0 + 1 + 5 + 6) / 4, (2 + 3 + 7 + 8) / 4, (4 + 9) / 2], [(10 + 11) / 2, (12 + 13) / 2, 14]]]
    torch.testing.assert_close(halve(plane), torch.tensor(expected))


@pytest.mark.parametrize("height, width", [(24, 28), (25, 29)])
def test_a_plane_of_one_grey_and_a_slope_come_back_at_their_size(height, width):
    slope = (2.0 * torch.arange(height)[:, None] + 3.0 * torch.arange(width)).expand(2, -1, -1)
    back = double(halve(slope), height, width)
    assert back.shape == slope.shape
    torch.testing.assert_close(back[:, 6:-7, 6:-7], slope[:, 6:-7, 6:-7], atol=1e-3, rtol=0)
    torch.testing.assert_close(double(torch.full((1, 4, 6), 7.0), 8, 12), torch.full((1, 8, 12), 7.0))


def test_the_differences_from_the_half_size_hold_three_quarters_of_the_noise():
    noise = torch.randn(4, 64, 64, generator=torch.Generator().manual_seed(0))
    differences = noise - halve(noise).repeat_interleave(2, 1).repeat_interleave(2, 2)
    assert float(differences.square().mean()) == pytest.approx(DETAIL_NOISE, rel=0.05)


@pytest.mark.parametrize("height, width", [(64, 64), (63, 65)])
def test_groups_with_detail_are_distinguished_from_groups_of_noise(height, width):
    sigma, generator = 10.0, torch.Generator().manual_seed(1)
    plane = 100 + sigma * torch.randn(20, height, width, generator=generator)
    plane[:, 16:32, 32:48] += 12 * torch.tensor([[1, -1], [-1, 1]]).repeat(8, 8)
    origins = origins_of(fixed_positions(20, Grid(height, width, 16, 16)), height, width)
    found = detailed_groups(plane, halve(plane), origins, 16, 1.1 * DETAIL_NOISE * sigma**2)
    assert found[:, 0].tolist() == [16 * width + 32]


def test_where_no_group_is_restored_the_base_stands():
    plane, base = torch.rand(2, 40, 40), torch.rand(2, 40, 40)
    origins = origins_of(torch.tensor([[[3, 5], [10, 9]], [[3, 5], [11, 9]]]), 40, 40)
    restored = restore_patches(plane, origins, 16, lambda groups: groups, base.clone())
    expected = base.clone()
    for frame, low in ((0, 10), (1, 11)):
        expected[frame, 3:19, 5:21] = plane[frame, 3:19, 5:21]
        expected[frame, low : low + 16, 9:25] = plane[frame, low : low + 16, 9:25]
    torch.testing.assert_close(restored, expected)
    assert torch.equal(restore_patches(plane, origins[:0], 16, lambda groups: groups, base.clone()), base)


@pytest.mark.parametrize("height, width", [(30, 40), (29, 39)])
def test_doubling_is_the_cubic_interpolation_of_keys(height, width):
    small = torch.rand(2, 15, 20) * 100
    wanted = F.interpolate(small[:, None], size=(30, 40), mode="bicubic", antialias=True)[:, 0]
    inside = (..., slice(4, height - 4), slice(4, width - 4))
    torch.testing.assert_close(double(small, height, width)[inside], wanted[inside])
