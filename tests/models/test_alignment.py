"""Alignment of neighbours: dense motion and the warp."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade import imresize
from vidrestore.models.alignment import (
    _block_difference,
    _costs_beside,
    _least,
    _median,
    aligned,
    dense_motion,
    luma_of,
)


def scene(height: int, width: int, seed: int = 1) -> Tensor:
    """Return (1, 3, height, width): random texture of all scales, as pictures have."""
    torch.manual_seed(seed)
    scales = [
        imresize(torch.rand(1, 3, -(-height // side), -(-width // side)), side)[
            ..., :height, :width
        ]
        for side in (2, 4, 8, 16, 32)
    ]
    return sum(scales, torch.zeros(1)).div(len(scales)).clamp(0, 1)


@pytest.mark.parametrize("shift", [(0, 0), (1, 0), (0, -3), (-7, 5), (12, 20)])
def test_the_motion_of_a_shifted_picture_is_the_shift(shift):
    wide = scene(144, 176)
    down, right = shift
    here = wide[..., 32:-32, 32:-32]
    there = wide[..., 32 - down : -32 - down or None, 32 - right : -32 - right or None]
    flow = dense_motion(luma_of(here), luma_of(there))[0, :, 16:-16, 16:-16]
    expected = torch.tensor([right, down]).view(2, 1, 1).expand_as(flow).float()
    assert float((flow - expected).abs().median()) < 0.25
    assert float(((flow - expected).abs() > 1).float().mean()) < 0.1


def test_a_shift_by_half_a_pixel_is_found_to_a_quarter():
    wide = scene(160, 160)
    here, there = F.avg_pool2d(wide, 2), F.avg_pool2d(wide.roll(1, 3), 2)
    flow = dense_motion(luma_of(here), luma_of(there))[0, :, 16:-16, 16:-16]
    assert float(flow[0].median()) == pytest.approx(0.5, abs=0.25)
    assert float(flow[1].median()) == pytest.approx(0, abs=0.1)


def test_weather_in_front_of_a_still_scene_is_not_followed():
    still = scene(96, 96)
    frames = []
    for number in range(2):
        flakes = torch.zeros(1, 1, 96, 96)
        flakes[..., 5 + 4 * number :: 16, 3::12] = 1
        frames.append(torch.maximum(still, F.max_pool2d(flakes, 3, 1, 1)))
    assert (
        float((dense_motion(*map(luma_of, frames)).abs() > 0.5).float().mean()) < 0.02
    )


@pytest.mark.parametrize(("height", "width"), [(16, 16), (33, 50), (7, 64)])
def test_a_clip_of_equal_frames_is_itself(height, width):
    clip = scene(height, width)[:, None].expand(2, 3, 3, height, width)
    torch.testing.assert_close(aligned(clip), clip, atol=1e-5, rtol=0)


def test_the_middle_frame_stays_and_its_neighbours_come_to_it():
    wide = scene(96, 128)
    clip = torch.stack([wide[0, :, 16:-16, 16 + at : at - 16] for at in (-6, 0, 6)])[
        None
    ]
    result = aligned(clip)
    assert torch.equal(result[:, 1], clip[:, 1])
    inside = slice(12, -12)
    before = (clip - clip[:, 1:2])[..., inside, inside].abs().mean()
    after = (result - clip[:, 1:2])[..., inside, inside].abs().mean()
    assert float(after) < 0.1 * float(before)


@pytest.mark.parametrize("in_place", [True, False])
def test_differences_are_means_over_blocks_whose_borders_are_repeated(in_place):
    pictures, reference = 0.1 * torch.rand(2, 3, 9, 14), 0.1 * torch.rand(2, 1, 9, 14)
    with torch.inference_mode(in_place):
        result = _block_difference(pictures.split(1, 1), reference, [2] * 4)
    padded = F.pad((pictures - reference).abs(), [2] * 4, mode="replicate")
    torch.testing.assert_close(
        result, padded.unfold(2, 5, 1).unfold(3, 5, 1).mean((4, 5))
    )


def test_motion_is_the_same_for_any_strips_of_rows(monkeypatch):
    here, there = (luma_of(scene(70, 80, seed)) for seed in (1, 2))
    whole = dense_motion(here, there)
    # 7 rows at full size
    monkeypatch.setattr("vidrestore.models.alignment.CPU_STRIP", 9 * 80 * 7)
    assert torch.equal(dense_motion(here, there), whole)
    with torch.inference_mode():  # differences are written in place
        assert torch.equal(dense_motion(here, there), whole)


def test_motion_is_smoothed_by_the_median_of_nine_pixels():
    flow = torch.randint(0, 9, (2, 2, 7, 12)).float()
    padded = F.pad(flow, (1, 1, 1, 1), mode="replicate")
    around = padded.unfold(2, 3, 1).unfold(3, 3, 1).flatten(-2)
    assert torch.equal(_median(flow), around.median(-1).values)


def test_of_equal_costs_the_first_is_the_least():
    cost = torch.randint(0, 4, (2, 25, 6, 10)).float()
    least, index = _least(cost)
    # the first, by NumPy's manual
    expected = torch.tensor(cost.numpy().argmin(1))[:, None]
    assert torch.equal(index, expected.float())
    assert torch.equal(least, cost.gather(1, expected))


def test_costs_beside_the_best_are_those_of_the_next_columns_and_rows():
    cost, best = torch.rand(2, 9, 5, 7), torch.randint(3, 6, (2, 1, 5, 7))
    steps = (-1, 1, -3, 3)
    beside = _costs_beside(cost, best.float(), steps)
    expected = torch.cat([cost.gather(1, best + step) for step in steps], 1)
    assert torch.equal(beside, expected)
