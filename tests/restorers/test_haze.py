"""Haze removed by the mean of a network and a prior, by how hazy the scene is, and steadily over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rgb_networks import keeping, write_weights
from taylor_networks import small
from torch import Tensor, nn

from vidrestore.errors import CheckpointError
from vidrestore.models.mb_taylorformer import SIZES
from vidrestore.options import RestoreOptions
from vidrestore.restorers.dark_channel import prior_haze
from vidrestore.restorers.haze_shares import HazeShares
from vidrestore.restorers.mb_taylorformer_restorer import ImageRestorer
from vidrestore.restorers.small_picture import downscale

ALWAYS = [-2.0, -1.0, 0.0]  # levels of haze that every picture is above


def restorer(folder: Path, network: nn.Module, **parameters: Any) -> ImageRestorer:
    given = {"coarse_lines": 16, "dark_channel": 0.0, "haze_levels": ALWAYS} | parameters
    return ImageRestorer(
        "dehaze", RestoreOptions(model=write_weights(folder, network, "dehaze", **given), device="cpu")
    )


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(7))


class Dimmer(nn.Module):
    """Multiplies pictures by 0.8 if their brightest value is an even number of tenths, else by 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SIZES["t"]
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return images * (0.5 if round(10 * float(images.max())) % 2 else 0.8)


def test_the_prior_inverts_the_scattering_model_but_for_a_twentieth_of_the_haze() -> None:
    """Light J, of which some channel is 0 everywhere, seen through half of it with airlight A."""
    airlight = torch.tensor([0.8, 0.75, 0.7])[:, None, None]
    scene = 0.5 * noise(3, 64, 96)
    scene[0, :, ::2], scene[1, :, 1::2] = 0, 0
    hazy = (scene + airlight) / 2
    hazy[:, :8, :8] = airlight  # the sky
    picture = hazy[None] ** (1 / 2.2)
    clear = prior_haze(picture, picture).removed_from(picture)
    expected = (hazy - airlight) / (1 - 0.95 * 0.5) + airlight
    torch.testing.assert_close(
        clear[0, :, :, 48:] ** 2.2, expected.clamp(min=0)[:, :, 48:], atol=0.02, rtol=0
    )


def test_the_prior_sees_dark_pixels_that_a_small_picture_has_lost() -> None:
    frame = 0.2 + 0.8 * noise(1, 3, 64, 96)
    frame[:, :, ::4, ::4] = 0
    clear = prior_haze(downscale(frame, (16, 24)), frame).removed_from(frame)
    torch.testing.assert_close(clear, frame, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "level, shares", [(0, (0, 0)), (10, (0, 0)), (15, (0.5, 0)), (20, (1, 0)), (25, (1, 0.2)), (99, (1, 0.4))]
)
def test_the_network_comes_in_between_the_first_levels_and_the_prior_above(
    level: float, shares: tuple[float, float]
) -> None:
    assert HazeShares((10, 20, 30), 0.4).at(level) == pytest.approx(shares)


def test_a_frame_without_haze_stays_as_it_is_to_the_bit(tmp_path: Path) -> None:
    clip = noise(3, 3, 40, 56)
    made = restorer(tmp_path, keeping(), haze_levels=[1.0, 2.0, 3.0], dark_channel=0.5)
    assert torch.equal(torch.stack(list(made.frames(clip, (0, 3)))), clip)


def test_a_share_of_the_prior_is_mixed_with_the_network(tmp_path: Path) -> None:
    """Of a network that changes nothing and of the prior, which has three tenths."""
    clip = 0.3 + 0.6 * noise(1, 3, 48, 64)
    mixed = restorer(tmp_path, keeping(), dark_channel=0.3).picture(clip)
    prior = prior_haze(downscale(clip, (16, 24)), clip).removed_from(clip)
    torch.testing.assert_close(mixed, (0.7 * clip + 0.3 * prior)[0], atol=2e-3, rtol=0)


def test_the_change_of_brightness_is_the_mean_over_eleven_frames(tmp_path: Path) -> None:
    count, pattern = 9, noise(3, 48, 64) ** 2
    made = restorer(tmp_path, keeping())
    made.network = Dimmer()  # type: ignore[assignment]
    small_peak = downscale(pattern[None], (16, 24)).max()
    peaks = [0.1 * (1 + at) for at in range(count)]  # of small pictures: Dimmer sees no others
    clip = torch.stack([pattern / small_peak * peak for peak in peaks])
    factors = [0.5 if (1 + at) % 2 else 0.8 for at in range(count)]
    turned = [*range(5, 0, -1), *range(count), *range(count - 2, count - 7, -1)]  # reflected at both ends
    for at, frame in enumerate(made.frames(clip, (0, count))):
        expected = sum(factors[index] for index in turned[at : at + 11]) / 11
        torch.testing.assert_close(frame, expected * clip[at], atol=0.01, rtol=0)


def test_any_range_of_frames_is_the_same_and_each_goes_through_the_network_once(tmp_path: Path) -> None:
    clip = noise(20, 3, 32, 48)
    whole, parts = (restorer(tmp_path, small(), dark_channel=0.5) for _ in range(2))
    expected = list(whole.frames(clip, (0, 20)))
    assert (parts.facts.radius, parts.facts.overlap) == (5, 10)
    calls: list[Tensor] = []
    parts.network.register_forward_hook(lambda _, given, __: calls.append(given[0]))
    found = [*parts.frames(clip[:14], (0, 9)), *parts.frames(clip[4:], (5, 16))]
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    assert len(calls) == 20


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"haze_levels": None}, "haze_levels must be 3 increasing numbers, found None"),
        ({"haze_levels": [1.0, 3.0, 2.0]}, "haze_levels must be 3 increasing numbers"),
        ({"haze_levels": [1.0, 2.0]}, "haze_levels must be 3 increasing numbers"),
        ({"dark_channel": 1.5}, r"dark_channel must be a number in \[0, 1\], found 1.5"),
        ({"dark_channel": None}, r"dark_channel must be a number in \[0, 1\]"),
    ],
)
def test_weights_that_ask_for_half_of_it_or_for_nonsense_are_refused(
    tmp_path: Path, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        restorer(tmp_path, keeping(), **parameters)
