"""Fields of deinterlaced planes."""

import pytest
import torch

from vidrestore.models.fields import field_of, real_samples
from vidrestore.models.grouping import patches_at

SIDE, WIDTH = 4, 9


@pytest.mark.parametrize("rows", [(0, 1, 0, 1), (1, 1, 0, None), (0, 0, 0, 0)])
def test_patches_of_a_field_are_every_other_row_of_their_place_in_the_frame(rows):
    plane = torch.arange(4 * 20 * WIDTH).view(4, 20, WIDTH).float()
    parity, top, left = rows[0], torch.tensor([0, 4, 12, 16]), torch.tensor([0, 5, 3, 2])
    origins = torch.arange(4) * 20 * WIDTH + top[:, None] * WIDTH + left[:, None]  # (S, T)
    field = field_of(rows, plane, origins, SIDE)
    patches = patches_at(field.of(plane).contiguous(), field.groups, SIDE).unflatten(-1, (SIDE, SIDE))
    frames = [frame for frame, other in enumerate(rows) if other == parity]
    for group, (row, column) in enumerate(zip(top.clamp(max=12).tolist(), left.tolist(), strict=True)):
        for number, frame in enumerate(frames):
            place = plane[frame, row + parity :: 2][:SIDE, column : column + SIDE]
            torch.testing.assert_close(patches[group, number], place)


def test_frames_without_interpolated_rows_are_whole_and_low_planes_have_no_field():
    plane, groups = torch.zeros(3, 6, 9), torch.zeros(1, 3, dtype=torch.long)
    assert real_samples((None,) * 3, plane) is None
    assert field_of((), plane, groups, SIDE).of(plane).shape == plane.shape
    assert field_of((None, 0, 0), plane, groups, SIDE) is None
