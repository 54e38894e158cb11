"""Fields of deinterlaced planes."""

import pytest
import torch
import torch.nn.functional as F

from vidrestore.models.fields import field_of, real_samples, woven
from vidrestore.models.grouping import patches_at

SIDE, WIDTH = 4, 9


@pytest.mark.parametrize("rows", [(0, 1, 0, 1), (1, 1, 0, None), (0, 0, 0, 0)])
def test_patches_of_a_field_are_every_other_row_of_their_place_in_the_frame(rows):
    plane = torch.arange(4 * 20 * WIDTH).view(4, 20, WIDTH).float()
    parity, top, left = (
        rows[0],
        torch.tensor([0, 4, 12, 16]),
        torch.tensor([0, 5, 3, 2]),
    )
    # (S, T)
    origins = torch.arange(4) * 20 * WIDTH + top[:, None] * WIDTH + left[:, None]
    field = field_of(rows, plane, origins, SIDE)
    patches = patches_at(field.of(plane).contiguous(), field.groups, SIDE).unflatten(
        -1, (SIDE, SIDE)
    )
    frames = [frame for frame, other in enumerate(rows) if other == parity]
    for group, (row, column) in enumerate(
        zip(top.clamp(max=12).tolist(), left.tolist(), strict=True)
    ):
        for number, frame in enumerate(frames):
            place = plane[frame, row + parity :: 2][:SIDE, column : column + SIDE]
            torch.testing.assert_close(patches[group, number], place)


def test_frames_without_interpolated_rows_are_whole_and_low_planes_have_no_field():
    plane, groups = torch.zeros(3, 6, 9), torch.zeros(1, 3, dtype=torch.long)
    assert real_samples((None,) * 3, plane) is None
    assert field_of((), plane, groups, SIDE).of(plane).shape == plane.shape
    assert field_of((None, 0, 0), plane, groups, SIDE) is None


def panning(
    frames: int, down: int, across: int, height: int = 64, width: int = 80
) -> torch.Tensor:
    """A fine texture that moves by so many pixels from frame to frame."""
    world = torch.rand(1, 1, 120, 140, generator=torch.Generator().manual_seed(3))
    world = 255 * F.avg_pool2d(F.avg_pool2d(world, 3, 1, 1), 2, 1)[0, 0]
    corners = [(20 + down * time, 30 + across * time) for time in range(frames)]
    return torch.stack(
        [world[top : top + height, left : left + width] for top, left in corners]
    )


def bobbed(clip: torch.Tensor, rows: tuple[int | None, ...]) -> torch.Tensor:
    """The clip with all but the real rows interpolated between those."""
    clip = clip.clone()
    for frame, parity in enumerate(rows):
        if parity is not None:
            between = (clip[frame].roll(1, 0) + clip[frame].roll(-1, 0)) / 2
            clip[frame, 1 - parity :: 2] = between[1 - parity :: 2]
    return clip


@pytest.mark.parametrize("rows", [(0, 1) * 3, (1, 0) * 3, (None, 1, 0, 1, 0, None)])
@pytest.mark.parametrize("down, across", [(0, 0), (0, 2), (2, -1)])
def test_rows_of_the_fields_around_are_woven_in_along_the_motion(rows, down, across):
    truth = panning(6, down, across)
    before = bobbed(truth, rows)
    (after,) = woven([before], rows, [0.0])
    inner = (slice(None), slice(8, -8), slice(8, -8))
    errors = [(clip - truth)[inner].square().mean() for clip in (before, after)]
    assert errors[1] < 0.7 * errors[0]
    for frame, parity in enumerate(rows):
        real = slice(None) if parity is None else slice(parity, None, 2)
        assert torch.equal(after[frame, real], before[frame, real])


def test_colour_follows_the_motion_of_luma_and_every_second_frame_alone_is_the_same():
    rows, luma = (0, 1) * 3, panning(6, 0, 4)
    colour = panning(6, 0, 2, 32, 40)
    before = [bobbed(luma, rows), bobbed(colour, rows)]
    after = woven(before, rows, [0.0, 0.0])
    errors = [
        (clip - colour)[:, 6:-6, 6:-6].square().mean() for clip in (before[1], after[1])
    ]
    assert errors[1] < 0.7 * errors[0]
    for alone, plane in zip(
        woven(before, rows, [0.0, 0.0], step=2), after, strict=True
    ):
        assert torch.equal(alone, plane[::2])


@pytest.mark.parametrize("sigma, better", [(0.0, True), (5.0, False)])
def test_rows_of_a_field_two_away_are_woven_in_without_noise(sigma, better):
    truth, rows = panning(3, 0, 0), (0, 0, 1)  # only the last has what the first lacks
    before = bobbed(truth, rows)
    (after,) = woven([before], rows, [sigma])
    errors = [(clip - truth)[0, 8:-8, 8:-8].square().mean() for clip in (before, after)]
    assert (errors[1] < 0.9 * errors[0]) == better


def test_what_is_alone_in_its_field_stays():
    rows, clip = (0, 1, 0), torch.full((3, 40, 48), 60.0)
    clip[1, 19:22, 20:24] = 220.0  # a dash that the fields around lack
    (after,) = woven([clip], rows, [0.0])
    assert after[1, 20, 20:24].min() > 180
