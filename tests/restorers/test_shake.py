"""Pictures that `deblur` restores by a kernel of their own or by its network, and those that it leaves."""

import re

import pytest
import torch
import torch.nn.functional as F
from sample_pictures import write_rgb
from shaken_pictures import boxes, shaken
from torch import Tensor

import vidrestore
from vidrestore.event_log import result_of
from vidrestore.events import Event, Summary
from vidrestore.pixels.linear_light import Response, to_light
from vidrestore.restorers import shake
from vidrestore.restorers.base import load_restorer
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.restorers.result_cache import ResultCache
from vidrestore.restorers.shake import (
    CAMERA,
    CONTRASTY,
    LINEAR,
    KernelSearch,
    Shake,
    ShakeRestorer,
    length_of,
    ratios,
    responses_of,
    shake_of,
    spreads,
)
from vidrestore.settings.options import RestoreOptions


@pytest.fixture(scope="module")
def restorer() -> ShakeRestorer:
    return load_restorer("deblur", RestoreOptions(device="cpu"))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> list[Tensor]:
        raise AssertionError("the network isn't needed")

    monkeypatch.setattr(PictureRestorer, "_restored", fail)


@pytest.fixture
def brighter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that adds a tenth."""
    monkeypatch.setattr(
        PictureRestorer,
        "_restored",
        lambda self, clip, places: clip.frames[[*places]] + 0.1,
    )


def with_shakes(
    monkeypatch: pytest.MonkeyPatch, restorer: ShakeRestorer, shakes: list[Shake]
) -> None:
    """Frames of the brightness n / 10 have the blur number n."""
    monkeypatch.setattr(
        shake,
        "shake_of",
        lambda picture, **_: shakes[round(10 * float(picture.mean()))],
    )


def one_pixel() -> Tensor:
    """The kernel of one pixel, as the only one of a picture (1, 1, 5, 5)."""
    kernel = torch.zeros(1, 1, 5, 5)
    kernel[..., 2, 2] = 1
    return kernel


def steps_of_brightness(count: int) -> Tensor:
    return torch.arange(count).view(-1, 1, 1, 1).expand(count, 3, 16, 16) / 10


def test_the_ratio_is_1_for_noise_and_a_ninth_for_a_slope():
    noise = torch.randn(200, 300, generator=torch.Generator().manual_seed(3))
    assert ratios(noise).sub(1).abs().max() < 0.05
    slope = torch.linspace(0, 1, 100)[:, None] + torch.linspace(0, 2, 150)
    assert ratios(slope)[:4].sub(1 / 9).abs().max() < 0.02


def test_noise_is_taken_off_the_ratio():
    soft, draw = shaken(boxes()).mean(0), torch.Generator().manual_seed(3)
    noisy = soft + 6 / 255 * torch.randn(soft.shape, generator=draw)
    assert ratios(noisy).min() > ratios(soft).min() + 0.05
    assert ratios(noisy, 6.0).min().item() == pytest.approx(
        ratios(soft).min().item(), abs=0.02
    )


def test_ripples_are_no_darker_than_a_fifth_of_the_light_around():
    """Blur mixes a point with all within its reach: what was dark there leaves the least light dark, too."""
    line = torch.zeros(15, 15)
    line[7] = 1 / 15
    bars = (torch.arange(128) // 16 % 2 * 0.9 + 0.02).expand(3, 128, 128)
    seen = shaken(bars)
    restored = shake.undone(seen, Shake(0.1, line[None, None]))
    least = -F.max_pool2d(-to_light(seen)[None], 15, 1, 7)[0]
    assert (to_light(restored) >= 0.19 * least).all()


def test_a_kernel_spreads_along_its_path():
    kernel = torch.zeros(21, 21)
    kernel[10, 5:16] = 1 / 11
    along, across = spreads(kernel)
    assert along == pytest.approx(10**0.5, abs=0.01) and across == 0
    assert length_of(kernel) == pytest.approx(11, abs=0.1)


def test_a_sharp_picture_comes_out_as_it_is_without_the_network(restorer, no_network):
    picture, cache = boxes(), ResultCache()
    (result,) = restorer.frames(picture[None], (0, 1), first=7, cache=cache)
    assert torch.equal(result, picture)
    assert cache.shakes == {7: 0}


@pytest.mark.parametrize("channels", [3, 1])
def test_a_shaken_photograph_is_restored_by_its_kernel_alone(
    restorer, no_network, channels
):
    picture, cache = boxes(240, 320)[:channels].expand(3, -1, -1), ResultCache()
    seen = shaken(picture)
    (result,) = restorer.frames(seen[None], (0, 1), cache=cache)
    errors = [
        (one - picture)[:, 8:-8, 8:-8].square().mean().sqrt() for one in (seen, result)
    ]
    assert errors[1] < 0.85 * errors[0]
    assert cache.shakes == {0: pytest.approx(11, abs=1.5)}


def test_what_is_blurred_and_stays_as_it_is_is_not_called_sharp(
    restorer, no_network, monkeypatch, tmp_path
):
    monkeypatch.setattr(
        shake, "shake_of", lambda *_, **__: Shake(0.23, is_hopeless=True)
    )
    source, events = tmp_path / "in.png", list[Event]()
    write_rgb(source, boxes().mul(255).round().byte().numpy())
    vidrestore.restore(
        source,
        tmp_path / "out.png",
        task="deblur",
        device="cpu",
        on_event=events.append,
    )
    (done,) = (event for event in events if isinstance(event, Summary))
    assert result_of(done).endswith(": blurred, but its shake can't be undone")


def test_what_is_soft_without_a_kernel_is_left_to_the_network(
    restorer, brighter, monkeypatch
):
    with_shakes(monkeypatch, restorer, [Shake(0.1), Shake(0.2), Shake(0.3)])
    for level, added in enumerate((0.1, 0.05, 0)):
        picture = torch.full((3, 16, 16), level / 10)
        (result,) = restorer.frames(picture[None], (0, 1))
        torch.testing.assert_close(result, picture + added)


def test_an_uneven_photograph_is_three_tenths_of_its_kernels_result(
    restorer, brighter, monkeypatch
):
    with_shakes(
        monkeypatch,
        restorer,
        [Shake(0.1, one_pixel(), is_even=False), Shake(0.1, one_pixel())],
    )
    for level, added in enumerate((0.07, 0)):
        picture = torch.full((3, 16, 16), level / 10)
        (result,) = restorer.frames(picture[None], (0, 1))
        torch.testing.assert_close(result, picture + added, atol=2e-3, rtol=0)


def test_halves_with_different_paths_are_uneven(monkeypatch):
    monkeypatch.setattr(shake, "PART", 100)
    picture = boxes(176, 448)
    across, down = shaken(picture), shaken(picture.transpose(1, 2)).transpose(1, 2)
    uneven = torch.cat((across[..., :224], down[..., 224:]), 2)
    assert shake._is_even(to_light(across), least_pixels=0)
    assert not shake._is_even(to_light(uneven), least_pixels=0)


def test_halves_of_paths_in_one_direction_are_uneven_if_one_is_longer(monkeypatch):
    monkeypatch.setattr(shake, "PART", 100)
    paths = torch.zeros(3, 31, 31)
    paths[0, 15, 11:20], paths[1, 15, 11:21], paths[2, 15, 10:21] = (
        1 / 9,
        1 / 10,
        1 / 11,
    )
    light, kernels = torch.rand(3, 176, 400), list[Tensor]()
    monkeypatch.setattr(shake, "kernel_of", lambda *_: kernels.pop())
    for longer, is_even in ((1, True), (2, False)):
        kernels[:] = paths[0], paths[longer]
        assert shake._is_even(light, least_pixels=0) is is_even


@pytest.mark.parametrize("response", [CAMERA, CONTRASTY, LINEAR])
def test_the_likeliest_response_leaves_only_noise_at_the_frequencies_that_blur_takes_away(
    response,
):
    """Moved by 20 pixels, which are 10 at half the size."""
    half = torch.zeros(17, 17)
    half[8, 3:13] = 1 / 10
    assert responses_of(stored_by(response), half)[0] == response


def test_a_drawing_and_text_stay_as_they_are(restorer, no_network):
    """Their outlines are neither noise nor the picture of a kernel."""
    down, across = torch.meshgrid(
        torch.arange(240.0), torch.arange(320.0), indexing="ij"
    )
    drawing = torch.tensor([0.2, 0.35, 0.6])[:, None, None].expand(3, 240, 320).clone()
    for number in range(9):
        ellipse = ((across - 30 * number - 40) / 40).square()
        ellipse += ((down - 20 * number - 35) / 30).square()
        colour = torch.tensor([0.1 * number, 1 - 0.1 * number, 0.35 * number % 1])
        drawing = torch.where(ellipse < 1, colour[:, None, None], drawing)
        drawing = torch.where((ellipse - 1).abs() < 0.06, torch.zeros(()), drawing)
    strokes = torch.rand(1, 15, 80, generator=torch.Generator().manual_seed(0)) < 0.4
    letters = (~strokes).float().repeat_interleave(4, 2)
    page = torch.ones(3, 240, 320)
    page[:, ::16] = letters
    page[:, 1::16] = letters
    for picture in (drawing, page):
        assert torch.equal(next(restorer.frames(picture[None], (0, 1))), picture)


def test_without_frequencies_that_blur_takes_away_a_response_isnt_told():
    seen = stored_by(LINEAR)
    assert responses_of(seen, one_pixel()[0, 0]) == [CAMERA, CONTRASTY]
    assert responses_of(torch.zeros_like(seen), one_pixel()[0, 0]) == [
        CAMERA,
        CONTRASTY,
    ]


def stored_by(response: Response) -> Tensor:
    """Return boxes that moved by 20 pixels, in 8 bits."""
    light = F.pad(to_light(boxes(200, 300))[:, None], (9, 10, 0, 0), mode="reflect")
    moved = F.conv2d(light, torch.full((1, 1, 1, 20), 0.05))[:, 0]
    return response.from_light(moved).mul(255).round() / 255


@pytest.mark.parametrize(
    "doubts, response",
    [((0.003,), CAMERA), ((0.02, 0.011), CAMERA), ((0.02, 0.003), CONTRASTY)],
)
def test_a_less_likely_response_is_taken_if_its_result_strays_less_than_half_as_much(
    monkeypatch, doubts, response
):
    rest = iter([*doubts, 0.1, 0.1])  # of other sparsities
    kernel = one_pixel()[0, 0]
    monkeypatch.setattr(shake, "responses_of", lambda *_: [CAMERA, CONTRASTY])
    monkeypatch.setattr(shake, "kernel_of", lambda *_: kernel)
    monkeypatch.setattr(shake, "strays", lambda *_: next(rest))
    assert shake._search(boxes(), 2e3).response == response


def test_a_kernel_that_its_window_cuts_off_is_searched_for_at_half_the_size(
    monkeypatch,
):
    """One whose result strays less is taken, and enlarged."""
    cut_off, whole = torch.zeros(31, 31), torch.zeros(31, 31)
    cut_off[15], whole[15, 8:23] = 1 / 31, 1 / 15
    searches = iter(
        [KernelSearch(0.004, cut_off, CAMERA), KernelSearch(0.001, whole, CAMERA)]
    )
    sizes = list[torch.Size]()
    monkeypatch.setattr(
        shake,
        "_search",
        lambda picture, _: (sizes.append(picture.shape[1:]), next(searches))[1],
    )
    monkeypatch.setattr(shake, "refined", lambda light, kernels, *_, enlarge: kernels)
    result = shake_of(shaken(boxes(200, 208)))
    assert sizes == [(200, 208), (100, 104)]
    assert torch.equal(result.kernels[0, 0], whole)


def test_a_doubtful_kernel_that_two_searches_gave_is_taken_before_one_with_fewer_strays():
    first, second, short = (torch.zeros(31, 31) for _ in range(3))
    first[15, 8:23] = second[16, 8:22] = 1 / 15  # a pixel lower, and shorter
    short[15, 15] = 1
    searches = [
        KernelSearch(stray, kernel, CAMERA)
        for stray, kernel in ((0.03, first), (0.001, short), (0.02, second))
    ]
    result = shake.agreed(searches)
    assert result.kernel is second and not result.is_alone
    alone = shake.agreed(searches[:2])
    assert alone.kernel is short and alone.is_alone


def line_of(length: int) -> Tensor:
    kernel = torch.zeros(31, 31)
    kernel[15, 15 - length // 2 : 16 + length // 2] = 1 / length
    return kernel


@pytest.mark.parametrize(
    "of_part, of_frame, length, searches",
    [
        (0.001, None, 11, 1),  # beyond doubt
        (0.04, 0.01, 7, 2),
        (0.01, 0.04, 11, 2),
        (0.2, 0.01, 7, 2),
        (1.0, 0.2, None, 2),
    ],
)
def test_a_doubtful_kernel_of_a_frames_busiest_part_is_searched_for_in_the_frame_too(
    monkeypatch, of_part, of_frame, length, searches
):
    monkeypatch.setattr(shake, "FRAME_PIXELS", 10_000)
    kernels, shares = iter([line_of(11), line_of(7)]), {11: of_part, 7: of_frame}
    picture, sizes = shaken(boxes()), list[int]()
    monkeypatch.setattr(
        shake,
        "kernel_of",
        lambda luma, *_: (sizes.append(luma.numel()), next(kernels))[1],
    )

    def share(light: Tensor, kernel: Tensor, _: float) -> float:
        assert light.shape == picture.shape
        return shares[int((kernel > 0).sum())]

    monkeypatch.setattr(shake, "strays", share)
    result = shake_of(picture, is_photo=False)
    assert sizes == pytest.approx([10_000, picture[0].numel()][:searches], rel=0.02)
    if length is None:
        assert result.kernels is None and result.is_hopeless
    else:
        assert torch.equal(result.kernels[0, 0], line_of(length))


def test_the_busiest_part_of_a_picture_has_the_most_detail():
    picture = torch.zeros(3, 100, 200)
    picture[:, :50, :100:2], picture[:, 50:, 100::2] = 0.5, 1.0
    part = shake.busiest(picture, 5000)
    assert torch.equal(part, picture[:, 50:, 100:])
    assert shake.busiest(picture, 20_000) is picture


def test_in_noise_only_softer_pictures_are_searched_for_a_kernel(monkeypatch):
    searches: list[Tensor] = []

    def search(picture: Tensor, *_: object) -> KernelSearch:
        searches.append(picture)
        return KernelSearch(1.0, one_pixel()[0, 0], CAMERA)

    monkeypatch.setattr(shake, "_search", search)
    draw, line = torch.Generator().manual_seed(3), torch.arange(-8.0, 9)
    squares = F.interpolate(torch.rand(1, 1, 60, 60, generator=draw), scale_factor=6.0)
    noise = torch.randn(3, 344, 344, generator=draw) * 6 / 255
    for width, expected in ((0.95, [True, False]), (1.7, [True, True])):
        lens = torch.exp(-line.square() / (2 * width**2))
        lens = lens / lens.sum()
        picture = F.conv2d(
            F.conv2d(squares, lens[None, None, :, None]), lens[None, None, None]
        )[0]
        picture = picture.expand(3, -1, -1)
        results = []
        for frame in (picture, picture + noise):
            searches.clear()
            shake_of(frame)
            results.append(bool(searches))
        assert results == expected


def test_a_picture_too_small_to_judge_is_left_to_the_network():
    assert shake_of(torch.rand(3, 40, 500)) == Shake(0.0)


def test_frames_between_restored_and_declined_ones_are_mixed(
    restorer, brighter, monkeypatch
):
    """A kernel of one pixel changes nothing, so that seven tenths of what the network adds are left."""
    pixel = one_pixel()
    accepted, declined = Shake(0.1, pixel), Shake(0.1)
    monkeypatch.setattr(shake, "strays", lambda *_, **__: 1.0)
    with_shakes(
        monkeypatch,
        restorer,
        [accepted, accepted, accepted, declined, accepted, declined, declined],
    )
    frames = steps_of_brightness(7)
    results = torch.stack(list(restorer.frames(frames, (0, 7))))
    added = (results - frames).mean((1, 2, 3))
    agreement = torch.tensor([1, 1, 2 / 3, 0, 1 / 3, 0, 0])
    torch.testing.assert_close(added, 0.1 - 0.03 * agreement, atol=2e-3, rtol=0)


def test_any_range_of_frames_is_restored_the_same(restorer, brighter, monkeypatch):
    pixel = one_pixel()
    with_shakes(
        monkeypatch,
        restorer,
        [Shake(0.1, pixel if number % 3 else None) for number in range(9)],
    )
    frames = steps_of_brightness(9)
    together = list(restorer.frames(frames, (0, 9)))
    radius = restorer.facts.radius
    for at in range(radius, 9 - radius):
        near = frames[at - radius : at + radius + 1]
        (alone,) = restorer.frames(near, (radius, radius + 1))
        assert torch.equal(alone, together[at])


def test_a_neighbours_kernel_is_tried_where_a_frame_has_none(
    restorer, brighter, monkeypatch
):
    pixel = one_pixel()
    with_shakes(
        monkeypatch, restorer, [Shake(0.1, pixel), Shake(0.1), Shake(0.1, pixel)]
    )
    frames = steps_of_brightness(3)
    (result,) = restorer.frames(frames, (1, 2))
    torch.testing.assert_close(
        result, frames[1] + 0.1 - 0.03 * 2 / 3, atol=2e-3, rtol=0
    )


def test_a_frame_that_is_blurred_by_its_lens_takes_no_neighbours_kernel(
    restorer, brighter, monkeypatch
):
    pixel = one_pixel()
    short = Shake(0.1, is_short=True)
    with_shakes(monkeypatch, restorer, [Shake(0.1, pixel), short, Shake(0.1, pixel)])
    frames = steps_of_brightness(3)
    (result,) = restorer.frames(frames, (1, 2))
    torch.testing.assert_close(result, frames[1] + 0.1)  # the network's


def test_a_short_kernel_of_a_frame_is_not_searched_for_again(monkeypatch):
    monkeypatch.setattr(shake, "FRAME_PIXELS", 10_000)
    kernels = iter([line_of(3)])
    monkeypatch.setattr(shake, "kernel_of", lambda *_: next(kernels))
    result = shake_of(shaken(boxes()), is_photo=False)
    assert result.kernels is None and result.is_short and not result.is_hopeless


@pytest.mark.parametrize(
    "picture, words",
    [
        (boxes, "sharp already"),
        (lambda: shaken(boxes(240, 320)), "shake of 1[0-3] px undone"),
    ],
)
def test_the_last_line_says_what_was_done(tmp_path, picture, words):
    source, events = tmp_path / "in.png", list[Event]()
    write_rgb(source, picture().mul(255).round().byte().numpy())
    vidrestore.restore(
        source,
        tmp_path / "out.png",
        task="deblur",
        device="cpu",
        on_event=events.append,
    )
    (done,) = (event for event in events if isinstance(event, Summary))
    assert re.search(f": {words}$", result_of(done))


def test_parts_of_a_photograph_have_kernels_of_their_own(restorer):
    """The left part moved across, the right part down: each kernel is that of its part."""
    picture = boxes(176, 480)
    across, down = shaken(picture), shaken(picture.transpose(1, 2)).transpose(1, 2)
    seen = torch.cat((across[..., :240], down[..., 240:]), 2)
    whole = torch.zeros(1, 2, 31, 31)
    whole[:, :, 15, 12:19] = whole[:, :, 12:19, 15] = 1 / 13
    kernels = shake.refined(to_light(seen), whole, 2e3, enlarge=False)[0]
    (wide, _), (high, _) = (
        (kernel.sum(0).gt(0.01).sum(), 0) for kernel in (kernels[0], kernels[1].T)
    )
    assert wide > 7 and high > 7


@pytest.mark.parametrize("length, is_taken", [(13, True), (45, False)])
def test_a_kernel_is_refined_at_twice_the_size_unless_its_path_becomes_another(
    monkeypatch, length, is_taken
):
    """A path of 7 pixels has 14 there; one of 45 is another, and the enlarged kernel stays."""
    fine = torch.zeros(61, 61)
    fine[30, 30 - length // 2 : 31 + length // 2] = 1 / length
    monkeypatch.setattr(shake, "kernel_of", lambda *_: fine)
    light = to_light(boxes(176, 240))
    (kernel,) = shake.refined(light, line_of(7)[None, None], 2e3, enlarge=True)[0]
    assert torch.equal(kernel, fine) is is_taken
    assert length_of(kernel) == pytest.approx(14, abs=1.5)


def test_large_pictures_are_restored_in_parts_without_seams(monkeypatch):
    picture, kernel = shaken(boxes(200, 260)), torch.zeros(1, 1, 15, 15)
    kernel[..., 7, 2:13] = 1 / 11
    whole = shake.undone(picture, Shake(0.1, kernel))
    monkeypatch.setattr(shake, "TILE", 100)
    assert (shake.undone(picture, Shake(0.1, kernel)) - whole).abs().mean() < 0.01


def test_spans_cover_a_side_and_share_their_margins():
    assert shake.spans_of(100, 3, 8) == [(0, 41), (25, 75), (59, 100)]
    assert shake.spans_of(50, 1, 8) == [(0, 50)]


def test_neighbours_of_like_kernels_share_their_mean_and_others_dont():
    kernels = torch.zeros(3, 1, 1, 31, 31)
    kernels[0, ..., 15, 10:21], kernels[1, ..., 15, 9:21], kernels[2, ..., 6:25, 15] = (
        1 / 11,
        1 / 12,
        1 / 19,
    )
    window = [Shake(0.1, kernel) for kernel in kernels]
    frame = torch.full((3, 100, 100), 0.5)
    steadied = shake._with_neighbours(frame, window[1], window)
    torch.testing.assert_close(steadied.kernels, (kernels[0] + kernels[1]) / 2)
    assert torch.equal(
        shake._with_neighbours(frame, window[2], window).kernels, kernels[2]
    )
