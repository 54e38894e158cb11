"""Several devices of one machine: a process for each, one file, and no death of a process ends the run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import no_change
import numpy as np
import pytest
from long_videos import long_video
from sample_videos import write_video
from typer.testing import CliRunner

from vidrestore.cli.app import app
from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Event, Finished, Progressed, Warned
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.job import Request
from vidrestore.jobs.resume import WorkFolder
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.scale.shards import Shard
from vidrestore.scale.workers import ByWorkers, Outcome, Processes, Worker, WorkerError, devices_of

IDENTITY = "<identity>"
OPTIONS = RestoreOptions(encoder=EncoderOptions(lossless=True), threads=2)
FRAMES = 300


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    times = list(np.cumsum(np.random.default_rng(0).integers(30, 60, FRAMES)) - 30)
    return long_video(
        tmp_path_factory.mktemp("film") / "film.mkv", times=[int(time) for time in times], text="subrip"
    )


@pytest.fixture(scope="module")
def whole(film: Path) -> bytes:
    output = film.with_name("whole.mkv")
    Batch([str(film)], str(output), IDENTITY, OPTIONS).restore(str(film))
    return output.read_bytes()


@pytest.fixture(scope="module", autouse=True)
def identity_in_processes() -> Iterator[None]:
    """Processes know the task that changes nothing, too; segments have 20 frames."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vidrestore.scale.workers.serve", no_change.serve)
        patch.setattr("vidrestore.jobs.segmented.LENGTH", 20)
        yield


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    started = Processes(["cpu", "cpu"])
    yield started
    started.stop()


def restore(film: Path, output: Path, workers: Any, told: list[Event] | None = None, **options: Any) -> Any:
    batch = Batch([str(film)], str(output), IDENTITY, replace(OPTIONS, **options), way=ByWorkers(workers))
    return batch.restore(str(film), (lambda event: None) if told is None else told.append)


def test_several_processes_make_the_file_of_one(
    film: Path, whole: bytes, two: Processes, tmp_path: Path
) -> None:
    told: list[Event] = []
    summary = restore(film, tmp_path / "out.mkv", two, told)
    assert (summary.frames, summary.reused) == (FRAMES, 0) and (tmp_path / "out.mkv").read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]
    assert isinstance(told[-1], Finished) and not any(isinstance(event, Warned) for event in told)


@pytest.mark.parametrize("options", [{"restart": True}, {"overwrite": True}], ids=str)
def test_work_that_begins_again_does_so_once_and_not_in_each_process(
    film: Path, whole: bytes, two: Processes, tmp_path: Path, options: dict[str, bool]
) -> None:
    (tmp_path / "out.mkv").write_bytes(b"old") if "overwrite" in options else None
    assert restore(film, tmp_path / "out.mkv", two, **options).frames == FRAMES
    assert (tmp_path / "out.mkv").read_bytes() == whole


def test_processes_and_their_models_stay_from_video_to_video(
    film: Path, two: Processes, tmp_path: Path
) -> None:
    restore(film, tmp_path / "a.mkv", two)
    before = [process.pid for process, _ in two.running.values()]
    restore(film, tmp_path / "b.mkv", two)
    assert before == [process.pid for process, _ in two.running.values()] and len(set(before)) == 2


class Mortal(Processes):
    """Two processes; the first `deaths` that are given work are killed."""

    def __init__(self, deaths: int) -> None:
        super().__init__(["cpu", "cpu"])
        self.deaths = deaths

    def give(self, worker: int, request: Request) -> None:
        super().give(worker, request)
        if self.deaths:
            self.deaths -= 1
            pid = self.running[worker][0].pid
            assert pid
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_process_that_is_killed_is_replaced(film: Path, whole: bytes, tmp_path: Path) -> None:
    told: list[Event] = []
    with closing(
        Batch([str(film)], str(tmp_path / "out.mkv"), IDENTITY, OPTIONS, way=ByWorkers(Mortal(2)))
    ) as batch:
        batch.restore(str(film), told.append)
    assert (tmp_path / "out.mkv").read_bytes() == whole
    deaths = [event.message for event in told if isinstance(event, Warned)]
    assert len(deaths) == 2 and "on cpu, killed by signal 9); another does what it was at" in deaths[0]


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_what_kills_every_process_is_given_up(film: Path, tmp_path: Path) -> None:
    died = r"frame \d+ and on: 3 workers died there, the last one \(process \d+ on cpu, killed by"
    with (
        closing(
            Batch([str(film)], str(tmp_path / "out.mkv"), IDENTITY, OPTIONS, way=ByWorkers(Mortal(99)))
        ) as batch,
        pytest.raises(WorkerError, match=died),
    ):
        batch.restore(str(film))
    assert list(tmp_path.iterdir()) == []


class Threads:
    """Workers in this process: each does its work when it is its turn, and ends as `outcomes` say, or as it
    does.
    """

    count = 2

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes, self.given, self.stopped = list(outcomes), list[Any](), False

    def give(self, worker: int, request: Request) -> None:
        work = self.outcomes.pop(0) if self.outcomes else Worker(Shard(worker + 1, 2)).restore
        self.given.append((worker, request, work))

    def ended(self, seconds: float) -> Iterator[tuple[int, Outcome]]:
        if self.given:
            worker, request, work = self.given.pop(0)
            yield worker, work(request)

    def stop(self) -> None:
        self.stopped = True


def test_an_error_of_a_worker_is_that_of_the_video(film: Path, tmp_path: Path) -> None:
    workers = Threads(lambda request: MediaError("disk full"))
    with pytest.raises(MediaError, match="disk full"):
        restore(film, tmp_path / "out.mkv", workers)
    assert workers.stopped


def dies(request: Request) -> str:
    """As the first worker that is killed at segment 7, on a machine whose locks are not seen here."""
    claim = WorkFolder.of(request).path / "000007.0.claim"
    claim.write_text(json.dumps({"host": "elsewhere", "pid": 1, "boot": "other", "owner": "1", "count": 5}))
    return "(of old age)"


def test_what_a_dead_worker_elsewhere_has_claimed_is_free_at_once(
    film: Path, whole: bytes, tmp_path: Path
) -> None:
    told: list[Event] = []
    restore(film, tmp_path / "out.mkv", Threads(dies), told)
    assert (tmp_path / "out.mkv").read_bytes() == whole
    assert [event.message for event in told if isinstance(event, Warned)] == [
        "a worker died (of old age); another does what it was at"
    ]


def test_the_segment_at_which_workers_die_is_named(film: Path, tmp_path: Path) -> None:
    named = r"frame [1-9]\d+ and on: 3 workers died there, the last one \(of old age\)"
    with pytest.raises(WorkerError, match=named):
        restore(film, tmp_path / "out.mkv", Threads(dies, finds_nothing, dies, dies))


def finds_nothing(request: Request) -> int:
    """As a worker that restores nothing."""
    return 0


def test_a_worker_whose_machine_is_gone_is_not_waited_for(
    film: Path, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replacement never begins, as on a cluster that has no place for it."""

    class Lost(Threads):
        def give(self, worker: int, request: Request) -> None:
            if worker or self.outcomes:
                super().give(worker, request)

    monkeypatch.setattr("vidrestore.scale.workers.GRACE", 0.0)
    workers = Lost(dies)
    restore(film, tmp_path / "out.mkv", workers)
    assert (tmp_path / "out.mkv").read_bytes() == whole and workers.stopped


def test_progress_counts_finished_segments_and_the_frames_of_unfinished_ones(
    film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vidrestore.jobs.frame_progress.PROGRESS_SECONDS", 0.0)
    claims = ({"owner": "1", "count": 5}, {"owner": "2", "count": 7})

    def at_work(request: Request) -> int:
        for number, claim in enumerate(claims):
            (WorkFolder.of(request).path / f"00000{number}.0.claim").write_text(json.dumps(claim))
        return 0

    told: list[Event] = []
    with pytest.raises(MediaError, match="enough"):
        restore(film, tmp_path / "out.mkv", Threads(at_work, lambda request: MediaError("enough")), told)
    steps = [event for event in told if isinstance(event, Progressed) and event.stage == "restore"]
    assert [(step.done, step.total) for step in steps] == [(0, FRAMES), (12, FRAMES)]


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
        arguments = [
            "denoise",
            str(tmp_path / "film.mkv"),
            "-o",
            str(tmp_path / name),
            "--sigma",
            "10",
            "--fast",
        ]
        found = CliRunner().invoke(app, [*arguments, "--lossless", "--device", device])
        assert found.exit_code == 0, found.stderr
    assert (tmp_path / "one.mkv").read_bytes() == (tmp_path / "two.mkv").read_bytes()


@pytest.mark.parametrize("more", [("--shard", "1/2"), ("--engine", "ray")])
def test_one_way_to_share_the_work_is_enough(tmp_path: Path, more: tuple[str, ...]) -> None:
    found = CliRunner().invoke(app, ["denoise", "film.mkv", "--device", "cpu,cpu", *more])
    assert found.exit_code == 2 and "choose one" in found.stderr
