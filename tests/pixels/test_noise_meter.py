"""Noise that is not white is measured too, and what is no noise isn't."""

import numpy as np
import pytest
import torch
from held_out_noise import blurred
from numpy.typing import NDArray

from vidrestore.media.writing.recompress import recompress
from vidrestore.noise.features import WITHIN_ROW, motion_of, plane_features
from vidrestore.noise.meter import PHOTO_NOISE, NoiseMeter, PlaneNoise, noise_in_words
from vidrestore.pixels.colour import OPPONENT_NORMS, rgb_to_opponent

Picture = NDArray[np.float32]


def scene(count: int = 4, height: int = 128, width: int = 160) -> list[Picture]:
    """Smooth shapes that move a little."""
    rows, columns = np.mgrid[:height, :width].astype(float)
    return [
        (
            110 + 50 * np.sin((rows + 2 * t) / 17) * np.cos((columns - 3 * t) / 23)
        ).astype(np.float32)
        for t in range(count)
    ]


def with_noise(frames: list[Picture], sigma: float, blur: float = 0.0) -> list[Picture]:
    rng = np.random.default_rng(0)
    noise = [
        blurred(rng.normal(size=frame.shape), blur, blur)
        if blur
        else rng.normal(size=frame.shape)
        for frame in frames
    ]
    noisy = (frame + sigma * part for frame, part in zip(frames, noise, strict=True))
    return [np.clip(np.rint(frame), 0, 255).astype(np.float32) for frame in noisy]


def measured(frames: list[Picture], **noise: float) -> tuple[float, float]:
    gauge = NoiseMeter(1, colour=False)
    gauge.add(
        [(frame,) for frame in (with_noise(frames, **noise) if noise else frames)]
    )
    (result,) = gauge.noise()
    return result.sigma, result.rms


@pytest.mark.parametrize("sigma", [3.0, 10.0, 30.0])
def test_white_noise_is_measured_as_it_is(sigma):
    assert measured(scene(), sigma=sigma) == pytest.approx((sigma, sigma), rel=0.1)


@pytest.mark.parametrize("sigma", [5.0, 12.0])
def test_coarse_noise_counts_for_more_than_its_strength(sigma):
    result, rms = measured(scene(), sigma=sigma, blur=1.0)
    assert result > 1.25 * sigma
    assert rms == pytest.approx(sigma, rel=0.35)


def test_a_smooth_picture_has_no_noise():
    assert measured([np.rint(frame) for frame in scene()])[0] == 0


@pytest.mark.parametrize("rows, columns", [(24, 0), (0, 40), (20, 30)])
def test_black_bars_do_not_hide_the_noise_between_them(rows, columns):
    """With limited range, noise in the shadows is darker than the bars, so that these aren't clipped."""
    frames = []
    for picture in with_noise(
        [frame - 40 for frame in scene(height=128, width=160)], 9.0
    ):
        luma = np.pad(picture, ((rows, rows), (columns, columns)), constant_values=16)
        luma[: rows // 2, ::2] += 1  # a codec's
        luma[2:8, 20:50] = luma[-8:-2, 60:120] = 200  # a logo and a subtitle
        difference = np.pad(
            picture[::2, ::2],
            ((rows // 2,) * 2, (columns // 2,) * 2),
            constant_values=128,
        )
        frames.append((luma, difference))
    gauge = NoiseMeter(2, colour=True)
    gauge.add(frames)
    assert [plane.rms for plane in gauge.noise()] == pytest.approx([9, 9], rel=0.15)


@pytest.mark.parametrize("brightness", [90, 180])
def test_even_bars_do_not_hide_the_noise_between_them(brightness):
    """A title's, and the mat around a scanned photograph."""
    frames = []
    for picture in with_noise(scene(height=96, width=160), 9.0):
        luma = np.pad(picture, ((12, 0), (0, 16)), constant_values=brightness)
        luma[4, 3:9] += 1  # a codec's
        frames.append((luma,))
    gauge = NoiseMeter(1, colour=False)
    gauge.add(frames)
    assert gauge.noise()[0].rms == pytest.approx(9, rel=0.15)
    assert gauge.noise_of_photograph(frames[0][0])[0].sigma == pytest.approx(
        9, rel=0.15
    )


@pytest.mark.parametrize("lit", [0, 1])
def test_a_black_picture_has_no_noise(lit):
    luma, difference = (
        np.full((96, 128), 16, np.float32),
        np.full((48, 64), 128, np.float32),
    )
    luma[41 : 41 + lit] = 200
    gauge = NoiseMeter(2, colour=True)
    gauge.add([(luma, difference)])
    assert [plane.sigma for plane in gauge.noise()] == [0, 0]


def test_there_is_a_figure_for_single_frames_and_for_repeated_ones():
    (frame,) = with_noise(scene(1), 10.0)
    for frames in ([frame], [frame] * 4):
        assert measured(frames)[0] == pytest.approx(10, rel=0.3)


def test_noise_of_a_finished_photo_counts_for_more_than_its_strength():
    """Smoothed and then sharpened, as cameras do: neighbours are alike, and one frame is all there is."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:320, :320].astype(float)
    picture = 110 + 50 * np.sin(rows / 31) * np.cos(columns / 43)
    noise = blurred(rng.normal(size=picture.shape), 1.0, 1.0)
    noise = noise + 0.5 * (noise - blurred(noise, 1.5, 1.5) * 0.8)
    frame = np.clip(np.rint(picture + 3.0 * noise / noise.std()), 0, 255).astype(
        np.float32
    )
    result, rms = measured([frame])
    assert result > 1.5 * 3.0
    assert rms == pytest.approx(3.0, rel=0.35)


def test_every_plane_has_noise_of_its_own():
    luma = [np.rint(frame) for frame in scene()]
    chroma = with_noise([frame[::2, ::2] for frame in scene()], 12.0)
    gauge = NoiseMeter(3, colour=True)
    gauge.add([(y, c, c.copy()) for y, c in zip(luma, chroma, strict=True)])
    none, blue, red = gauge.noise()
    assert none.sigma == 0
    assert blue.sigma == red.sigma == pytest.approx(12, rel=0.25)


def test_luma_of_a_black_and_white_picture_is_measured_alike_with_and_without_its_empty_colour():
    frames = with_noise(scene(), 3.0, blur=0.8)
    empty = [np.full((64, 80), 128, np.float32) for _ in range(2)]
    grey, coloured, tinted = (
        NoiseMeter(1, colour=False),
        NoiseMeter(3, colour=True),
        NoiseMeter(3, colour=True),
    )
    grey.add([(frame,) for frame in frames])
    coloured.add([(frame, *empty) for frame in frames])
    tinted.add(
        [
            (frame, *(plane + np.arange(80, dtype=np.float32) / 8 for plane in empty))
            for frame in frames
        ]
    )
    assert coloured.noise()[0] == grey.noise()[0] != tinted.noise()[0]


@pytest.mark.parametrize("shape", [(1, 1), (5, 40), (12, 12), (33, 17)])
def test_the_smallest_planes_give_a_number(shape):
    gauge = NoiseMeter(2, colour=True)
    rng = np.random.default_rng(0)
    gauge.add(
        [
            tuple(rng.normal(100, 5, shape).astype(np.float32) for _ in range(2))
            for _ in range(4)
        ]
    )
    assert all(0 <= plane.sigma < 255 for plane in gauge.noise())


def test_blocks_are_found_where_they_went():
    picture = np.random.default_rng(0).uniform(0, 255, (160, 200)).astype(np.float32)
    corners, motion = motion_of(picture, np.roll(picture, (5, -9), (0, 1)), most=50)
    assert len(corners) > 20
    assert np.median(motion, axis=0).tolist() == [5, -9]


@pytest.mark.parametrize(
    "sigma, rms, words",
    [
        ((12.0, 14.2, 13.0), (9.6, 14.1, 12.0), "luma 9.6; chroma 14.1"),
        ((15.0, 0.0, 0.0), (9.6, 0.0, 0.0), "luma 9.6, coarse; chroma none"),
        ((3.0,), (), "3.0"),
    ],
)
def test_noise_is_put_into_words(sigma, rms, words):
    assert noise_in_words(sigma, rms) == words


def behind_x264(frames: list[Picture], crf: float) -> list[Picture]:
    grey = np.full([side // 2 for side in frames[0].shape], 128, np.uint8)
    coded = recompress([(frame.astype(np.uint8), grey, grey) for frame in frames], crf)
    return [luma.astype(np.float32) for luma, *_ in coded]


@pytest.mark.parametrize("sigma, crf", [(6.0, 20), (8.0, 23)])
def test_weak_noise_is_found_behind_a_codec_and_not_in_the_same_picture_without_it(
    sigma, crf
):
    clean = scene(20, 208, 320)
    for frames, least, most in (
        (with_noise(clean, sigma), 0.5 * sigma, sigma),
        (clean, 0.0, 0.0),
    ):
        gauge, coded = NoiseMeter(1, colour=False), behind_x264(frames, crf)
        for first in (0, 8, 16):
            gauge.add([(frame,) for frame in coded[first : first + 4]])
        (result,) = gauge.noise()
        assert least <= result.sigma <= most


STROKES = [(row, slice(None)) for row in (0, 3, 6)] + [
    (rows, column) for rows in (slice(0, 4), slice(3, 7)) for column in (0, 4)
]


def test_small_scrolling_text_is_not_taken_for_noise():
    rng, letters = np.random.default_rng(0), np.zeros((26, 7, 5), bool)
    for letter in letters:
        for stroke in rng.permutation(len(STROKES))[: rng.integers(2, 6)]:
            letter[STROKES[stroke]] = True
    letters[:3] = False  # spaces
    letters = np.pad(letters, ((0, 0), (0, 5), (0, 2)))
    lines = [
        np.concatenate(letters[rng.integers(26, size=60)], axis=1) for _ in range(30)
    ]
    page = np.where(np.concatenate(lines), 20, 240).astype(np.float32)
    gauge = NoiseMeter(1, colour=False)
    for first in (0, 8, 16):
        gauge.add([(page[at : at + 208, :320],) for at in range(first, first + 4)])
    assert gauge.noise()[0].sigma == 0


def test_texture_favours_a_few_frequencies_and_noise_none():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 5, (1, 96, 128)).astype(np.float32)
    rows, columns = np.mgrid[:8, :8]
    waves = [
        np.cos(np.pi * (2 * rows + 1) * rng.integers(1, 8) / 16)
        * np.cos(np.pi * (2 * columns + 1) * rng.integers(1, 8) / 16)
        for _ in range(12 * 16)
    ]
    texture = (
        np.block([waves[16 * row : 16 * row + 16] for row in range(12)])[None].astype(
            np.float32
        )
        * 20
    )
    quiet, busy = (
        plane_features([tuple(planes)])[0][WITHIN_ROW, -2:]
        for planes in (noise, texture)
    )
    assert (busy > quiet + 0.15).all()


def photograph(sigma: float, blur: float = 0.0) -> Picture:
    (frame,) = with_noise(scene(1, 256, 320), sigma, blur)
    return frame


def noise_of_photograph(*planes: Picture) -> list[PlaneNoise]:
    gauge = NoiseMeter(len(planes), colour=len(planes) > 1)
    gauge.add([planes])
    return list(gauge.noise_of_photograph(planes[0]))


def test_faint_white_noise_of_a_photograph_counts_as_it_is_and_faint_coarse_noise_as_more():
    white, coarse = (
        noise_of_photograph(photograph(2.5, blur))[0] for blur in (0.0, 0.7)
    )
    assert white.sigma == pytest.approx(2.5, rel=0.15)
    assert coarse.sigma >= PHOTO_NOISE.coarse > 1.5 * coarse.rms


def test_colour_beside_noise_of_luma_is_denoised_and_a_clean_photographs_stays():
    colour = np.rint(scene(1, 128, 160)[0])
    noisy, clean = (
        noise_of_photograph(luma, colour, colour)
        for luma in (photograph(5.0), np.rint(scene(1, 256, 320)[0]))
    )
    assert [plane.sigma for plane in noisy[1:]] == [PHOTO_NOISE.coarse] * 2
    assert [plane.sigma for plane in clean] == [0, 0, 0]


def test_the_weave_of_cloth_counts_as_noise_no_more_than_where_it_is_flattest():
    """Threads three pixels apart look like white noise at the highest frequencies alone."""
    rng = np.random.default_rng(0)
    down, across = (
        np.cumsum(2 * np.pi / 3 * rng.normal(1, 0.15, side)) for side in (256, 320)
    )
    weave = 16 * np.sin(down)[:, None] * np.cos(across)
    cloth = np.clip(np.rint(scene(1, 256, 320)[0] + weave), 0, 255).astype(np.float32)
    gauge = NoiseMeter(1, colour=False)
    gauge.add([(cloth,)])
    (as_noise,), (found,) = gauge.noise(), gauge.noise_of_photograph(cloth)
    assert found.sigma < 0.75 * as_noise.sigma


@pytest.mark.parametrize("sigma", [12.0, 25.0])
def test_strong_white_noise_of_a_photograph_is_no_texture(sigma):
    assert noise_of_photograph(photograph(sigma))[0].sigma == pytest.approx(
        sigma, rel=0.12
    )


def test_faint_grain_that_counts_as_more_in_a_photograph_does_not_in_a_drawing():
    drawing = np.kron(
        np.random.default_rng(3).integers(60, 180, (32, 40)), np.ones((8, 8))
    )
    grainy = drawing + 2.0 * blurred(
        np.random.default_rng(0).normal(size=drawing.shape), 0.9, 0.9
    )
    grainy[:128] = drawing[:128]
    gauge = NoiseMeter(1, colour=False)
    gauge.add([(np.rint(grainy).astype(np.float32),)])
    (found,) = gauge.noise_of_photograph(np.rint(grainy).astype(np.float32))
    assert found.sigma == gauge.noise()[0].sigma < PHOTO_NOISE.coarse


def test_a_drawing_and_a_smooth_ramp_have_no_noise():
    drawing = np.kron(
        np.random.default_rng(3).integers(60, 180, (32, 40)), np.ones((8, 8))
    )
    ramp = np.rint(np.add.outer(np.linspace(20, 120, 256), np.linspace(0, 100, 320)))
    for picture in (drawing, ramp):
        (found,) = noise_of_photograph(picture.astype(np.float32))
        assert found.sigma == 0


def test_noise_of_planes_is_divided_by_their_norms():
    frames = [(frame,) for frame in with_noise(scene(), 10.0)]
    whole, divided = (
        NoiseMeter(1, colour=False),
        NoiseMeter(1, colour=False, norms=(0.5,)),
    )
    for gauge in (whole, divided):
        gauge.add(frames)
    assert divided.noise()[0].sigma == 2 * whole.noise()[0].sigma > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_pattern_of_black_and_white_is_no_noise_but_noise_that_clips_is(seed):
    rng = np.random.default_rng(seed)
    pattern = 255 * np.kron(rng.integers(0, 2, (64, 80)), np.ones((2, 2)))
    noisy = (128 + rng.normal(0, 80, (128, 160))).clip(0, 255)
    rms = []
    for picture in (pattern, noisy):
        gauge = NoiseMeter(1, colour=False)
        gauge.add([(picture.astype(np.float32),)] * 3)
        rms.append(gauge.noise()[0].rms)
    assert rms[0] == 0.0
    assert 60 < rms[1] < 110


def hued(sigma: float, *, is_grey: bool, hue: float = 60.0) -> list[torch.Tensor]:
    """R, G, B (128, 160) of a soft picture whose hue changes across, in noise that is alike or independent in
    them.
    """
    rng = np.random.default_rng(4)
    rows, columns = np.mgrid[:128, :160] / 160
    planes = [110 + 60 * rows + hue * weight * columns for weight in (-1, 0, 1)]
    noise = rng.normal(0, sigma, (3, 128, 160))
    noise[1:] = noise[0] if is_grey else noise[1:]
    return [
        torch.from_numpy(plane + part)
        for plane, part in zip(planes, noise, strict=True)
    ]


def photograph_noise(planes: list[torch.Tensor]) -> float:
    opponents = [plane.float().numpy() for plane in rgb_to_opponent(planes)]
    meter = NoiseMeter(3, colour=True, norms=OPPONENT_NORMS)
    meter.add([tuple(opponents)])
    return meter.noise_of_photograph(opponents[0])[0].sigma


def test_what_is_alike_in_all_colours_of_a_photograph_counts_once_and_a_camera_s_noise_in_each():
    """In luma, the mean of three, independent noise is weaker by the root of three; both are 9 there."""
    assert photograph_noise(hued(9 * 3**0.5, is_grey=False)) == pytest.approx(
        15.6, rel=0.1
    )
    assert photograph_noise(hued(9, is_grey=True)) == pytest.approx(9, rel=0.1)


def test_grain_of_a_toned_or_grey_photograph_counts_as_a_camera_s():
    for tone in (0.0, 0.1):
        grey = hued(9, is_grey=True, hue=0)[0]
        planes = [grey * (1 + tone * weight) for weight in (-1, 0, 1)]
        assert photograph_noise(planes) == pytest.approx(15.6, rel=0.1)


@pytest.mark.parametrize("height", [1, 2])
def test_lines_of_black_and_white_are_no_coarse_noise(height):
    lines = 255.0 * (np.arange(128) // height % 2)
    picture = np.repeat(lines[:, None], 160, 1).astype(np.float32)
    gauge = NoiseMeter(1, colour=False)
    gauge.add([(picture,)] * 3)
    assert gauge.noise()[0].sigma == 0.0


def weave(spacing: float, shape: tuple[int, int] = (256, 320)) -> Picture:
    """A weave of unit variance, of threads of uneven width."""
    rng = np.random.default_rng(2)
    down, across = (
        np.cumsum(2 * np.pi / spacing * rng.normal(1, 0.15, side)) for side in shape
    )
    return np.asarray(2 * np.sin(down)[:, None] * np.cos(across), np.float32)


def black_and_white(part: Picture) -> float:
    """Return the sigma that a soft grey photograph with something else in it is denoised with."""
    rows, columns = np.mgrid[: part.shape[0], : part.shape[1]] / 320
    luma = np.rint(90 + 60 * rows + 30 * columns + part).astype(np.float32)
    return noise_of_photograph(luma)[0].sigma


@pytest.mark.parametrize("spacing", [3.0, 3.5, 4.5])
def test_woven_paper_of_a_black_and_white_photograph_is_hardly_denoised(spacing):
    assert black_and_white(9 * weave(spacing)) < 1


@pytest.mark.parametrize("spacing", [9.0, 10.0])
def test_thick_threads_count_for_less_than_they_are(spacing):
    assert black_and_white(9 * weave(spacing)) < 7


def test_noise_on_woven_paper_counts_though_the_weave_does_not():
    noise = np.random.default_rng(3).normal(0, 12, (256, 320)).astype(np.float32)
    assert black_and_white(3 * weave(4.0) + noise) > 9


@pytest.mark.parametrize(
    "blurs", [(0.0, 0.0), (0.9, 0.9), (0.0, 1.5)], ids=["white", "coarse", "smeared"]
)
def test_grain_of_a_black_and_white_photograph_is_denoised_in_full(blurs):
    noise = np.random.default_rng(3).normal(size=(256, 320))
    grain = blurred(noise, *blurs) if any(blurs) else noise
    assert black_and_white((9 * grain / grain.std()).astype(np.float32)) > 8


def test_sharpened_noise_of_a_black_and_white_photograph_is_denoised_in_full():
    noise = np.random.default_rng(3).normal(size=(256, 320))
    soft = blurred(noise, 0.7, 0.7)
    sharpened = noise + 2 * (noise - 0.4 * soft)
    assert black_and_white((9 * sharpened / sharpened.std()).astype(np.float32)) > 8
