"""A real Ray cluster on this machine: tasks that restore segments, a process of them killed, and the file of
one process.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_restorer import request_of
from sample_videos import write_video
from typer.testing import CliRunner

from vidrestore.cli.app import app
from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Event, Progressed
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Step
from vidrestore.scale.ray_tasks import RayTasks, listen_on_loopback
from vidrestore.scale.workers import WorkerRunner, restore_part
from vidrestore.settings.options import EncoderOptions, RestoreOptions

IDENTITY = "<identity>"
# takes its time, so that there is somebody to kill
SLOW = EncoderOptions(encoder="libx264", preset="veryslow")
OPTIONS = RestoreOptions(encoder=SLOW, device="cpu", threads=1)
FRAMES = 240


def test_without_ray_the_error_explains_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    found = CliRunner().invoke(
        app, ["denoise", str(tmp_path / "film.mkv"), "--engine", "ray"]
    )
    assert (
        found.exit_code == 2
        and 'not installed; pip install "vidrestore[ray]"' in found.stderr
    )


def test_what_a_worker_cannot_do_for_a_good_reason_comes_back_as_it_is(tmp_path):
    found = restore_part(
        request_of(tmp_path / "none.mkv", tmp_path / "out.mkv", IDENTITY), []
    )
    assert isinstance(found, MediaError) and "none.mkv" in str(found)


@pytest.fixture(scope="module", autouse=True)
def short_segments() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vidrestore.jobs.segmented.LENGTH", 20)
        yield


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "film.mkv"
    write_video(
        path,
        FRAMES,
        "libx264",
        size=(160, 128),
        options={"preset": "ultrafast"},
        sound=Fraction(9),
    )
    return path


@pytest.fixture(scope="module")
def tasks() -> Iterator[RayTasks]:
    listen_on_loopback()
    ray = pytest.importorskip("ray")
    # by default actors wait for all else that the machine does
    quick = {"worker_niceness": 0}
    helpers = {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[1] / "helpers")}}
    added = helpers | {"worker_process_setup_hook": "no_change.added"}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _system_config=quick,
        runtime_env=added,
    )
    yield RayTasks(cpus=1)
    ray.shutdown()


def restore(film: Path, output: Path, workers: Any) -> tuple[Any, list[Event]]:
    told: list[Event] = []
    batch = Batch(
        [str(film)],
        str(output),
        [Step(IDENTITY, OPTIONS)],
        runner=WorkerRunner(workers),
    )
    return batch.restore(batch.request(str(film)), told.append), told


@pytest.mark.faults
def test_tasks_make_the_file_of_one_process(film, whole, tasks, tmp_path):
    summary, told = restore(film, tmp_path / "out.mkv", tasks)
    assert (
        tasks.count == 2
        and summary.frames == FRAMES
        and (tmp_path / "out.mkv").read_bytes() == whole
    )
    assert any(
        isinstance(event, Progressed) and 0 < event.done < FRAMES for event in told
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_segments_of_a_killed_process_are_done_by_another(
    film, whole, tasks, tmp_path
):
    class Watched:
        """The tasks, of which a process is killed while it writes a segment."""

        killed = 0
        start = staticmethod(tasks.start)
        are_at_work, stop = staticmethod(tasks.are_at_work), staticmethod(tasks.stop)

        def outcomes(self, seconds: float) -> Any:
            if not self.killed:
                self.killed = next(writers(tmp_path / "out.mkv.vidrestore"), 0)
                if self.killed:
                    os.kill(self.killed, signal.SIGKILL)
            return tasks.outcomes(seconds if self.killed else 0.01)

    watched = Watched()
    restore(film, tmp_path / "out.mkv", watched)
    assert watched.killed
    assert (tmp_path / "out.mkv").read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out.mkv"]


def writers(folder: Path) -> Iterator[int]:
    """The processes but this one that have a partial file in a folder open."""
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            path, pid = os.readlink(opened), int(opened.parts[2])
            if (
                path.startswith(f"{folder}/.")
                and path.endswith(".partial")
                and pid != os.getpid()
            ):
                yield pid


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_cluster_of_this_machine_alone_listens_on_the_loopback_interface_only(tasks):
    assert tasks.ray.is_initialized()
    addresses = {address for command, address in listening() if "ray" in command}
    assert addresses and addresses <= {
        "0100007F",
        "0000000000000000FFFF00000100007F",
    }, addresses


def listening() -> Iterator[tuple[str, str]]:
    """The command line of each process of this machine and the address of each socket it listens on."""
    tables = [
        Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        for name in ("tcp", "tcp6")
    ]
    rows = [line.split() for lines in tables for line in lines]
    sockets = {
        f"socket:[{row[9]}]": row[1].partition(":")[0] for row in rows if row[3] == "0A"
    }
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            command = (process / "cmdline").read_text()
            for opened in (process / "fd").iterdir():
                if address := sockets.get(os.readlink(opened)):
                    yield command, address


@pytest.mark.parametrize("address, alone", [("", "0"), ("localhost:1", None)])
def test_only_a_cluster_at_an_address_may_be_reached_by_others(
    address, alone, monkeypatch
):
    name, seen = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", list[Any]()
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_ADDRESS", address)

    def init(**options: Any) -> None:
        seen.append(os.environ.get(name))
        raise ValueError("enough")

    errors = SimpleNamespace(RayError=KeyError)
    fake = SimpleNamespace(is_initialized=lambda: False, exceptions=errors, init=init)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(
        "socket.create_connection", lambda *given, **more: SimpleNamespace(close=list)
    )
    with pytest.raises(OptionError, match="enough"):
        RayTasks()
    assert seen == [alone]


@pytest.mark.parametrize("address", ["localhost:1", "ray://localhost:1"])
def test_an_address_without_a_cluster_is_an_error(address, monkeypatch):
    monkeypatch.setitem(
        sys.modules,
        "ray",
        SimpleNamespace(
            is_initialized=lambda: False, exceptions=SimpleNamespace(RayError=KeyError)
        ),
    )
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(
        OptionError, match=f"no Ray cluster could be reached at {address}"
    ):
        RayTasks()
