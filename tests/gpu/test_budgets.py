"""What a restored frame and a clip may cost on a GPU, counted at real sizes with the bundled weights.

Counted on the stand-in without values, for a second clip: what depends on the size alone is there already.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from device_runs import EIGHT, video_of
from stand_in import Rehearsal

from vidrestore.frames import Frame
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.pipelines import clip_restorer
from vidrestore.pipeline.plan import Clip
from vidrestore.restorers.base import load_restorer

H100 = {"processors": 132, "free": 70 << 30}
SIZES = {"270p": (270, 480), "480p": (480, 854), "1080p": (1080, 1920)}


class Cost(NamedTuple):
    """Launches, gigabytes that they read and write, and 10^9 operations of products, per frame; waits of the
    host, for values, sizes and error codes, and copies that it waits for, per clip.
    """

    launches: float
    gigabytes: float
    products: float
    waits: int
    copies: int


@cache
def cost(task: str, size: str, count: int, *options: tuple[str, Any]) -> Cost:
    height, width = SIZES[size]
    planes = tuple(np.zeros(EIGHT.plane_size(plane, height, width), np.uint8) for plane in range(3))
    frames = [Frame(planes, number, 1) for number in range(count)]
    with Rehearsal(**H100) as device:
        restorer = load_restorer(task, RestoreOptions(device="cuda:1", **dict(options)))
        clips = clip_restorer(restorer, video_of(EIGHT, height, width), RestoreOptions(), threads=1)
        for stop, sigma in ((3, 20.0), (count, 21.0)):  # as measured noise differs from clip to clip
            device.counts.clear()
            device.launches = device.touched = device.products = 0
            assert len(list(clips.frames(iter([(Clip(0, stop, (sigma,) * 3), frames[:stop])])))) == stop
    each = device.launches / count, device.touched / count / 1e9, device.products / count / 1e9
    waits = sum(device.counts[what] for what in ("values read", "sized by values", "waits inside"))
    return Cost(*each, waits, device.counts["blocking copies"])


DENOISE: tuple[Any, ...] = ("denoise", 20, ("sigma", 20.0))
CASES: dict[str, tuple[Any, ...]] = {
    "denoise": DENOISE,
    "denoise, noise measured": ("denoise", 20),
    "denoise, fast": (*DENOISE, ("quality", "fast")),
    "derain": ("derain", 24),
    "dehaze": ("dehaze", 24),
    "sr": ("sr", 24),
}


def cost_of(name: str, size: str) -> Cost:
    task, count, *options = CASES[name]
    return cost(task, size, count, *options)


# A launch takes an H100's host 7 us, however little it computes.
@pytest.mark.parametrize(
    "name, size, most",
    [
        ("denoise", "480p", 500),
        ("denoise", "1080p", 500),
        ("denoise, fast", "480p", 350),
        ("denoise, fast", "1080p", 350),
        ("derain", "480p", 150),
        ("derain", "1080p", 150),
        ("dehaze", "480p", 250),
        ("sr", "270p", 150),  # enlarged to 1080p
        ("sr", "480p", 150),
    ],
)
def test_an_h100_restores_a_frame_by_few_launches(name, size, most):
    assert cost_of(name, size).launches <= most


@pytest.mark.parametrize("name", ["denoise", "denoise, fast"])
def test_large_frames_take_no_more_launches_on_an_h100_than_small_ones(name):
    assert cost_of(name, "1080p").launches <= 1.005 * cost_of(name, "480p").launches


# At 1080p 9.4 GB of a denoised frame were counted at first.
@pytest.mark.parametrize("name, most", [("denoise", 8.4), ("denoise, fast", 3.9), ("derain", 30)])
def test_few_bytes_of_a_frame_of_1080p_are_moved_on_a_device(name, most):
    assert cost_of(name, "1080p").gigabytes <= most


# Of a denoised clip: the sizes of lists of holes in three planes and of detailed groups in two, an error code
# of each of the decompositions, and one look for NaN; of measured noise, its evenness too.
@pytest.mark.parametrize(
    "name, size, most",
    [
        ("denoise", "1080p", 11),
        ("denoise, fast", "1080p", 9),
        ("denoise, noise measured", "480p", 16),
        ("derain", "1080p", 1),
        ("sr", "480p", 1),
    ],
)
def test_the_host_waits_for_a_device_a_few_times_in_a_clip_and_for_no_copy(name, size, most):
    found = cost_of(name, size)
    assert found.waits <= most and found.copies == 0
