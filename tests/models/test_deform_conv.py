"""Deformable convolution against its definition, pixel by pixel, and against the ordinary convolution that it
is without offsets.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from stand_in import Rehearsal
from torch import Tensor

from vidrestore.models.deform_conv import deformable_depthwise


def problem(
    reach: float = 3.0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Maps (2, 3, 6, 5), offsets that lead out of them on every side, a weight."""
    torch.manual_seed(7)
    offsets = (torch.randn(2, 18, 6, 5, dtype=dtype) * reach).clamp(-reach, reach)
    return (
        torch.randn(2, 3, 6, 5, dtype=dtype),
        offsets,
        torch.randn(3, 1, 3, 3, dtype=dtype),
    )


def sample(plane: Tensor, y: float, x: float) -> float:
    """Bilinear between the four pixels around, zero outside the plane."""
    height, width = plane.shape
    total, top, left = 0.0, math.floor(y), math.floor(x)
    for row in (top, top + 1):
        for column in (left, left + 1):
            if 0 <= row < height and 0 <= column < width:
                total += (
                    float(plane[row, column])
                    * (1 - abs(y - row))
                    * (1 - abs(x - column))
                )
    return total


def by_definition(maps: Tensor, offsets: Tensor, weight: Tensor) -> Tensor:
    output = torch.zeros_like(maps)
    for b, c, i, j in torch.cartesian_prod(*map(torch.arange, maps.shape)).tolist():
        for k in range(9):
            y, x = (
                i + k // 3 - 1 + float(offsets[b, 2 * k, i, j]),
                j + k % 3 - 1 + float(offsets[b, 2 * k + 1, i, j]),
            )
            output[b, c, i, j] += weight[c, 0, k // 3, k % 3] * sample(maps[b, c], y, x)
    return output


@pytest.fixture(params=["for gradients", "without gradients"])
def way(request):
    """Two ways to the same numbers: whole maps at once for gradients, rows of a table without."""
    with torch.set_grad_enabled(request.param == "for gradients"):
        yield


@pytest.mark.parametrize("reach", [0.4, 3.0, 9.0])
def test_every_output_pixel_is_the_sum_over_taps_of_the_definition(way, reach):
    maps, offsets, weight = problem(reach)
    torch.testing.assert_close(
        deformable_depthwise(maps, offsets, weight),
        by_definition(maps, offsets, weight),
    )


def test_integer_offsets_and_places_on_and_beyond_the_border_follow_the_definition(way):
    maps, offsets, weight = problem()
    offsets = offsets.round()
    offsets[:, :4], offsets[:, 4:8] = -40.0, 40.0
    torch.testing.assert_close(
        deformable_depthwise(maps, offsets, weight),
        by_definition(maps, offsets, weight),
    )


def test_without_offsets_it_is_the_ordinary_depthwise_convolution(way):
    maps, offsets, weight = problem()
    expected = F.conv2d(maps, weight, padding=1, groups=3)
    torch.testing.assert_close(
        deformable_depthwise(maps, 0 * offsets, weight), expected
    )


@pytest.mark.parametrize("reach, promised", [(3.0, 3.0), (2.5, 2.5), (9.0, None)])
@pytest.mark.parametrize("span", [(0, 1), (2, 5), (5, 6), (0, 6)])
def test_a_span_of_rows_equals_that_part_of_the_full_map(span, reach, promised):
    maps, offsets, weight = problem(reach)
    part = deformable_depthwise(
        maps, offsets[:, :, slice(*span)], weight, span, promised
    )
    torch.testing.assert_close(
        part, deformable_depthwise(maps, offsets, weight)[:, :, slice(*span)]
    )


def test_the_layout_of_maps_and_offsets_does_not_matter(way):
    maps, offsets, weight = problem(dtype=torch.float32)
    other = (
        values.contiguous(memory_format=torch.channels_last)
        for values in (maps, offsets)
    )
    torch.testing.assert_close(
        deformable_depthwise(*other, weight),
        deformable_depthwise(maps, offsets, weight),
    )


def test_gradients_to_maps_offsets_and_weight_are_those_of_finite_differences():
    maps, offsets, weight = problem(reach=2.0)
    # no place where two pixels meet, for there is a kink
    parts = (maps[:1, :2], 0.9 * offsets[:1], weight[:2])
    inputs = [part.requires_grad_() for part in parts]
    assert torch.autograd.gradcheck(deformable_depthwise, inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_sampled_at_places_of_full_precision(dtype):
    """On a ramp of 1 per column, a place that is wrong by a hundredth of a pixel shows."""
    ramp = torch.arange(600.0)[None, None, None].expand(1, 1, 4, 600) / 600
    offsets, weight = torch.full((1, 18, 4, 600), 0.5), torch.zeros(1, 1, 3, 3)
    weight[..., 1, 1] = 1
    result = deformable_depthwise(ramp.to(dtype), offsets.to(dtype), weight.to(dtype))
    assert result.dtype == dtype
    expected = (torch.arange(599.0) + 0.5) / 600
    torch.testing.assert_close(
        result[0, 0, 1, :599].float(), expected, atol=4e-3, rtol=0
    )


def test_a_gpu_computes_what_the_cpu_does():
    with Rehearsal():
        result = deformable_depthwise(*(part.to("cuda") for part in problem())).cpu()
    torch.testing.assert_close(result, deformable_depthwise(*problem()))
