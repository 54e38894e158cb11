"""Haze removed steadily over time, frames restored as small pictures of them, and the detail that changes."""

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
    ResultCache,
    apply_guided_change,
    changed_detail,
    coarse_size,
    dehaze_smoothly,
    downscale,
    estimates_of,
    keys_of,
)
from vidrestore.restorers.picture_restorer import PictureRestorer


def restorer(folder: Path) -> PictureRestorer:
    weights = write_weights(folder, small(haze=True), "dehaze", coarse_lines=16)
    return PictureRestorer("dehaze", RestoreOptions(model=weights, device="cpu"))


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


def test_the_change_of_brightness_is_the_mean_over_eleven_frames(tmp_path):
    count, pattern = 9, noise(3, 48, 64) ** 2
    made = restorer(tmp_path)
    made.tiled.network = Dimmer()  # type: ignore[assignment]
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
    whole, parts = (restorer(tmp_path) for _ in range(2))
    expected = list(whole.frames(clip, (0, 20)))
    assert (parts.facts.radius, parts.facts.overlap) == (5, 10)
    calls: list[Tensor] = []
    parts.tiled.network.register_forward_hook(lambda _, given, __: calls.append(given[0]))
    found = [*parts.frames(clip[:14], (0, 9)), *parts.frames(clip[4:], (5, 16))]
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    assert len(calls) == 20


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
        made.tiled.network = Levels(*levels)  # type: ignore[assignment]
    return made


def picture(height: int, width: int) -> Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(5))


def test_a_gain_and_an_offset_that_hold_everywhere_are_found_and_reach_the_finest_pixels():
    frame = picture(64, 96)[None]
    small = downscale(frame, (16, 24))
    gain, offset = torch.tensor([1.5, 0.8, 1.2])[:, None, None], torch.tensor([-0.2, 0.1, 0.0])[:, None, None]
    changed = apply_guided_change(small, gain * small + offset, frame)
    torch.testing.assert_close(changed, gain * frame + offset, atol=5e-3, rtol=0)


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


def test_a_small_picture_is_restored_if_the_weights_state_lines_and_the_frame_is_larger(tmp_path):
    for lines, seen in ((None, (64, 80)), (48, (64, 80)), (16, (16, 16))):
        made, given = by_small_picture(tmp_path, lines, 0.1), picture(64, 80)
        torch.testing.assert_close(made.picture(given[None]), given + 0.1)
        assert made.tiled.network.seen == [seen]  # type: ignore[comparison-overlap]


def test_tiles_and_memory_are_those_of_the_small_picture(tmp_path):
    small, whole = (by_small_picture(tmp_path, lines) for lines in (32, None))
    assert small.tile_size(480, 854) == (32, 56)
    assert whole.tile_size(480, 854) == (480, 856)
    saved = small.tiled.pixel_memory * (480 * 856 - 32 * 56)
    assert whole.memory(480, 854) - small.memory(480, 854) == saved


@pytest.mark.parametrize("lines", [0, -8, 2.5, "160", True, 10**4000])
def test_weights_whose_coarse_lines_are_not_a_number_are_refused(tmp_path, lines):
    with pytest.raises(CheckpointError, match="coarse_lines must be a whole number from 1 to 32768, found"):
        by_small_picture(tmp_path, lines)


def of_two_networks(given: Tensor, first: Tensor, depth: float, second: Tensor) -> Tensor:
    """Return pictures without haze from what two networks made of them."""
    found = torch.cat((first, torch.full_like(given[:, :1], depth), second), 1)
    return dehaze_smoothly([estimates_of(given, found)], given)


@pytest.mark.parametrize(
    "depth, shares",
    [(0.04, (1, 0, 0)), (0.12, (0.5, 0.5, 0)), (0.2, (0, 1, 0)), (0.3, (0, 0.5, 0.5)), (1, (0, 0, 1))],
)
def test_the_haze_found_decides_the_shares_of_source_first_network_and_both(depth, shares):
    given = torch.tensor([0.6, 0.5, 0.4]).view(1, 3, 1, 1).expand(1, 3, 16, 24)
    first, second = given - 0.1, given.flip(1) - 0.2
    luma = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    before, one, other = ((luma * each).sum(1, keepdim=True) for each in (given, first, second))
    both = (one + other) / (2 * before) * given  # brightness of both, colours of the source
    expected = sum(share * each for share, each in zip(shares, (given, first, both), strict=True))
    torch.testing.assert_close(of_two_networks(given, first, depth, second), expected, atol=1e-4, rtol=0)


def test_both_bundled_networks_are_joined_unless_weights_are_named():
    joined, named = (
        PictureRestorer("dehaze", RestoreOptions(model=model, device="cpu")).facts
        for model in (None, "mb-taylorformer-h-dehaze")
    )
    assert joined.name == "mb-taylorformer-h-dehaze+mb-taylorformer-t-dehaze"
    assert named.name == "mb-taylorformer-h-dehaze" and joined.weights != named.weights


def checkerboard(grey: float) -> Tensor:
    """(1, 3, 48, 64): plus and minus so many grey levels, from pixel to pixel."""
    rows, columns = torch.arange(48)[:, None], torch.arange(64)
    return (grey / 255) * (1 - 2.0 * ((rows + columns) % 2)).expand(1, 3, -1, -1)


def test_a_checkerboard_changes_detail_and_brightness_does_not():
    given = noise(1, 3, 48, 64)
    assert float(changed_detail(given, given - 0.1)) < 1e-4
    torch.testing.assert_close(
        changed_detail(given, given - 0.1 + checkerboard(3)), torch.full((1, 1, 1, 1), 3.0), rtol=1e-4, atol=0
    )


def test_a_thread_waits_for_what_another_one_computes():
    results, begun, done, found = ResultCache[int](room=2), Event(), Event(), list[int]()

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


def test_a_failed_result_is_computed_again():
    results = ResultCache[int](room=2)
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
