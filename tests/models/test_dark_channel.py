"""Haze removed by the dark channel prior, and what is spared."""

import torch
from torch import Tensor

from vidrestore.models.alignment import luma_of
from vidrestore.models.dark_channel import DarkChannel, HazySky

AIRLIGHT = torch.tensor([0.7, 0.75, 0.85])[:, None, None]


def scene() -> Tensor:
    """Noise (3, 48, 64) that is black somewhere in every place, as the prior has it, and bright elsewhere."""
    return torch.rand(3, 48, 64, generator=torch.Generator().manual_seed(3)) ** 2


def behind_haze(picture: Tensor, seen: float) -> Tensor:
    return seen * picture + (1 - seen) * AIRLIGHT


def luma_error(pictures: Tensor, picture: Tensor) -> float:
    return float((pictures - luma_of(picture[None])).abs().mean())


def test_a_scene_with_black_in_every_place_comes_out_of_even_haze_below_sky():
    clear = scene()
    hazy = behind_haze(clear, 0.6)
    # the sky, of which the colour of the haze is read
    hazy[:, :8] = clear[:, :8] = AIRLIGHT
    restored = DarkChannel().clear_luma(hazy[None])
    assert luma_error(restored[..., 20:, :], clear[:, 20:]) < 0.04
    assert luma_error(luma_of(hazy[None])[..., 20:, :], clear[:, 20:]) > 0.15


def test_blocks_in_the_sky_are_hardly_enlarged():
    hazy = behind_haze(scene(), 0.6)
    hazy[:, :24] = AIRLIGHT
    hazy[:, :24, ::8] -= 0.01  # as at the edges of a coder's blocks
    restored = DarkChannel().clear_luma(hazy[None])[0, 0, :12]
    assert 0.01 <= float(restored.max() - restored.min()) < 0.013


def test_a_picture_smaller_than_a_place_and_a_black_one_come_through():
    for picture in (torch.zeros(1, 3, 8, 8), torch.rand(2, 3, 1, 3)):
        restored = DarkChannel().clear_luma(picture)
        assert restored.shape == picture[:, :1].shape and bool(
            torch.isfinite(restored).all()
        )


def smog(*, tower: bool = False) -> Tensor:
    """A picture (1, 3, 144, 192): flat, bright sky over a city of noise; a dark tower may rise from it."""
    picture = 0.5 * torch.rand(
        1, 3, 144, 192, generator=torch.Generator().manual_seed(5)
    )
    picture[:, :, :72] = 0.8
    if tower:
        picture[:, :, 24:72, 88:104] = 0.3
    return picture


def test_smooth_light_down_from_the_upper_edge_is_sky_and_what_lies_below_a_tower_is_none():
    picture = smog(tower=True)
    sky, scene = HazySky().shares(picture)
    sky = HazySky().edged(luma_of(picture), sky)
    assert float(scene) == 1
    assert float(sky[0, 0, :48, :48].min()) > 0.9
    assert float(sky[0, 0, 96:].max()) < 0.2
    assert float(sky[0, 0, 48:64, 92:100].max()) < 0.2


def test_a_scene_has_no_sky_if_it_is_as_light_below_or_rough_above_or_spanned_in_part():
    light, rough, narrow = smog(), smog(), smog()
    light[:, :, 72:] += 0.5
    rough[:, :, :72] += 0.1 * (torch.rand(72, 192) - 0.5)
    narrow[..., :96] *= 0.4
    for picture in (light, rough, narrow):
        assert float(HazySky().shares(picture)[1]) == 0


def test_the_sky_of_pictures_of_a_few_pixels_is_finite():
    for size in ((1, 3), (8, 8), (2, 40)):
        for part in HazySky().shares(torch.rand(2, 3, *size)):
            assert bool(torch.isfinite(part).all())
