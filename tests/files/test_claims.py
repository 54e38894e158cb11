"""Claims on jobs and on parts of them: one at a time, taken over from the dead and from nobody else, whatever
names and clocks other machines have.
"""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from vidrestore.errors import MediaError
from vidrestore.files import locks
from vidrestore.files.locks import BEAT, LEASE, BusyError, Claims
from vidrestore.jobs.resume import WorkFolder

# another machine, or a container, with the host name of this one and a process of our number
ELSEWHERE = locks.this_process() | {"machine": "another"}
posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")


class Clock:
    """A clock of our own in place of the system's."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("vidrestore.files.locks.time", made)
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def claim(folder: Path, name: str, owner: dict[str, Any], silent: float = 0.0) -> Path:
    path = folder / f"{name}.0.claim"
    path.write_text(json.dumps(owner))
    os.utime(path, (0, time.time() - silent))
    return path


def dead_process() -> dict[str, Any]:
    """A process of this machine that was killed, whose number may be that of another by now."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from vidrestore.files import locks, regular as c; "
    code += "print(c.json.dumps(locks.this_process()))"
    return dict(
        json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    )


# Parts of a job


def test_a_claim_excludes_others_until_it_is_released(tmp_path):
    one, two = Claims(tmp_path), Claims(tmp_path)
    assert one.take("000003") and not two.take("000003") and two.take("000004")
    one.release("000003")
    assert two.take("000003") and names(tmp_path) == ["000003.0.claim", "000004.0.claim"]


def test_one_of_many_simultaneous_processes_gets_the_claim(tmp_path):
    all_claims, start, got = [Claims(tmp_path) for _ in range(8)], threading.Barrier(8), list[int]()

    def come(number: int) -> None:
        start.wait()
        if all_claims[number].take("join", {}):  # all of them saw none
            got.append(number)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


@posix
@pytest.mark.parametrize("number_taken", [False, True])
def test_a_claim_of_a_dead_process_of_this_machine_is_taken_over_at_once(tmp_path, number_taken):
    owner = dead_process() | ({"pid": os.getpid()} if number_taken else {})
    claim(tmp_path, "000001", owner)
    assert Claims(tmp_path).take("000001") and names(tmp_path) == ["000001.1.claim"]


@pytest.mark.parametrize("their_time", [0, 4_000_000_000], ids=["their clock is slow", "their clock is fast"])
def test_a_claim_from_elsewhere_is_taken_over_after_a_lease_without_a_sign_of_life(
    tmp_path, clock, their_time
):
    path = tmp_path / "000001.0.claim"
    path.write_text(json.dumps(ELSEWHERE))
    waiting = Claims(tmp_path)
    for beat in range(4):  # it lives, by a clock of its own
        os.utime(path, (their_time + beat, their_time + beat))
        clock.now += 0.9 * LEASE
        assert not waiting.take("000001")
    clock.now += 0.2 * LEASE
    assert not waiting.take("000001")
    clock.now += LEASE
    assert waiting.take("000001") and names(tmp_path) == ["000001.1.claim"]


def test_a_new_process_waits_a_lease_itself(tmp_path, clock):
    claim(tmp_path, "000001", ELSEWHERE)
    clock.now = 10 * LEASE
    assert not Claims(tmp_path).take("000001")


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 4000, '{"host": "a", "pid": 1e9}'])
def test_a_claim_without_an_owner_counts(tmp_path, content):
    (tmp_path / "plan.0.claim").write_text(content)
    assert not Claims(tmp_path).take("plan")


def test_one_of_several_waiting_processes_takes_over(tmp_path, clock):
    claim(tmp_path, "000001", ELSEWHERE)
    one, two = Claims(tmp_path), Claims(tmp_path)
    there = one.all()
    assert not one.take("000001") and not two.take("000001", there)
    clock.now += 1.1 * LEASE
    assert one.take("000001") and not two.take("000001", there) and not two.take("000001")


@pytest.mark.parametrize("generation", [0, 1])
def test_a_process_that_slept_does_not_release_the_claim_of_its_successor(tmp_path, generation):
    asleep, awake = Claims(tmp_path), Claims(tmp_path)
    asleep.take("000001")
    (tmp_path / "000001.0.claim").unlink()
    (tmp_path / f"000001.{generation}.claim").write_text(json.dumps(ELSEWHERE))
    asleep.release("000001")
    assert not awake.take("000001") and names(tmp_path) == [f"000001.{generation}.claim"]


def test_a_claim_shows_signs_of_life_while_its_owner_works_and_is_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.01)
    before = threading.active_count()
    with Claims(tmp_path) as working:
        working.take("000001")
        path, deadline = tmp_path / "000001.0.claim", time.monotonic() + 5
        os.utime(path, (0, 0))
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0
    assert names(tmp_path) == [] and threading.active_count() == before


def test_claims_in_a_missing_folder_raise_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Claims(tmp_path / "gone").take("job")


# Whole jobs


def test_several_share_a_job_but_not_with_one_that_is_alone(tmp_path):
    one, two, alone = Claims(tmp_path), Claims(tmp_path), Claims(tmp_path)
    one.take_job(shared=True)
    two.take_job(shared=True)
    one.release_all()
    busy = f"process {os.getpid()} on {socket.gethostname()} works on this already"
    with pytest.raises(BusyError, match=busy):
        alone.take_job()
    two.release_all()
    alone.take_job()
    with pytest.raises(BusyError):
        one.take_job(shared=True)
    assert names(tmp_path) == ["alone.0.claim"]


@posix
def test_a_process_that_is_alone_removes_the_claims_of_the_dead(tmp_path):
    for name in ("alone", "shared12", "000007", "join"):
        claim(tmp_path, name, dead_process())
    Claims(tmp_path).take_job()
    assert names(tmp_path) == ["alone.1.claim"]


# a date in the future doesn't count: a living owner would have corrected it
SILENT = [(5, True), (LEASE + 5, False), (-BEAT / 2, True), (-LEASE, False), (-2_000_000_000, False)]


@pytest.mark.parametrize("name", ["alone", "000007"])
@pytest.mark.parametrize("silent, busy", SILENT)
def test_a_process_elsewhere_counts_as_dead_when_it_is_silent_for_long(tmp_path, name, silent, busy):
    claim(tmp_path, name, ELSEWHERE | {"pid": 7, "host": "elsewhere"}, silent)
    if busy:
        said = rf"process 7 on elsewhere works on this already; last sign of life {max(0, silent):.0f} s ago"
        with pytest.raises(BusyError, match=said):
            Claims(tmp_path).take_job()
    else:
        Claims(tmp_path).take_job()


@pytest.mark.parametrize("silent, busy", [(0, True), (LEASE + 5, False)])
def test_without_a_way_to_query_processes_the_lease_decides(tmp_path, monkeypatch, silent, busy):
    claim(tmp_path, "alone", locks.this_process() | {"pid": 7}, silent)
    monkeypatch.setattr(locks.sys, "platform", "win32")
    if busy:
        with pytest.raises(BusyError, match=r"last sign of life \d+ s ago"):
            Claims(tmp_path).take_job()
    else:
        Claims(tmp_path).take_job()


@posix
@pytest.mark.parametrize("dangling", [False, True])
def test_a_claim_is_never_taken_through_a_link(tmp_path, dangling):
    victim = tmp_path / "victim"
    if not dangling:
        victim.write_text("precious")
    (tmp_path / "alone.0.claim").symlink_to(victim)
    with pytest.raises(MediaError, match="a symbolic link, but a regular file was expected"):
        Claims(tmp_path).take_job()
    assert not victim.exists() if dangling else victim.read_text() == "precious"


@posix
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("take", [Claims.take_job, lambda claims: claims.take("alone")], ids=["job", "part"])
def test_a_claim_that_is_not_a_file_is_refused_at_once(tmp_path, make, take):
    make(tmp_path / "alone.0.claim")
    with pytest.raises(MediaError, match=r"alone.0.claim: not a claim \(a .*, but a regular file"):
        take(Claims(tmp_path))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_a_disk_that_fills_up_with_the_claim_leaves_no_folder(tmp_path, monkeypatch, shared, apart):
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(locks, "this_process", full)
    (tmp_path / "work").mkdir()
    folder = WorkFolder(str(tmp_path / "out.mkv"), str(tmp_path / "work") if apart else None)
    with pytest.raises(MediaError, match=r"No space left"), folder.locked(shared=shared):
        pytest.fail("there is no claim")
    assert [path.name for path in tmp_path.rglob("*")] == ["work"]
