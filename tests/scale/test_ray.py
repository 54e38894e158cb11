"""A real Ray cluster on this machine: actors that restore segments, one of them killed, and the file of one process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faults import COUNTS
from sample_videos import write_video
from typer.testing import CliRunner

from vidrestore.cli.app import app
from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Event, Progressed, Warned
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.segments import Segment
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.scale.ray_actors import Actor, RayActors
from vidrestore.scale.team_batch import TeamBatch
from vidrestore.scale.worker import Film

IDENTITY = "<identity>"
SLOW = EncoderOptions(encoder="libx264", preset="veryslow")  # takes its time, so that there is somebody to kill
OPTIONS = RestoreOptions(encoder=SLOW, segment_frames=20, device="cpu", threads=1)
FRAMES = 240


@pytest.mark.parametrize("option", ["--ray-cpus=8", "--ray-address=HEAD:6379"])
def test_options_of_a_cluster_are_refused_without_one(tmp_path: Path, option: str) -> None:
    found = CliRunner().invoke(app, ["denoise", str(tmp_path / "film.mkv"), option])
    assert found.exit_code == 2 and "for --engine ray" in found.stderr


def test_without_ray_the_command_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    found = CliRunner().invoke(app, ["denoise", str(tmp_path / "film.mkv"), "--engine", "ray"])
    assert found.exit_code == 2 and 'not installed; pip install "vidrestore[ray]"' in found.stderr


def test_what_an_actor_cannot_do_for_a_good_reason_comes_back_as_it_is(tmp_path: Path) -> None:
    film = Film(str(tmp_path / "none.mkv"), str(tmp_path / "out.mkv"), span=None)  # type: ignore[arg-type]
    found = Actor(IDENTITY, OPTIONS).restore(film, [Segment(0, 0, 1, 0, 20)])
    assert isinstance(found, MediaError) and "none.mkv" in str(found)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "film.mkv"
    write_video(path, FRAMES, "libx264", size=(320, 240), options={"preset": "ultrafast"}, sound=Fraction(9))
    return path


@pytest.fixture(scope="module")
def whole(film: Path) -> bytes:
    output = film.with_name("whole.mkv")
    Batch([str(film)], str(output), IDENTITY, OPTIONS).restore(str(film))
    return output.read_bytes()


@pytest.fixture(scope="module")
def actors() -> Iterator[RayActors]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield RayActors(IDENTITY, OPTIONS, cpus=1)
    ray.shutdown()


def restore(film: Path, output: Path, workers: Any) -> tuple[Any, list[Event]]:
    told: list[Event] = []
    return TeamBatch([str(film)], str(output), IDENTITY, OPTIONS, workers).restore(str(film), told.append), told


@pytest.mark.faults
def test_actors_make_the_file_of_one_process(film: Path, whole: bytes, actors: RayActors, tmp_path: Path) -> None:
    summary, told = restore(film, tmp_path / "out.mkv", actors)
    assert actors.count == 2 and summary.frames == FRAMES and (tmp_path / "out.mkv").read_bytes() == whole
    assert any(isinstance(event, Progressed) and 0 < event.done < FRAMES for event in told)
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]


@pytest.mark.faults
def test_what_a_killed_actor_was_at_is_done_by_another(film: Path, whole: bytes, actors: RayActors, tmp_path: Path) -> None:
    class Watched:
        """The actors, of which one is killed while it works."""

        count = actors.count
        killed = 0

        def give(self, worker: int, film: Film, run: list[Segment]) -> None:
            actors.give(worker, film, run)
            if worker == 1 and not self.killed:
                time.sleep(0.3)
                self.killed = actors.ray.get(actors._actors[worker].process.remote())
                os.kill(self.killed, signal.SIGKILL)

        def news(self, seconds: float) -> Any:
            return actors.news(seconds)

        def stop(self) -> None:
            actors.stop()

    watched = Watched()
    _, told = restore(film, tmp_path / "out.mkv", watched)
    warnings = [event.message for event in told if isinstance(event, Warned)]
    assert watched.killed and len(warnings) == 1 and "a worker died (on the cluster: ActorDiedError); another does" in warnings[0]
    COUNTS.check("a Ray worker killed", (tmp_path / "out.mkv").read_bytes() == whole)
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]


@pytest.mark.parametrize("address", ["localhost:1", "ray://localhost:1"])
def test_no_cluster_at_an_address_is_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, exceptions=SimpleNamespace(RayError=KeyError)))
    with pytest.raises(OptionError, match=f"no Ray cluster could be reached at {address}"):
        RayActors(IDENTITY, OPTIONS, address)
