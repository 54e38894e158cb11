"""Several devices of one machine: a process for each, one file, and no death of a process ends the run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
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
from vidrestore.events import Event, Finished, Progressed, Warned, ignore_event
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Request, Step
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.scale import multi_device
from vidrestore.scale.multi_device import DeviceProcesses, Helper, HelperError, Outcome, devices_of
from vidrestore.scale.shards import Shard

IDENTITY = "<identity>"
OPTIONS = RestoreOptions(encoder=EncoderOptions(lossless=True), threads=2)
FRAMES = 300


@pytest.fixture(scope="module")
def whole(film: Path) -> bytes:
    output = film.with_name("whole.mkv")
    batch = Batch([str(film)], str(output), [Step(IDENTITY, OPTIONS)])
    batch.restore(batch.request(str(film)))
    return output.read_bytes()


@pytest.fixture(scope="module", autouse=True)
def identity_in_processes() -> Iterator[None]:
    """Processes know the task that changes nothing, too; segments have 20 frames."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vidrestore.jobs.segmented.LENGTH", 20)
        patch.setattr("vidrestore.scale.multi_device.help_over", no_change.help_over)
        yield


class Two(DeviceProcesses):
    """Two devices, of which the process for the second does all the work, so that it has some. The first
    `deaths` that are given work are killed.
    """

    restores_here = False

    def __init__(self, deaths: int = 0) -> None:
        super().__init__(["cpu", "cpu"])
        self.deaths = deaths

    def start(self, request: Request, segments: int) -> None:
        super().start(request, segments)
        if self.deaths:
            self.deaths -= 1
            pid = self.running[1][0].pid
            assert pid
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    started = Two()
    yield started
    started.stop()


def restore(film: Path, output: Path, helpers: Any, told: list[Event] | None = None, **options: Any) -> Any:
    batch = Batch(
        [str(film)],
        str(output),
        [Step(IDENTITY, replace(OPTIONS, **options))],
        runner=multi_device.HelperRunner(helpers),
    )
    return batch.restore(batch.request(str(film)), ignore_event if told is None else told.append)


def warnings(told: list[Event]) -> list[str]:
    return [event.message for event in told if isinstance(event, Warned)]


def test_several_processes_make_the_file_of_one(film, whole, two, tmp_path, monkeypatch):
    monkeypatch.setattr("vidrestore.jobs.summary.PROGRESS_SECONDS", 0.0)
    for name in ("a.mkv", "b.mkv"):
        told: list[Event] = []
        summary = restore(film, tmp_path / name, two, told)
        before = [process.pid for process, _ in two.running.values()]
        assert (summary.frames, summary.reused) == (FRAMES, 0) and (tmp_path / name).read_bytes() == whole
        assert isinstance(told[-1], Finished) and not warnings(told)
        steps = [event.done for event in told if isinstance(event, Progressed) and event.stage == "restore"]
        assert steps[0] == 0 < steps[-1] and steps == sorted(steps)
    assert before == [process.pid for process, _ in two.running.values()]  # which keep their models
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mkv", "b.mkv"]


@pytest.mark.parametrize("options", [{"restart": True}, {"overwrite": True}], ids=str)
def test_a_restart_happens_once_and_not_in_each_process(film, whole, two, tmp_path, options):
    (tmp_path / "out.mkv").write_bytes(b"old") if "overwrite" in options else None
    assert restore(film, tmp_path / "out.mkv", two, **options).frames == FRAMES
    assert (tmp_path / "out.mkv").read_bytes() == whole


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_the_segments_of_a_killed_process_are_done_by_this_one(film, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(Two, "restores_here", True)
    told: list[Event] = []
    restore(film, tmp_path / "out.mkv", Two(deaths=1), told)
    assert (tmp_path / "out.mkv").read_bytes() == whole
    (said,) = warnings(told)
    assert "on cpu, killed by signal 9); the others restore what is left" in said


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_a_run_whose_processes_were_all_killed_fails_with_an_error(film, tmp_path):
    died = r"all processes died, the last one \(process \d+ on cpu, killed by signal 9\); is there enough"
    with pytest.raises(HelperError, match=died):
        restore(film, tmp_path / "out.mkv", Two(deaths=1))
    assert list(tmp_path.iterdir()) == []


class Threads:
    """A helper in this process that does its work when it is asked how it ended; `restores` is what it does
    instead of it.
    """

    count = 2

    def __init__(
        self, restores: Callable[[Request], Outcome] | None = None, *, restores_here: bool = False
    ) -> None:
        self.restores = restores or Helper(Shard(2, 2)).restore
        self.restores_here, self.given, self.stopped = restores_here, list[Request](), False

    def start(self, request: Request, segments: int) -> None:
        self.given.append(request)

    def ended(self, seconds: float = 0.0) -> Iterator[Outcome]:
        if self.given:
            yield self.restores(self.given.pop())

    def are_at_work(self) -> bool:
        return bool(self.given)

    def stop(self) -> None:
        self.stopped = True
        self.given.clear()


def test_an_error_of_a_helper_is_that_of_the_video(film, tmp_path):
    helpers = Threads(lambda request: MediaError("disk full"), restores_here=True)
    with pytest.raises(MediaError, match="disk full"):
        restore(film, tmp_path / "out.mkv", helpers)
    assert helpers.stopped


def test_the_run_does_not_wait_for_a_helper_whose_machine_is_gone(film, whole, tmp_path, monkeypatch):
    class Lost(Threads):
        def ended(self, seconds: float = 0.0) -> Iterator[Outcome]:
            return iter(())

    monkeypatch.setattr("vidrestore.scale.multi_device.LAST_WAIT", 0.0)
    helpers = Lost(restores_here=True)
    restore(film, tmp_path / "out.mkv", helpers)
    assert (tmp_path / "out.mkv").read_bytes() == whole and helpers.stopped


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_processes_end_with_the_command_that_is_killed(commands, film, tmp_path):
    options = ("denoise", film, "-o", tmp_path / "out.mkv", "--threads", "2", "--lossless")
    helped = "from vidrestore.scale import multi_device; multi_device.START = 'fork'"
    run = commands.start(*options, "--device", "cpu,cpu", slow_clip=0.3, before=helped)
    run.until(lambda: len(list(tmp_path.glob("*.vidrestore/*.segment"))) >= 2).kill()
    code, said = commands.run(*options)
    while code == 1 and "works on this already" in said:
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
    found = CliRunner().invoke(app, ["denoise", str(tmp_path / "film.mkv"), "--device", "cpu,cuda:99"])
    assert found.exit_code == 2 and "device 'cuda:99' " in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["film.mkv"]


@pytest.mark.parametrize("more", [("--shard", "1/2"), ("--engine", "ray")])
def test_one_way_to_share_the_work_is_enough(tmp_path, more):
    found = CliRunner().invoke(app, ["denoise", "film.mkv", "--device", "cpu,cpu", *more])
    assert found.exit_code == 2 and "choose one" in found.stderr


def test_a_helper_ends_at_once_at_ctrl_c():
    code = """
import time
from types import SimpleNamespace
from vidrestore.scale.multi_device import help_over
from vidrestore.scale.shards import Shard
def wait():
    print("ready", flush=True)
    time.sleep(60)
help_over(SimpleNamespace(recv=wait, send=print), Shard(2, 2))
"""
    exit_code, _, errors = interrupted(code)
    assert (exit_code, errors) == (-signal.SIGINT, "")
