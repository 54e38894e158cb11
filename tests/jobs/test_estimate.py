"""What is restored on trial, how time and size of the whole video follow from that, and the preset."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from denoise_command import identity  # noqa: F401  (a fixture of all tests here)
from fake_restorer import Fake
from no_change import IdentityRestorer
from sample_videos import write_video
from torch import Tensor

from vidrestore.clips import Bounds
from vidrestore.events import ignore_event
from vidrestore.jobs import estimate
from vidrestore.jobs.estimate import Encoding, Trial
from vidrestore.jobs.request import Request, Step
from vidrestore.media.source import Source, Target
from vidrestore.options import RestoreOptions
from vidrestore.restorers.base import Facts

FRAMES = 20


class Seeing(IdentityRestorer):
    """Changes nothing, and notes how many frames its clips have."""

    facts = Facts("seeing", clip=12, overlap=4, radius=2)
    team = 1

    def __init__(self, sees: Any) -> None:
        self.sees, self.seen = sees, list[int]()

    def memory(self, height: int, width: int) -> int:
        return 1

    def restore(self, clip: Any, sigma: Any, *, measured: bool = False, precision: Any = None) -> Any:
        self.seen.append(len(clip[0]))
        return clip

    def frames(
        self, clip: Tensor, keep: Bounds, *, precision: str | None = None, **_: Any
    ) -> Iterator[Tensor]:
        self.seen.append(len(clip))
        yield from clip[slice(*keep)]


def estimated(folder: Path, restorer: Any, **options: Any) -> estimate.Estimate:
    source = folder / "in.mkv"
    write_video(source, FRAMES, "libx264", size=(32, 32))
    request = Request(
        Source(str(source)), Target(str(folder / "out.mkv")), (Step("denoise", RestoreOptions(**options)),)
    )
    found = estimate.estimate(request, lambda step: restorer, ignore_event)
    assert isinstance(found, estimate.Estimate)
    return found


@pytest.mark.parametrize(
    "sees, threads, enough, seen",
    [
        ("planes", 1, 0, [12]),
        ("rgb", 1, 0, [6]),
        ("rgb", 2, 0, [6, 6]),
        ("rgb", 64, 0, [6, 6]),  # no more than there are cores
        ("rgb", 1, 1e9, [6, 6, 6, 8]),  # then four times as many, which is the whole video
    ],
)
def test_a_trial_restores_as_many_clips_as_are_restored_at_once_or_more_in_no_time(
    tmp_path, monkeypatch, sees, threads, enough, seen
):
    monkeypatch.setattr(estimate, "ENOUGH", enough)
    monkeypatch.setattr("vidrestore.working.available_cores", lambda: 2)
    restorer = Seeing(sees)
    found = estimated(tmp_path, restorer, threads=threads)
    assert sorted(restorer.seen) == seen and found.seconds > 0
    assert [path.name for path in tmp_path.iterdir()] == ["in.mkv"]


@pytest.mark.parametrize("is_cached, computed", [(False, 6 + 6 + 6 + 8), (True, FRAMES)])
def test_frames_that_clips_share_take_time_twice_unless_they_are_cached(
    tmp_path, monkeypatch, is_cached, computed
):
    monkeypatch.setattr(estimate, "LENGTH", 8)
    monkeypatch.setattr(estimate, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(estimate, "try_restoring", lambda job: Trial([], (0.5,)))
    monkeypatch.setattr(estimate, "try_encoding", lambda *given: Encoding(rate=4.0, key=100, other=10))
    restorer = Fake()
    monkeypatch.setattr(restorer, "facts", replace(Fake.facts, cached=is_cached))
    found = estimated(tmp_path, restorer, sigma=3.0)
    assert found.seconds == computed * 0.5 + FRAMES / 4
    assert found.size == 2 * 100 + (FRAMES - 2) * 10  # two segments, of 10 frames each
