"""Scene cuts are found where one picture ends, and only there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.scenes import SceneDetector


def cuts(frames: Iterable[NDArray[Any]], unit: float = 1.0) -> list[int]:
    detector = SceneDetector()
    for frame in frames:
        detector.add(frame, unit)
    detector.finish()
    return detector.cuts()


def picture(seed: int, height: int = 72, width: int = 128) -> NDArray[np.uint8]:
    """A picture of random soft patches."""
    coarse = np.random.default_rng(seed).uniform(20, 235, (height // 12 + 1, width // 12 + 1))
    return np.kron(coarse, np.ones((12, 12)))[:height, :width].astype(np.uint8)


def test_a_cut_is_the_first_frame_of_the_new_scene() -> None:
    assert cuts([picture(1)] * 7 + [picture(2)] * 5 + [picture(3)] * 9) == [7, 12]


def test_one_scene_has_no_cut() -> None:
    assert cuts([picture(1)] * 10) == []
    assert cuts([picture(1)]) == cuts([]) == []
