"""What is restored on trial, how time and size of the whole video follow from that, and the preset."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from denoise_command import identity  # noqa: F401  (a fixture of all tests here)
from fake_restorer import Fake, request_of
from no_change import IdentityRestorer
from sample_pictures import write_rgb
from sample_videos import write_video
from torch import Tensor

from vidrestore.events import ignore_event
from vidrestore.jobs import estimate
from vidrestore.jobs.estimate import Encoding, Trial
from vidrestore.pixels.clips import Bounds
from vidrestore.pixels.frames import Frame, PixelFormat
from vidrestore.restorers.base import Facts

FRAMES = 20


class Seeing(IdentityRestorer):
    """Changes nothing, and notes how many frames its clips have."""

    facts = Facts("seeing", clip=12, overlap=4, radius=2)

    def __init__(self, input_kind: Any) -> None:
        self.input_kind, self.seen = input_kind, list[int]()

    def memory(self, height: int, width: int) -> int:
        return 1

    part_memory = memory

    def restore(self, clip: Any, sigma: Any, **more: Any) -> Any:
        self.seen.append(len(clip[0]))
        return clip

    def frames(
        self, clip: Tensor, keep: Bounds, *, precision: Any = None, **_: Any
    ) -> Iterator[Tensor]:
        self.seen.append(len(clip))
        yield from clip[slice(*keep)]


def estimated(folder: Path, restorer: Any, **options: Any) -> estimate.Estimate:
    source = folder / "in.mkv"
    write_video(source, FRAMES, "libx264", size=(32, 32))
    request = request_of(source, folder / "out.mkv", **options)
    return estimate.estimate(request, lambda step: restorer, ignore_event)


@pytest.mark.parametrize(
    "input_kind, threads, enough, seen",
    [
        ("planes", 1, 0, [12]),
        ("rgb", 1, 0, [6]),
        ("rgb", 2, 0, [6, 6]),
        ("rgb", 64, 0, [6, 6]),  # no more than there are cores
        # then four times as many, which is the whole video
        ("rgb", 1, 1e9, [6, 6, 6, 8]),
    ],
)
def test_a_trial_restores_as_many_clips_as_are_restored_at_once_or_more_in_no_time(
    tmp_path, monkeypatch, input_kind, threads, enough, seen
):
    monkeypatch.setattr(estimate, "ENOUGH", enough)
    monkeypatch.setattr("vidrestore.working.available_cores", lambda: 2)
    restorer = Seeing(input_kind)
    found = estimated(tmp_path, restorer, threads=threads)
    assert sorted(restorer.seen) == seen and found.seconds > 0
    assert [path.name for path in tmp_path.iterdir()] == ["in.mkv"]


@pytest.mark.parametrize(
    "is_cached, computed", [(False, 6 + 6 + 6 + 8), (True, FRAMES)]
)
def test_frames_that_clips_share_take_time_twice_unless_they_are_cached(
    tmp_path, monkeypatch, is_cached, computed
):
    monkeypatch.setattr(estimate, "LENGTH", 8)
    monkeypatch.setattr(estimate, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(estimate, "try_restoring", lambda job: Trial([], (0.5,)))
    monkeypatch.setattr(
        estimate, "try_encoding", lambda *given: Encoding(rate=4.0, key=100, other=10)
    )
    restorer = Fake()
    monkeypatch.setattr(restorer, "facts", replace(Fake.facts, cached=is_cached))
    found = estimated(tmp_path, restorer, sigma=3.0)
    assert found.seconds == computed * 0.5 + FRAMES / 4
    assert found.size == 2 * 100 + (FRAMES - 2) * 10  # two segments, of 10 frames each


def test_the_middle_of_a_large_picture_is_tried_with_time_and_size_of_the_whole(
    tmp_path, monkeypatch
):
    clock = iter(range(100))
    monkeypatch.setattr(
        estimate, "time", SimpleNamespace(monotonic=lambda: float(next(clock)))
    )
    source, sizes = tmp_path / "in.png", []
    write_rgb(
        source,
        np.random.default_rng(0).integers(256, size=(3, 1024, 2048), dtype=np.uint8),
    )

    class Sized(Seeing):
        def restore(self, clip: Any, *how: Any, **options: Any) -> Any:
            sizes.extend(plane.shape for plane in clip)
            return clip

    request = request_of(source, tmp_path / "out.png", sigma=9.0)
    outcome = estimate.estimate(request, lambda step: Sized("planes"), ignore_event)
    assert sizes == [(1, 512, 512)] * 3
    # planning takes a tick of the clock, and restoring and encoding an eighth of the picture as well
    assert outcome.seconds == 1 + 8 + 8
    assert 0.97 < outcome.size / source.stat().st_size < 1.03


@pytest.mark.parametrize(
    "scale, size, given",
    [
        (1, (1040, 1300), (1024, 1024)),
        (1, (100, 3000), (100, 1024)),
        (1, (700, 900), (700, 900)),
        (4, (700, 900), (256, 256)),
    ],
)
def test_a_restorer_of_rgb_makes_at_most_a_million_pixels_of_a_photograph(
    tmp_path, monkeypatch, scale, size, given
):
    """What the first run takes longer than the second is done once, however large the picture is."""
    passing = iter(range(100))
    monkeypatch.setattr(estimate, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(
        estimate, "try_encoding", lambda *trial: Encoding(rate=4.0, key=100, other=10)
    )
    source, clock, sizes = tmp_path / "in.png", [0.0], []
    write_rgb(
        source, np.random.default_rng(0).integers(256, size=(3, *size), dtype=np.uint8)
    )

    class Sized(Seeing):
        def frames(
            self, clip: Tensor, keep: Bounds, **options: Any
        ) -> Iterator[Tensor]:
            sizes.append(tuple(clip.shape))
            clock[0] += 2.0 if next(passing) else 7.0
            yield from (
                clip[slice(*keep)]
                .repeat_interleave(scale, 2)
                .repeat_interleave(scale, 3)
            )

    monkeypatch.setattr(Sized, "facts", replace(Seeing.facts, scale=scale))
    request = request_of(source, tmp_path / "out.png", "deblur" if scale == 1 else "sr")
    outcome = estimate.estimate(request, lambda step: Sized("rgb"), ignore_event)
    is_part = size != given
    assert sizes == [(1, 3, *given)] * (1 + is_part)
    assert outcome.seconds == pytest.approx(
        7 + 2 * (math.prod(size) / math.prod(given) - 1) + 1 / 4
    )


def test_the_middle_of_a_picture_is_the_same_in_all_planes():
    luma, chroma = (
        np.arange(1040 * 1201).reshape(1040, 1201),
        np.arange(520 * 601).reshape(520, 601),
    )
    frame, pixels = (
        Frame((luma, chroma, chroma), 0),
        PixelFormat("yuv420p", "yuv", 8, 1, 1),
    )
    middle = estimate._middle(frame, pixels, 512).planes
    assert [plane.shape for plane in middle] == [(512, 512), (256, 256), (256, 256)]
    assert (middle[0][0, 0], middle[1][0, 0]) == (luma[256, 336], chroma[128, 168])
