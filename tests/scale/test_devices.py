"""Several devices of one machine: a process and a part for each, and one file."""

import errno
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import no_change
import pytest
from fresh_interpreter import interrupted
from sample_videos import write_video
from typer.testing import CliRunner

from vidrestore.cli.app import app
from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Event, Progressed, Summary, Warned, ignore_event
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Request, Step
from vidrestore.jobs.segmented import Segment
from vidrestore.scale.workers import (
    DeviceWorkers,
    Outcome,
    PartError,
    WorkerRunner,
    devices_of,
)
from vidrestore.settings.options import EncoderOptions, RestoreOptions

IDENTITY = "<identity>"
OPTIONS = RestoreOptions(encoder=EncoderOptions(lossless=True), threads=2)
FRAMES = 300


@pytest.fixture(scope="module", autouse=True)
def identity_in_processes() -> Iterator[None]:
    """Processes know the task that changes nothing, too; segments have 20 frames."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vidrestore.jobs.segmented.LENGTH", 20)
        patch.setattr("vidrestore.scale.workers.work_over", no_change.work_over)
        yield


@pytest.fixture(scope="module")
def two() -> Iterator[DeviceWorkers]:
    started = DeviceWorkers(["cpu", "cpu"])
    yield started
    started.stop()


def restore(
    film: Path,
    output: Path,
    workers: Any,
    told: list[Event] | None = None,
    **options: Any,
) -> Any:
    batch = Batch(
        [str(film)],
        str(output),
        [Step(IDENTITY, replace(OPTIONS, **options))],
        runner=WorkerRunner(workers),
    )
    return batch.restore(
        batch.request(str(film)), ignore_event if told is None else told.append
    )


def test_several_processes_make_the_file_of_one(
    film, whole, two, tmp_path, monkeypatch
):
    monkeypatch.setattr("vidrestore.jobs.frame_progress.PROGRESS_SECONDS", 0.0)
    for name in ("a.mkv", "b.mkv"):
        told: list[Event] = []
        summary = restore(film, tmp_path / name, two, told)
        before = [process.pid for process, _ in two.running.values()]
        assert (summary.frames, summary.reused) == (FRAMES, 0) and (
            tmp_path / name
        ).read_bytes() == whole
        assert isinstance(told[-1], Summary) and not any(
            isinstance(event, Warned) for event in told
        )
        steps = [
            event.done
            for event in told
            if isinstance(event, Progressed) and event.stage == "restore"
        ]
        assert steps[0] == 0 < steps[-1] == FRAMES and steps == sorted(steps)
    # which keep their models
    assert before == [process.pid for process, _ in two.running.values()]
    assert len({*before}) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mkv", "b.mkv"]


@pytest.mark.parametrize("options", [{"restart": True}, {"overwrite": True}], ids=str)
def test_a_restart_happens_once_and_not_in_each_process(
    film, whole, two, tmp_path, options
):
    (tmp_path / "out.mkv").write_bytes(b"old") if "overwrite" in options else None
    assert restore(film, tmp_path / "out.mkv", two, **options).frames == FRAMES
    assert (tmp_path / "out.mkv").read_bytes() == whole


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_process_that_is_killed_is_named_and_the_same_command_restores_its_part(
    film, whole, tmp_path
):
    class Deadly(DeviceWorkers):
        def start(self, *given: Any) -> None:
            super().start(*given)
            os.kill(self.running["2/2"][0].pid, signal.SIGKILL)

    message = "part 2/2: its process [0-9]+ died .exit code -9.; is there enough memory. The same"
    with pytest.raises(PartError, match=message):
        restore(film, tmp_path / "out.mkv", Deadly(["cpu", "cpu"]))
    workers = DeviceWorkers(["cpu", "cpu"])
    summary = restore(film, tmp_path / "out.mkv", workers)
    assert (tmp_path / "out.mkv").read_bytes() == whole and summary.frames == FRAMES


def test_a_process_that_cannot_be_started_is_an_error(film, tmp_path, monkeypatch):
    def refused(process: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", refused)
    with pytest.raises(BlockingIOError):
        restore(film, tmp_path / "out.mkv", DeviceWorkers(["cpu", "cpu"]))


class Failing:
    """Workers in this process, whose outcome is an error."""

    stopped = False

    def start(self, request: Request, segments: Sequence[Segment]) -> None:
        self.at_work = True

    def outcomes(self, seconds: float) -> Iterator[Outcome]:
        yield MediaError("disk full")

    def are_at_work(self) -> bool:
        return self.at_work

    def stop(self) -> None:
        self.stopped = True


def test_an_error_of_a_worker_is_that_of_the_video(film, tmp_path):
    workers = Failing()
    with pytest.raises(MediaError, match="disk full"):
        restore(film, tmp_path / "out.mkv", workers)
    assert workers.stopped and list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_processes_end_with_the_command_that_is_killed(commands, film, tmp_path):
    options = (
        "denoise",
        film,
        "-o",
        tmp_path / "out.mkv",
        "--threads",
        "2",
        "--lossless",
    )
    helped = "from vidrestore.scale import workers; workers.START = 'fork'"
    run = commands.start(*options, "--device", "cpu,cpu", slow_clip=0.3, before=helped)
    run.until(lambda: len(list(tmp_path.glob("*.vidrestore/*.segment"))) >= 2).kill()
    count = len(list(tmp_path.glob("*.vidrestore/*.segment")))
    time.sleep(1)
    assert len(list(tmp_path.glob("*.vidrestore/*.segment"))) <= count + 2
    code, said = commands.run(*options)
    assert code == 0 and "300 frames (" in said, said


@pytest.mark.parametrize(
    "text, devices",
    [
        ("cuda:0,1", ["cuda:0", "cuda:1"]),
        ("cuda:0,cuda:2", ["cuda:0", "cuda:2"]),
        ("cpu,cpu", ["cpu", "cpu"]),
        ("cuda:3, 1 ,cpu", ["cuda:3", "cuda:1", "cpu"]),
    ],
)
def test_devices_are_read_as_they_are_written(text, devices):
    assert devices_of(text) == devices


@pytest.mark.parametrize("text", ["0,1", "cuda:0,", "cpu,1", ","])
def test_what_names_no_devices_is_refused(text):
    with pytest.raises(OptionError, match="devices must be like cuda:0,1"):
        devices_of(text)


def test_a_device_that_is_not_there_is_named(tmp_path):
    write_video(tmp_path / "film.mkv", 5)
    found = CliRunner().invoke(
        app, ["denoise", str(tmp_path / "film.mkv"), "--device", "cpu,cuda:99"]
    )
    assert found.exit_code == 2 and "device 'cuda:99' " in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["film.mkv"]


@pytest.mark.parametrize("more", [("--shard", "1/2"), ("--engine", "ray")])
def test_one_way_to_share_the_work_is_enough(tmp_path, more):
    found = CliRunner().invoke(
        app, ["denoise", "film.mkv", "--device", "cpu,cpu", *more]
    )
    assert found.exit_code == 2 and "choose one" in found.stderr


def test_a_worker_ends_at_once_at_ctrl_c():
    code = """
import time
from types import SimpleNamespace
from vidrestore.scale.workers import work_over
def wait():
    print("ready", flush=True)
    time.sleep(60)
work_over(SimpleNamespace(recv=wait, send=print))
"""
    exit_code, _, errors = interrupted(code)
    assert (exit_code, errors) == (-signal.SIGINT, "")
