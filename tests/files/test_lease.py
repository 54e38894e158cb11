"""Locks that hostile files can neither redirect, empty, stall nor hold for ever."""

import errno
import json
import os
import threading
import time

import pytest

from vidrestore.errors import MediaError
from vidrestore.files import locks
from vidrestore.files.locks import BEAT, LEASE, BusyError, Lock, heartbeat
from vidrestore.jobs.resume import WorkFolder

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")

ELSEWHERE = {"host": "elsewhere", "pid": 7, "boot": "another"}


@pytest.mark.parametrize("dangling", [False, True])
def test_a_lock_is_never_taken_through_a_link(tmp_path, dangling):
    victim = tmp_path / "victim"
    if not dangling:
        victim.write_text("precious")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(OSError, match="a symbolic link, but a regular file was expected"):
        Lock(tmp_path / "lock")
    assert not victim.exists() if dangling else victim.read_text() == "precious"


def test_a_file_that_is_no_lock_is_left_as_it_is(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.link(victim, tmp_path / "lock")
    for _ in range(2):  # a hard link, then a file of its own
        with pytest.raises(MediaError, match="vidrestore did not write; move it away"):
            Lock(tmp_path / "lock")
        assert (tmp_path / "lock").read_text() == "precious"
        victim.unlink(missing_ok=True)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_a_disk_that_is_full_after_the_folder_was_made_leaves_no_folder(tmp_path, monkeypatch, shared, apart):
    def full(descriptor: int, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(locks, "write_holder", full)
    (tmp_path / "work").mkdir()
    folder = WorkFolder(str(tmp_path / "out.mkv"), str(tmp_path / "work") if apart else None)
    with pytest.raises(MediaError, match=r"No space left"), folder.locked(shared=shared):
        pytest.fail("there is no lock")
    assert [path.name for path in tmp_path.rglob("*")] == ["work"]


def test_a_lock_that_others_share_stays_where_another_finds_the_disk_full(tmp_path, monkeypatch):
    first, full = Lock(tmp_path / "lock", shared=True), OSError(errno.ENOSPC, "full")
    os.truncate(tmp_path / "lock", 0)  # as one that shared it leaves it
    monkeypatch.setattr(locks, "write_holder", lambda *given, **more: (_ for _ in ()).throw(full))
    with pytest.raises(OSError, match="full"):
        Lock(tmp_path / "lock", shared=True)
    assert (tmp_path / "lock").exists()
    first.release()


def test_the_last_that_shares_a_lock_removes_it(tmp_path):
    first, second = Lock(tmp_path / "lock", shared=True), Lock(tmp_path / "lock", shared=True)
    first.remove()
    assert (tmp_path / "lock").exists()
    second.remove()
    assert not (tmp_path / "lock").exists()


def test_a_lock_that_was_removed_meanwhile_leaves_the_next_one_of_its_name(tmp_path):
    first = Lock(tmp_path / "lock")
    (tmp_path / "lock").unlink()
    second = Lock(tmp_path / "lock")
    first.remove()
    assert (tmp_path / "lock").exists()
    second.release()


@pytest.mark.parametrize("silent, busy", [(0, True), (LEASE + 5, False)])
def test_where_no_process_can_be_asked_if_it_runs_the_lease_shows_it(tmp_path, monkeypatch, silent, busy):
    path = tmp_path / "lock"
    path.write_text(json.dumps(locks.this_process() | {"pid": 7}))
    os.utime(path, (0, time.time() - silent))
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks.sys, "platform", "win32")
    if busy:
        with pytest.raises(BusyError, match=r"last sign of life \d+ s ago"):
            Lock(path)
    else:
        Lock(path).release()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path, make):
    make(tmp_path / "lock")
    with pytest.raises(OSError, match="but a regular file was expected"):
        Lock(tmp_path / "lock")


@pytest.mark.parametrize(
    "content",
    ['{"host": 1, "pid": 2}', '{"host": "a", "pid": 1e9}', '{"host": "a", "pid": 99999999999}', "[" * 4000],
)
def test_a_lock_of_wrong_types_is_no_lock(tmp_path, content):
    (tmp_path / "lock").write_text(content)
    with pytest.raises(MediaError, match="did not write"):
        Lock(tmp_path / "lock")


@pytest.mark.parametrize("ahead, busy", [(BEAT / 2, True), (LEASE, False), (2_000_000_000, False)])
def test_a_date_in_the_future_is_no_sign_of_life(tmp_path, ahead, busy):
    path = tmp_path / "lock"
    path.write_text(json.dumps(ELSEWHERE))
    os.utime(path, (0, time.time() + ahead))
    if busy:
        with pytest.raises(BusyError):
            Lock(path)
    else:
        Lock(path).release()


def test_a_beat_is_a_sign_of_life(tmp_path):
    path, lock = tmp_path / "lock", Lock(tmp_path / "lock")
    os.utime(path, (0, 0))
    lock.beat()
    assert path.stat().st_mtime > 0
    lock.release()


def test_a_beating_heart_beats_until_the_block_ends(monkeypatch: pytest.MonkeyPatch):
    beats: list[float] = []
    before = threading.active_count()
    monkeypatch.setattr(locks, "BEAT", 0.001)
    with heartbeat(lambda: beats.append(0)):
        while len(beats) < 3:
            time.sleep(0.001)
    assert threading.active_count() == before
