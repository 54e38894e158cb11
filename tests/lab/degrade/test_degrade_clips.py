"""Haze, rain, snow, blur and noise: formulas, coherence in time, equal for equal generators."""

import math

import numpy as np
import pytest
import torch
from held_out_degradations import mosaic
from torch import Tensor

from vidrestore.lab.degrade import (
    DEGRADATIONS,
    add_haze,
    add_moving_objects,
    add_rain,
    imresize,
)
from vidrestore.lab.degrade.added_noise import (
    demosaiced,
    random_chroma,
    scaled_noise,
    smoothed,
)
from vidrestore.lab.degrade.blur import (
    MOMENTS,
    average_exposures,
    blurred,
    blurred_by_turns,
    blurred_layers,
    disc_kernels,
    motion,
    path_kernels,
    random_arcs,
    random_mask,
    random_walks,
)
from vidrestore.lab.degrade.counters import Counters
from vidrestore.lab.degrade.haze import random_depth
from vidrestore.lab.degrade.particles import (
    Particles,
    canvas_size,
    capsule,
    gaussian_spectrum,
    line_spectrum,
    moved,
    poisson,
    render,
    shape_spectrum,
    splat,
)
from vidrestore.lab.degrade.segmentation import (
    box_filtered,
    lowest_rows,
    random_regions,
)
from vidrestore.lab.degrade.weather import rain


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def scene(frames: int = 3, height: int = 40, width: int = 56) -> Tensor:
    return torch.from_numpy(
        rng(1).uniform(0.1, 0.9, (frames, 3, height, width))
    ).float()


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_a_degraded_clip_is_a_clip_and_follows_from_the_generator(name):
    clip = scene()
    before, changed = clip.clone(), 0
    for seed in range(6):
        one, two = (DEGRADATIONS[name](clip, rng(seed)) for _ in range(2))
        assert torch.equal(one, two)
        assert (one.shape, one.dtype) == (clip.shape, clip.dtype)
        assert float(one.min()) >= 0 and float(one.max()) <= 1
        changed += not torch.equal(one, clip)
    assert torch.equal(clip, before)
    assert changed >= 4  # a small frame may lie between flakes
    assert not torch.equal(DEGRADATIONS[name](clip, rng(9)), one)


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_a_white_and_a_black_clip_and_one_small_frame_stay_in_range(name):
    for clip in (torch.zeros(2, 3, 16, 16), torch.ones(2, 3, 16, 16), scene(1, 8, 8)):
        degraded = DEGRADATIONS[name](clip, rng(2))
        assert degraded.shape == clip.shape
        assert degraded.isfinite().all()


# Haze


def test_haze_of_a_pixel_is_transmitted_light_plus_airlight():
    clip, transmission = (
        scene(),
        torch.rand(1, 1, 40, 56, generator=torch.Generator().manual_seed(1)),
    )
    hazy = add_haze(clip, transmission, torch.tensor([0.8, 0.9, 0.7])[:, None, None])
    t = float(transmission[0, 0, 5, 7])
    assert hazy[2, :, 5, 7].tolist() == pytest.approx(
        [
            float(clip[2, c, 5, 7]) * t + a * (1 - t)
            for c, a in enumerate((0.8, 0.9, 0.7))
        ]
    )


def test_drawn_depths_differ_within_range_and_still_things_keep_theirs():
    still = scene(1).expand(4, -1, -1, -1)
    depths = random_depth(
        still.expand(12, -1, -1, -1, -1), Counters(3, 0, torch.arange(12))
    )
    for depth in depths:
        assert float(depth.min()) >= 0 and float(depth.max()) <= 1 + 1e-6
        assert all(torch.equal(frame, depth[0]) for frame in depth)
    upper = [
        float(depth[..., :10, :].mean() - depth[..., -10:, :].mean())
        for depth in depths
    ]
    # mostly farther at the top
    assert sum(difference > 0 for difference in upper) >= 10


def test_haze_is_as_dense_in_every_frame_of_a_still_scene():
    still = scene(1, 24, 24).expand(3, -1, -1, -1)
    for seed in range(12):
        hazy = DEGRADATIONS["haze"](still, rng(seed))
        assert float((hazy[1:] - hazy[:-1]).abs().mean()) < 0.01


def test_regions_are_parts_of_the_picture_with_feet():
    clip = torch.zeros(2, 3, 20, 30)
    clip[:, :, :12, :15], clip[:, :, :, 15:] = 1, 0.5
    regions = random_regions(
        clip.expand(6, -1, -1, -1, -1), Counters(1, 0, torch.arange(6))
    )
    assert torch.equal(regions[:, 0], regions[:, 1])
    assert (
        2
        <= min(len(each.unique()) for each in regions)
        < max(len(each.unique()) for each in regions)
    )
    for each, feet in zip(regions, lowest_rows(regions), strict=True):
        for region, foot in enumerate(feet.tolist()):
            rows = (each[1] == region).nonzero()[:, 0]
            assert foot == (int(rows.max()) if len(rows) else 0)


def test_a_pixel_belongs_to_the_seed_that_is_nearest_in_place_and_colour(monkeypatch):
    # each seed is a region
    monkeypatch.setattr("vidrestore.lab.degrade.segmentation.SIMILAR", (0.0, 1e-9))
    monkeypatch.setattr("vidrestore.lab.degrade.segmentation.COUNT", (7, 7))
    clips, draw = scene(1, 12, 16)[None], Counters(1, 0, torch.arange(1))
    regions = random_regions(clips, draw)[0, 0]
    again = Counters(1, 0, torch.arange(1))
    again.integers(0, 1)
    colour, places = float(again.log_uniform((0.4, 3.0))), again.uniform(0, 1, 7, 2)[0]
    smooth = box_filtered(clips)[0, 0]
    for row, column in ((0, 0), (3, 9), (11, 15), (7, 2)):
        distances = [
            (
                colour
                * (smooth[:, row, column] - smooth[:, int(down * 12), int(right * 16)])
            )
            .square()
            .sum()
            + (row / 11 - down) ** 2
            + (column / 15 - right) ** 2
            for down, right in places.tolist()
        ]
        assert int(regions[row, column]) == int(torch.stack(distances).argmin())


# Rain and snow


def test_streaks_add_light_or_cover_and_a_veil_lies_over_all():
    clip, streaks = (
        torch.full((1, 3, 2, 2), 0.4),
        torch.tensor([[[[0.0, 0.5], [0.2, 1.0]]]]),
    )
    clear, airlight = torch.ones(1, 1, 1, 1), torch.full((3, 1, 1), 0.9)
    torch.testing.assert_close(
        add_rain(clip, streaks, 0, clear, airlight)[0, 0],
        torch.tensor([[0.4, 0.9], [0.6, 1.4]]),
    )
    torch.testing.assert_close(
        add_rain(clip, streaks, 1, clear, airlight)[0, 0],
        torch.tensor([[0.4, 0.7], [0.52, 1.0]]),
    )
    torch.testing.assert_close(
        add_rain(clip, 0 * streaks, 0, clear / 4, airlight)[0, 0],
        torch.full((2, 2), 0.4 / 4 + 0.9 * 3 / 4),
    )


def swarm(
    start: tuple[float, float],
    step: tuple[float, float] = (0, 0),
    way: tuple[float, float] = (0, 0),
) -> Particles:
    """One thing, and room for another."""
    start, step, way = (
        torch.tensor(part, dtype=torch.float32).view(1, 2, 1).repeat(1, 1, 2)
        for part in (start, step, way)
    )
    return Particles(start, step, way, torch.full((1, 2), 2.0), torch.ones(1))


ONE = torch.ones(1)


def test_a_thing_falls_by_its_step_and_comes_in_again_at_the_other_side():
    maps = swarm((3, 14), step=(2, 3)).traces(3, (16, 16), ONE)
    expected = torch.zeros(1, 3, 1, 16, 16)
    for number, (row, column) in enumerate([(3, 14), (5, 1), (7, 4)]):
        expected[0, number, 0, row, column] = 2
    torch.testing.assert_close(maps, expected)


def test_a_trace_has_its_weight_on_every_pixel_that_it_passes():
    trace = swarm((8, 7.5), way=(0, 8)).traces(1, (16, 16), ONE)[0, 0, 0]
    assert float(trace.sum()) == pytest.approx(2 * 8, abs=1e-3)
    torch.testing.assert_close(trace[8, 5:11], torch.full((6,), 2.0), atol=0.3, rtol=0)
    assert float(trace[8, 3:13].sum()) == pytest.approx(2 * 8, abs=1e-3)


def test_a_weight_is_shared_among_four_pixels_and_beyond_the_border_with_the_other_side():
    rows, columns = torch.tensor([[[2.25, 5.5]]]), torch.tensor([[[3.5, -1.0]]])
    image = splat(rows, columns, torch.tensor([[8.0, 2.0]]), (6, 6))[0, 0, 0]
    assert image[2:4, 3:5].tolist() == [[3, 3], [1, 1]] and float(image.sum()) == 10
    assert float(image[5, 5]) == float(image[0, 5]) == 1


def test_the_number_of_particles_follows_their_density():
    draw, down = (
        Counters(6, 0, torch.arange(50)),
        torch.tensor([[0.6, 0.8]]).expand(50, -1),
    )
    density, step, path = (torch.full((50,), value) for value in (0.01, 7.0, 3.0))
    things = Particles.drawn(draw, (200, 300), density, step, path, down, 0.1)
    assert float(things.count.mean()) == pytest.approx(600, abs=12)
    assert float(things.count.var()) == pytest.approx(600, rel=0.6)
    assert things.weight.shape[1] >= int(things.count.max())
    assert things.step.flatten(2).median(2)[0].mean(0).tolist() == pytest.approx(
        [4.2, 5.6], abs=0.1
    )
    assert things.start.amax((0, 2)).tolist() == pytest.approx([200, 300], abs=1)


def test_counts_of_few_are_poissons():
    counts = poisson(torch.full((2, 1), 3.0), Counters(1, 0, torch.arange(2)), 10_000)
    assert float(counts.mean()) == pytest.approx(3, abs=0.06)
    assert float(counts.var()) == pytest.approx(3, abs=0.15)
    assert float((counts == 0).float().mean()) == pytest.approx(math.exp(-3), abs=0.015)


def test_a_point_becomes_its_shape_where_it_is():
    room = canvas_size((20, 30))
    points, shape = (
        torch.zeros(1, 1, 1, *room),
        torch.rand(5, 5, generator=torch.Generator().manual_seed(1)),
    )
    points[..., 8, 12] = 2
    expected = torch.zeros(room)
    expected[6:11, 10:15] = 4 * shape
    rendered = render([(points, shape_spectrum(shape[None], room))] * 2, room)
    torch.testing.assert_close(rendered[0, 0, 0], expected)


def test_a_soft_line_is_one_in_its_middle_and_as_wide_as_its_sigma():
    room = (32, 32)
    line = torch.zeros(1, 1, 1, *room)
    line[..., 16] = 1
    across = render([(line, gaussian_spectrum(torch.tensor([2.0]), room))], room)[
        0, 0, 0, 5
    ]
    expected = torch.exp(-((torch.arange(32.0) - 16) ** 2) / (2 * 2.0**2))
    torch.testing.assert_close(across, expected, atol=1e-3, rtol=0)


def test_a_line_is_one_from_end_to_end_and_falls_evenly_to_nothing_at_its_ends():
    room = (64, 64)
    point = torch.zeros(1, 1, 1, *room)
    point[..., 30, 20] = 1
    down, sigma = torch.tensor([[1.0, 0.0]]), torch.tensor([1.0])
    line = line_spectrum(30 * ONE, 16 * ONE, down, room) * gaussian_spectrum(
        sigma, room
    )
    along = render([(point, line)], room)[0, 0, 0, :, 20]
    expected = ((15 - (torch.arange(64.0) - 30).abs()) / 8).clamp(0, 1)
    torch.testing.assert_close(along, expected, atol=0.06, rtol=0)


def test_painted_rain_is_white_in_display_values_and_never_darkens(monkeypatch):
    monkeypatch.setattr("vidrestore.lab.degrade.weather.PAINTED_SHARE", 1.0)
    monkeypatch.setattr("vidrestore.lab.degrade.weather.PAINTED_VEIL_SHARE", 0.0)
    clips = torch.full((40, 2, 3, 48, 48), 0.25)
    rainy = rain(clips, Counters(5, 0, torch.arange(40)))
    assert torch.equal(rainy[:, :, 0], rainy[:, :, 1]) and torch.equal(
        rainy[:, :, 0], rainy[:, :, 2]
    )
    assert float((clips - rainy).max()) < 1e-6
    covered = (rainy > 0.29).float().mean((1, 2, 3, 4))
    assert (
        float(covered.min())
        < 0.06
        < float(covered.median())
        < 0.3
        < float(covered.max())
    )
    assert float((rainy - clips).mean((1, 2, 3, 4)).max()) < 0.4


def test_spectra_of_frames_are_moved_by_a_step_each():
    noise = Counters(3, 0, torch.arange(2)).normal(8, 12)
    frames = torch.fft.irfft2(
        moved(torch.fft.rfft2(noise), 3, torch.tensor([[1.0, -2.0], [9.0, 5.0]])),
        s=(8, 12),
    )
    for number in range(3):
        expected = torch.stack(
            [
                noise[0].roll((number, -2 * number), (0, 1)),
                noise[1].roll((9 * number, 5 * number), (0, 1)),
            ]
        )
        torch.testing.assert_close(frames[:, number], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["rain", "snow"])
def test_weather_brightens_and_moves(name):
    dark = torch.full((2, 3, 64, 64), 0.15)
    for seed in range(3):
        one, two = DEGRADATIONS[name](dark, rng(seed))
        assert float(one.mean()) >= 0.15 - 1e-4
        assert not torch.equal(one, two)


@pytest.mark.parametrize(
    ("angle", "end"), [(0.0, (10, 0)), (math.pi / 2, (0, 10)), (math.pi / 4, (7, 7))]
)
def test_a_capsule_is_one_along_its_segment_and_nothing_beside_it(angle, end):
    shape = capsule(20 * ONE, angle * ONE, ONE, ONE, 13)[0]
    middle = len(shape) // 2
    for sign in (-1, 1):
        assert shape[middle + sign * end[0], middle + sign * end[1]] == 1
    assert shape[middle + end[1], middle - end[0]] == 0
    # of the width where it falls to a half
    assert float(shape.sum()) == pytest.approx(20 * 3 + math.pi * 1.5**2, rel=0.05)


def test_moving_things_are_drawn_into_a_clip_and_move():
    clip = torch.full((3, 3, 48, 64), 0.2)
    for seed in range(12):
        seen = add_moving_objects(clip, rng(seed))
        assert torch.equal(seen, add_moving_objects(clip, rng(seed)))
        assert (seen.shape, float(seen.min()) >= 0, float(seen.max()) <= 1) == (
            clip.shape,
            True,
            True,
        )
    drawn = torch.stack([add_moving_objects(clip, rng(seed)) for seed in range(12)])
    # some leave the frame at once
    assert int((drawn.amax((1, 2, 3, 4)) > 0.3).sum()) >= 8
    assert int(((drawn[:, 1] - drawn[:, 0]).abs().amax((1, 2, 3)) > 0.05).sum()) >= 8


# Blur


def straight(moments: int, down: float = 0.0, right: float = 0.0) -> Tensor:
    """(1, 1, moments, 2): a path along a line, by that much in each moment."""
    return (torch.arange(moments)[:, None] * torch.tensor([down, right]))[None, None]


def test_a_straight_way_makes_a_line_with_its_middle_in_the_centre():
    kernel = path_kernels(straight(9, right=1))[0, 0]
    middle = len(kernel) // 2
    expected = torch.zeros_like(kernel)
    expected[middle, middle - 4 : middle + 5] = 1 / 9
    torch.testing.assert_close(kernel, expected)


def test_a_panning_camera_moves_evenly_along_a_line_or_a_gentle_bend():
    path = random_arcs(3, Counters(1, 0, torch.arange(64)))
    steps = path.flatten(1, 2).diff(dim=1)  # across the borders of exposures, too
    torch.testing.assert_close(
        steps.norm(dim=2), torch.full((64, 3 * MOMENTS - 1), 1 / MOMENTS)
    )
    turns = torch.atan2(steps[..., 0], steps[..., 1]).diff(dim=1)
    bend = torch.atan2(turns.sin(), turns.cos()) * MOMENTS  # radians in one exposure
    torch.testing.assert_close(bend, bend[:, :1].expand_as(bend), atol=0.02, rtol=0)
    assert 0.2 < float(bend[:, 0].std()) < 0.4


def walk(number: int, frames: int = 1) -> Tensor:
    return random_walks(frames * MOMENTS)[number].view(1, frames, MOMENTS, 2)


def test_a_kernel_has_the_sum_one_and_its_centroid_at_its_centre():
    kernel = path_kernels(0.2 * walk(3))[0, 0].double().numpy()
    rows, columns = np.mgrid[: len(kernel), : len(kernel)] - len(kernel) // 2
    assert kernel.sum() == pytest.approx(1, abs=1e-6)
    assert ((kernel * rows).sum(), (kernel * columns).sum()) == pytest.approx(
        (0, 0), abs=1e-3
    )


def test_walks_go_one_pixel_in_a_moment_and_differ():
    walks = random_walks(MOMENTS)
    steps = walks.diff(dim=1).norm(dim=2)
    torch.testing.assert_close(steps, torch.ones_like(steps), atol=1e-3, rtol=0)
    ends = walks[:, -1].norm(dim=1)
    assert (
        float(ends.quantile(0.9)) > 55 and float(ends.quantile(0.1)) < 35
    )  # nearly straight, and crooked ones


def test_a_moving_part_is_never_empty():
    masks = random_mask(
        scene(1, 48, 64).expand(60, -1, -1, -1, -1), Counters(1, 0, torch.arange(60))
    )
    covered = masks.mean((1, 2, 3, 4)).tolist()
    assert min(covered) > 0.05
    assert sum(share > 0.9 for share in covered) < 6  # one region alone is larger


def test_a_camera_that_turns_leaves_its_axis_sharp():
    clip, still = scene(2, 41, 41)[None], torch.zeros(1, 2, MOMENTS, 2)
    turns = torch.linspace(-0.2, 0.2, MOMENTS).expand(1, 2, -1)
    seen = blurred_by_turns(clip, still, turns, torch.tensor([[20.0, 20.0]]))
    change = (seen - clip).abs().mean((0, 1, 2))
    assert float(change[20, 20]) < 0.02 < 0.25 * float(change.mean()) + 0.02
    torch.testing.assert_close(
        blurred_by_turns(clip, still, 0 * turns, torch.zeros(1, 2)),
        clip,
        atol=1e-4,
        rtol=0,
    )


def test_a_camera_that_only_moves_blurs_by_the_kernel_of_its_path():
    clip, path = scene(1, 64, 64)[None], straight(MOMENTS, right=8 / MOMENTS)
    seen = blurred_by_turns(clip, path, torch.zeros(1, 1, MOMENTS), torch.zeros(1, 2))
    middle = slice(12, 52)
    expected = blurred(clip, path_kernels(path))
    torch.testing.assert_close(
        seen[..., middle, middle], expected[..., middle, middle], atol=0.02, rtol=0
    )


def test_a_point_of_light_blurred_is_the_kernel():
    kernel = path_kernels(0.1 * walk(5))[0]
    clip, reach = torch.zeros(1, 3, 41, 41), kernel.shape[-1] // 2
    clip[:, :, 20, 20] = 1
    around = slice(20 - reach, 21 + reach)
    torch.testing.assert_close(
        blurred(clip, kernel)[0, 1, around, around] ** 2.2,
        kernel[0],
        atol=1e-5,
        rtol=1e-3,
    )


def test_every_frame_has_a_kernel_of_its_own_with_its_middle_in_the_centre():
    way = straight(20, right=1).view(1, 2, 10, 2)
    kernels = path_kernels(way)[0]
    torch.testing.assert_close(kernels[0], kernels[1])
    rows, columns = kernels[0].nonzero().float().T
    assert set(rows.tolist()) == {len(kernels[0]) // 2}
    assert abs(float(columns.mean()) - len(kernels[0]) // 2) <= 0.5
    through = path_kernels(
        way.repeat(2, 1, 1, 1), disc_kernels(torch.tensor([1.2, 0.0]))
    )
    torch.testing.assert_close(through.sum((2, 3)), torch.ones(2, 2))
    torch.testing.assert_close(through[1, :, 2:-2, 2:-2], kernels)
    assert float(through[0, 0].count_nonzero()) > 3 * float(kernels[0].count_nonzero())


def test_a_moving_part_leaves_distant_pixels_unchanged():
    clip, part = scene(2), torch.zeros(2, 1, 40, 56)
    part[..., :8] = 1
    line = path_kernels(straight(12, right=1).view(1, 2, 6, 2))[0]
    still = path_kernels(torch.zeros(1, 2, 6, 2))[0]
    seen = blurred_layers(clip, part, line, still)
    torch.testing.assert_close(seen[..., 24:], clip[..., 24:], atol=1e-3, rtol=0)
    torch.testing.assert_close(
        seen[..., :3], blurred(clip * part, line)[..., :3], atol=1e-3, rtol=0
    )
    same = blurred_layers(clip, part, still, still)
    torch.testing.assert_close(same, clip, atol=1e-3, rtol=0)


def test_windows_of_frames_become_the_mean_of_their_light():
    clip = scene(6)
    means = average_exposures(clip, 3)
    assert len(means) == 2
    torch.testing.assert_close(means[1], (clip[3:] ** 2.2).mean(0) ** (1 / 2.2))


def test_motion_is_about_the_pixels_that_a_picture_moves():
    wide = imresize(scene(1, 16, 24), 8)
    for step in (0, 1, 2, 6):
        moved = torch.cat(
            [wide[..., number * step : number * step + 128] for number in range(3)]
        )
        assert motion(moved) == pytest.approx(step, rel=0.5)


# Noise


def test_camera_noise_has_the_variance_of_its_light_by_channel():
    noise = torch.from_numpy(rng(1).standard_normal((1, 3, 300, 300))).float()
    shot, read = torch.tensor([2e-3, 1e-3, 3e-3]), torch.tensor([1e-4, 2e-4, 0.0])
    variance = scaled_noise(noise, torch.full((1, 3, 300, 300), 0.5), shot, read).var(
        (0, 2, 3)
    )
    torch.testing.assert_close(variance, 0.5 * shot + read, rtol=0.03, atol=0)


def test_smoothed_noise_keeps_its_variance_and_leans_on_its_neighbours():
    noise = smoothed(
        torch.from_numpy(rng(1).standard_normal((1, 3, 200, 200))).float(), 0.4
    )
    assert float(noise.var()) == pytest.approx(1, rel=0.03)
    beside = float((noise[..., 1:] * noise[..., :-1]).mean())
    # of the kernel 0.4, 1, 0.4 with itself, one further
    assert beside == pytest.approx(2 * 0.4 / (1 + 2 * 0.4**2), abs=0.03)


def test_demosaicing_keeps_measured_samples_greys_and_even_slopes():
    """Red at even rows and columns, blue at odd ones."""
    picture = scene(1, 8, 10)
    red, green, blue = demosaiced(picture)[0]
    torch.testing.assert_close(red[::2, ::2], picture[0, 0, ::2, ::2])
    torch.testing.assert_close(blue[1::2, 1::2], picture[0, 2, 1::2, 1::2])
    assert torch.equal(green[::2, 1::2], picture[0, 1, ::2, 1::2]) and torch.equal(
        green[1::2, ::2], picture[0, 1, 1::2, ::2]
    )
    slope = (torch.arange(8.0)[:, None] + 3 * torch.arange(10.0)).expand(
        1, 3, 8, 10
    ) + torch.tensor([5.0, 0.0, 9.0])[:, None, None]
    torch.testing.assert_close(
        demosaiced(slope)[..., 3:-3, 3:-3], slope[..., 3:-3, 3:-3]
    )


def test_green_is_interpolated_along_an_edge_with_the_bend_of_the_colour_there():
    picture = scene(1, 8, 10)
    picture[:, :, :, 5:] += 5  # so rows change more than columns beside it
    raw = mosaic(picture[0].numpy())
    row, column = 4, 4
    expected = (raw[3, 4] + raw[5, 4]) / 2 + 0.7 * (
        2 * raw[4, 4] - raw[2, 4] - raw[6, 4]
    ) / 4
    assert float(demosaiced(picture, bend=0.7)[0, 1, row, column]) == pytest.approx(
        expected, abs=1e-6
    )


def test_red_and_blue_follow_green_by_their_differences():
    picture = scene(1, 8, 10)
    _, green, blue = demosaiced(picture, follow=0.7)[0]
    difference = [
        float(picture[0, 2, 3, column] - 0.7 * green[3, column]) for column in (3, 5)
    ]
    assert float(blue[3, 4]) == pytest.approx(
        sum(difference) / 2 + 0.7 * float(green[3, 4]), abs=1e-6
    )


def test_demosaiced_noise_is_partly_the_same_in_all_colours():
    noise = (
        0.5 + 0.01 * torch.from_numpy(rng(2).standard_normal((1, 3, 200, 200))).float()
    )
    red, green, blue = demosaiced(noise)[0]
    for one, two in ((red, green), (green, blue), (blue, red)):
        assert (
            float(torch.corrcoef(torch.stack((one.flatten(), two.flatten())))[0, 1])
            > 0.4
        )


def test_noise_of_a_camera_leaves_edges_alone(monkeypatch):
    monkeypatch.setattr("vidrestore.lab.degrade.added_noise.SHOT", (1e-12, 2e-12))
    monkeypatch.setattr("vidrestore.lab.degrade.added_noise.CHROMA_SHARE", 0.0)
    for seed in range(4):
        noisy = DEGRADATIONS["noise"](scene(1, 60, 60), rng(seed))
        torch.testing.assert_close(noisy, scene(1, 60, 60), atol=1e-4, rtol=0)


def test_noise_of_colours_is_coarse_and_leaves_the_luma():
    noise = random_chroma(
        torch.zeros(1, 2, 3, 60, 60), Counters(1, 0, torch.arange(1))
    )[0]
    luma = (noise * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1)
    assert float(luma.abs().max()) < 2e-3 < float(noise.std())
    assert float((noise[..., 1:] * noise[..., :-1]).mean()) > 0.5 * float(
        noise.square().mean()
    )


def test_a_constant_picture_of_any_size_is_resized_to_itself():
    for scale, size in ((0.25, (16, 25)), (4, (244, 388)), (0.5, (31, 49))):
        torch.testing.assert_close(
            imresize(torch.full((2, 61, 97), 0.3), scale), torch.full((2, *size), 0.3)
        )


def test_white_noise_has_its_strength_in_every_channel_or_in_luma(monkeypatch):
    def correlation(one: torch.Tensor, two: torch.Tensor) -> float:
        return float(torch.corrcoef(torch.stack((one.flatten(), two.flatten())))[0, 1])

    sigma, kinds = 0.05, set()
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    monkeypatch.setattr(
        "vidrestore.lab.degrade.added_noise.WHITE_SIGMA", (sigma, sigma)
    )
    for seed in range(8):
        grey = torch.full((2, 3, 160, 160), 0.5)
        noise = DEGRADATIONS["white"](grey, rng(seed)) - grey
        luma, of_channels = (
            (noise * weights).sum(1),
            abs(correlation(noise[:, 0], noise[:, 2])) < 0.03,
        )
        kinds.add(of_channels)
        if of_channels:
            assert noise.std((0, 2, 3)).tolist() == pytest.approx([sigma] * 3, rel=0.03)
            assert abs(correlation(noise[..., 1:], noise[..., :-1])) < 0.03
        else:
            assert float(luma.std()) == pytest.approx(sigma, rel=0.03)
            assert abs(correlation(luma[..., 1:], luma[..., :-1])) < 0.03
            blue = noise[:, 2] - luma
            # of half the size, enlarged
            assert correlation(blue[..., 1:], blue[..., :-1]) > 0.4
        assert abs(correlation(noise[0], noise[1])) < 0.03
    assert kinds == {True, False}
