"""Haze by the scattering model: from the maps of a network to its parameters, and from them to the scene."""

import math

import pytest
import torch
from taylor_networks import small
from torch import Tensor

from vidrestore.models.scattering import (
    Scattering,
    scattering_from,
    transmission_of,
    without_haze,
)


def maps_of(**parts: Tensor | float) -> Tensor:
    """Maps (1, 6, 8, 10) of a network; what isn't given is 0."""
    maps = torch.zeros(1, 6, 8, 10)
    channels = {
        "depth": slice(0, 1),
        "weight": slice(1, 2),
        "colours": slice(2, 5),
        "exponent": slice(5, 6),
    }
    for name, values in parts.items():
        maps[:, channels[name]] = torch.as_tensor(values)
    return maps


def test_weights_of_three_frames_start_a_network_that_finds_haze_in_one():
    """With its other parts alike: a frame that is its own neighbour gives the same maps before the last."""
    inputs = small(frames=3, gain=True, tasks=["derain", "desnow"])
    network = small(haze=True)
    parts = network.parts_of(inputs)
    network.load_state_dict(network.state_dict() | parts)
    with torch.no_grad():
        for vectors in (
            each for name, each in inputs.named_parameters() if name.endswith("vectors")
        ):
            vectors.zero_()
        inputs.head.copy_(
            inputs.head[:1] * 0
            + torch.linspace(-1, 1, inputs.head[0].numel()).view_as(inputs.head[0])
        )
        network.head.copy_(inputs.head[:1].expand_as(network.head))
    picture = noise(1, 3, 16, 24)
    maps, _ = network._maps(picture, None)
    expected, _ = inputs._maps(
        picture[:, None].expand(-1, 3, -1, -1, -1), torch.tensor([0])
    )
    torch.testing.assert_close(maps[:, :1], expected[:, :1], atol=1e-4, rtol=1e-4)
    assert network.parts_of(small(frames=3, widths=[8, 16, 12, 16])) is None


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(3))


def test_the_scene_behind_drawn_haze_is_found_again():
    """By hand: light J of 0.5 and less, behind haze of half the light of green, and of less of red."""
    scene, airlight = (
        0.01 + 0.5 * noise(1, 3, 8, 10),
        torch.tensor([0.8, 0.7, 0.6]).view(1, 3, 1, 1),
    )
    depth = torch.full((1, 1, 8, 10), math.log(2))
    green, red, blue = 0.5, 0.5 ** (532 / 630), 0.5 ** (532 / 465)
    seen = torch.tensor([red, green, blue]).view(1, 3, 1, 1)
    hazy = (scene * seen + airlight * (1 - seen)) ** (1 / 2.2)
    result = Scattering(depth, torch.ones(1, 1, 1, 1), airlight.expand(1, 3, 1, 10))
    torch.testing.assert_close(transmission_of(result), seen.expand(1, 3, 8, 10))
    torch.testing.assert_close(
        without_haze(hazy, result), scene ** (1 / 2.2), atol=1e-4, rtol=0
    )


def test_black_without_haze_stays_black_and_light_near_0_has_a_gradient():
    result = Scattering(
        torch.full((1, 1, 1, 3), math.log(4)),
        torch.zeros(1, 1, 1, 1),
        torch.full((1, 3, 1, 3), 0.8),
    )
    light = 0.6 + 0.25 * torch.tensor(
        [0.0009, 0.0, -0.1]
    )  # of scenes of 0.0009, 0 and -0.1, seen through a quarter
    light.requires_grad_()
    clear = without_haze((light ** (1 / 2.2)).expand(1, 3, 1, 3), result)
    clear.sum().backward()
    expected = torch.tensor([0.0009 ** (1 / 2.2), 0.0, -0.1])
    torch.testing.assert_close(clear[0, 0, 0], expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(light.grad / 3, torch.full((3,), 4.0), rtol=1e-3, atol=0)


def test_maps_of_0_remove_at_most_a_thirtieth_of_the_light():
    picture = noise(1, 3, 8, 10)
    assert float(transmission_of(scattering_from(maps_of(), picture)).min()) > 0.96


def test_the_airlight_is_that_of_the_weighted_pixels_and_varies_from_left_to_right():
    picture, weight = noise(1, 3, 8, 10), torch.full((8, 10), -20.0)
    colours = torch.tensor([0.7, 0.6, 0.5])
    weight[2, 1] = weight[2, 8] = 20.0
    picture[0, :, 2, 1], picture[0, :, 2, 8] = colours, colours
    level = scattering_from(maps_of(weight=weight), picture).airlight
    assert level.shape == (1, 3, 1, 10)
    torch.testing.assert_close(
        level[0, :, 0], (colours**2.2 + 0.02)[:, None].expand(3, 10)
    )
    picture[0, :, 2, 8] = 1.2 * colours
    sloped = scattering_from(maps_of(weight=weight), picture).airlight[0, :, 0]
    ratio = (1.2 * colours) ** 2.2 / colours**2.2
    assert bool(((sloped[:, 8] / sloped[:, 1]) > 1 + 0.4 * (ratio - 1)).all()), (
        "leaning towards a level one"
    )
    assert bool(((sloped[:, 8] / sloped[:, 1]) < ratio).all())


@pytest.mark.parametrize("given, expected", [(-5.0, 0.0), (1.5, 1.0), (2.2, 1.7)])
def test_depths_are_never_negative_and_grow_as_the_map_does(given, expected):
    result = scattering_from(maps_of(depth=given), torch.full((1, 3, 8, 10), 0.8))
    torch.testing.assert_close(
        result.depth, torch.full((1, 1, 8, 10), expected), atol=0.01, rtol=0
    )


def test_at_most_nine_tenths_of_the_darkest_light_around_count_as_haze():
    picture = torch.full((1, 3, 8, 10), 0.8)
    picture[0, 1, 4, 5] = 0.4  # 0.133 of light in a haze of 0.612 + 0.02
    result = scattering_from(
        maps_of(depth=9.0, weight=picture.amin(1, keepdim=True) * 50), picture
    )
    green = result.depth[0, 0]
    bound = -math.log(1 - 0.9 * 0.4**2.2 / (0.8**2.2 + 0.02))
    torch.testing.assert_close(
        green[2:7, 3:8], torch.full((5, 5), bound), atol=0.01, rtol=0
    )
    assert float(green[0, 0]) > 1.8
    assert float(without_haze(picture, result).min()) > 0


def test_the_exponent_is_one_number_per_picture_between_0_and_its_largest():
    for inputs, expected in ((-20.0, 0.0), (0.0, 0.7), (20.0, 1.4)):
        result = scattering_from(maps_of(exponent=inputs), noise(1, 3, 8, 10)).exponent
        torch.testing.assert_close(result, torch.full((1, 1, 1, 1), expected))
