"""`deflicker` on drawn clips whose light is known."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.errors import OptionError
from vidrestore.restorers.flicker import (
    FIT,
    FlickerRestorer,
    LightChange,
    alternation_of,
    correction,
    light_change,
    light_terms,
    robust_fit,
    scene_around,
)
from vidrestore.settings.options import RestoreOptions

FRAMES = 24
HEIGHT, WIDTH = 72, 96


def scene(frames: int = FRAMES) -> Tensor:
    """Smooth blobs that drift to the right by half a pixel a frame, (T, 3, H, W)."""
    generator = torch.Generator().manual_seed(1)
    canvas = torch.rand(1, 3, HEIGHT // 6, WIDTH // 4, generator=generator)
    large = F.interpolate(canvas, (HEIGHT, WIDTH + 2 * frames), mode="bicubic")
    large = 0.25 + 0.5 * large.clamp(0, 1)
    clip = [
        large[0, :, :, frames - index // 2 : frames - index // 2 + WIDTH]
        for index in range(frames)
    ]
    return torch.stack(clip)


def flickering(clip: Tensor, strength: float = 0.06) -> tuple[Tensor, Tensor]:
    """The clip times a random factor a frame, and the factors."""
    factors = 1 + strength * torch.randn(
        len(clip), generator=torch.Generator().manual_seed(2)
    )
    return clip * factors[:, None, None, None], factors


def deflickered(clip: Tensor) -> Tensor:
    return torch.stack(
        list(FlickerRestorer(RestoreOptions()).frames(clip, (0, len(clip))))
    )


def error(clip: Tensor, truth: Tensor) -> float:
    return float((clip - truth).square().mean().sqrt())


def test_flicker_of_light_falls_to_half():
    clip = scene()
    given, _ = flickering(clip)
    assert error(deflickered(given), clip) < error(given, clip) / 2


def test_frames_that_are_darker_on_one_side_are_evened_too():
    clip = scene()
    signs = torch.tensor([(-1.0) ** index for index in range(FRAMES)])
    shade = 1 + signs[:, None] * torch.linspace(-0.02, 0.08, WIDTH)
    given = clip * shade[:, None, None, :]
    assert error(deflickered(given), clip) < error(given, clip) / 3


@pytest.mark.parametrize(
    "light",
    [
        pytest.param(torch.ones(FRAMES), id="steady"),
        pytest.param(torch.linspace(1, 0.1, FRAMES), id="fade"),
        pytest.param(torch.tensor([1.0] * 12 + [1.9] + [1.0] * 11), id="flash"),
        pytest.param(torch.tensor([1.0] * 12 + [0.6] * 12), id="lamp turned off"),
        pytest.param(torch.tensor([1.0, 0.4] * 12), id="strobe"),
    ],
)
def test_light_of_a_scene_that_is_no_flicker_stays_bit_for_bit(light):
    given = scene() * light[:, None, None, None]
    assert torch.equal(deflickered(given), given)


def test_a_lamp_that_blinks_in_a_corner_stays_bit_for_bit():
    given = scene()
    given[::2, :, :30, :30] *= 1.5
    assert torch.equal(deflickered(given), given)


def test_flicker_in_a_fade_goes_and_the_fade_stays():
    clip = scene() * torch.linspace(1, 0.6, FRAMES)[:, None, None, None]
    given, _ = flickering(clip)
    light, flickering_light, truth = (
        frames.mean((1, 2, 3)) for frames in (deflickered(given), given, clip)
    )
    assert error(light, truth) < error(flickering_light, truth) / 1.5


@pytest.mark.parametrize("drift, alternation", [(0.5, 1.2), (3.0, 0.0)])
def test_light_that_drifts_faster_than_it_alternates_is_no_flicker(drift, alternation):
    changes = [drift + 0.6 * (-1) ** index for index in range(12)]
    assert alternation_of(
        [[change, change, 0.0] for change in changes]
    ) == pytest.approx(alternation)


@pytest.mark.parametrize(
    "alternation, unevenness, is_flicker",
    [(2, 3.4, True), (2, 3.6, False), (4, 2.5, True), (4, 2.8, False), (8, 3.5, True)],
)
def test_stronger_flicker_may_be_less_uneven_until_it_outweighs_that(
    alternation, unevenness, is_flicker
):
    """3.5 levels up to an alternation of 3, 10.5 over a stronger one, or 0.45 of the change."""
    means = [sign * alternation / 2 for sign in (1, -1) * 6]
    statistics = [(mean, abs(mean) + alternation / 2, unevenness) for mean in means]
    assert bool(alternation_of(statistics)) == is_flicker


def test_a_frame_is_the_same_in_any_clip_that_holds_its_neighbours():
    given, _ = flickering(scene(40))
    restorer = FlickerRestorer(RestoreOptions())
    whole = list(restorer.frames(given, (0, 40)))
    part = list(restorer.frames(given[8:36], (FIT.radius, 28 - FIT.radius), first=8))
    assert all(
        torch.equal(one, other) for one, other in zip(whole[16:28], part, strict=True)
    )


def test_a_single_frame_stays():
    clip = scene(1)
    assert torch.equal(deflickered(clip), clip)


def test_the_change_of_light_is_the_factor_between_two_frames():
    luma = scene(2)[:1].mean(1, keepdim=True)
    change = light_change(luma, luma * 1.1)
    factor = (light_terms(luma) @ change.coefficients).exp()
    torch.testing.assert_close(factor, torch.full_like(factor, 1.1), atol=2e-3, rtol=0)


def test_a_fit_ignores_a_third_of_wild_values():
    terms = torch.stack((torch.ones(300), torch.linspace(-1, 1, 300)), 1)
    change = terms @ torch.tensor([0.1, 0.02])
    change[::3] = 0.9
    ones = torch.ones(300)
    fitted = robust_fit(terms, change, ones, ones)
    torch.testing.assert_close(fitted, torch.tensor([0.1, 0.02]), atol=1e-4, rtol=0)


def test_steps_of_light_divide_a_scene():
    assert scene_around([1.0, -40.0, 2.0, 3.0, 50.0, 1.0], 3) == (2, 4)
    assert scene_around([1.0, 2.0], 0) == (0, 2)


def test_the_course_of_light_is_corrected_to_a_line_through_it():
    # logarithms of light: a slope of 0.01 a frame, and one frame in the middle 0.1 brighter
    course = 0.01 * torch.arange(17.0)
    course[8] += 0.1
    steps = course.diff()
    # they alternate
    statistics = [torch.tensor([2.0 * (-1) ** index, 2.0, 0.0]) for index in range(16)]
    coefficients = F.pad(steps[:, None], (0, 4))
    changes = list(map(LightChange, coefficients, statistics))
    # of a weighted mean that includes the frame itself, whose weight is that of the middle of cos^2
    weights = [math.cos(offset * math.pi / 2 / 9) ** 2 for offset in range(-8, 9)]
    expected = -0.1 * (1 - 1 / sum(weights))
    result = correction(changes, 8)
    assert result is not None
    assert float(result[0]) == pytest.approx(expected, abs=1e-5)


def test_options_of_networks_are_refused():
    with pytest.raises(OptionError, match="compares whole frames"):
        FlickerRestorer(RestoreOptions(tile=128))
