"""What neighbouring clips both need is computed once, and pictures are told apart by all their samples."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Thread

import pytest
import torch

from vidrestore.restorers.computed_once import ComputedOnce, keys_of


def test_only_keys_without_a_result_are_computed_and_all_in_one_call() -> None:
    asked: list[list[str]] = []

    def get(results: ComputedOnce[str], keys: list[str]) -> list[str]:
        def compute(wanted: Sequence[int]) -> list[str]:
            asked.append([keys[at] for at in wanted])
            return [keys[at].upper() for at in wanted]

        return results.get(keys, compute)

    results = ComputedOnce[str](room=3)
    assert get(results, ["a", "b", "a"]) == ["A", "B", "A"]
    assert get(results, ["b", "c"]) == ["B", "C"]
    assert get(results, ["d", "b"]) == ["D", "B"]
    assert get(results, ["a"]) == ["A"], "there is room for three"
    assert asked == [["a", "b"], ["c"], ["d"], ["a"]]


def test_a_thread_waits_for_what_another_one_computes() -> None:
    results, begun, done, found = ComputedOnce[int](room=2), Event(), Event(), list[int]()

    def slow(wanted: Sequence[int]) -> list[int]:
        begun.set()
        done.wait(10)
        return [7]

    first = Thread(target=lambda: results.get(["key"], slow))
    second = Thread(target=lambda: found.extend(results.get(["key"], lambda wanted: [8])))
    first.start()
    begun.wait(10)
    second.start()
    done.set()
    for thread in (first, second):
        thread.join(10)
    assert found == [7]


def test_what_failed_is_computed_again() -> None:
    results = ComputedOnce[int](room=2)
    with pytest.raises(ZeroDivisionError):
        results.get(["key"], lambda wanted: [1 // 0])
    assert results.get(["key"], lambda wanted: [5]) == [5]


def test_pictures_have_the_same_key_if_all_their_samples_are_the_same() -> None:
    pictures = torch.rand(3, 3, 8, 9)
    pictures[1] = pictures[0]
    pictures[2] = pictures[0].flip(-1)  # the same samples elsewhere
    other = pictures[:1].clone()
    other[0, 2, 7, 8] = torch.nextafter(other[0, 2, 7, 8], torch.tensor(2.0))
    first, same, flipped, changed = keys_of(torch.cat((pictures, other)))
    assert first == same
    assert len({first, flipped, changed}) == 3
