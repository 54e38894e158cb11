"""The denoising restorer: what it does to planes, which weights and devices it takes."""

import threading
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

from vidrestore.errors import CheckpointError
from vidrestore.models import nonlocal_bayes
from vidrestore.models.dust import Dust, DustConfig
from vidrestore.models.dust_sigma import SigmaDust, SigmaDustConfig, config_of
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.models.noise_model import NoiseCurve
from vidrestore.models.nonlocal_bayes import Noise, bayes_gains
from vidrestore.pipeline.chain import at_once
from vidrestore.restorers import denoise
from vidrestore.restorers.denoise import PRESETS, ClipPositions, DenoiseRestorer
from vidrestore.settings.options import RestoreOptions
from vidrestore.weights.checkpoint import save_model
from vidrestore.working import HERE, Meter, begin_task


@pytest.fixture
def weights(tmp_path):
    """Writes a network's file; returns its path."""

    def write(network, task="denoise"):
        path = tmp_path / f"{task}.safetensors"
        save_model(path, network, family="dust", config=config_of(network), task=task)
        return str(path)

    return write


def untrained() -> SigmaDust:
    return SigmaDust(SigmaDustConfig(patch=4, atoms=64))


def restorer_by(model: str | None = None, **options: Any) -> DenoiseRestorer:
    return DenoiseRestorer(RestoreOptions(model=model, device="cpu", **options))


def transparent() -> SigmaDust:
    """A network that returns its input: threshold 0, and U z + V x with u = 1, P = -D^T, a = 1, b = 0, as
    ISTA at its fixed point.
    """
    network = untrained()
    with torch.no_grad():
        network.log_threshold[:, 0] = -14.0
        network.correction.copy_(-network.dictionary.mT)
        network.own[:, 0], network.attended[:, 0], network.carried[:, 0] = 1.0, 0.0, 1.0
        # every token looks at itself
        network.self_distance[:, 0], network.log_temperature[:, 0] = (-100.0, -5.0)
    return network


def clip(
    frames: int = 5, height: int = 20, width: int = 26
) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(4)
    sizes = ((height, width), (height // 2, width // 2), (height // 2, width // 2))
    return tuple(255 * torch.rand(frames, *size, generator=generator) for size in sizes)


def without_further_estimates(monkeypatch) -> None:
    monkeypatch.setattr(
        denoise, "nonlocal_bayes", lambda noisy, estimate, *how: estimate
    )


@pytest.mark.parametrize("quality", sorted(PRESETS))
@pytest.mark.parametrize(
    "frames, height, width", [(5, 20, 26), (1, 20, 26), (3, 7, 3), (2, 16, 200)]
)
def test_a_network_that_returns_its_input_gives_every_plane_back(
    weights, quality, frames, height, width, monkeypatch
):
    without_further_estimates(monkeypatch)
    planes = clip(frames, height, width)
    restorer = restorer_by(weights(transparent()), quality=quality, precision="fp32")
    for restored, plane in zip(
        restorer.restore(planes, (9.0, 5.0, 5.0)), planes, strict=True
    ):
        torch.testing.assert_close(restored, plane, atol=0.05, rtol=0)


def test_a_plane_without_noise_is_left_as_it_is_and_the_source_is_not_altered(weights):
    planes = clip()
    before = [plane.clone() for plane in planes]
    restored = restorer_by(weights(untrained())).restore(planes, (20.0, 0.0, 3.0))
    assert torch.equal(restored[1], planes[1]) and not torch.equal(
        restored[0], planes[0]
    )
    assert all(torch.equal(now, then) for now, then in zip(planes, before, strict=True))


class Given(NamedTuple):
    """The arguments of a further estimate: the source, the estimate before, tracks, noise and gains."""

    noisy: torch.Tensor
    estimate: torch.Tensor
    tracks: torch.Tensor
    noise: Noise
    gains: object


@pytest.fixture
def refined(monkeypatch) -> list[Given]:
    """The further estimates that are made; each adds 1."""
    given: list[Given] = []

    def alike(noisy, estimate, tracks, side, noise, gains, *others):
        given.append(Given(noisy, estimate, tracks, noise, gains))
        return estimate + 1

    monkeypatch.setattr(denoise, "nonlocal_bayes", alike)
    return given


@pytest.mark.parametrize(
    "quality, passes", [("fast", (1, 1)), ("default", (3, 2)), ("best", (3, 2))]
)
@pytest.mark.parametrize("full", [False, True])
def test_each_further_estimate_uses_other_groups(refined, quality, passes, full):
    planes = clip(12, 40, 44)
    planes = (planes[0], planes[0].flip(1), planes[0].flip(2)) if full else planes
    restorer_by(quality=quality, sigma=20.0).restore(planes, (20.0,) * 3)
    luma, colour = refined[: passes[0]], refined[passes[0] :]
    parts = (luma, colour[: passes[1]], colour[passes[1] :])
    assert [len(part) for part in parts] == [passes[0], passes[1], passes[1]]
    for part, plane in zip(parts, planes, strict=True):
        assert all(torch.equal(each.noisy, plane) for each in part)
        output = [
            bayes_gains("clips", stage, 20.0, plane.device)
            for stage in range(len(part))
        ]
        assert [each.gains for each in part] == output
        for before, after in pairwise(part):
            torch.testing.assert_close(after.estimate, before.estimate + 1)
        for one, other in combinations([each.tracks for each in part], 2):
            assert one.shape == other.shape
            assert quality == "best" or not torch.equal(one, other)


@pytest.mark.parametrize("quality, passes", [("fast", 1), ("default", 2), ("best", 2)])
def test_photographs_have_gains_of_luma_and_of_colour_differences_and_no_third_estimate(
    refined, quality, passes
):
    planes = clip(1, 40, 44)
    restorer_by(quality=quality).restore(planes, (20.0, 9.0, 9.0))
    kinds = [("luma", 20.0), ("chroma", 9.0), ("chroma", 9.0)]
    expected = [
        bayes_gains(kind, stage, sigma, planes[0].device)
        for kind, sigma in kinds
        for stage in range(passes)
    ]
    assert [each.gains for each in refined] == expected


def share_at_border(error):
    """The root mean square within 8 pixels of the border of (T, H, W) over that of the inside."""
    power, border = error.square(), torch.ones_like(error, dtype=torch.bool)
    border[:, 8:-8, 8:-8] = False
    return (power[border].mean() / power[~border].mean()).sqrt()


def drawn_noise(count, frames, side, *, coarse):
    """Noise (N, T, H, W) of sigma 12, or coarse noise that `denoise` measures as 18, and that sigma."""
    generator = torch.Generator().manual_seed(3)
    noise = 12 * torch.randn(count, frames, side + 2, side + 2, generator=generator)
    return (
        (2.5 * F.avg_pool2d(noise, 3, 1), 18.0)
        if coarse
        else (noise[..., 1:-1, 1:-1], 12.0)
    )


@pytest.mark.parametrize("coarse", [False, True])
def test_a_photograph_keeps_no_more_noise_at_its_borders_than_inside(coarse):
    photographs, sigma = drawn_noise(4, 1, 162, coarse=coarse)
    restored = [
        restorer_by().restore((128 + noise,), (sigma,), measured=coarse)[0]
        for noise in photographs
    ]
    assert share_at_border(torch.cat(restored) - 128) < 1.2


@pytest.mark.parametrize("coarse", [False, True])
def test_a_still_clip_keeps_no_more_noise_at_its_borders_than_inside(coarse):
    (noise,), sigma = drawn_noise(1, 20, 160, coarse=coarse)
    waves = (
        40 * torch.sin(torch.arange(160) / 6)
        + 40 * torch.sin(torch.arange(160) / 5)[:, None]
    )
    picture = 128 + waves  # on an even one patches follow the noise
    restored = restorer_by().restore((picture + noise,), (sigma,), measured=coarse)[0]
    assert share_at_border(restored - picture) < 1.2


def beside(texture: float, noise: float) -> torch.Tensor:
    """A relative spectrum (256,): `noise`, and `texture` times as much at the lowest frequencies."""
    spectrum = torch.full((16, 16), noise)
    spectrum[:4, :4] *= texture
    return spectrum.flatten()


@pytest.mark.parametrize(
    "spectra, levels, white",
    [
        ([beside(4.0, 0.9)], [1.0], True),  # as measured
        ([beside(4.0, 0.5), beside(1.5, 1.0)], [1.0, 0.5], True),
        # coarse noise is still there: weight 0.3 for the logarithm of its mean power, 0.59
        (
            [beside(4.0, 0.5), beside(8.0, 1.2)],
            [1.0, 0.5, 0.59375**0.3 * (0.484375 / 0.59375) ** 0.7],
            False,
        ),
    ],
)
def test_texture_measured_as_noise_is_restored_again_with_the_sigma_of_the_noise(
    refined, monkeypatch, spectra, levels, white
):
    remaining, tried = iter(spectra), []

    def found(plane, sigma, positions, precision):
        tried.append(sigma)
        return plane

    restorer = restorer_by()
    monkeypatch.setattr(denoise, "relative_spectrum", lambda *of: next(remaining))
    monkeypatch.setattr(restorer, "restored_plane", found)
    restorer.restore((clip(12, 40, 44)[0],), (24.0,), measured=True)
    assert tried == pytest.approx([24.0 * level**0.5 for level in levels])
    assert next(remaining, None) is None
    assert (refined[0].noise.whitener is None) == white


def test_the_loss_of_a_coder_is_white_and_estimated_first_for_less_of_it(
    refined, monkeypatch
):
    restorer, tried = restorer_by(), []
    monkeypatch.setattr(
        restorer,
        "restored_plane",
        lambda plane, sigma, *_: tried.append(sigma) or plane,
    )
    planes = clip(6, 40, 44)
    restorer.restore(
        planes, (9.0, 0.5, 9.0), measured=True, coding=((1.0,) * 6, (2.0,) * 6, ())
    )
    assert tried[:2] == pytest.approx([0.6 * 9, 0.6 * 0.5]) and tried[2] == 9.0
    first, second, measured = (refined[at].noise for at in (0, 3, 5))
    assert (
        first.whitener is None
        and first.brightness is None
        and measured.brightness is not None
    )
    assert (first.sigma, first.frames, measured.frames) == (9.0, (1.0,) * 6, ())
    # though the least sigma is 1
    assert second.sigma * second.frames[0] == pytest.approx(0.5 * 2.0)


def test_frames_without_a_coders_loss_stay_beside_others_with_some():
    noisy = clip(6, 40, 44)[:1]
    (restored,) = restorer_by().restore(
        noisy, (9.0,), coding=((2.0, 0.0, 2.0, 0.0, 1.0, 1.0),)
    )
    assert [torch.equal(*pair) for pair in zip(restored, noisy[0], strict=True)] == [
        False,
        True,
    ] * 2 + [False] * 2


def test_white_noise_in_moving_texture_is_restored_with_the_sigma_of_the_noise():
    """Spray: blurred noise that is another in every frame."""
    generator = torch.Generator().manual_seed(2)
    drawn = [torch.randn(12, 1, 100, 132, generator=generator) for _ in range(2)]
    spray = 128 + 25 * F.avg_pool2d(drawn[0], 5, stride=1)[:, 0, :96, :128]
    noisy = spray + 6 * drawn[1][:, 0, :96, :128]

    def error(sigma: float, measured: bool = False) -> float:
        restorer = restorer_by(precision="fp32")
        (restored,) = restorer.restore((noisy,), (sigma,), measured=measured)
        return float((restored - spray).square().mean())

    right, wrong, mended = error(6.0), error(9.5), error(9.5, measured=True)
    assert mended - right < 0.2 * (wrong - right)


def test_sigmas_below_the_trained_range_are_taken_as_its_lowest(weights):
    restorer = restorer_by(weights(untrained()))
    planes = clip()[:1]
    assert torch.equal(
        restorer.restore(planes, (0.3,))[0], restorer.restore(planes, (1.0,))[0]
    )


def test_the_printed_network_denoises_too(weights):
    restorer = restorer_by(weights(Dust(DustConfig(patch=4, atoms=64))), match=False)
    restored = restorer.restore(clip(), (20.0,) * 3)
    assert [plane.shape for plane in restored] == [plane.shape for plane in clip()]


def test_weights_that_take_measurements_are_refused(weights):
    sensing = weights(Dust(DustConfig(patch=4, atoms=64, measurements=6)), "recover")
    with pytest.raises(CheckpointError, match="do not denoise"):
        restorer_by(sensing)


def test_half_precision_of_the_network_stays_near_full_precision(weights, monkeypatch):
    without_further_estimates(monkeypatch)
    path = weights(untrained())
    half, full = (
        restorer_by(path, precision=precision).restore(clip(), (20.0,) * 3)
        for precision in ("bf16", "fp32")
    )
    assert all(
        (a - b).square().mean().sqrt() < 1.0 for a, b in zip(half, full, strict=True)
    )


@pytest.mark.parametrize(
    ("sigma", "taken"), [(0.3, "0.3 is taken for 1"), (200.0, "200 is taken for 75")]
)
def test_noise_beyond_what_the_weights_were_trained_for_is_warned_of(sigma, taken):
    (warning,) = restorer_by(sigma=sigma).facts.warnings
    assert warning == f"dust-denoise was trained for sigma 1 to 75; sigma {taken}"
    assert not any(
        restorer_by(sigma=usual).facts.warnings for usual in (0.0, 1.0, 20.0, 75.0)
    )


@pytest.fixture
def even(monkeypatch) -> None:
    """Noise that was measured doesn't follow the brightness."""
    curve = NoiseCurve(torch.empty(0), torch.empty(0))
    monkeypatch.setattr(nonlocal_bayes, "noise_curve", lambda *of: curve)


def test_noise_given_by_its_sigma_is_as_strong_everywhere_and_measured_noise_may_follow_the_brightness(
    refined,
):
    planes = clip(6, 40, 44)
    seen = {}
    for measured in (False, True):
        refined.clear()
        restorer_by().restore(planes, (9.0,) * 3, measured=measured)
        brightness = [each.noise.brightness for each in refined]
        seen[measured] = [None if each is None else each.shape for each in brightness]
    assert seen == {
        False: [None] * 7,
        True: [planes[0].shape] * 3 + [planes[1].shape] * 4,
    }


def test_only_noise_that_was_measured_is_filtered_by_its_spectrum(
    weights, monkeypatch, even
):
    planes, model = clip(6), weights(transparent())

    def restored(measured: bool, strength: float) -> tuple[torch.Tensor, ...]:
        monkeypatch.setattr(
            denoise, "relative_spectrum", lambda *how: torch.full((16,), strength)
        )
        return restorer_by(model, precision="fp32").restore(
            planes, (9.0,) * 3, measured=measured
        )

    white = restored(False, 1.0)
    for measured, given, much in zip(
        restored(True, 1.0), restored(False, 30.0), white, strict=True
    ):
        torch.testing.assert_close(measured, much)
        torch.testing.assert_close(given, much)
    for stronger, weaker in zip(restored(True, 30.0), white, strict=True):
        assert stronger.std() < 0.98 * weaker.std()  # the more is noise, the more goes


@pytest.mark.parametrize("frames", [1, 4])
def test_clips_too_short_to_measure_the_spectrum_are_filtered_as_with_white_noise(
    weights, frames, even
):
    planes, model = clip(frames), weights(transparent())
    one, other = (
        restorer_by(model, precision="fp32").restore(
            planes, (9.0,) * 3, measured=inputs
        )
        for inputs in (True, False)
    )
    for measured, inputs in zip(one, other, strict=True):
        torch.testing.assert_close(measured, inputs)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize(
    "rows", [(0,) * 10, (0, 1) * 5, (None, *(1, 1, 0, 1) * 2, None)]
)
def test_interpolated_rows_come_from_the_estimate_before(
    refined, rows, coarse, monkeypatch
):
    monkeypatch.setattr(
        denoise,
        "relative_spectrum",
        lambda *how: torch.full((side**2,), 30.0 if coarse else 1.0),
    )
    planes, restorer = clip(10, 80, 44), restorer_by()
    side = restorer.patch
    restorer.restore(planes, (9.0,) * 3, measured=True, real_rows=rows)
    for index, (source, plane) in enumerate(
        zip(refined, [planes[0]] * 3 + [planes[1]] * 2 + [planes[2]] * 2, strict=True)
    ):
        is_white = source.noise.whitener is None
        for frame, parity in enumerate(rows):
            change = plane[frame] - source.estimate[frame]
            if parity is not None:
                change *= 1.0 if index >= 3 and not is_white else 1.4
                change[1 - parity :: 2] = 0
            torch.testing.assert_close(
                source.noisy[frame], source.estimate[frame] + change
            )
    assert coarse != is_white


@pytest.mark.parametrize(
    "rows, frames, real", [((1,) * 10, range(10), 1), ((0, 1) * 5, range(0, 10, 2), 0)]
)
def test_the_spectrum_of_deinterlaced_planes_is_that_of_real_rows(
    refined, monkeypatch, rows, frames, real
):
    measured = []

    def spectrum(noisy: torch.Tensor, *rest: Any) -> torch.Tensor:
        measured.append(noisy)
        return torch.ones(restorer.patch**2)

    monkeypatch.setattr(denoise, "relative_spectrum", spectrum)
    planes, restorer = clip(10, 80, 44), restorer_by()
    restorer.restore(planes, (9.0,) * 3, measured=True, real_rows=rows)
    for noisy, plane in zip(measured, planes, strict=True):
        torch.testing.assert_close(noisy, plane[list(frames), real::2])
    restorer.restore(
        planes, (9.0,) * 3, measured=True, real_rows=(0, 1, 0, 1) + (None,) * 6
    )
    assert len(measured) == 3  # too few frames of one field


@pytest.mark.parametrize("follow", [False, True])
def test_patches_follow_the_motion_in_planes_of_other_proportions_if_matching_is_on(
    follow,
):
    world = 255 * torch.rand(140, 200, generator=torch.Generator().manual_seed(0))
    clip = torch.stack(
        [world[4 * t : 4 * t + 128, 8 * t : 8 * t + 160] for t in range(3)]
    )
    positions = ClipPositions(clip, 16, follow=follow)
    # 4:2:2: full height, half the width
    origins = positions.origins(torch.Size((3, 128, 80)), 16)
    rows, columns = origins // 80 % 128, origins % 80
    inside = (rows[:, 0] >= 8) & (columns[:, 0] >= 8)
    moved = torch.stack([rows[:, 2] - rows[:, 0], columns[:, 2] - columns[:, 0]], 1)[
        inside
    ]
    expected = torch.tensor([-8, -8] if follow else [0, 0])
    assert (moved == expected).all(1).float().mean() > 0.8


def test_patches_in_planes_of_two_sizes_are_found_by_two_workers(monkeypatch):
    together = threading.Barrier(2)

    def meet(luma: torch.Tensor, grid: Grid) -> torch.Tensor:
        together.wait(30)
        return fixed_positions(len(luma), grid, luma.device)

    monkeypatch.setattr(denoise, "matched_positions", meet)
    planes = torch.rand(3, 32, 64), torch.rand(3, 16, 32), torch.rand(3, 16, 32)

    def restored(_: None) -> tuple[torch.Tensor, ...]:
        return restorer_by().restore(planes, (9.0,) * 3)

    (outcome,) = at_once(restored, [None], 1, 2)
    assert [plane.shape for plane in outcome] == [plane.shape for plane in planes]


@pytest.mark.parametrize("grids", [2, 4])
def test_further_grids_are_the_first_one_moved_by_half_a_stride_and_its_border(grids):
    positions = ClipPositions(torch.zeros(1, 32, 40), 16, follow=False)
    first = positions.origins(torch.Size((1, 32, 40)), 16)[:, 0].tolist()
    both = positions.origins(torch.Size((1, 32, 40)), 16, grids)[:, 0].tolist()
    border = [at for at in first if at // 40 == 0 or at % 40 == 0]
    count = len(first) + len(border)
    assert len(both) == grids * count
    moved = [(min(at // 40 + 8, 16)) * 40 + min(at % 40 + 8, 24) for at in first]
    for grid, part in enumerate((first, moved)):
        assert both[grid * count :][: len(first)] == part
        assert sorted(both[grid * count :][len(first) : count]) == border


def test_parts_of_a_picture_count_while_it_is_denoised(weights, monkeypatch):
    seen = []

    def noted(noisy, estimate, *how):
        seen.append(HERE.meter.frames)
        return nonlocal_bayes.nonlocal_bayes(noisy, estimate, *how)

    monkeypatch.setattr(denoise, "nonlocal_bayes", noted)
    monkeypatch.setattr(HERE, "meter", Meter(), raising=False)
    begin_task(1)
    restorer_by(weights(transparent())).restore(clip(1, 64, 64), (9.0, 5.0, 5.0))
    luma, chroma = seen[:2], seen[2:]
    assert luma == pytest.approx([2 / 3 * (1 + 4 * number) / 9 for number in range(2)])
    assert chroma[0] == pytest.approx(2 / 3 + 1 / 6 / 9)
    assert chroma == sorted(chroma) and chroma[-1] < HERE.meter.frames < 1
