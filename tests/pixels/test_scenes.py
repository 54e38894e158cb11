"""Scene cuts are found where one picture ends, and only there."""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cut_videos import KINDS, Pictures, scenes_of, score, whip_pans
from numpy.typing import NDArray

from vidrestore.pixels.scenes import SceneDetector


def detected(frames: Iterable[NDArray[Any]], unit: float = 1.0) -> list[int]:
    detector = SceneDetector()
    for frame in frames:
        detector.add(frame, unit)
    detector.finish()
    return detector.cuts


def picture(seed: int, height: int = 72, width: int = 128) -> NDArray[np.uint8]:
    """Random grey patches of 12 x 12 pixels."""
    patches = np.random.default_rng(seed).uniform(
        20, 235, (height // 12 + 1, width // 12 + 1)
    )
    return np.kron(patches, np.ones((12, 12)))[:height, :width].astype(np.uint8)


def test_a_cut_is_the_first_frame_of_the_new_scene():
    assert detected([picture(1)] * 7 + [picture(2)] * 5 + [picture(3)] * 9) == [7, 12]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_one_scene_has_no_cut(count):
    assert detected([picture(1)] * count) == []


@pytest.mark.parametrize("first, second", [(1, 9), (9, 1), (1, 1), (4, 4)])
def test_a_cut_next_to_either_end_is_found(first, second):
    assert detected([picture(1)] * first + [picture(2)] * second) == [first]


def test_a_scene_of_four_frames_is_a_scene():
    assert detected([picture(1)] * 9 + [picture(2)] * 4 + [picture(3)] * 9) == [9, 13]


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("brightness", [60, 200])
def test_a_flash_of_up_to_three_frames_is_not_a_cut(length, brightness):
    lit = np.minimum(picture(1).astype(int) + brightness, 255).astype(np.uint8)
    assert detected([picture(1)] * 9 + [lit] * length + [picture(1)] * 9) == []


def test_a_flash_that_dies_away_is_not_a_cut():
    scene = picture(1).astype(int)
    dying = [
        np.minimum(scene + light, 255).astype(np.uint8) for light in (220, 120, 60)
    ]
    assert detected([picture(1)] * 9 + dying + [picture(1)] * 9) == []


def test_a_short_insert_is_not_a_cut_if_the_scene_comes_back():
    half = (picture(1) // 2 + picture(2) // 2).astype(np.uint8)
    assert detected([picture(1)] * 9 + [picture(2), half] + [picture(1)] * 9) == []


def test_a_bump_of_the_camera_is_not_a_cut():
    wide = picture(1, 72, 160)
    assert detected([wide[:, :128]] * 7 + [wide[:, 16:144]] * 7) == []


@pytest.mark.parametrize("level", [0, 255])
def test_a_cut_to_black_or_white_and_one_away_from_it_are_found(level):
    blank = np.full_like(picture(1), level)
    assert detected([picture(1)] * 9 + [blank] * 9 + [picture(2)] * 9) == [9, 18]


def test_a_fade_to_black_and_back_is_not_a_cut():
    down = [(picture(1) * share).astype(np.uint8) for share in np.linspace(1, 0, 12)]
    up = [(picture(2) * share).astype(np.uint8) for share in np.linspace(0, 1, 12)]
    assert detected([*down, *up]) == []


def test_every_sample_type_gives_the_same_cuts():
    frames = [picture(1)] * 7 + [picture(2)] * 7
    assert detected([frame.astype(np.uint16) * 4 for frame in frames], unit=4) == [7]
    assert detected(
        [frame.astype(np.float32) / 255 for frame in frames], unit=1 / 255
    ) == [7]


@pytest.mark.parametrize(
    "height, width, cuts",
    [
        (1, 1, []),
        (3, 200, [6]),
        (200, 3, [6]),
        (17, 5, [6]),
        (64, 64, [6]),
        (97, 131, [6]),
    ],
)
def test_any_size_of_picture_is_taken_and_one_pixel_has_no_picture(height, width, cuts):
    random = np.random.default_rng(0)
    frames = [
        random.integers(0, 255, (height, width), dtype=np.uint8) for _ in range(2)
    ]
    assert detected([frames[0]] * 6 + [frames[1]] * 6) == cuts
    assert detected([frames[0]] * 12) == []


def test_a_decision_lags_by_at_most_the_stated_number_of_frames():
    detector = SceneDetector()
    for added, frame in enumerate([picture(1)] * 7 + [picture(2)] * 7, start=1):
        detector.add(frame)
        assert (7 in detector.cuts) == (added - 1 - detector.lag >= 7)


def test_memory_does_not_grow_with_the_video():
    detector, sizes = SceneDetector(), []
    for _ in range(100):
        detector.add(picture(1))
        sizes.append(len(pickle.dumps(detector)))
    # the number of frames takes a byte more
    assert max(sizes[50:]) - min(sizes[50:]) < 16


# The shared clips: pytest -m data. The full table is printed by cut_videos.py.


@pytest.fixture(scope="module")
def eval_scenes(shared_data: Path) -> dict[str, Pictures]:
    return scenes_of(shared_data)


@pytest.fixture(scope="module")
def pans(shared_data: Path) -> dict[str, Pictures]:
    return whip_pans(shared_data, 6)


@pytest.mark.data
@pytest.mark.parametrize("sigma", [0, 50])
def test_recall_and_precision_on_joins_of_the_shared_clips(eval_scenes, pans, sigma):
    cuts, result, false = sum(
        score(eval_scenes, pans, kind, sigma, range(3)) for kind in KINDS
    )
    assert cuts >= 75
    assert result >= 0.95 * cuts
    assert result >= 0.95 * (result + false)
