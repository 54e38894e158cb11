"""A device that runs out of memory: less at once, the same frames, and a way out where nothing is left."""

from typing import Any

import pytest
import torch
from device_runs import EIGHT, assert_same, restored
from stand_in import Rehearsal

from vidrestore.models.dust_sigma import LevelDust
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.models.vsr_clip import VsrClip
from vidrestore.models.vsr_recurrent import VsrRecurrent
from vidrestore.restorers import devices
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.settings.options import RestoreOptions


def out_of_memory_above(
    most: int, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> list[int]:
    """Let a network raise the error for batches of more than `most`; returns the sizes that it was given."""
    given: list[int] = []
    inner = getattr(where, name)

    def limited(self: Any, *arguments: Any) -> Any:
        first = arguments[1].transpose(0, 1) if where is VsrClip else arguments[0]
        given.append(len(first[0]) if where is VsrRecurrent else len(first))
        if given[-1] > most:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 MiB."
            )
        return inner(self, *arguments)

    monkeypatch.setattr(where, name, limited)
    return given


CASES: list[tuple[str, str, Any, str, int, dict[str, Any]]] = [
    ("denoise", "dust", LevelDust, "__call__", 4, {"quality": "fast"}),
    ("derain", "h", MBTaylorFormer, "forward", 1, {"tile": 64}),
    ("derain", "h", MBTaylorFormer, "forward", 1, {}),
    ("dehaze", "h, haze", MBTaylorFormer, "forward", 2, {}),
    ("sr", "sr", VsrRecurrent, "frames", 1, {"tile": 64}),
    ("sr", "sr, released", VsrClip, "__init__", 2, {}),
]


@pytest.mark.parametrize(
    "task, model, where, name, most, options", CASES, ids=lambda value: str(value)[:9]
)
def test_a_clip_that_runs_out_of_memory_is_restored_again_with_less_at_once(
    weights, monkeypatch, task, model, where, name, most, options
):
    # or groups come in sixteens
    monkeypatch.setattr("vidrestore.models.grouping.STEP", 1)
    monkeypatch.setattr(devices, "PIXELS_PER_PROCESSOR", 1e6)
    size = (16, 48) if task == "denoise" else (40, 112)
    with Rehearsal() as device:
        expected = restored(task, "cuda", EIGHT, size, model=weights[model], **options)
        given = out_of_memory_above(most, monkeypatch, where, name)
        found = restored(task, "cuda", EIGHT, size, model=weights[model], **options)
        assert device.counts["memory emptied"]
    assert max(given) > most and given[-1] <= most
    assert_same(found, expected)


def test_tiles_follow_from_the_free_memory(weights):
    sides = []
    for free, kept in ((1 << 26, 0), (1 << 30, 0), (1 << 26, (1 << 30) - (1 << 26))):
        with Rehearsal(free, kept=kept):
            restorer = PictureRestorer(
                "derain", RestoreOptions(model=weights["h"], device="cuda")
            )
            sides.append(restorer.tile_size(1080, 1920))
    rows, columns = sides[0]
    assert rows * columns * restorer.pixel_memory <= 1 << 26
    assert sides[1] == sides[2] == (1088, 1920)


def test_further_estimates_fill_a_device(weights):
    """The host waits for each part of the tracks: they are few."""
    with Rehearsal():
        there = DenoiseRestorer(RestoreOptions(model=weights["dust"], device="cuda"))
    here = DenoiseRestorer(RestoreOptions(model=weights["dust"], device="cpu"))
    # 64 for each of the stand-in's 2 processors
    assert (here.tracks, there.tracks) == (32, 2 * 64)
