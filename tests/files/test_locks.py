"""Locks of jobs: one process at a time, freed by the end of a process in whatever way."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vidrestore.errors import BusyError, MediaError
from vidrestore.files.locks import LocksRefusedError, locked
from vidrestore.jobs.resume import WorkFolder

posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")
HOLDER = """
import sys; from pathlib import Path; from vidrestore.files.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True); sys.stdin.read()"""


def holder(path: Path) -> subprocess.Popen[bytes]:
    """Another process that holds a lock until its input ends."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"held\n"
    return process


def test_a_lock_excludes_other_processes_until_it_is_released_and_leaves_no_file(
    tmp_path,
):
    path = tmp_path / "job.lock"
    with holder(path) as other:
        with (
            pytest.raises(
                BusyError, match=f"{tmp_path}: another process works on this already"
            ),
            locked(path),
        ):
            pass
        other.stdin.close()
    with locked(path):
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


@posix
def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path):
    with holder(tmp_path / "job.lock") as other:
        other.send_signal(signal.SIGKILL)
    with locked(tmp_path / "job.lock"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_of_those_that_wait_one_at_a_time_holds_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("vidrestore.files.locks.POLL", 0.001)
    inside, most = 0, 0

    def come() -> None:
        nonlocal inside, most
        with locked(tmp_path / "job.lock", wait=True):
            inside += 1
            most = max(most, inside)
            time.sleep(0.002)
            inside -= 1

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and list(tmp_path.iterdir()) == []


@posix
@pytest.mark.parametrize("dangling", [False, True])
def test_a_lock_is_never_taken_through_a_link(tmp_path, dangling):
    victim = tmp_path / "victim"
    if not dangling:
        victim.write_text("precious")
    (tmp_path / "job.lock").symlink_to(victim)
    with (
        pytest.raises(MediaError, match=r"job.lock: .*symbolic links"),
        locked(tmp_path / "job.lock"),
    ):
        pass
    assert not victim.exists() if dangling else victim.read_text() == "precious"


def refused(error: int) -> Callable[..., None]:
    def flock(*arguments: object) -> None:
        raise OSError(error, os.strerror(error))

    return flock


@posix
@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_share_that_refuses_locks_is_named_and_work_continues_alone(
    tmp_path, monkeypatch, error
):
    monkeypatch.setattr("fcntl.flock", refused(error))
    with (
        pytest.raises(LocksRefusedError, match=f"{tmp_path.parent}: this file system"),
        locked(tmp_path / "job.lock"),
    ):
        pass
    folder = WorkFolder(str(tmp_path / "out.mkv"))
    with folder.locked():
        assert (
            len(folder.warnings) == 1
            and f"{tmp_path}: this file system" in folder.warnings[0]
        )
    with (
        pytest.raises(LocksRefusedError, match="`work_dir` on another disk"),
        folder.locked(shared=True),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@posix
def test_where_locks_are_refused_the_one_in_the_folder_for_the_work_excludes_others(
    tmp_path, monkeypatch
):
    flock, path = fcntl.flock, str(tmp_path / "share")

    def refusing(descriptor: int, operation: int) -> None:
        if os.path.realpath(f"/proc/self/fd/{descriptor}").startswith(path):
            refused(errno.ENOLCK)()
        flock(descriptor, operation)

    (tmp_path / "share").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr("fcntl.flock", refusing)
    folders = [WorkFolder(f"{path}/out.mkv", str(tmp_path / "work")) for _ in range(2)]
    with folders[0].locked():
        assert folders[0].warnings == []
        with pytest.raises(BusyError), folders[1].locked():
            pass
    assert (
        list((tmp_path / "share").iterdir())
        == list((tmp_path / "work").iterdir())
        == []
    )


@posix
# which holds under `pytest -W error`
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_lock_that_is_a_file_alone_is_named_with_its_host_and_age(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("fcntl.flock", refused(errno.ENOSYS))
    path = tmp_path / "job.lock"
    with locked(path):
        marker = path.read_text()
    path.write_text(marker.replace(marker.split()[1], "gone.example"))
    os.utime(path, (0, time.time() - 7200))
    with (
        pytest.raises(
            BusyError, match="the host gone.example wrote 2.0 h ago.*or remove"
        ) as caught,
        locked(path),
    ):
        pass
    assert caught.value.host == "gone.example" and path.exists()
    assert "flock" not in capsys.readouterr().err
