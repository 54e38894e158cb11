"""Films through an ensemble: every frame is the mean of planes and pictures, whichever clip they are of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vidrestore.clips import Bounds, clip_bounds, crossfade_weights, needed_clips, owned_span, reflected
from vidrestore.errors import VidRestoreError
from vidrestore.frames import Frame, PixelFormat
from vidrestore.media.probe import VideoInfo
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.ensemble_clips import EnsembleClipRestorer
from vidrestore.pipeline.plan import Clip, PlannedClip
from vidrestore.pipeline.plane_clips import PLAIN, Finish, PlaneClipRestorer
from vidrestore.restorers.base import Facts
from vidrestore.restorers.ensemble import Ensemble
from vidrestore.restorers.no_change import IdentityRestorer

DEEP = PixelFormat("yuv444p16le", "yuv", 16)
DARKER = np.array([219 * 0.1, 0, 0])[:, None, None]  # what a tenth less in R', G', B' is in Y, U, V
LENGTH, OVERLAP = 8, 2
SHARE = 0.4
NOISY = (20.0, 20.0, 20.0)


class Planes(IdentityRestorer):
    """Adds to a clip a tenth of the mean of its first frame: other clips, other sums."""

    facts = replace(IdentityRestorer.facts, clip=LENGTH, overlap=OVERLAP, parallel=1)

    def __init__(self) -> None:
        super().__init__(RestoreOptions())

    def restore(
        self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
    ) -> tuple[Tensor, ...]:
        return tuple(
            plane + 0.1 * plane[0].mean() if level else plane
            for plane, level in zip(clip, sigma, strict=True)
        )


class Pictures:
    """Gives the mean of a frame and its neighbours, less a tenth; counts the frames that it is given."""

    sees, team = "rgb", 1
    facts = Facts("pictures", "checksum", clip=3, overlap=2, radius=1)

    def __init__(self, broken: tuple[str | None, ...] = ()) -> None:
        self.given: list[int] = []
        self.broken = broken  # precisions that give NaN

    def frames(self, clip: Tensor, keep: Bounds, *, precision: str | None = None) -> Iterator[Tensor]:
        self.given.append(len(clip))
        for at in range(*keep):
            near = [clip[reflected(index, len(clip))] for index in (at - 1, at, at + 1)]
            yield torch.stack(near).mean(0) - 0.1 + (torch.nan if precision in self.broken else 0)

    def memory(self, height: int, width: int) -> int:
        return 1

    def clip_length(self, height: int, width: int) -> int:
        return 3

    def tile_size(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def sample(self) -> None:
        return None

    def halve_batch(self) -> bool:
        return False


def film(count: int) -> list[Frame]:
    rng = np.random.default_rng(5)
    return [
        Frame(tuple((256 * rng.uniform(90, 150, (4, 6))).astype(np.uint16) for _ in range(3)), pts=index)
        for index in range(count)
    ]


def restorer_of(pictures: Any = None, finish: Finish = PLAIN) -> EnsembleClipRestorer:
    video = VideoInfo(0, "rawvideo", 6, 4, DEEP, Fraction(1, 25), pix_fmt=DEEP.name)
    return EnsembleClipRestorer(Ensemble(Planes(), pictures or Pictures(), SHARE), video, finish)


def planned(
    frames: list[Frame], bounds: list[Bounds], sigma: tuple[float, ...] = NOISY
) -> Iterator[PlannedClip]:
    return ((Clip(first, stop, sigma), frames[first:stop]) for first, stop in bounds)


def samples(frames: Iterator[Frame]) -> np.ndarray:
    """(T, 3, H, W) on the 0-255 scale."""
    return np.stack([np.stack(frame.planes) for frame in frames]) / 256


def by_planes(given: np.ndarray, bounds: list[Bounds]) -> np.ndarray:
    """What `Planes` makes of a film, cross-faded."""
    done, until = np.zeros_like(given), 0
    for first, stop in bounds:
        own = given[first:stop] + 0.1 * given[first].mean((1, 2), keepdims=True)
        shared = max(0, until - first)
        weights = np.array([*crossfade_weights(shared), *[1.0] * (stop - first - shared)])[
            :, None, None, None
        ]
        done[first:stop] = (1 - weights) * done[first:stop] + weights * own
        until = stop
    return done


def by_pictures(given: np.ndarray, scenes: list[Bounds]) -> np.ndarray:
    done = []
    for first, stop in scenes:
        scene = given[first:stop]
        for at in range(len(scene)):
            near = [scene[reflected(index, len(scene))] for index in (at - 1, at, at + 1)]
            done.append(np.mean(near, 0) - DARKER)
    return np.stack(done)


@pytest.mark.parametrize("count, cuts", [(1, []), (5, []), (30, []), (30, [13]), (9, [1, 8])])
def test_every_frame_is_the_mean_of_both_estimates(count: int, cuts: list[int]) -> None:
    frames, bounds = film(count), clip_bounds(count, cuts, LENGTH, OVERLAP)
    given = samples(iter(frames))
    edges = [0, *cuts, count]
    scenes = list(pairwise(edges))
    expected = (1 - SHARE) * by_planes(given, bounds) + SHARE * by_pictures(given, scenes)
    found = samples(restorer_of().frames(planned(frames, bounds)))
    np.testing.assert_allclose(found, expected, atol=3e-3)  # rounded to 1/256


def test_a_range_of_clips_gives_the_frames_of_the_whole_film() -> None:
    frames, bounds = film(40), clip_bounds(40, [], LENGTH, OVERLAP)
    whole = samples(restorer_of().frames(planned(frames, bounds)))
    part = range(2, 4)
    span = owned_span(bounds, part[0])[0], owned_span(bounds, part[-1])[1]
    needed = [bounds[clip] for clip in needed_clips(bounds, part)]
    found = samples(restorer_of().frames(planned(frames, needed), span))
    np.testing.assert_array_equal(found, whole[slice(*span)])


def test_a_plane_without_noise_stays_to_the_bit_and_a_film_without_costs_no_picture() -> None:
    frames, bounds = film(20), clip_bounds(20, [], LENGTH, OVERLAP)
    given, pictures = samples(iter(frames)), Pictures()
    found = samples(restorer_of(pictures).frames(planned(frames, bounds, (20.0, 0.0, 20.0))))
    np.testing.assert_array_equal(found[:, 1], given[:, 1])
    assert (np.abs(found - given)[:, [0, 2]] > 0.1).mean() > 0.9
    pictures.given.clear()
    found = samples(restorer_of(pictures).frames(planned(frames, bounds, (0.0,) * 3)))
    np.testing.assert_array_equal(found, given)
    assert not pictures.given


def test_strength_holds_for_both_and_grain_is_added_once() -> None:
    frames, bounds = film(20), clip_bounds(20, [], LENGTH, OVERLAP)
    given, whole = samples(iter(frames)), samples(restorer_of().frames(planned(frames, bounds)))
    half = samples(restorer_of(finish=Finish(0.5)).frames(planned(frames, bounds)))
    np.testing.assert_allclose(half, (given + whole) / 2, atol=6e-3)

    class Grey(Pictures):
        def frames(self, clip: Tensor, keep: Bounds, *, precision: str | None = None) -> Iterator[Tensor]:
            return (0 * clip[at] + 0.5 for at in range(*keep))

    class GreyPlanes(Planes):
        def restore(
            self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
        ) -> tuple[Tensor, ...]:
            return tuple(0 * plane + level for plane, level in zip(clip, (125.5, 128, 128), strict=True))

    video = VideoInfo(0, "rawvideo", 6, 4, DEEP, Fraction(1, 25), pix_fmt=DEEP.name)
    both = EnsembleClipRestorer(Ensemble(GreyPlanes(), Grey(), SHARE), video, Finish(grain=5.0))  # type: ignore[arg-type]
    grained = samples(both.frames(planned(frames, bounds)))
    alone = samples(PlaneClipRestorer(GreyPlanes(), DEEP, Finish(grain=5.0)).frames(planned(frames, bounds)))
    np.testing.assert_allclose(grained, alone, atol=5e-3)
    assert grained[:, 0].std() > 2


def test_few_pictures_are_held_at_once() -> None:
    pictures, bounds = Pictures(), clip_bounds(30, [], LENGTH, OVERLAP)
    list(restorer_of(pictures).frames(planned(film(30), bounds)))
    assert len(pictures.given) == 30 and max(pictures.given) == 3


def test_pictures_that_half_precision_cannot_hold_are_restored_again_in_fp32() -> None:
    frames, bounds = film(12), clip_bounds(12, [], LENGTH, OVERLAP)
    expected = samples(restorer_of().frames(planned(frames, bounds)))
    restorer = restorer_of(Pictures((None,)))
    np.testing.assert_array_equal(samples(restorer.frames(planned(frames, bounds))), expected)
    assert restorer.retried == len(bounds)
    with pytest.raises(VidRestoreError, match="frames 0 to 7: pictures produced NaN or infinity"):
        list(restorer_of(Pictures((None, "fp32"))).frames(planned(frames, bounds)))


def test_red_green_and_blue_are_mixed_and_alpha_passes_through() -> None:
    layout, rng = PixelFormat("gbrap", "rgb", 8, alpha=True), np.random.default_rng(2)
    frames = [
        Frame(tuple(rng.integers(60, 180, (4, 6), np.uint8) for _ in range(4)), pts=index)
        for index in range(9)
    ]
    video = VideoInfo(0, "rawvideo", 6, 4, layout, Fraction(1, 25), pix_fmt=layout.name)

    class Same(Planes):
        def restore(
            self, clip: tuple[Tensor, ...], sigma: tuple[float, ...], *, precision: str | None = None
        ) -> tuple[Tensor, ...]:
            return clip

    restorer = EnsembleClipRestorer(Ensemble(Same(), Pictures(), SHARE), video)  # type: ignore[arg-type]
    bounds = clip_bounds(9, [], LENGTH, OVERLAP)
    found = np.stack([np.stack(frame.planes) for frame in restorer.frames(planned(frames, bounds))]) / 1.0
    given = np.stack([np.stack(frame.planes) for frame in frames]) / 1.0
    assert np.array_equal(found[:, 3], given[:, 3])
    near = [given[[reflected(at + by, 9) for at in range(9)], :3] for by in (-1, 0, 1)]
    expected = (1 - SHARE) * given[:, :3] + SHARE * (np.mean(near, 0) - 25.5)
    np.testing.assert_allclose(found[:, :3], expected, atol=0.51)
