"""Haze removed steadily over time, frames restored as small pictures of them, and the detail that changes."""

import math
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rgb_networks import keeping, whole_clip, write_weights
from taylor_networks import small
from torch import Tensor, nn

from vidrestore.errors import CheckpointError, OptionError
from vidrestore.jobs.findings import changed_detail
from vidrestore.models.alignment import luma_of
from vidrestore.models.mb_taylorformer import SIZES
from vidrestore.restorers.base import load_restorer
from vidrestore.restorers.dehaze import (
    DehazeRestorer,
    coarse_size,
    dehaze_smoothly,
    dehazer,
    estimates_of,
    guided_change,
)
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.restorers.result_cache import ResultCache
from vidrestore.settings.options import RestoreOptions


def restorer(folder: Path) -> PictureRestorer:
    weights = write_weights(folder, small(haze=True), "dehaze", coarse_lines=16)
    return dehazer(RestoreOptions(model=weights, device="cpu"))


def downscale(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(pictures, size, mode="area")


def apply_guided_change(small: Tensor, restored: Tensor, frame: Tensor) -> Tensor:
    gain, offset = guided_change(small, restored, (frame.shape[-2], frame.shape[-1]))
    return gain * frame + offset


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
    output = restorer(tmp_path)
    output.network = Dimmer()
    small_peak = downscale(pattern[None], (16, 24)).max()
    # of small pictures: Dimmer sees no others
    peaks = [0.1 * (1 + at) for at in range(count)]
    clip = torch.stack([pattern / small_peak * peak for peak in peaks])
    factors = [0.5 if (1 + at) % 2 else 0.8 for at in range(count)]
    # reflected at both ends
    turned = [*range(5, 0, -1), *range(count), *range(count - 2, count - 7, -1)]
    for at, frame in enumerate(output.frames(clip, (0, count))):
        expected = sum(factors[index] for index in turned[at : at + 11]) / 11
        torch.testing.assert_close(frame, expected * clip[at], atol=0.01, rtol=0)


def test_any_range_of_frames_is_the_same_and_each_goes_through_the_network_once(
    tmp_path,
):
    clip = noise(20, 3, 32, 48)
    whole, parts = (restorer(tmp_path) for _ in range(2))
    expected = list(whole.frames(clip, (0, 20)))
    assert (parts.facts.radius, parts.facts.overlap) == (5, 10)
    calls: list[Tensor] = []
    parts.network.register_forward_hook(lambda _, given, __: calls.append(given[0]))
    cache = ResultCache()
    found = [*parts.frames(clip[:14], (0, 9), cache=cache)]
    found += parts.frames(clip[4:], (5, 16), first=4, cache=cache)
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


def by_small_picture(
    folder: Path, lines: Any, *levels: float, **options: Any
) -> PictureRestorer:
    parameters = {} if lines is None else {"coarse_lines": lines}
    weights = write_weights(folder, keeping(), "dehaze", **parameters)
    output = dehazer(RestoreOptions(model=weights, device="cpu", **options))
    if levels:
        output.network = Levels(*levels)
    return output


def picture(height: int, width: int) -> Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(5))


def test_a_gain_and_an_offset_that_hold_everywhere_are_found_and_reach_the_finest_pixels():
    frame = picture(64, 96)[None]
    small = downscale(frame, (16, 24))
    gain, offset = (
        torch.tensor([1.5, 0.8, 1.2])[:, None, None],
        torch.tensor([-0.2, 0.1, 0.0])[:, None, None],
    )
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
            covariance = ((x * y).mean(1) - x.mean(1) * y.mean(1) + 1e-5) / (
                x.var(1, correction=0) + 1e-5
            )
            windows[row, column] = covariance, y.mean(1) - covariance * x.mean(1)
    expected = torch.empty_like(small)
    for row, column in windows:
        near = [
            part
            for (at, across), part in windows.items()
            if abs(at - row) <= 2 and abs(across - column) <= 2
        ]
        gain, offset = (torch.stack(parts).mean(0) for parts in zip(*near, strict=True))
        expected[:, row, column] = gain * small[:, row, column] + offset
    result = apply_guided_change(small[None], restored[None], small[None])[0]
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(
    "size, lines, small",
    [
        ((480, 854), 160, (160, 288)),
        ((1080, 1920), 160, (160, 288)),
        ((1920, 1080), 160, (288, 160)),
        ((2000, 100), 24, (480, 24)),
        ((100, 2000), 10, (8, 200)),  # no side is nought
        ((239, 400), 160, (239, 400)),  # nearly as small as the small one
        ((240, 400), 160, (160, 264)),
        ((480, 854), None, (480, 854)),
    ],
)
def test_the_small_picture_has_the_shape_of_the_large_one_in_multiples_of_8(
    size, lines, small
):
    assert coarse_size(*size, lines, 8) == small


def test_a_small_picture_is_restored_if_the_weights_state_lines_and_the_frame_is_larger(
    tmp_path,
):
    for lines, seen in ((None, (64, 80)), (48, (64, 80)), (16, (16, 16))):
        output, inputs = by_small_picture(tmp_path, lines, 0.1), 0.8 * picture(64, 80)
        torch.testing.assert_close(
            whole_clip(output, inputs[None])[0], inputs + 0.1, atol=1e-5, rtol=0
        )
        assert output.network.seen == [seen]


def test_tiles_and_memory_are_those_of_the_small_picture(tmp_path):
    small, whole = (by_small_picture(tmp_path, lines) for lines in (32, 480))
    assert small.tile_size(480, 854) == (32, 56)
    assert whole.tile_size(480, 854) == (480, 856)
    saved = small.pixel_memory * (480 * 856 - 32 * 56)
    assert whole.memory(480, 854) - small.memory(480, 854) == saved


@pytest.mark.parametrize("lines", [0, -8, 2.5, "160", True, 10**4000])
def test_weights_whose_coarse_lines_are_not_a_number_are_refused(tmp_path, lines):
    with pytest.raises(
        CheckpointError,
        match="coarse_lines must be a whole number from 1 to 32768, found",
    ):
        by_small_picture(tmp_path, lines)


def of_two_networks(
    hazy: Tensor,
    first: Tensor,
    depth: float,
    airlight: Tensor,
    second: Tensor,
    *,
    always: bool = False,
) -> Tensor:
    """Return pictures without haze from what two networks make of them."""
    maps = (
        first,
        torch.full_like(hazy[:, :1], depth),
        airlight.expand_as(hazy),
        second,
    )
    return dehaze_smoothly(
        [estimates_of(hazy, torch.cat(maps, 1), always=always)], hazy
    )


def even(*rgb: float) -> Tensor:
    """A picture (1, 3, 16, 24) of one colour."""
    return torch.tensor(rgb).view(1, 3, 1, 1).expand(1, 3, 16, 24)


@pytest.mark.parametrize(
    "depth, shares",
    [
        (0.04, (1, 0, 0)),
        (0.08, (0.75, 0.25, 0)),
        (0.2, (0, 0.65, 0.35)),
        (1, (0, 0.3, 0.7)),
    ],
)
def test_the_depth_of_the_haze_decides_how_much_of_it_goes_and_by_which_network(
    depth, shares
):
    hazy, first, second = (
        even(*rgb) for rgb in ((0.6, 0.5, 0.4), (0.5, 0.4, 0.3), (0.2, 0.3, 0.3))
    )
    clear = of_two_networks(hazy, first, depth, even(0.8, 0.8, 0.8), second)
    before, one, other = (
        float(luma_of(picture).mean()) for picture in (hazy, first, second)
    )
    stays, by_first, by_second = shares
    log = (by_first * math.log(one) + by_second * math.log(other)) / max(
        by_first + by_second, 1e-9
    )
    expected = stays * before + (1 - stays) * math.exp(log)
    assert float(luma_of(clear).mean()) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("depth, prior", [(0.01, 0.7), (0.2, 0.35), (0.3, 0)])
def test_always_joins_the_dark_channel_prior_the_less_haze_the_networks_see(
    depth, prior
):
    """The picture has one colour, which the prior takes for sky and leaves."""
    hazy, first, second = (
        even(*rgb) for rgb in ((0.6, 0.5, 0.4), (0.5, 0.4, 0.3), (0.2, 0.3, 0.3))
    )
    clear = of_two_networks(
        hazy, first, depth, even(0.8, 0.8, 0.8), second, always=True
    )
    left, one, other = (
        math.log(float(luma_of(picture).mean())) for picture in (hazy, first, second)
    )
    expected = prior * left + (1 - prior) * (0.3 * one + 0.7 * other)
    assert math.log(float(luma_of(clear).mean())) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("depth, left", [(0.1, 0), (0.2, 0.45), (1, 0.9)])
def test_the_sky_of_a_scene_is_left_the_more_the_thicker_its_haze(depth, left):
    hazy = 0.3 * picture(144, 96)[None]
    hazy[:, :, :80] = 0.8
    dark = 0.25 * hazy
    airlight = torch.full((1, 3, 1, 1), 0.8)
    clear = of_two_networks(hazy, dark, depth, airlight, dark, always=True)
    # without the prior, which spares the sky as well
    share = 1 - 0.7 * (1 - min(1, max(0, (depth - 0.1) / 0.2)))
    expected = (1 - left) * share * math.log(0.25) + math.log(0.8)
    found = float(luma_of(clear)[0, 0, 4:16, 8:-8].mean())
    assert math.log(found) == pytest.approx(expected, abs=0.02)


def test_the_sky_is_the_mean_over_neighbouring_frames_so_that_it_does_not_flicker():
    hazy = torch.full((1, 3, 144, 96), 0.8)
    maps = (0.25 * hazy, torch.ones_like(hazy[:, :1]), hazy, 0.25 * hazy)
    (estimate,) = estimates_of(hazy, torch.cat(maps, 1), always=True)
    assert estimate.haze is not None and estimate.sky is not None
    haze = estimate.haze.clone()
    haze[:, 1] = 1  # the scene has a sky
    window = [
        estimate._replace(haze=haze, sky=torch.full_like(estimate.sky, share))
        for share in (1.0, 0.0, 1.0)
    ]
    clear = float(luma_of(dehaze_smoothly([window], hazy)).mean())
    left = 0.9 * 2 / 3
    expected = math.log(0.8) + (1 - left) * math.log(0.25)
    assert math.log(clear) == pytest.approx(expected, abs=0.01)


def test_a_coloured_scene_behind_coloured_haze_gets_its_colours_back_from_luma_alone():
    scene, airlight, transmission = picture(16, 24)[None], even(0.7, 0.75, 0.9), 0.6
    hazy = transmission * scene + (1 - transmission) * airlight
    # as networks without any colour would restore it
    grey = luma_of(scene).expand_as(scene)
    restored = of_two_networks(hazy, grey, 1.0, airlight, grey)
    torch.testing.assert_close(restored, scene, atol=0.01, rtol=0)


def test_always_is_refused_for_named_weights_which_decide_nothing(tmp_path):
    for model in (
        "mb-taylorformer-h-dehaze",
        write_weights(tmp_path, small(), "dehaze"),
    ):
        with pytest.raises(
            OptionError, match="`haze=always` is for the two default networks"
        ):
            load_restorer(
                "dehaze", RestoreOptions(haze="always", model=model, device="cpu")
            )


def test_a_network_without_a_small_picture_restores_frames_as_they_are(tmp_path):
    weights = write_weights(tmp_path, small(), "dehaze")
    output = load_restorer("dehaze", RestoreOptions(model=weights, device="cpu"))
    assert not isinstance(output, DehazeRestorer) and output.facts.radius == 0


def test_both_bundled_networks_are_joined_unless_weights_are_named():
    joined, named = (
        load_restorer("dehaze", RestoreOptions(model=model, device="cpu")).facts
        for model in (None, "mb-taylorformer-h-dehaze")
    )
    assert joined.name == "mb-taylorformer-h-dehaze+mb-taylorformer-t-dehaze"
    assert named.name == "mb-taylorformer-h-dehaze" and joined.weights != named.weights


def checkerboard(grey: float) -> Tensor:
    """(1, 3, 48, 64): plus and minus so many grey levels, from pixel to pixel."""
    rows, columns = torch.arange(48)[:, None], torch.arange(64)
    return (grey / 255) * (1 - 2.0 * ((rows + columns) % 2)).expand(1, 3, -1, -1)


@pytest.mark.parametrize("level, changes", [(1.0, False), (0.8, False), (None, True)])
def test_even_pictures_hide_no_scene_and_stay_as_they_are(level, changes):
    """White frames became grey by 95 levels."""
    fog = 0.7 + 0.1 * picture(48, 64)
    source = fog if level is None else torch.full_like(fog, level)
    restored = whole_clip(dehazer(RestoreOptions()), source[None])[0]
    assert (float((restored - source).abs().mean()) > 0.01) == changes
    if not changes:
        torch.testing.assert_close(restored, source, atol=1e-3, rtol=0)


def test_a_checkerboard_changes_detail_and_brightness_does_not():
    inputs = noise(1, 3, 48, 64)
    assert changed_detail(inputs, inputs - 0.1) < 1e-4
    assert changed_detail(inputs, inputs - 0.1 + checkerboard(3)) == pytest.approx(
        3.0, rel=1e-4
    )


def test_a_thread_waits_for_what_another_one_computes():
    results, begun, done, found = ResultCache(), Event(), Event(), list[int]()

    def slow(wanted: Sequence[int]) -> list[int]:
        begun.set()
        done.wait(10)
        return [7]

    first = Thread(target=lambda: results.get({0: "key"}, slow, room=2))
    second = Thread(
        target=lambda: found.extend(
            results.get({3: "key"}, lambda wanted: [8], room=2).values()
        )
    )
    first.start()
    begun.wait(10)
    second.start()
    done.set()
    for thread in (first, second):
        thread.join(10)
    assert found == [7]


def test_a_failed_result_is_computed_again():
    results = ResultCache()
    with pytest.raises(ZeroDivisionError):
        results.get({0: "key"}, lambda wanted: [1 // 0], room=2)
    assert results.get({0: "key"}, lambda wanted: [5], room=2) == {0: 5}


def test_the_latest_results_are_cached():
    results, computed = ResultCache(), list[int]()

    def compute(wanted: list[int]) -> list[int]:
        computed.extend(wanted)
        return [10 * frame for frame in wanted]

    for frame in (1, 2, 3, 2, 1):
        assert results.get({frame: f"key {frame}"}, compute, room=2) == {
            frame: 10 * frame
        }
    assert computed == [1, 2, 3, 1]
