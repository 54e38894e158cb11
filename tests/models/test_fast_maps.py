"""Operations on maps and on strips of them: against the plain operations of torch."""

import pytest
import torch
import torch.nn.functional as F

from vidrestore.models.fast_maps import few_filters, normalised, spans


@pytest.mark.parametrize("height, rows", [(1, 1), (7, 3), (8, 4), (5, 9), (6, 0)])
def test_strips_cover_every_row_once(height, rows):
    covered = [row for start, stop in spans(height, rows) for row in range(start, stop)]
    assert covered == list(range(height))
    assert max(stop - start for start, stop in spans(height, rows)) <= max(rows, 1)


@pytest.mark.parametrize("side", [3, 5, 7])
def test_few_filters_are_a_grouped_convolution(side):
    maps, kernels = torch.rand(2, 3 * 4, 9, 6), torch.randn(3, 4, side, side)
    expected = F.conv2d(maps, kernels, padding=side // 2, groups=3)
    torch.testing.assert_close(few_filters(maps, kernels), expected)


def test_the_layer_norm_of_a_pixel_takes_mean_and_deviation_away():
    maps = torch.randn(
        2, 5, 3, 4, generator=torch.Generator().manual_seed(2)
    ).contiguous(memory_format=torch.channels_last)
    expected = (maps - maps.mean(1, keepdim=True)) / (
        maps.var(1, unbiased=False, keepdim=True) + 1e-5
    ).sqrt()
    torch.testing.assert_close(normalised(maps, centred=True), expected)
