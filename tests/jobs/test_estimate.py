"""What is restored on trial, how time and size of the whole video follow from that, and the preset."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import pytest
from denoise_command import identity  # noqa: F401  (a fixture of all tests here)
from denoise_command import run as command
from fake_restorer import Fake
from no_change import IdentityRestorer
from sample_videos import write_video
from torch import Tensor

from vidrestore.clips import Bounds
from vidrestore.errors import OptionError
from vidrestore.jobs import estimate, segmented, trial
from vidrestore.jobs.job import Request, ignore
from vidrestore.jobs.trial import Encoding, Trial
from vidrestore.media.encoder_table import ENCODERS, EncoderChoice
from vidrestore.media.source import Source, Target
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.restorers.base import Facts
from vidrestore.sensing.recover import recover

FRAMES = 20


class Seeing(IdentityRestorer):
    """Changes nothing, and notes how many frames its clips have."""

    facts = Facts("seeing", clip=12, overlap=4, radius=2)
    team = 1

    def __init__(self, sees: Any) -> None:
        self.sees, self.seen = sees, list[int]()

    def memory(self, height: int, width: int) -> int:
        return 1

    def restore(
        self,
        clip: tuple[Tensor, ...],
        sigma: tuple[float, ...],
        *,
        measured: bool = False,
        precision: str | None = None,
    ) -> tuple[Tensor, ...]:
        self.seen.append(len(clip[0]))
        return clip

    def frames(self, clip: Tensor, keep: Bounds, *, precision: str | None = None) -> Iterator[Tensor]:
        self.seen.append(len(clip))
        yield from clip[slice(*keep)]


def estimated(folder: Path, restorer: Any, **options: Any) -> estimate.Estimate:
    source = folder / "in.mkv"
    write_video(source, FRAMES, "libx264", size=(32, 32))
    request = Request(
        Source(str(source)), Target(str(folder / "out.mkv")), "denoise", RestoreOptions(**options)
    )
    found = estimate.estimate(request, lambda step: restorer, ignore)
    assert isinstance(found, estimate.Estimate)
    return found


@pytest.mark.parametrize(
    "sees, threads, enough, seen",
    [
        ("planes", 1, 0, [12]),
        ("rgb", 1, 0, [6]),
        ("rgb", 2, 0, [6, 6]),
        ("rgb", 1, 1e9, [6, 6, 6, 8]),  # then four times as many, which is the whole video
    ],
)
def test_a_trial_restores_as_many_clips_as_are_restored_at_once_or_more_in_no_time(
    tmp_path, monkeypatch, sees, threads, enough, seen
):
    monkeypatch.setattr(trial, "ENOUGH", enough)
    restorer = Seeing(sees)
    found = estimated(tmp_path, restorer, threads=threads)
    assert sorted(restorer.seen) == seen and found.seconds > 0
    assert [path.name for path in tmp_path.iterdir()] == ["in.mkv"]


@pytest.mark.parametrize("is_cached, computed", [(False, 6 + 6 + 6 + 8), (True, FRAMES)])
def test_frames_that_clips_share_take_time_twice_unless_they_are_kept(
    tmp_path, monkeypatch, is_cached, computed
):
    monkeypatch.setattr(estimate, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(estimate, "try_restoring", lambda job: Trial([], (0.5,)))
    monkeypatch.setattr(estimate, "try_encoding", lambda *given: Encoding(rate=4.0, key=100, other=10))
    restorer = Fake()
    monkeypatch.setattr(restorer, "facts", replace(Fake.facts, cached=is_cached))
    found = estimated(tmp_path, restorer, segment_frames=8, sigma=3.0)
    assert found.seconds == computed * 0.5 + FRAMES / 4
    assert found.size == 2 * 100 + (FRAMES - 2) * 10  # two segments, of 10 frames each


@pytest.mark.parametrize(
    "wanted, preset, words",
    [
        (2.14, "medium", "it gives 14 frames a second here, the restorer 2.14"),
        (31, "veryfast", "medium gives 14 frames a second here, the restorer 31"),
        (99, "superfast", "medium gives 14 frames a second here, the restorer 99; none keeps up"),
    ],
)
def test_the_preset_is_the_first_that_keeps_up_and_said(wanted, preset, words):
    rates, tried = [14, 20, 25, 31, 60], dict[str, float]()

    def keeps_up(name: str) -> bool:
        tried[name] = rates[len(tried)]
        return tried[name] >= wanted

    assert trial.first_or_last(ENCODERS["libx264"].paces, keeps_up) == preset == [*tried][-1]
    assert trial.in_words(tried, wanted) == f"preset {preset} ({words})"


def test_presets_that_are_measured_begin_with_the_usual_one_and_are_the_encoders_own():
    for row in ENCODERS.values():
        assert bool(row.paces) == bool(row.presets) and {*row.paces} <= {*row.presets}
        assert row.lossy.get(str(row.preset)) in (None, *row.paces[:1]) and "ultrafast" not in row.paces


def rates_of(monkeypatch: pytest.MonkeyPatch, rates: dict[str, float]) -> list[str]:
    """Have the restorer give ten frames a second, and presets what `rates` says; return those tried."""
    tried, encode = list[str](), trial.try_encoding

    def measured(job: Any, frames: Any, choice: EncoderChoice) -> Encoding:
        tried.append(choice.settings["preset"])
        return replace(encode(job, frames, choice), rate=rates[choice.settings["preset"]])

    restored = trial.try_restoring
    monkeypatch.setattr(trial, "try_restoring", lambda job: replace(restored(job), costs=(0.1,)))
    monkeypatch.setattr(trial, "try_encoding", measured)
    return tried


def test_a_job_that_was_begun_keeps_its_measured_preset(tmp_path, monkeypatch, capsys):
    source = tmp_path / "in.mkv"
    write_video(source, FRAMES, "libx264", size=(32, 32))
    line = (source, "--preset", "auto", "--segment-frames", "6", "--sigma", "3", "--json")
    with monkeypatch.context() as patched:
        tried = rates_of(patched, {"medium": 4, "fast": 11})
        patched.setattr(segmented.SegmentedWork, "join", lambda work: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            command(*line)
        assert tried == ["medium", "fast"]
    tried = rates_of(monkeypatch, {"medium": 11})
    capsys.readouterr()
    assert command(*line) == 0 and tried == []
    plan = next(
        each for each in map(json.loads, capsys.readouterr().out.splitlines()) if each["event"] == "plan"
    )
    details = plan["details"]
    assert details["encoder_options"]["preset"] == "fast" and plan["reused"] == FRAMES
    assert (
        details["decisions"]["preset"] == "preset fast (medium gives 4 frames a second here, the restorer 10)"
    )
    with av.open(str(tmp_path / "in.denoised.mkv")) as video:
        assert sum(1 for _ in video.decode(video=0)) == FRAMES
    assert command(*line) == 0 and "fast" not in tried


@pytest.mark.parametrize(
    "line, message",
    [
        (("in.mkv", "--preset", "auto", "--encoder", "ffv1"), "ffv1 has no presets"),
        (
            ("-", "-o", "out.mkv", "--preset", "auto"),
            "--preset auto is measured on the first frames of a file",
        ),
    ],
)
def test_a_preset_is_not_measured_where_that_is_impossible(tmp_path, monkeypatch, capsys, line, message):
    monkeypatch.chdir(tmp_path)
    write_video(tmp_path / "in.mkv", 2)
    assert command(*line) == 2 and message in capsys.readouterr().err


def test_a_recovery_measures_no_preset():
    with pytest.raises(OptionError, match="`preset=auto` is for restorations; give a preset"):
        recover("in.sensed", "out.mkv", encoder=EncoderOptions(preset="auto"))
