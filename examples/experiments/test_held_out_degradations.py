"""The models that judge networks stay as they were frozen, and are what their formulas say."""

from __future__ import annotations

import held_out_degradations as held_out
import numpy as np
import pytest
import torch
from torch import Tensor

# mean and deviation
FROZEN = {
    "dehaze": (0.186415, 0.166533),
    "derain": (0.039112, 0.038138),
    "desnow": (0.074211, 0.057003),
    "deblur": (0.004605, 0.022338),
    "denoise": (-0.006643, 0.088064),
}


def scene(frames: int = 2, height: int = 64, width: int = 96) -> Tensor:
    """Smooth shapes in all colours."""
    rows, columns = np.mgrid[:height, :width] / 12
    channels = [
        0.45 + 0.4 * np.sin(rows * a + 0.3 * a) * np.cos(columns * b)
        for a, b in ((1, 1.3), (0.6, 0.9), (1.7, 0.4))
    ]
    return (
        torch.from_numpy(np.stack(channels))
        .float()
        .expand(frames, 3, height, width)
        .contiguous()
    )


@pytest.mark.parametrize("task", FROZEN)
def test_a_model_is_as_it_was_frozen(task: str) -> None:
    degraded, clean = held_out.MODELS[task](scene(), 3)
    error = (degraded - clean).double()
    # as if 200 of 36,864 values were one step of 8 bits off: processors round a few in another way
    assert (float(error.mean()), float(error.std())) == pytest.approx(
        FROZEN[task], abs=2e-5
    )


@pytest.mark.parametrize("task", FROZEN)
def test_a_seed_gives_the_same_8_bit_clip_each_time(task: str) -> None:
    (degraded, clean), (again, _), (other, _) = (
        held_out.MODELS[task](scene(), seed) for seed in (5, 5, 6)
    )
    assert torch.equal(degraded, again)
    assert not torch.equal(degraded, other)
    assert degraded.shape == clean.shape == scene().shape
    assert torch.equal(degraded, (degraded * 255).round() / 255)


def test_light_and_display_values_are_inverse() -> None:
    values = torch.arange(256).float() / 255
    assert torch.equal(held_out.stored(held_out.linear(values)), values)


def test_demosaicing_keeps_a_picture_of_one_colour() -> None:
    flat = np.broadcast_to(np.array([0.2, 0.5, 0.7])[:, None, None], (3, 12, 14))
    np.testing.assert_allclose(
        held_out.demosaiced(held_out.mosaic(flat)), flat, atol=1e-12
    )


def test_a_disc_keeps_the_sum_and_the_middle_of_what_it_blurs() -> None:
    image = np.zeros((21, 31))
    image[10, 15] = 2
    blurred = held_out.disc_blurred(image, 3.0)
    rows, columns = np.mgrid[:21, :31]
    assert blurred.sum() == pytest.approx(2)
    assert ((blurred * rows).sum() / 2, (blurred * columns).sum() / 2) == pytest.approx(
        (10, 15)
    )


def test_a_camera_that_does_not_turn_sees_the_same_and_one_that_yaws_sees_it_moved() -> (
    None
):
    picture = scene()[0]
    torch.testing.assert_close(
        held_out.turned_view(picture, np.zeros(3), 80.0), picture, atol=1e-5, rtol=0
    )
    moved = held_out.turned_view(
        picture, np.array([0.0, np.arctan(1 / 8000), 0.0]), 8000.0
    )
    torch.testing.assert_close(
        moved[:, 5:-5, 5:-5], picture[:, 5:-5, 6:-4], atol=2e-3, rtol=0
    )
