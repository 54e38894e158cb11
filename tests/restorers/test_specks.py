"""`dedust` on drawn clips whose dust is known."""

import pytest
import torch
from torch import Tensor

from vidrestore.restorers.result_cache import ResultCache
from vidrestore.restorers.specks import (
    SEARCH,
    Outliers,
    SpeckRestorer,
    motion_to,
    neighbours_of,
    outliers_of,
    plain_cores,
)
from vidrestore.settings.options import RestoreOptions

FRAMES, HEIGHT, WIDTH = 9, 72, 96


def scene(frames: int = FRAMES) -> Tensor:
    """A smooth pattern that drifts to the right by a pixel a frame, (T, 3, H, W)."""
    generator = torch.Generator().manual_seed(1)
    canvas = torch.rand(
        1, 1, HEIGHT // 3, (WIDTH + frames) // 3, generator=generator
    ).expand(1, 3, -1, -1)
    large = torch.nn.functional.interpolate(
        canvas, (HEIGHT, WIDTH + frames), mode="bicubic"
    )
    large = 0.3 + 0.4 * large.clamp(0, 1)
    return torch.stack(
        [
            large[0, :, :, frames - index : frames - index + WIDTH]
            for index in range(frames)
        ]
    )


def dusty(clip: Tensor, levels: tuple[float, ...] = (0.0, 1.0, 0.0)) -> Tensor:
    """Specks of two to four pixels at places of each frame's own, black and white by turns."""
    clip, generator = clip.clone(), torch.Generator().manual_seed(3)
    for frame in clip:
        for index, level in enumerate(levels * 2):
            row = int(torch.randint(4, HEIGHT - 8, (), generator=generator))
            column = int(torch.randint(4, WIDTH - 8, (), generator=generator))
            side = 2 + index % 3
            frame[:, row : row + side, column : column + side] = level
    return clip


def dedusted(clip: Tensor, cache: ResultCache | None = None, **options: str) -> Tensor:
    restorer = SpeckRestorer(RestoreOptions(**options))
    return torch.stack(list(restorer.frames(clip, (0, len(clip)), cache=cache)))


def error(clip: Tensor, truth: Tensor) -> float:
    return float((clip - truth)[1:-1].square().mean().sqrt())


def test_specks_become_what_the_neighbours_show():
    clip = scene()
    given, cache = dusty(clip), ResultCache()
    assert error(dedusted(given, cache), clip) < error(given, clip) / 2
    assert len(cache.specks) == FRAMES
    assert min(cache.specks.values()) >= 2


def test_pixels_without_specks_stay_bit_for_bit():
    clip = scene()
    given = dusty(clip)
    result = dedusted(given)
    is_near = (
        torch.nn.functional.max_pool2d(
            (given != clip).float(), 2 * SEARCH.grown + 3, 1, SEARCH.grown + 1
        )
        > 0
    )
    assert torch.equal(result[1:-1][~is_near[1:-1]], given[1:-1][~is_near[1:-1]])


def test_a_clip_without_dust_stays_bit_for_bit_and_none_is_counted():
    clip, cache = scene(), ResultCache()
    assert torch.equal(dedusted(clip, cache), clip)
    assert set(cache.specks.values()) == {0}


@pytest.mark.parametrize(
    "around, doubt, is_plain", [(0, 3, True), (30, 3, False), (30, 0.5, True)]
)
def test_a_speck_stands_out_from_what_differs_around_it(around, doubt, is_plain):
    """A speck of 80 levels, at a limit of 20, in a place that differs by `around` from its neighbours."""
    luma = torch.full((1, 1, 40, 40), 0.5)
    neighbours = luma.expand(2, 3, -1, -1) - around / 255
    cores = torch.zeros_like(luma)
    cores[..., 18:22, 18:22] = 1
    excess = 80 * cores
    limit = torch.full_like(luma, 20)
    luma = luma + 80 / 255 * cores
    outliers = Outliers(neighbours, excess, limit, limit)
    result = plain_cores(cores, luma, outliers, limit, torch.tensor(float(doubt)))
    assert torch.equal(result, cores if is_plain else torch.zeros_like(cores))


def test_bright_specks_alone_are_taken_for_snow_unless_all_are_asked_for():
    clip = scene()
    given = dusty(clip, (1.0,))
    assert torch.equal(dedusted(given), given)
    assert error(dedusted(given, dust="always"), clip) < error(given, clip) / 4


def test_confetti_that_moves_on_stays():
    given = scene(FRAMES)
    generator = torch.Generator().manual_seed(4)
    places = torch.randint(8, 60, (14, 2), generator=generator)
    colours = torch.rand(14, 3, generator=generator).round()
    for index, frame in enumerate(given):
        for (row, column), colour in zip(places.tolist(), colours, strict=True):
            row, column = row + 7 * index % 9, (column + 6 * index) % (WIDTH - 4)
            frame[:, row : row + 4, column : column + 4] = colour[:, None, None]
    result = dedusted(given)
    assert error(result, given) < 10 ** (-50 / 20)


def test_a_frame_is_the_same_in_any_clip_that_holds_its_neighbours():
    given = dusty(scene(16))
    restorer = SpeckRestorer(RestoreOptions())
    whole = list(restorer.frames(given, (0, 16)))
    radius = restorer.facts.radius
    part = list(restorer.frames(given[2:14], (radius, 12 - radius), first=2))
    expected = whole[2 + radius : 14 - radius]
    assert all(
        torch.equal(one, other) for one, other in zip(expected, part, strict=True)
    )


@pytest.mark.parametrize(
    "place, count, expected",
    [(0, 2, (1, 1)), (0, 5, (1, 2)), (4, 5, (2, 3)), (2, 5, (1, 3))],
)
def test_frames_at_the_ends_of_a_scene_are_compared_with_the_two_next_ones(
    place, count, expected
):
    assert neighbours_of(place, count) == expected


def test_a_speck_stands_out_by_the_levels_that_it_differs_and_a_brighter_frame_does_not():
    still = scene(1)
    frame, neighbours = still + 6 / 255, still.repeat(2, 1, 1, 1)
    frame[:, :, 30:34, 40:44] -= 80 / 255
    luma, lumas = (pictures.mean(1, keepdim=True) for pictures in (frame, neighbours))
    outliers = outliers_of(frame, neighbours, motion_to(luma, lumas))
    assert float(outliers.excess[0, 0, 31, 41]) == pytest.approx(80, abs=4)
    assert float(outliers.excess[0, 0, 50:, 20:70].max()) < 3


@pytest.mark.parametrize("frames", [1, 2])
def test_scenes_too_short_to_compare_stay(frames):
    given = dusty(scene(frames))
    assert torch.equal(dedusted(given), given)
