"""SPyNet: the golden numbers, and what becomes of sizes and units."""

import pytest
import torch
from vsr_networks import golden, spynet_tensors

from vidrestore.models.spynet import Spynet, SpynetConfig, warp
from vidrestore.weights.releases import adopt_flow


def published(dtype: torch.dtype) -> Spynet:
    network = Spynet()
    network.load_state_dict(adopt_flow(spynet_tensors(), {}).tensors)
    return network.to(dtype)


@pytest.mark.parametrize("case", ["a", "b"])
@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float32, 1e-4), (torch.float64, 1e-9)]
)
def test_flow_is_that_of_the_golden_numbers(case, dtype, tolerance):
    numbers = golden("spynet_tiny.safetensors")
    with torch.no_grad():
        flow = published(dtype)(
            numbers[f"{case}/ref"].to(dtype), numbers[f"{case}/supp"].to(dtype)
        )
    torch.testing.assert_close(
        flow.double(), numbers[f"{case}/flow_f64"], atol=tolerance, rtol=0
    )


def test_the_published_network_has_its_parameters():
    assert sum(parameter.numel() for parameter in Spynet().parameters()) == 1_440_300


@pytest.mark.parametrize("height, width", [(32, 48), (30, 41)])
@pytest.mark.parametrize("coarser", [0, 1, 2])
def test_a_level_counts_in_its_own_pixels(height, width, coarser):
    """With weights of zero each level adds its last bias; here only one has any; finer ones double it."""
    network = Spynet(SpynetConfig(levels=4, widths=(4,), kernel=3)).double()
    for parameter in network.parameters():
        parameter.data.zero_()
    network.levels[-1 - coarser][-1].bias.data = torch.tensor(
        [1.0, -2.0], dtype=torch.float64
    )
    frames = torch.rand(2, 3, height, width, dtype=torch.float64)
    level_height, level_width = (
        -(-height // 8) * 8 >> coarser,
        -(-width // 8) * 8 >> coarser,
    )
    moved = torch.tensor([width / level_width, -2 * height / level_height]).double()
    expected = moved.view(1, 2, 1, 1).expand(2, 2, height, width)
    torch.testing.assert_close(network(frames, frames), expected, atol=1e-6, rtol=0)


def test_warping_moves_maps_by_whole_and_half_pixels():
    maps = torch.rand(1, 2, 6, 7)
    flow = torch.zeros(1, 2, 6, 7)
    flow[:, 0], flow[:, 1] = 1.5, -2
    moved = warp(maps, flow)
    torch.testing.assert_close(
        moved[..., 2:, :5], (maps[..., :4, 1:6] + maps[..., :4, 2:]) / 2
    )
    # from above the first row
    torch.testing.assert_close(
        moved[..., :2, :], torch.zeros(1, 2, 2, 7), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        warp(maps, flow, border="border")[..., :2, :5],
        ((maps[..., :1, 1:6] + maps[..., :1, 2:]) / 2).expand(1, 2, 2, 5),
    )


def test_half_precision_is_warped_to_the_position_of_single():
    maps, flow = torch.rand(1, 2, 4, 600).bfloat16(), torch.full((1, 2, 4, 600), 0.25)
    expected = warp(maps.float(), flow).bfloat16()
    assert torch.equal(warp(maps, flow), expected)


@pytest.mark.parametrize(
    "settings",
    [{"levels": 0}, {"kernel": 4}, {"widths": (0,)}, {"widths": ()}],
    ids=str,
)
def test_impossible_sizes_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        SpynetConfig(**settings)
