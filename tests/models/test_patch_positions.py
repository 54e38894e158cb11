"""The motion of the camera, grids of patches that follow it, and further grids."""

import pytest
import torch
import torch.nn.functional as F

from vidrestore.models.grouping import coverage, origins_of
from vidrestore.models.matching import Grid
from vidrestore.models.patch_positions import ClipPositions, camera_motion, camera_positions


def scene(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """A picture of soft spots, grey levels."""
    spots = torch.rand(1, 1, height // 6 + 4, width // 6 + 4, generator=torch.Generator().manual_seed(seed))
    return 255 * F.interpolate(spots, scale_factor=6, mode="bicubic")[0, 0, :height, :width]


def shown(steps: list[tuple[int, int]], height: int = 128, width: int = 160) -> torch.Tensor:
    """The scene moved by the running sum of `steps`."""
    whole, frames, y, x = scene(height + 200, width + 200), [], 100, 100
    for down, right in steps:
        y, x = y - down, x - right
        frames.append(whole[y : y + height, x : x + width])
    return torch.stack(frames)


@pytest.mark.parametrize(
    "steps",
    [
        [(0, 0)] * 4,
        [(0, 0), (0, 3), (0, 3), (0, 3)],
        [(0, 0), (-2, 9), (-4, 14), (5, -3)],
        [(0, 0), (16, -16), (20, -20)],
    ],
)
def test_the_motion_of_the_whole_picture_is_found_in_noise(steps):
    noisy = shown(steps)
    noisy = noisy + 20 * torch.randn(noisy.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.tensor(steps).cumsum(0).float()
    torch.testing.assert_close(camera_motion(noisy), expected, atol=1.0, rtol=0)


def test_slow_motion_is_not_lost_to_rounding():
    """A third of a pixel per frame, made by moving three times as large a picture."""
    large = shown([(0, 0)] + [(0, 1)] * 12, 384, 480)
    small = F.avg_pool2d(large[:, None], 3)[:, 0]
    moved = camera_motion(small + 5 * torch.randn(small.shape, generator=torch.Generator().manual_seed(2)))
    assert abs(float(moved[-1, 1]) - 4) < 0.7 and abs(float(moved[-1, 0])) < 0.7


def test_something_that_moves_before_the_picture_does_not_carry_the_grid_away():
    still = shown([(0, 0)] * 5)
    for frame, picture in enumerate(still):
        picture[30:90, 10 + 12 * frame : 70 + 12 * frame] = scene(60, 60, seed=7)
    assert camera_motion(still).abs().max() < 1


@pytest.mark.parametrize("height, width", [(16, 16), (17, 40), (50, 61)])
@pytest.mark.parametrize("stride", [5, 15, 16])
def test_a_moving_grid_covers_every_frame_at_any_shift(height, width, stride):
    motion = torch.cartesian_prod(torch.arange(-17.0, 18, 5), torch.tensor([-1000.4, -3.0, 0.0, 7.6, 16.0]))
    positions = camera_positions(motion, Grid(height, width, 16, stride))
    assert int(coverage(origins_of(positions, height, width), (len(motion), height, width), 16).min()) >= 1


def test_patches_of_a_moving_grid_show_the_same_in_every_frame():
    steps = [(0, 0), (2, 5), (2, 5)]
    clip = shown(steps)
    positions = camera_positions(torch.tensor(steps).cumsum(0).float(), Grid(128, 160, 16, 16))
    inside = ((positions > 0) & (positions < torch.tensor([112, 144]))).all(-1).all(0)
    assert inside.sum() > 20
    for slot in inside.nonzero()[:, 0].tolist():
        patches = [clip[t, y : y + 16, x : x + 16] for t, (y, x) in enumerate(positions[:, slot].tolist())]
        if (
            max(abs(positions[1:, slot] - positions[:-1, slot]).flatten().tolist()) <= 5
        ):  # not one that entered on the other side
            assert all(torch.equal(patch, patches[0]) for patch in patches)


def test_planes_of_other_proportions_move_by_their_share():
    clip = shown([(0, 0), (4, 8), (4, 8)])
    positions = ClipPositions(clip, 16, follow=True)
    wide = positions.origins(torch.Size((3, 128, 80)), 16, "camera")  # 4:2:2: full height, half the width
    rows, columns = wide // 80 % 128, wide % 80
    moved = torch.stack([rows[:, 1] - rows[:, 0], columns[:, 1] - columns[:, 0]], 1)
    assert [4, 4] in moved.tolist()


def test_near_patches_of_an_object_that_moves_little_against_the_camera_follow_it():
    steps, own = [(0, 0), (4, 8), (4, 8)], (-1, 2)
    clip = shown(steps)
    for t in (1, 2):  # a third of the picture moves on its own, too
        part = slice(0, 128), slice(96, 160)
        clip[t][part] = shown([(0, 0), *[(dy + own[0], dx + own[1]) for dy, dx in steps[1:]]])[t][part]
    origins = ClipPositions(clip, 16, follow=True).origins(clip.shape, 16, "near")
    rows, columns = origins // 160 % 128, origins % 160
    moved = torch.stack([rows[:, 1] - rows[:, 0], columns[:, 1] - columns[:, 0]], 1)
    start = columns[:, 0]
    for inside, motion in (((start < 64), (4, 8)), ((start >= 112) & (start < 134), (3, 10))):
        stays = inside & (rows[:, 0] < 108)
        assert (moved[stays] == torch.tensor(motion)).all(1).float().mean() > 0.8


def test_without_following_all_places_are_fixed():
    clip = shown([(0, 0), (4, 8)])
    positions = ClipPositions(clip, 16, follow=False)
    for way in ("camera", "near", "matched"):
        origins = positions.origins(clip.shape, 16, way)
        assert torch.equal(origins[:, 1], origins[:, 0] + 128 * 160)


@pytest.mark.parametrize("grids", [2, 4])
def test_further_grids_are_the_first_one_moved_by_half_a_stride(grids):
    positions = ClipPositions(torch.zeros(1, 32, 40), 16, follow=False)
    first = positions.origins(torch.Size((1, 32, 40)), 16, "fixed")[:, 0].tolist()
    both = positions.origins(torch.Size((1, 32, 40)), 16, "fixed", grids)[:, 0].tolist()
    assert both[: len(first)] == first
    moved = [(min(at // 40 + 8, 16)) * 40 + min(at % 40 + 8, 24) for at in first]
    assert both[len(first) : 2 * len(first)] == moved
    assert len(both) == grids * len(first)
