"""Several devices of one machine: a process for each, the file of one, and nobody's death is the end of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from long_films import film as long_film
from sample_videos import write_video
from typer.testing import CliRunner

from vidrestore.cli.app import app
from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Event, Finished, Progressed, Warned
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.segments import Segment
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.scale.processes import Processes, devices_of
from vidrestore.scale.team import News
from vidrestore.scale.team_batch import TeamBatch
from vidrestore.scale.worker import Film, WorkerError

IDENTITY = "<identity>"
OPTIONS = RestoreOptions(encoder=EncoderOptions(lossless=True), segment_frames=20, threads=2)
FRAMES = 300


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    times = list(np.cumsum(np.random.default_rng(0).integers(30, 60, FRAMES)) - 30)
    return long_film(tmp_path_factory.mktemp("film") / "film.mkv", times=[int(time) for time in times], text="subrip")


@pytest.fixture(scope="module")
def whole(film: Path) -> bytes:
    output = film.with_name("whole.mkv")
    Batch([str(film)], str(output), IDENTITY, OPTIONS).restore(str(film))
    return output.read_bytes()


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    started = Processes(["cpu", "cpu"], IDENTITY, OPTIONS)
    yield started
    started.stop()


def restore(film: Path, output: Path, workers: Any, told: list[Event] | None = None) -> Any:
    batch = TeamBatch([str(film)], str(output), IDENTITY, OPTIONS, workers)
    return batch.restore(str(film), (lambda event: None) if told is None else told.append)


def test_several_processes_make_the_file_of_one(film: Path, whole: bytes, two: Processes, tmp_path: Path) -> None:
    told: list[Event] = []
    summary = restore(film, tmp_path / "out.mkv", two, told)
    assert (summary.frames, summary.reused) == (FRAMES, 0) and (tmp_path / "out.mkv").read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]
    assert isinstance(told[-1], Finished) and not any(isinstance(event, Warned) for event in told)


@pytest.mark.parametrize("options", [{"restart": True}, {"overwrite": True}], ids=str)
def test_work_that_is_begun_anew_is_not_begun_anew_by_each_process(
    film: Path, whole: bytes, tmp_path: Path, options: dict[str, bool]
) -> None:
    chosen = replace(OPTIONS, **options)  # type: ignore[arg-type]
    workers = Processes(["cpu", "cpu"], IDENTITY, chosen)
    with closing(TeamBatch([str(film)], str(tmp_path / "out.mkv"), IDENTITY, chosen, workers)) as batch:
        batch.restore(str(film))
    assert (tmp_path / "out.mkv").read_bytes() == whole


def test_processes_live_from_film_to_film(film: Path, two: Processes, tmp_path: Path) -> None:
    restore(film, tmp_path / "a.mkv", two)
    before = [each.process.pid for each in two._processes.values()]
    restore(film, tmp_path / "b.mkv", two)
    assert before == [each.process.pid for each in two._processes.values()] and len(set(before)) == 2


class Mortal(Processes):
    """Two processes; the first `deaths` runs that are given kill theirs."""

    def __init__(self, deaths: int) -> None:
        super().__init__(["cpu", "cpu"], IDENTITY, OPTIONS)
        self.deaths = deaths

    def give(self, worker: int, film: Film, run: list[Segment]) -> None:
        super().give(worker, film, run)
        if self.deaths:
            self.deaths -= 1
            pid = self._processes[worker].process.pid
            assert pid
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_what_a_killed_process_was_at_is_done_by_another(film: Path, whole: bytes, tmp_path: Path) -> None:
    told: list[Event] = []
    with closing(TeamBatch([str(film)], str(tmp_path / "out.mkv"), IDENTITY, OPTIONS, Mortal(2))) as batch:
        batch.restore(str(film), told.append)
    assert (tmp_path / "out.mkv").read_bytes() == whole
    deaths = [event.message for event in told if isinstance(event, Warned)]
    assert len(deaths) == 2 and "on cpu, killed by signal 9); another does what it was at" in deaths[0]


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_what_kills_every_process_is_given_up(film: Path, tmp_path: Path) -> None:
    died = r"frame \d+ and on: 3 workers died there, the last one \(process \d+ on cpu, killed by"
    with (
        closing(TeamBatch([str(film)], str(tmp_path / "out.mkv"), IDENTITY, OPTIONS, Mortal(99))) as batch,
        pytest.raises(WorkerError, match=died),
    ):
        batch.restore(str(film))
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_a_worker_is_that_of_the_film(film: Path, tmp_path: Path) -> None:
    class Refusing(Fakes):
        def news(self, seconds: float) -> list[News]:
            return [News(worker, "failed", error=MediaError("disk full")) for worker in self.given]

    workers = Refusing()
    with pytest.raises(MediaError, match="disk full"):
        restore(film, tmp_path / "out.mkv", workers)
    assert workers.stopped and list(tmp_path.iterdir()) == []


class Fakes:
    """Workers that only remember what they were given."""

    count = 2

    def __init__(self) -> None:
        self.given: dict[int, list[Segment]] = {}
        self.stopped = False

    def give(self, worker: int, film: Film, run: list[Segment]) -> None:
        self.given[worker] = run

    def stop(self) -> None:
        self.stopped = True


def test_progress_counts_the_frames_of_all_and_none_of_the_dead(film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vidrestore.scale.team_progress.PROGRESS_SECONDS", 0.0)

    class Counting(Fakes):
        turn = 0

        def news(self, seconds: float) -> list[News]:
            self.turn += 1
            if self.turn == 1:
                return [News(0, "frames", frames=10), News(1, "frames", frames=5), News(0, "died", reason="(of old age)")]
            return [News(1, "failed", error=MediaError("enough"))]

    told: list[Event] = []
    with pytest.raises(MediaError, match="enough"):
        restore(film, tmp_path / "out.mkv", Counting(), told)
    steps = [event for event in told if isinstance(event, Progressed) and event.stage == "restore"]
    assert [step.done for step in steps] == [10, 15, 5] and steps[0].total == FRAMES


@pytest.mark.parametrize(
    "text, devices",
    [
        ("cuda:0,1", ["cuda:0", "cuda:1"]),
        ("cuda:0,cuda:2", ["cuda:0", "cuda:2"]),
        ("cpu,cpu", ["cpu", "cpu"]),
        ("cuda:3, 1 ,cpu", ["cuda:3", "cuda:1", "cpu"]),
    ],
)
def test_devices_are_read_as_they_are_written(text: str, devices: list[str]) -> None:
    assert devices_of(text) == devices


@pytest.mark.parametrize("text", ["0,1", "cuda:0,", "cpu,1", ","])
def test_what_names_no_devices_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="devices must be like cuda:0,1"):
        devices_of(text)


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_video(tmp_path / "film.mkv", 5)
    found = CliRunner().invoke(app, ["denoise", str(tmp_path / "film.mkv"), "--device", "cpu,cuda:99"])
    assert found.exit_code == 2 and "device 'cuda:99' is not there" in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["film.mkv"]


@pytest.mark.slow
def test_the_command_restores_on_several_devices(tmp_path: Path) -> None:
    write_video(tmp_path / "film.mkv", 60)
    for name, device in (("one.mkv", "cpu"), ("two.mkv", "cpu,cpu")):
        arguments = ["denoise", str(tmp_path / "film.mkv"), "-o", str(tmp_path / name), "--sigma", "10", "--fast", "--segment-frames", "20"]
        found = CliRunner().invoke(app, [*arguments, "--lossless", "--device", device])
        assert found.exit_code == 0, found.stderr
    assert (tmp_path / "one.mkv").read_bytes() == (tmp_path / "two.mkv").read_bytes()


@pytest.mark.parametrize("more", [("--shard", "1/2"), ("--engine", "ray")])
def test_one_way_to_share_the_work_is_enough(tmp_path: Path, more: tuple[str, ...]) -> None:
    found = CliRunner().invoke(app, ["denoise", "film.mkv", "--device", "cpu,cpu", *more])
    assert found.exit_code == 2 and "choose one" in found.stderr
