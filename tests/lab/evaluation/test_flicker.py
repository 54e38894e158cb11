"""Flicker of known size, and motion that is no flicker."""

import numpy as np
import pytest
import torch

from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.pages.report import MEDIAN_OF_NORMAL, flicker, flicker_of


def texture(height: int = 96, width: int = 128) -> np.ndarray:
    smooth = (
        np.random.default_rng(2)
        .normal(0, 1, (height // 4, width // 4))
        .repeat(4, 0)
        .repeat(4, 1)
    )
    return 128 + 30 * smooth


def test_flicker_is_what_patches_change_from_frame_to_frame():
    still = torch.from_numpy(texture()).float()
    pulsing = torch.stack([still + offset for offset in (0.0, 3.0, 1.0, 1.0)])
    positions = fixed_positions(4, Grid(96, 128, 16, 16))
    assert [
        each * MEDIAN_OF_NORMAL for each in flicker(pulsing, positions)
    ] == pytest.approx([3, 2, 0], abs=1e-4)


def test_the_flicker_of_normal_changes_is_their_standard_deviation():
    rng = torch.Generator().manual_seed(3)
    # a mean of 256 pixels deviates by 1, a difference of two by 1.41
    noise = torch.randn(2, 320, 480, generator=rng) * 16
    assert flicker(noise, fixed_positions(2, Grid(320, 480, 16, 16)))[
        0
    ] == pytest.approx(2**0.5, rel=0.08)


def test_motion_does_not_count_as_flicker():
    large = texture(128, 256)
    moving = torch.from_numpy(
        np.stack([large[8:104, 3 * time : 128 + 3 * time] for time in range(6)])
    ).float()
    followed = flicker_of(moving, moving)
    assert [len(values) for values in followed] == [5, 5] and max(
        followed[0] + followed[1]
    ) < 0.2
    at_one_place = flicker(moving, fixed_positions(6, Grid(96, 128, 16, 16)))
    assert min(at_one_place) > 2
