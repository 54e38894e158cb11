"""Rain and snow: outliers over time go, and what moves, glitters or is clear stays."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rgb_networks import keeping, whole_clip, write_weights
from torch import Tensor, nn

from vidrestore.models.alignment import means_around
from vidrestore.models.mb_taylorformer import SIZES
from vidrestore.restorers.base import load_restorer
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.restorers.rain_snow import without_outliers
from vidrestore.restorers.result_cache import ResultCache
from vidrestore.settings.options import RestoreOptions

SIZE = (64, 96)


def scene(shift: int = 0) -> Tensor:
    """A smooth picture (1, 3, H, W) of a scene that has moved to the left by so many pixels."""
    coarse = torch.rand(1, 3, 7, 14, generator=torch.Generator().manual_seed(3))
    wide = F.interpolate(coarse, (SIZE[0], SIZE[1] + 32), mode="bicubic").clamp(
        0.1, 0.7
    )
    return wide[..., shift : shift + SIZE[1]]


def with_drop(picture: Tensor, level: float = 0.2) -> Tensor:
    """The picture with a streak of 12 x 3 pixels in its middle, brighter by `level`."""
    wet = picture.clone()
    wet[..., 26:38, 46:49] += level
    return wet


def outliers_gone(
    frame: Tensor, neighbours: list[Tensor], removed: float = 5
) -> Tensor:
    """`removed`: grey levels that the network took off everywhere."""
    return without_outliers(frame + removed / 255, frame, neighbours)


def largest(difference: Tensor) -> float:
    return 255 * float(difference.abs().max())


@pytest.mark.parametrize("speed", [0, 2])
def test_a_drop_that_three_neighbours_lack_goes_and_the_scene_behind_it_is_theirs(
    speed,
):
    frame, *neighbours = (scene(8 + speed * time) for time in (0, -2, -1, 1, 2))
    neighbours[1] = with_drop(neighbours[1])  # one of them may have a drop there, too
    dry = outliers_gone(with_drop(frame), neighbours)
    assert largest(with_drop(frame) - frame) > 50 and largest(dry - frame) < 8


def test_a_light_that_stays_for_two_frames_is_no_drop():
    lit, dark = with_drop(scene()), scene()
    assert torch.equal(outliers_gone(lit, [dark, lit, lit, dark]), lit)
    assert torch.equal(outliers_gone(lit, [dark, dark, lit, lit]), lit)


def test_what_is_darker_stays():
    darker = with_drop(scene(), -0.2)
    torch.testing.assert_close(
        outliers_gone(darker, [scene()] * 4), darker, atol=0.5 / 255, rtol=0
    )


def test_a_frame_in_which_the_network_found_nothing_stays():
    wet = with_drop(scene())
    assert torch.equal(outliers_gone(wet, [scene()] * 4, removed=0.9), wet)


def test_neighbours_that_differ_from_each_other_are_not_believed():
    noise = [
        scene()
        + 0.1 * torch.randn(1, 3, *SIZE, generator=torch.Generator().manual_seed(at))
        for at in range(4)
    ]
    wet = with_drop(scene())
    torch.testing.assert_close(outliers_gone(wet, noise), wet, atol=1 / 255, rtol=0)


def test_means_are_those_of_the_part_of_a_square_inside_the_picture():
    picture = torch.arange(20.0).view(1, 1, 4, 5)
    means = means_around(picture, 3)
    expected = F.avg_pool2d(picture, 3, 1, 1, count_include_pad=False)
    assert float(expected[0, 0, 0, 0]) == (0 + 1 + 5 + 6) / 4
    torch.testing.assert_close(means, expected)


class Darker(nn.Module):
    """Takes 4 levels off its middle frames, as a network that sees rain does; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.calls = SIZES["t"], 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return images - 4 / 255


def restorer(folder: Path, **options: Any) -> PictureRestorer:
    output = load_restorer(
        "derain",
        RestoreOptions(
            model=write_weights(folder, keeping(), "derain"), device="cpu", **options
        ),
    )
    output.network = Darker()
    return output


def rainy(count: int) -> Tensor:
    """(T, 3, H, W) with a drop in every third frame."""
    return torch.cat(
        [with_drop(scene()) if at % 3 == 0 else scene() for at in range(count)]
    )


def test_drops_go_in_all_frames_of_a_clip_the_first_and_the_last_too(tmp_path):
    clip = rainy(10)
    for at, frame in enumerate(restorer(tmp_path).frames(clip, (0, 10))):
        assert largest(frame + 4 / 255 - scene()) < 12, at


def test_any_range_of_frames_is_the_same_and_each_goes_through_the_network_once(
    tmp_path,
):
    clip, (whole, parts) = rainy(16), (restorer(tmp_path) for _ in range(2))
    expected, cache = list(whole.frames(clip, (0, 16))), ResultCache()
    assert (parts.facts.radius, parts.facts.overlap) == (2, 4)
    frames = [*parts.frames(clip[:10], (0, 8), cache=cache)]
    frames += parts.frames(clip[6:], (2, 10), first=6, cache=cache)
    torch.testing.assert_close(frames, expected, atol=0, rtol=0)
    assert parts.network.calls == 16


def test_single_pictures_are_those_of_the_network(tmp_path):
    wet = with_drop(scene())
    torch.testing.assert_close(whole_clip(restorer(tmp_path), wet)[0], wet[0] - 4 / 255)
