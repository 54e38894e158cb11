"""Claims on shared work: one at a time, taken over from the dead and from nobody else, whatever the clocks of
others say.
"""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from vidrestore.files import locks
from vidrestore.files.locks import Claims

ELSEWHERE = {"host": "elsewhere", "pid": 1, "boot": "another"}


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


def test_what_one_has_claimed_no_other_gets_until_it_is_released(tmp_path):
    one, two = Claims(tmp_path), Claims(tmp_path)
    assert one.take("000003") and not two.take("000003") and two.take("000004")
    one.release("000003")
    assert two.take("000003") and names(tmp_path) == ["000003.0.claim", "000004.0.claim"]


def test_of_many_that_come_at_once_one_gets_the_claim(tmp_path):
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


def test_a_claim_of_a_dead_process_of_this_machine_is_taken_over_at_once(tmp_path):
    dead = Claims(tmp_path)
    dead.take("000001")
    os.close(dead._held["000001"][1])  # as the system does when a process ends
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
        clock.now += 0.9 * locks.LEASE
        assert not waiting.take("000001")
    clock.now += 0.2 * locks.LEASE
    assert not waiting.take("000001")
    clock.now += locks.LEASE
    assert waiting.take("000001") and names(tmp_path) == ["000001.1.claim"]


def test_who_comes_new_waits_a_lease_itself(tmp_path, clock):
    (tmp_path / "000001.0.claim").write_text(json.dumps(ELSEWHERE))
    clock.now = 10 * locks.LEASE
    assert not Claims(tmp_path).take("000001")


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_claim_that_says_nothing_yet_is_one_all_the_same(tmp_path, content):
    (tmp_path / "plan.0.claim").write_text(content)
    assert not Claims(tmp_path).take("plan")


def test_counts_of_wrong_types_do_not_count(tmp_path):
    for name, count in (("000001", 7), ("000002", "seven"), ("000003", None), ("000004", [7])):
        (tmp_path / f"{name}.0.claim").write_text(json.dumps(ELSEWHERE | {"count": count, "owner": [name]}))
    (tmp_path / "000005.0.claim").write_text("[[[[")
    assert locks.counts(tmp_path) == {"000001": 7}
    assert locks.bury(tmp_path, "000001") == []


def test_one_of_several_takes_over(tmp_path, clock):
    (tmp_path / "000001.0.claim").write_text(json.dumps(ELSEWHERE))
    one, two = Claims(tmp_path), Claims(tmp_path)
    there = locks.claims_in(tmp_path)
    assert not one.take("000001") and not two.take("000001", there)
    clock.now += 1.1 * locks.LEASE
    assert one.take("000001") and not two.take("000001", there) and not two.take("000001")


def test_one_that_was_only_asleep_does_not_release_the_claim_of_its_successor(tmp_path):
    asleep, awake = Claims(tmp_path), Claims(tmp_path)
    asleep.take("000001")
    (tmp_path / "000001.0.claim").unlink()
    (tmp_path / "000001.1.claim").write_text(json.dumps(ELSEWHERE))
    asleep.release("000001")
    assert not awake.take("000001") and names(tmp_path) == ["000001.1.claim"]


def test_a_claim_shows_signs_of_life_while_its_holder_works_and_is_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.01)
    with Claims(tmp_path) as working:
        working.take("000001")
        path, deadline = tmp_path / "000001.0.claim", time.monotonic() + 5
        os.utime(path, (0, 0))
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0
    assert names(tmp_path) == []


def test_a_folder_that_is_gone_is_no_place_for_claims(tmp_path):
    with pytest.raises(FileNotFoundError):
        Claims(tmp_path / "gone").take("job")
