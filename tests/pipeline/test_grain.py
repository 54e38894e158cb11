"""Grain is even, of the strength that was asked for, and the same for the same frame."""

import pytest
import torch

from vidrestore.pipeline.conversions import with_grain


def grey(level: float, frames: int = 2) -> torch.Tensor:
    return torch.full((frames, 64, 80), level)


def test_grain_has_its_strength_in_mid_tones_and_less_in_the_dark():
    middle, dark = (
        with_grain((grey(level),), 6.0, 0, colour=False)[0] - level
        for level in (127.5, 10.0)
    )
    assert float(middle.std()) == pytest.approx(6, rel=0.05)
    assert 2 < float(dark.std()) < 4


def test_a_frames_grain_follows_from_its_number_alone():
    whole = with_grain((grey(100, 4),), 5.0, 10, colour=False)[0]
    torch.testing.assert_close(
        with_grain((grey(100, 2),), 5.0, 12, colour=False)[0], whole[2:]
    )
    assert not torch.equal(whole[0], whole[1])


def test_colour_differences_stay_and_r_g_b_get_the_same_grain():
    y, u = with_grain((grey(100), grey(100)), 5.0, 0, colour=True)
    assert torch.equal(u, grey(100)) and not torch.equal(y, u)
    red, green = with_grain((grey(100), grey(100)), 5.0, 0, colour=False)
    assert torch.equal(red, green)
