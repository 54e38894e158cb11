"""Frames on their way from a planned clip to their own samples: what is held in floats, and for how long."""

import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from no_change import IdentityRestorer
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.clips import Bounds, clip_bounds
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame, PixelFormat
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.clip_restorer import EdgedClip
from vidrestore.pipeline.plan import Clip, PlannedClip
from vidrestore.pipeline.plane_clips import Finish, PlaneClipRestorer

GRAY = PixelFormat("gray", "gray", 8)


class Shifting(IdentityRestorer):
    """Adds to each clip its number, counted from 1; keeps weak references to the memory of what it gave."""

    facts = replace(IdentityRestorer.facts, parallel=1)

    def __init__(self) -> None:
        super().__init__(RestoreOptions())
        self.given: list[weakref.ref[NDArray[np.float32]]] = []

    def restore(
        self,
        clip: tuple[Tensor, ...],
        sigma: tuple[float, ...],
        *,
        measured: bool = False,
        precision: str | None = None,
    ) -> tuple[Tensor, ...]:
        restored = clip[0].numpy() + np.float32(len(self.given) + 1)
        self.given.append(weakref.ref(restored))
        return (torch.from_numpy(restored),)


def video(count: int) -> list[Frame]:
    return [Frame((np.full((4, 6), index % 200, np.uint8),), pts=index) for index in range(count)]


def planned(frames: list[Frame], bounds: list[Bounds]) -> Iterator[PlannedClip]:
    return ((Clip(first, stop, (0.0,)), frames[first:stop]) for first, stop in bounds)


def values(frames: Iterator[Frame]) -> list[int]:
    return [int(frame.planes[0][0, 0]) - frame.pts for frame in frames]  # what was added


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
    bounds = clip_bounds(count, cuts, IdentityRestorer.facts.clip, 2)
    frames = PlaneClipRestorer(Shifting(), GRAY).frames(planned(video(count), bounds))
    assert values(frames) == added


def test_only_frames_that_two_clips_share_stay_in_floats():
    frames = video(20)
    clip = EdgedClip(Clip(18, 38, (0.0,)), frames, before=20, after=36)
    (own, first), (shared, second) = PlaneClipRestorer(Shifting(), GRAY).restore(clip)
    assert (own, shared) == ((18, 36), (36, 38))
    assert [item.planes is None for item in [*first, *second]] == [False] * 2 + [True] * 16 + [False] * 2
    assert all(item.frame.planes[0].dtype == np.uint8 for item in first)


def test_the_floats_of_a_clip_are_gone_when_its_frames_come_out():
    restorer = Shifting()
    bounds = clip_bounds(200, [], IdentityRestorer.facts.clip, 2)
    for frame in PlaneClipRestorer(restorer, GRAY).frames(planned(video(200), bounds)):
        at = next(index for index, (_, stop) in enumerate(bounds) if frame.pts < stop)
        assert all(floats() is None for floats in restorer.given[: at + 1])


def test_clips_are_restored_no_further_ahead_than_the_workers_need():
    asked = list[int]()

    def source() -> Iterator[PlannedClip]:
        bounds = clip_bounds(400, [], IdentityRestorer.facts.clip, 2)
        for number, clip in enumerate(planned(video(400), bounds)):
            asked.append(number)
            yield clip

    frames = PlaneClipRestorer(Shifting(), GRAY).frames(source())
    next(frames)
    assert (
        len(asked) == 1 + 1 + 1
    )  # given, being restored, and the one whose edge decides what that one shares
    frames.close()


def test_too_little_memory_of_a_gpu_is_an_error_with_advice():
    class Full(Shifting):
        def restore(
            self,
            clip: tuple[Tensor, ...],
            sigma: tuple[float, ...],
            *,
            measured: bool = False,
            precision: str | None = None,
        ) -> tuple[Tensor, ...]:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(
        VidRestoreError, match="frames 0 to 19: identity finds too little memory on the GPU; use `device=cpu`"
    ):
        list(PlaneClipRestorer(Full(), GRAY).frames(planned(video(20), clip_bounds(20, [], 20, 2))))


def test_chroma_has_a_strength_of_its_own_and_grain_is_added_to_luma():
    layout = PixelFormat("yuv420p", "yuv", 8, 1, 1)
    frames = [
        Frame((np.full((4, 6), 50, np.uint8), *[np.full((2, 3), 50, np.uint8)] * 2), pts=index)
        for index in range(4)
    ]

    class Adding(IdentityRestorer):
        def restore(
            self,
            clip: tuple[Tensor, ...],
            sigma: tuple[float, ...],
            *,
            measured: bool = False,
            precision: str | None = None,
        ) -> tuple[Tensor, ...]:
            return tuple(plane + 40 for plane in clip)

    def means(**options: float) -> list[float]:
        restored = PlaneClipRestorer(Adding(RestoreOptions()), layout, Finish(**options)).frames(
            planned(frames, [(0, 4)])
        )
        return [float(plane.mean()) for plane in next(restored).planes]

    assert means(strength=0.5) == [70, 70, 70]
    assert means(strength=0.5, chroma_strength=1) == [70, 90, 90]
    assert means(chroma_strength=0) == [90, 50, 50]
    grained = means(grain=5)
    assert grained[0] != 90 and grained[1:] == [90, 90]


class Recording(IdentityRestorer):
    """Keeps what it was given, and gives it back."""

    facts = replace(IdentityRestorer.facts, needs_sigma=True)

    def __init__(self) -> None:
        super().__init__(RestoreOptions())
        self.given: list[tuple[tuple[Tensor, ...], tuple[float, ...]]] = []

    def restore(
        self,
        clip: tuple[Tensor, ...],
        sigma: tuple[float, ...],
        *,
        measured: bool = False,
        precision: str | None = None,
    ) -> tuple[Tensor, ...]:
        self.given.append((clip, sigma))
        return clip


def coloured_video(count: int) -> list[Frame]:
    rng = np.random.default_rng(8)
    return [
        Frame(tuple(rng.integers(0, 256, (6, 8), np.uint8) for _ in range(3)), pts=index)
        for index in range(count)
    ]


RGB = PixelFormat("gbrp", "rgb", 8)


def test_red_green_and_blue_are_denoised_as_luma_and_colour_differences():
    frames, restorer = coloured_video(5), Recording()
    clips = iter([(Clip(0, 5, (20.0, 10.0, 0.0)), frames)])
    found = list(PlaneClipRestorer(restorer, RGB).frames(clips))
    ((planes, sigma),) = restorer.given
    red, green, blue = (np.stack([frame.planes[index] for frame in frames]) / 1.0 for index in range(3))
    np.testing.assert_allclose(planes[0], (red + green + blue) / 3, atol=1e-4)
    np.testing.assert_allclose(planes[1], 127.5 + (red - blue) / 2, atol=1e-4)
    np.testing.assert_allclose(planes[2], 127.5 + (red - 2 * green + blue) / 4, atol=1e-4)
    assert sigma == pytest.approx((20 / 3**0.5, 10 / 2**0.5, 0))
    for one, other in zip(found, frames, strict=True):
        assert all(np.array_equal(*pair) for pair in zip(one.planes, other.planes, strict=True))


def test_a_picture_without_noise_is_not_converted():
    frames, restorer = coloured_video(3), Recording()
    list(PlaneClipRestorer(restorer, RGB).frames(iter([(Clip(0, 3, (0.0,) * 3), frames)])))
    ((planes, _),) = restorer.given
    assert torch.equal(planes[0], torch.from_numpy(np.stack([frame.planes[0] for frame in frames])).float())
