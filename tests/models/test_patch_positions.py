"""Grids of patches that follow the motion, and further grids."""

import pytest
import torch

from vidrestore.models.patch_positions import ClipPositions


@pytest.mark.parametrize("follow", [False, True])
def test_patches_follow_the_motion_in_planes_of_other_proportions_if_they_are_to(follow):
    world = 255 * torch.rand(140, 200, generator=torch.Generator().manual_seed(0))
    clip = torch.stack([world[4 * t : 4 * t + 128, 8 * t : 8 * t + 160] for t in range(3)])
    positions = ClipPositions(clip, 16, follow=follow)
    origins = positions.origins(torch.Size((3, 128, 80)), 16)  # 4:2:2: full height, half the width
    rows, columns = origins // 80 % 128, origins % 80
    inside = (rows[:, 0] >= 8) & (columns[:, 0] >= 8)
    moved = torch.stack([rows[:, 2] - rows[:, 0], columns[:, 2] - columns[:, 0]], 1)[inside]
    expected = torch.tensor([-8, -8] if follow else [0, 0])
    assert (moved == expected).all(1).float().mean() > 0.8


@pytest.mark.parametrize("grids", [2, 4])
def test_further_grids_are_the_first_one_moved_by_half_a_stride(grids):
    positions = ClipPositions(torch.zeros(1, 32, 40), 16, follow=False)
    first = positions.origins(torch.Size((1, 32, 40)), 16)[:, 0].tolist()
    both = positions.origins(torch.Size((1, 32, 40)), 16, grids)[:, 0].tolist()
    assert both[: len(first)] == first
    moved = [(min(at // 40 + 8, 16)) * 40 + min(at % 40 + 8, 24) for at in first]
    assert both[len(first) : 2 * len(first)] == moved
    assert len(both) == grids * len(first)
