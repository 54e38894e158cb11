"""Noise that follows the brightness, told by what a first estimate took off."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vidrestore.models.grouping import origins_of
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.models.noise_curve import NoiseCurve, noise_curve

SIDE = 8


def tracks(frames: int, height: int, width: int) -> Tensor:
    grid = Grid(height, width, SIDE, SIDE)
    return origins_of(fixed_positions(frames, grid), height, width)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_noise_that_follows_the_brightness_is_told_by_what_was_taken_off():
    brightness = torch.linspace(20, 220, 128).expand(4, 64, 128).contiguous()
    taken = noise(4, 64, 128) * torch.where(brightness < 120, 2.0, 6.0)
    strength = noise_curve(taken, torch.zeros_like(taken), brightness, tracks(4, 64, 128), SIDE)
    dark, light = strength.at(torch.tensor([30.0, 200.0])).tolist()
    assert light / dark == pytest.approx(9, rel=0.3)


def test_few_groups_tell_nothing_of_the_brightness():
    strength = noise_curve(
        noise(2, 16, 16), torch.zeros(2, 16, 16), torch.full((2, 16, 16), 99.0), tracks(2, 16, 16), SIDE
    )
    assert strength.at(torch.tensor([3.0, 250.0])).tolist() == [1, 1]


def test_between_known_brightnesses_the_strength_is_a_straight_line():
    strength = NoiseCurve(torch.tensor([10.0, 20.0, 40.0]), torch.tensor([1.0, 2.0, 4.0]))
    assert strength.at(torch.tensor([0.0, 15.0, 30.0, 90.0])).tolist() == [1.0, 1.5, 3.0, 4.0]


def test_noise_that_a_first_estimate_left_in_texture_does_not_make_the_curve():
    brightness = torch.linspace(20, 220, 128).expand(4, 128, 128).contiguous()
    taken, estimate = noise(4, 128, 128), torch.zeros(4, 128, 128)
    textured = (slice(None), slice(80), slice(64, None))  # five eighths of the bright half
    estimate[textured] = 20 * taken.flip(1)[textured]
    taken[textured] *= 0.3
    strength = noise_curve(estimate + taken, estimate, brightness, tracks(4, 128, 128), SIDE)
    dark, light = strength.at(torch.tensor([30.0, 200.0])).tolist()
    assert light / dark == pytest.approx(1, rel=0.25)
