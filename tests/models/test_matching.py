"""Patches that follow the motion, held against motion that is known."""

import pytest
import torch
import torch.nn.functional as F
from stand_in import Rehearsal

from vidrestore.models.grouping import (
    coverage,
    origins_of,
    patches_at,
    patches_over_holes,
    restore_patches,
)
from vidrestore.models.matching import (
    Grid,
    _assign,
    fixed_positions,
    halve,
    matched_positions,
    median_of_nine,
)


def texture(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Smooth random grey levels with detail at several scales."""
    generator = torch.Generator().manual_seed(seed)
    noise = [
        torch.rand(1, 1, height // s, width // s, generator=generator)
        for s in (2, 4, 8, 16)
    ]
    layers = [
        F.interpolate(each, size=(height, width), mode="bicubic") for each in noise
    ]
    return 255 * torch.stack(layers).mean(0)[0, 0].clamp(0, 1)


def panned(
    frames: int, dy: int, dx: int, height: int = 96, width: int = 112
) -> torch.Tensor:
    """A camera that moves over a texture by whole pixels a frame."""
    world = texture(height + abs(dy) * frames, width + abs(dx) * frames)
    y, x = (abs(dy) * frames if dy < 0 else 0), (abs(dx) * frames if dx < 0 else 0)
    return torch.stack(
        [
            world[y + dy * t : y + dy * t + height, x + dx * t : x + dx * t + width]
            for t in range(frames)
        ]
    )


def test_half_the_size_is_the_mean_of_what_there_is():
    plane = torch.arange(15.0).view(1, 3, 5)
    expected = [
        [
            [(0 + 1 + 5 + 6) / 4, (2 + 3 + 7 + 8) / 4, (4 + 9) / 2],
            [(10 + 11) / 2, (12 + 13) / 2, 14],
        ]
    ]
    torch.testing.assert_close(halve(plane), torch.tensor(expected))


@pytest.mark.parametrize(
    "height, width, stride", [(16, 16, 16), (17, 40, 16), (96, 112, 12), (33, 50, 5)]
)
def test_the_cells_of_a_grid_cover_the_plane_and_stay_inside(height, width, stride):
    grid = Grid(height, width, 16, stride)
    corners = grid.corners()
    assert len(corners) == grid.rows * grid.columns
    assert corners.min() == 0 and corners.max(0).values.tolist() == [
        height - 16,
        width - 16,
    ]
    assert (
        int(
            coverage(
                origins_of(corners[None], height, width), (1, height, width), 16
            ).min()
        )
        >= 1
    )
    assert grid.nearby_cells(corners)[: grid.columns - 1, 0].tolist() == list(
        range(grid.columns - 1)
    )


@pytest.mark.parametrize("dy, dx", [(0, 0), (0, 3), (2, -5), (-9, 12)])
@pytest.mark.parametrize("sigma, share", [(0, 0.85), (20, 0.7)])
def test_slots_follow_a_moving_camera(dy, dx, sigma, share):
    clip = panned(4, dy, dx)
    noisy = clip + sigma * torch.randn(
        clip.shape, generator=torch.Generator().manual_seed(1)
    )
    positions = matched_positions(noisy, Grid(96, 112, 16, 12))
    expected = positions[:-1] - torch.tensor([dy, dx])
    stays = ((expected >= 0) & (expected <= torch.tensor([80, 96]))).all(-1)
    followed = (positions[1:] == expected).all(-1)
    assert followed[stays].float().mean() > share


@pytest.mark.parametrize("dy, dx", [(0, 0), (3, 7), (-16, 1)])
def test_every_cell_of_every_frame_has_a_patch_within_two_strides(dy, dx):
    grid = Grid(96, 112, 16, 12)
    for frame in matched_positions(panned(5, dy, dx), grid):
        assert (frame >= 0).all() and (frame <= torch.tensor([80, 96])).all()
        assert (
            float(
                torch.cdist(grid.corners().float(), frame.float()).min(1).values.max()
            )
            <= 24 * 2**0.5
        )


def test_a_cell_goes_to_the_better_match_and_the_other_slot_takes_its_next_choice():
    wishes = torch.tensor([[0, 1], [0, 2], [0, 1]])
    cells, empty = _assign(wishes, torch.tensor([3.0, 1.0, 2.0]))
    assert cells.tolist() == [-1, 0, 1] and empty.tolist() == [2]


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_assigned_alike_on_a_device(seed):
    generator = torch.Generator().manual_seed(seed)
    wishes, cost = (
        torch.randint(0, 60, (60, 7), generator=generator),
        torch.rand(60, generator=generator),
    )
    cells, empty = _assign(wishes, cost)
    with Rehearsal():
        on_device, order = _assign(wishes.to("cuda"), cost.to("cuda"))
        on_device, order = on_device.cpu(), order.cpu()
    assert (
        len(empty)
        and torch.equal(on_device, cells)
        and torch.equal(order[: len(empty)], empty)
    )


@pytest.mark.parametrize("crowded", [False, True])
def test_a_device_gives_each_cell_of_a_large_grid_at_most_once(crowded):
    generator = torch.Generator().manual_seed(0)
    moved = torch.arange(400) // 5 if crowded else torch.arange(400)
    moved = moved + torch.randint(0, 3, (400,), generator=generator)
    steps = torch.tensor([0, 1, -1, 2, -2, 3, -3, 4])
    wishes, cost = (
        (moved[:, None] + steps).clamp(0, 399),
        torch.rand(400, generator=generator),
    )
    with Rehearsal():
        cells, order = (
            each.cpu() for each in _assign(wishes.to("cuda"), cost.to("cuda"))
        )
    taken = cells[cells >= 0]
    assert len(taken.unique()) == len(taken)
    assert set(order[: 400 - len(taken)].tolist()) == set(range(400)) - set(
        taken.tolist()
    )
    assert crowded or torch.equal(cells, _assign(wishes, cost)[0])


def test_the_median_of_nine_is_the_median():
    values = torch.randint(
        -5, 6, (2, 9, 400), generator=torch.Generator().manual_seed(0)
    ).float()
    assert torch.equal(median_of_nine(values), values.median(1).values)


@pytest.mark.parametrize("height, width", [(16, 16), (17, 23), (30, 16)])
def test_planes_of_about_one_patch_can_be_matched(height, width):
    positions = matched_positions(
        255 * torch.rand(3, height, width), Grid(height, width, 16, 8)
    )
    assert (positions >= 0).all() and (
        positions <= torch.tensor([height - 16, width - 16])
    ).all()


def test_gathered_groups_are_the_patches_at_their_places():
    clip = torch.rand(3, 20, 30)
    positions = torch.tensor([[[0, 0], [4, 7]], [[1, 2], [4, 14]], [[4, 14], [0, 3]]])
    groups = patches_at(clip, origins_of(positions, 20, 30), 16)
    for slot in range(2):
        for t in range(3):
            y, x = positions[t, slot].tolist()
            assert torch.equal(
                groups[slot, t].view(16, 16), clip[t, y : y + 16, x : x + 16]
            )


def test_coverage_counts_the_patches_over_each_pixel():
    origins = torch.tensor([[0, 37 + 5], [2 * 900 + 3, 900 + 40]])
    expected = torch.zeros(3, 30, 30, dtype=torch.int32)
    for origin in origins.flatten().tolist():
        t, y, x = origin // 900, origin % 900 // 30, origin % 30
        expected[t, y : y + 8, x : x + 8] += 1
    assert torch.equal(coverage(origins, (3, 30, 30), 8), expected)


def test_patches_over_holes_cover_every_hole():
    generator = torch.Generator().manual_seed(0)
    counts = (torch.rand(2, 40, 50, generator=generator) < 0.99).int()
    counts[0, 39, 49] = counts[1, 0, 0] = 0
    extra = patches_over_holes(counts, 16)
    assert int((counts + coverage(extra, (2, 40, 50), 16)).min()) >= 1
    assert len(patches_over_holes(torch.ones(2, 40, 50), 16)) == 0


@pytest.mark.parametrize("positions", ["fixed", "matched", "scattered"])
def test_a_network_that_changes_nothing_gives_the_plane_back(positions):
    clip = panned(5, 2, 3, 50, 70)
    grid = Grid(50, 70, 16, 14)
    chosen = {
        "fixed": fixed_positions(5, grid),
        "matched": matched_positions(clip, grid),
        "scattered": torch.randint(
            0, 34, (5, 9, 2), generator=torch.Generator().manual_seed(3)
        ),
    }[positions]
    restored = restore_patches(
        clip, origins_of(chosen, 50, 70), 16, lambda groups: groups
    )
    torch.testing.assert_close(restored, clip, atol=1e-4, rtol=0)


def test_a_plane_smaller_than_a_patch_is_refused():
    with pytest.raises(ValueError, match="is smaller than a patch"):
        Grid(15, 40, 16, 8)
    with pytest.raises(ValueError, match="stride must be in"):
        Grid(20, 40, 16, 17)
