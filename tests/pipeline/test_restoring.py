"""Frames on their way from a planned clip to their own samples: what is held in floats, and for how long."""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from no_change import IdentityRestorer
from numpy.typing import NDArray

from vidrestore.errors import VidRestoreError
from vidrestore.media.reading.coding_loss import WITHIN
from vidrestore.pipeline.clip_restorer import ClipRestorer, EdgedClip
from vidrestore.pipeline.conversions import Samples, within_steps
from vidrestore.pipeline.plan import Clip, PlannedClip
from vidrestore.pixels.clips import Bounds, Planes, clip_bounds
from vidrestore.pixels.frames import Frame, PixelFormat, VideoInfo
from vidrestore.settings.options import RestoreOptions

GRAY, RGB = PixelFormat("gray", "gray", 8), PixelFormat("gbrp", "rgb", 8)
LENGTH = IdentityRestorer.facts.clip


class Working(IdentityRestorer):
    """Does `work` on the planes and sigma of each clip."""

    def __init__(self, work: Callable[[Planes, tuple[float, ...]], Planes]) -> None:
        super().__init__(RestoreOptions())
        self.work = work

    def restore(self, clip: Planes, sigma: tuple[float, ...], **more: Any) -> Planes:
        return self.work(clip, sigma)


def clips_by(
    work: Callable[[Planes, tuple[float, ...]], Planes],
    pixels: PixelFormat = GRAY,
    **options: Any,
) -> ClipRestorer:
    video = VideoInfo(0, "rawvideo", 6, 4, pixels, Fraction(1, 25))
    return ClipRestorer(
        "denoise", Working(work), video, RestoreOptions(threads=1, **options)
    )


class Shifting:
    """Adds to each clip its number, counted from 1; keeps weak references to the memory of what it gave."""

    def __init__(self) -> None:
        self.given: list[weakref.ref[NDArray[np.float32]]] = []

    def __call__(self, clip: Planes, sigma: tuple[float, ...]) -> Planes:
        restored = clip[0].numpy() + np.float32(len(self.given) + 1)
        self.given.append(weakref.ref(restored))
        return (torch.from_numpy(restored),)


def video(count: int) -> list[Frame]:
    return [
        Frame((np.full((4, 6), index % 200, np.uint8),), pts=index)
        for index in range(count)
    ]


def planned(frames: list[Frame], bounds: list[Bounds]) -> Iterator[PlannedClip]:
    return ((Clip(first, stop, (0.0,)), frames[first:stop]) for first, stop in bounds)


@pytest.mark.parametrize(
    "count, cuts, added",
    [
        (20, [], [1] * 20),
        (38, [], [1] * 18 + [1, 2] + [2] * 18),  # 1 1/3 and 1 2/3, rounded
        (39, [20], [1] * 20 + [2] * 19),
        (39, [], [1] * 18 + [1, 2] + [2] * 19),  # the last clip takes the rest in
    ],
)
def test_frames_are_faded_only_where_two_clips_have_them(count, cuts, added):
    frames = clips_by(Shifting()).frames(
        planned(video(count), clip_bounds(count, cuts, LENGTH, 2))
    )
    assert [int(frame.planes[0][0, 0]) - frame.pts for frame in frames] == added


def test_only_frames_that_two_clips_share_stay_in_floats():
    clip = EdgedClip(Clip(18, 38, (0.0,)), video(20), before=20, after=36)
    (own, first), (shared, second) = clips_by(Shifting()).restore(clip)
    assert (own, shared) == ((18, 36), (36, 38))
    assert [item.planes is None for item in [*first, *second]] == [False] * 2 + [
        True
    ] * 16 + [False] * 2
    assert all(item.frame.planes[0].dtype == np.uint8 for item in first)


def test_the_floats_of_a_clip_are_gone_when_its_frames_come_out():
    shifting, bounds = Shifting(), clip_bounds(200, [], LENGTH, 2)
    for frame in clips_by(shifting).frames(planned(video(200), bounds)):
        at = next(index for index, (_, stop) in enumerate(bounds) if frame.pts < stop)
        assert all(floats() is None for floats in shifting.given[: at + 1])


def test_clips_are_restored_no_further_ahead_than_the_workers_need():
    asked = list[int]()

    def source() -> Iterator[PlannedClip]:
        for number, clip in enumerate(
            planned(video(400), clip_bounds(400, [], LENGTH, 2))
        ):
            asked.append(number)
            yield clip

    frames = clips_by(Shifting()).frames(source())
    next(frames)
    # given, being restored, and the one whose edge decides what that one shares
    assert len(asked) == 1 + 1 + 1
    frames.close()


def test_too_little_memory_of_a_gpu_is_an_error_with_advice():
    def full(clip: Planes, sigma: tuple[float, ...]) -> Planes:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(
        VidRestoreError,
        match="frames 0 to 19: identity ran out of memory on the GPU; use `device=cpu`",
    ):
        list(clips_by(full).frames(planned(video(20), [(0, 20)])))


def test_chroma_has_a_strength_of_its_own_and_grain_is_added_to_luma():
    layout = PixelFormat("yuv420p", "yuv", 8, 1, 1)
    frames = [
        Frame(
            (np.full((4, 6), 50, np.uint8), *[np.full((2, 3), 50, np.uint8)] * 2), pts=0
        )
    ] * 4

    def means(**options: float) -> list[float]:
        clips = clips_by(
            lambda clip, sigma: tuple(plane + 40 for plane in clip), layout, **options
        )
        return [
            float(plane.mean())
            for plane in next(clips.frames(planned(frames, [(0, 4)]))).planes
        ]

    assert means(strength=0.5) == [70, 70, 70]
    assert means(strength=0.5, chroma_strength=1) == [70, 90, 90]
    assert means(chroma_strength=0) == [90, 50, 50]
    grained = means(grain=5)
    assert grained[0] != 90 and grained[1:] == [90, 90]


@pytest.mark.parametrize("height, width", [(16, 24), (13, 9)])
def test_a_restored_block_stays_near_the_decoded_one_in_every_frequency(height, width):
    rng = np.random.default_rng(2)
    decoded, restored = (
        torch.from_numpy(rng.uniform(0, 255, (2, height, width))).float()
        for _ in range(2)
    )
    steps = [rng.uniform(2, 90, (8, 8)).astype(np.float32) for _ in range(2)]
    near = within_steps(decoded, restored, steps)
    cosines = np.cos(np.pi / 8 * np.outer(np.arange(8), np.arange(8) + 0.5)) / 2
    cosines[0] /= 2**0.5
    for before, after, wanted, step in zip(decoded, near, restored, steps, strict=True):
        for top, left in [(0, 0)] + [(8, 16)] * (height == 16):
            block = (slice(top, top + 8), slice(left, left + 8))
            change, aim = (
                cosines @ (plane - before)[block].numpy() @ cosines.T
                for plane in (after, wanted)
            )
            np.testing.assert_allclose(
                change, np.clip(aim, -WITHIN * step, WITHIN * step), atol=1e-3
            )


@pytest.mark.parametrize(
    "rms, loss, change",
    [((0.0,), (30.0,), 0.3 * 16 / 8), ((2.0,), (30.0,), 40), ((), (), 40)],
)
def test_frames_of_motion_jpeg_stay_within_their_steps_where_only_its_loss_is_removed(
    rms, loss, change
):
    frames = [
        Frame(
            (np.full((8, 8), 50, np.uint8),),
            pts,
            steps=(np.full((8, 8), 16, np.float32),),
        )
        for pts in range(4)
    ]
    clips = clips_by(lambda clip, sigma: (clip[0] + 40,))
    planned_clips = iter([(Clip(0, 4, (30.0,), rms, loss), frames)])
    for frame in clips.frames(planned_clips):
        assert (frame.planes[0] == round(50 + change)).all() and frame.steps == ()


def deinterlaced(count: int, parities: tuple[int | None, ...]) -> list[Frame]:
    rng = np.random.default_rng(6)
    return [
        Frame(
            (rng.integers(0, 256, (40, 48), np.uint8),),
            index,
            real_rows=parities[index % len(parities)],
        )
        for index in range(count)
    ]


@pytest.mark.parametrize(
    "parity, sigma, woven",
    [
        (0, 5.0, {"best", "default"}),  # denoising takes longer
        (1, 0.0, {"best"}),
        (None, 5.0, set()),  # no row was interpolated
    ],
)
def test_fields_are_woven_for_the_best_quality_and_by_default_where_noise_is_removed(
    parity, sigma, woven
):
    frames = deinterlaced(5, (parity,))
    changed = set()
    for quality in ("fast", "default", "best"):
        clips = clips_by(lambda clip, sigma: clip, quality=quality)
        restored = list(clips.frames(iter([(Clip(0, 5, (sigma,)), frames)])))
        for one, other in zip(frames, restored, strict=True):
            if (one.planes[0] != other.planes[0]).any():
                changed.add(quality)
                np.testing.assert_array_equal(
                    one.planes[0][parity::2], other.planes[0][parity::2]
                )
    assert changed == woven


def test_second_fields_are_woven_in_as_frames_of_their_own_are():
    fields = deinterlaced(8, (1, 0))
    pairs = zip(fields[::2], fields[1::2], strict=True)
    frames = [replace(first, second=second.planes) for first, second in pairs]
    (double,), (single,) = (
        Samples(each, GRAY, None).woven((5.0,)) for each in (fields, frames)
    )
    torch.testing.assert_close(single, double[::2], rtol=0, atol=0)


@pytest.mark.parametrize("sigma", [(20.0, 10.0, 0.0), (0.0, 0.0, 0.0)])
def test_red_green_and_blue_are_denoised_as_luma_and_colour_differences_if_they_have_noise(
    sigma,
):
    rng = np.random.default_rng(8)
    frames = [
        Frame(
            tuple(rng.integers(0, 256, (6, 8), np.uint8) for _ in range(3)), pts=index
        )
        for index in range(5)
    ]
    given: list[tuple[Planes, tuple[float, ...]]] = []
    clips = clips_by(lambda clip, sigma: given.append((clip, sigma)) or clip, RGB)
    found = list(clips.frames(iter([(Clip(0, 5, sigma), frames)])))
    ((planes, levels),) = given
    red, green, blue = (
        np.stack([frame.planes[index] for frame in frames]) / 1.0 for index in range(3)
    )
    expected = (red, green, blue)
    if any(sigma):
        expected = (
            (red + green + blue) / 3,
            127.5 + (red - blue) / 2,
            127.5 + (red - 2 * green + blue) / 4,
        )
        assert levels == pytest.approx((20 / 3**0.5, 10 / 2**0.5, 0))
    for plane, wanted in zip(planes, expected, strict=True):
        np.testing.assert_allclose(plane, wanted, atol=1e-4)
    for one, other in zip(found, frames, strict=True):
        assert all(
            np.array_equal(*pair) for pair in zip(one.planes, other.planes, strict=True)
        )
