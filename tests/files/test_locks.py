"""Locks of jobs: one process at a time, freed by the end of a process in whatever way."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vidrestore.errors import MediaError
from vidrestore.files.locks import BusyError, locked

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


def test_a_lock_excludes_other_processes_until_it_is_released_and_leaves_no_file(tmp_path):
    path = tmp_path / "job.lock"
    with holder(path) as other:
        with (
            pytest.raises(BusyError, match=f"{tmp_path}: another process works on this already"),
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
    with pytest.raises(MediaError, match=r"job.lock: .*symbolic links"), locked(tmp_path / "job.lock"):
        pass
    assert not victim.exists() if dangling else victim.read_text() == "precious"
