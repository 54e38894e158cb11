"""Haze removed by the mean of a network and a prior, by how hazy the scene is, and steadily over time; frames
restored as small pictures of them, and frames in which a network changes no detail.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import torch
from rgb_networks import keeping, write_weights
from taylor_networks import small
from torch import Tensor, nn

from vidrestore.errors import CheckpointError
from vidrestore.models.mb_taylorformer import SIZES
from vidrestore.options import RestoreOptions
from vidrestore.restorers.dehaze import (
    ComputedOnce,
    HazeShares,
    airlight_of,
    apply_guided_change,
    changed_detail,
    coarse_size,
    dark_channel,
    downscale,
    if_detail_changed,
    keys_of,
    prior_haze,
)
from vidrestore.restorers.picture_restorer import PictureRestorer

ALWAYS = [-2.0, -1.0, 0.0]  # levels of haze that every picture is above


def restorer(folder: Path, network: nn.Module, **parameters: Any) -> PictureRestorer:
    given = {"coarse_lines": 16, "dark_channel": 0.0, "haze_levels": ALWAYS} | parameters
    return PictureRestorer(
        "dehaze", RestoreOptions(model=write_weights(folder, network, "dehaze", **given), device="cpu")
    )


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(7))


def test_the_airlight_follows_a_slope_from_left_to_right():
    slope = torch.linspace(0.9, 1.1, 100)
    airlight = torch.tensor([0.6, 0.55, 0.5])[:, None] * slope
    light = airlight[:, None].expand(3, 40, 100)  # thick haze
    found = airlight_of(light[None], dark_channel(light[None]))
    assert found.shape == (1, 3, 1, 100)
    left, right = found[0, :, 0, 0], found[0, :, 0, -1]
    assert float((right / left).min()) > 1.08  # 1.22 but for the fit's leaning to a level one
    assert float((found[0, :, 0, 60:] / airlight[:, 60:] - 1).abs().max()) < 0.05


class Dimmer(nn.Module):
    """Multiplies pictures by 0.8 if their brightest value is an even number of tenths, else by 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SIZES["t"]
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return images * (0.5 if round(10 * float(images.max())) % 2 else 0.8)


def test_the_prior_inverts_the_scattering_model_but_for_a_twentieth_of_the_haze():
    """Light J, of which some channel is 0 everywhere, seen through half of it with airlight A."""
    airlight = torch.tensor([0.8, 0.75, 0.7])[:, None, None]
    scene = 0.5 * noise(3, 64, 96)
    scene[0, :, ::2], scene[1, :, 1::2] = 0, 0
    hazy = (scene + airlight) / 2
    hazy[:, :8] = airlight  # the sky
    picture = hazy[None] ** (1 / 2.2)
    clear = prior_haze(picture, picture).removed_from(picture)
    expected = (hazy - airlight) / (1 - 0.95 * 0.5) + airlight
    below = slice(40, None)  # far from the sky, where the filter sees none of it
    torch.testing.assert_close(clear[0, :, below] ** 2.2, expected.clamp(min=0)[:, below], atol=0.02, rtol=0)


def test_the_prior_sees_dark_pixels_that_a_small_picture_has_lost():
    frame = 0.2 + 0.8 * noise(1, 3, 64, 96)
    frame[:, :, ::4, ::4] = 0
    clear = prior_haze(downscale(frame, (16, 24)), frame).removed_from(frame)
    torch.testing.assert_close(clear, frame, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "level, shares", [(0, (0, 0)), (10, (0, 0)), (15, (0.5, 0)), (20, (1, 0)), (25, (1, 0.2)), (99, (1, 0.4))]
)
def test_the_network_comes_in_between_the_first_levels_and_the_prior_above(level, shares):
    assert HazeShares((10, 20, 30), 0.4).at(level) == pytest.approx(shares)


def test_a_frame_without_haze_stays_as_it_is_to_the_bit(tmp_path):
    clip = noise(3, 3, 40, 56)
    made = restorer(tmp_path, keeping(), haze_levels=[1.0, 2.0, 3.0], dark_channel=0.5)
    assert torch.equal(torch.stack(list(made.frames(clip, (0, 3)))), clip)


def test_a_share_of_the_prior_is_mixed_with_the_network(tmp_path):
    """Of a network that changes nothing and of the prior, which has three tenths."""
    clip = 0.3 + 0.6 * noise(1, 3, 48, 64)
    mixed = restorer(tmp_path, keeping(), dark_channel=0.3).picture(clip)
    prior = prior_haze(downscale(clip, (16, 24)), clip).removed_from(clip)
    torch.testing.assert_close(mixed, (0.7 * clip + 0.3 * prior)[0], atol=2e-3, rtol=0)


def test_the_change_of_brightness_is_the_mean_over_eleven_frames(tmp_path):
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


def test_any_range_of_frames_is_the_same_and_each_goes_through_the_network_once(tmp_path):
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
def test_weights_that_ask_for_half_of_it_or_for_nonsense_are_refused(tmp_path, parameters, message):
    with pytest.raises(CheckpointError, match=message):
        restorer(tmp_path, keeping(), **parameters)


class Levels(nn.Module):
    """Adds a level to what it sees, another one for every size of picture and every call."""

    def __init__(self, *levels: float) -> None:
        super().__init__()
        self.config = SIZES["t"]
        self.levels = iter(levels)
        self.seen: list[tuple[int, int]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append((images.shape[2], images.shape[3]))
        return images + next(self.levels)


def by_small_picture(folder: Path, lines: Any, *levels: float, **options: Any) -> PictureRestorer:
    parameters = {} if lines is None else {"coarse_lines": lines}
    made = PictureRestorer(
        "dehaze",
        RestoreOptions(
            model=write_weights(folder, keeping(), "dehaze", **parameters), device="cpu", **options
        ),
    )
    if levels:
        made.network = Levels(*levels)  # type: ignore[assignment]
    return made


def picture(height: int, width: int) -> Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(5))


def test_a_gain_and_an_offset_that_hold_everywhere_are_found_and_reach_the_finest_pixels():
    frame = picture(64, 96)[None]
    small = downscale(frame, (16, 24))
    gain, offset = torch.tensor([1.5, 0.8, 1.2])[:, None, None], torch.tensor([-0.2, 0.1, 0.0])[:, None, None]
    changed = apply_guided_change(small, gain * small + offset, frame)
    torch.testing.assert_close(changed, gain * frame + offset, atol=5e-3, rtol=0)


def test_what_is_flat_gets_the_offset_and_keeps_the_pattern_within_its_pixels():
    pattern = (torch.arange(32)[:, None] + torch.arange(48)).remainder(2) * 0.2 - 0.1
    frame, small = (0.6 + pattern).expand(1, 3, -1, -1), torch.full((1, 3, 8, 12), 0.6)
    changed = apply_guided_change(small, torch.full_like(small, 0.3), frame)
    torch.testing.assert_close(changed, (0.3 + pattern).expand(1, 3, -1, -1))


def test_gain_and_offset_are_those_of_least_squares_in_every_window():
    """By the formula of the guided filter, window by window, for a frame as large as the picture."""
    small, restored = picture(9, 11).double(), picture(11, 9).double().transpose(1, 2)
    windows = {}
    for row in range(9):
        for column in range(11):
            rows, columns = (slice(max(0, at - 2), at + 3) for at in (row, column))
            x, y = (part[:, rows, columns].reshape(3, -1) for part in (small, restored))
            covariance = ((x * y).mean(1) - x.mean(1) * y.mean(1) + 1e-5) / (x.var(1, correction=0) + 1e-5)
            windows[row, column] = covariance, y.mean(1) - covariance * x.mean(1)
    expected = torch.empty_like(small)
    for row, column in windows:
        near = [
            part for (at, across), part in windows.items() if abs(at - row) <= 2 and abs(across - column) <= 2
        ]
        gain, offset = (torch.stack(parts).mean(0) for parts in zip(*near, strict=True))
        expected[:, row, column] = gain * small[:, row, column] + offset
    found = apply_guided_change(small[None], restored[None], small[None])[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "size, lines, small",
    [
        ((480, 854), 160, (160, 288)),
        ((1080, 1920), 160, (160, 288)),
        ((1920, 1080), 160, (288, 160)),
        ((2000, 100), 24, (480, 24)),
        ((100, 2000), 10, (8, 200)),  # no side is nought
        ((239, 400), 160, None),  # nearly as small as the small one
        ((240, 400), 160, (160, 264)),
        ((480, 854), None, None),
    ],
)
def test_the_small_picture_has_the_shape_of_the_large_one_in_multiples_of_8(size, lines, small):
    assert coarse_size(*size, lines, 8) == small


def test_a_network_that_gives_its_input_back_still_does(tmp_path):
    given = picture(61, 83)
    torch.testing.assert_close(by_small_picture(tmp_path, 16).picture(given[None]), given)


def test_a_small_picture_is_restored_if_weights_ask_and_the_frame_is_larger(tmp_path):
    for lines, seen in ((None, (64, 80)), (48, (64, 80)), (16, (16, 16))):
        made, given = by_small_picture(tmp_path, lines, 0.1), picture(64, 80)
        torch.testing.assert_close(made.picture(given[None]), given + 0.1)
        assert made.network.seen == [seen]  # type: ignore[comparison-overlap]


def test_tiles_and_memory_are_those_of_the_small_picture(tmp_path):
    small, whole = (by_small_picture(tmp_path, lines) for lines in (32, None))
    assert small.tile_size(480, 854) == (32, 56)
    assert whole.tile_size(480, 854) == (480, 856)
    saved = small.pixel_memory * (480 * 856 - 32 * 56)
    assert whole.memory(480, 854) - small.memory(480, 854) == saved


@pytest.mark.parametrize("lines", [0, -8, 2.5, "160", True, 10**4000])
def test_weights_that_ask_for_no_number_of_lines_are_refused(tmp_path, lines):
    with pytest.raises(CheckpointError, match="coarse_lines must be a whole number from 1 to 32768, found"):
        by_small_picture(tmp_path, lines)


def checkerboard(grey: float) -> Tensor:
    """(1, 3, 48, 64): plus and minus so many grey levels, from pixel to pixel."""
    rows, columns = torch.arange(48)[:, None], torch.arange(64)
    return (grey / 255) * (1 - 2.0 * ((rows + columns) % 2)).expand(1, 3, -1, -1)


class Sprinkler(nn.Module):
    """Darkens every picture, and adds a checkerboard of so many grey levels."""

    def __init__(self, grey: float) -> None:
        super().__init__()
        self.config, self.grey = SIZES["t"], grey

    def forward(self, images: Tensor) -> Tensor:
        return images - 0.02 + checkerboard(self.grey)


def test_a_change_of_brightness_is_no_detail_and_a_checkerboard_is_all_of_it():
    given = noise(1, 3, 48, 64)
    assert float(changed_detail(given, given - 0.1)) < 1e-4
    torch.testing.assert_close(
        changed_detail(given, given - 0.1 + checkerboard(3)), torch.full((1, 1, 1, 1), 3.0), rtol=1e-4, atol=0
    )


def test_each_picture_of_a_batch_gets_a_share_by_its_own_detail():
    given = noise(1, 3, 48, 64)
    changes = torch.cat([checkerboard(grey) - 0.02 for grey in (1.0, 2.5, 5.0)])
    changed = if_detail_changed(given.expand(3, -1, -1, -1), given + changes, (2.0, 4.0))
    shares = torch.tensor([0.0, 0.25, 1.0]).view(3, 1, 1, 1)
    torch.testing.assert_close(changed, given + shares * changes, rtol=0, atol=1e-4)
    assert torch.equal(changed[:1], given)


@pytest.mark.parametrize("grey, kept", [(0.5, True), (3.0, False)])
def test_a_frame_stays_to_the_bit_unless_the_network_changes_its_detail(tmp_path, grey, kept):
    weights = write_weights(tmp_path, small(), "derain", detail_levels=[1.0, 2.0])
    restorer = PictureRestorer("derain", RestoreOptions(model=weights, device="cpu"))
    restorer.network = Sprinkler(grey)  # type: ignore[assignment]
    clip = noise(1, 3, 48, 64)
    (frame,) = restorer.frames(clip, (0, 1))
    if kept:
        assert torch.equal(frame, clip[0])
    else:
        torch.testing.assert_close(frame, (clip - 0.02 + checkerboard(grey))[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "levels", [2.0, [1.0], [2.0, 1.0], ["a", "b"], [1.0, 1.0], [True, 2], [math.nan, 1.0], [0.0, math.nan]]
)
def test_levels_that_are_not_two_increasing_numbers_are_named(tmp_path, levels):
    weights = write_weights(tmp_path, small(), "derain", detail_levels=levels)
    with pytest.raises(CheckpointError, match="detail_levels must be 2 increasing numbers, found"):
        PictureRestorer("derain", RestoreOptions(model=weights, device="cpu"))


def test_only_keys_without_a_result_are_computed_and_all_in_one_call():
    asked: list[list[str]] = []

    def get(results: ComputedOnce[str], keys: list[str]) -> list[str]:
        def compute(wanted: Sequence[int]) -> list[str]:
            asked.append([keys[at] for at in wanted])
            return [keys[at].upper() for at in wanted]

        return results.get(keys, compute)

    results = ComputedOnce[str](room=3)
    assert get(results, ["a", "b", "a"]) == ["A", "B", "A"]
    assert get(results, ["b", "c"]) == ["B", "C"]
    assert get(results, ["d", "b"]) == ["D", "B"]
    assert get(results, ["a"]) == ["A"], "there is room for three"
    assert asked == [["a", "b"], ["c"], ["d"], ["a"]]


def test_a_thread_waits_for_what_another_one_computes():
    results, begun, done, found = ComputedOnce[int](room=2), Event(), Event(), list[int]()

    def slow(wanted: Sequence[int]) -> list[int]:
        begun.set()
        done.wait(10)
        return [7]

    first = Thread(target=lambda: results.get(["key"], slow))
    second = Thread(target=lambda: found.extend(results.get(["key"], lambda wanted: [8])))
    first.start()
    begun.wait(10)
    second.start()
    done.set()
    for thread in (first, second):
        thread.join(10)
    assert found == [7]


def test_what_failed_is_computed_again():
    results = ComputedOnce[int](room=2)
    with pytest.raises(ZeroDivisionError):
        results.get(["key"], lambda wanted: [1 // 0])
    assert results.get(["key"], lambda wanted: [5]) == [5]


def test_pictures_have_the_same_key_if_all_their_samples_are_the_same():
    pictures = torch.rand(3, 3, 8, 9)
    pictures[1] = pictures[0]
    pictures[2] = pictures[0].flip(-1)  # the same samples elsewhere
    other = pictures[:1].clone()
    other[0, 2, 7, 8] = torch.nextafter(other[0, 2, 7, 8], torch.tensor(2.0))
    first, same, flipped, changed = keys_of(torch.cat((pictures, other)))
    assert first == same
    assert len({first, flipped, changed}) == 3
