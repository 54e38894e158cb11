"""The kernel of an even blur, and the picture without it."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.models import deconvolution
from vidrestore.models.deconvolution import (
    centroid,
    cleaned,
    kernel_of,
    scaled_kernel,
    sharpened,
    wrapped,
)


def boxes(side: int = 160, count: int = 60) -> Tensor:
    """A picture (3, side, side) of even rectangles, as those with sharp edges."""
    draw, picture = torch.Generator().manual_seed(5), torch.full((3, side, side), 0.3)
    for _ in range(count):
        top, left = torch.randint(0, side - 8, (2,), generator=draw).tolist()
        high, wide = torch.randint(6, side // 3, (2,), generator=draw).tolist()
        picture[:, top : top + high, left : left + wide] = (
            torch.rand(3, 1, 1, generator=draw) * 0.8 + 0.05
        )
    return picture


def bent_path(side: int = 15) -> Tensor:
    """A kernel: 9 pixels across, then 5 down, more light at the end."""
    kernel = torch.zeros(side, side)
    kernel[4, 3:12], kernel[4:9, 11] = 1.0, 2.0
    kernel /= kernel.sum()
    row, column = (round(shift) for shift in centroid(kernel))
    return kernel.roll((-row, -column), (0, 1))


def blurred(picture: Tensor, kernel: Tensor) -> Tensor:
    padded = F.pad(picture[:, None], [len(kernel) // 2] * 4, mode="reflect")
    return F.conv2d(padded, kernel.flip(0, 1)[None, None])[:, 0]


def inner_error(one: Tensor, other: Tensor, border: int = 12) -> float:
    inner = (..., slice(border, -border), slice(border, -border))
    return float((one[inner] - other[inner]).square().mean().sqrt())


def test_the_kernel_of_an_even_blur_is_estimated():
    kernel = bent_path()
    estimate = kernel_of(blurred(boxes(), kernel).mean(0), 15, 1.2e-2)
    shifts = [
        kernel.roll((down, right), (0, 1))
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
    ]
    assert estimate.sum().item() == pytest.approx(1) and estimate.min() >= 0
    assert (
        max(
            float((estimate * one).sum() / estimate.norm() / one.norm())
            for one in shifts
        )
        > 0.85
    )


def test_a_picture_that_isnt_blurred_has_almost_one_pixel_as_its_kernel():
    estimate = kernel_of(boxes().mean(0), 15, 1.2e-2)
    assert estimate.max() > 0.75


def test_the_pyramid_begins_near_the_end_with_a_first_kernel_of_half_the_size():
    kernel, picture = bent_path(), boxes()
    first = scaled_kernel(kernel, 0.5, 7)
    estimate = kernel_of(blurred(picture, kernel).mean(0), 15, 1.2e-2, first)
    assert float((estimate * kernel).sum() / estimate.norm() / kernel.norm()) > 0.7


def test_a_picture_is_sharp_without_its_blur_also_at_its_borders():
    picture, kernel = boxes(), bent_path()
    seen = blurred(picture, kernel)
    sharp, shift = sharpened(seen, kernel, 2e3), centroid(kernel)
    assert max(map(abs, shift)) < 0.5
    assert sharp.shape == picture.shape
    assert inner_error(sharp, picture) < 0.4 * inner_error(seen, picture)
    assert inner_error(sharp, picture, 1) < 0.6 * inner_error(seen, picture, 1)


def test_the_fraction_of_a_pixel_of_the_centroid_moves_the_picture():
    """The mean of two neighbours, without its blur, lies halfway between them: their mean again."""
    rows = torch.sin(torch.arange(128) * (math.tau / 32)).expand(1, 64, 128) * 0.3 + 0.5
    kernel = torch.zeros(5, 5)
    kernel[2, 2:4] = 0.5
    expected = (rows + rows.roll(1, -1)) / 2
    assert inner_error(sharpened(expected, kernel, 1e5), expected) < 5e-3


def test_light_that_was_clipped_leaves_weaker_ripples_than_if_it_were_trusted(
    monkeypatch,
):
    lamp, kernel = torch.full((1, 64, 64), 0.1), bent_path()
    lamp[:, 30:34, 30:34] = 6.0
    seen = blurred(lamp, kernel).clamp(max=1)
    sharp = sharpened(seen, kernel, 2e3)
    monkeypatch.setattr(deconvolution, "CLIPPED", 2.0)
    trusting = sharpened(seen, kernel, 2e3)
    assert trusting.min() < sharp.min()


def test_faint_pixels_and_small_parts_are_left_out_of_a_kernel():
    kernel = torch.zeros(9, 9)
    kernel[4, 2:7], kernel[0, 0], kernel[8, 4] = 1.0, 0.3, 0.04
    expected = torch.zeros(9, 9)
    expected[4, 2:7] = 0.2
    torch.testing.assert_close(cleaned(kernel), expected)
    assert cleaned(torch.zeros(5, 5))[2, 2] == 1


@pytest.mark.parametrize("height, width", [(33, 50), (20, 21), (64, 64)])
def test_a_canvas_holds_the_picture_and_joins_its_opposite_borders(height, width):
    planes = torch.rand(2, height, width, generator=torch.Generator().manual_seed(1))
    canvas, (top, left) = wrapped(planes, 9)
    assert torch.equal(canvas[:, top : top + height, left : left + width], planes)
    assert all(side % 16 == 0 for side in canvas.shape[1:])
    smooth, _ = wrapped(torch.linspace(0, 1, width).expand(1, height, width), 9)
    assert (smooth - smooth.roll(1, -1)).abs().max() < 0.2


@pytest.mark.parametrize(
    "least, side", [(1, 16), (16, 16), (290, 320), (305, 320), (481, 512), (1000, 1008)]
)
def test_the_side_of_a_canvas_has_no_large_prime_factor(least, side):
    """Of 304 = 16 * 19, 496 = 16 * 31 and 992 = 32 * 31 a transform takes up to three times as long."""
    assert deconvolution.canvas_side(least) == side


def test_the_weight_of_the_prior_follows_the_mean_of_windows_within_the_picture():
    picture = boxes(40)
    energy = deconvolution._gradients(deconvolution.from_light(picture))
    energy = energy.square().sum(0).mean(0)
    expected = torch.empty(40, 40)
    for row in range(40):
        for column in range(40):
            window = energy[
                max(0, row - 7) : row + 8, max(0, column - 7) : column + 8
            ].mean()
            expected[row, column] = 1 + 6 / (1 + (window / (2 / 255) ** 2) ** 2)
    torch.testing.assert_close(
        deconvolution._prior_weight(picture), expected, rtol=1e-4, atol=1e-4
    )


def test_differences_and_their_adjoint_agree():
    """<differences of a, b> = <a, adjoint of b>, periodic at the borders, as rolls show."""
    draw = torch.Generator().manual_seed(2)
    planes, others = (
        torch.rand(2, 6, 7, generator=draw),
        torch.rand(2, 2, 6, 7, generator=draw),
    )
    differences = deconvolution._gradients(planes)
    assert torch.equal(differences[0], planes.roll(-1, -2) - planes)
    assert torch.equal(differences[1], planes.roll(-1, -1) - planes)
    adjoint = deconvolution._divergence(others)
    assert float((differences * others).sum()) == pytest.approx(
        float((planes * adjoint).sum()), rel=1e-4
    )
