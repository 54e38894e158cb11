"""The restorer of the task sr: windows, tiles, clips and what it refuses."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rgb_networks import (
    doubling,
    released_form,
    vsr_restorer,
    whole_clip,
    write_weights,
)
from torch import Tensor
from vsr_networks import recurrent

from vidrestore.errors import CheckpointError, OptionError
from vidrestore.models.vsr_recurrent import RecurrentConfig
from vidrestore.restorers.base import load_restorer
from vidrestore.restorers.vsr_restorer import VsrRestorer, frame_window
from vidrestore.settings.options import Input, RestoreOptions
from vidrestore.settings.tasks import TASKS
from vidrestore.weights import read_manifest

COMPRESSED, CLEAN = TASKS["sr"].weights


def clip(frames: int, height: int, width: int) -> Tensor:
    return torch.rand(
        frames, 3, height, width, generator=torch.Generator().manual_seed(4)
    )


@pytest.mark.parametrize(
    "at, count, frames, window",
    [
        (0, 100, 5, [4, 3, 0, 1, 2]),
        (1, 100, 5, [4, 0, 1, 2, 3]),
        (98, 100, 5, [96, 97, 98, 99, 95]),
        (99, 100, 5, [97, 98, 99, 96, 95]),
        (2, 100, 7, [6, 0, 1, 2, 3, 4, 5]),
        (97, 100, 7, [94, 95, 96, 97, 98, 99, 93]),
        (0, 1, 5, [0, 0, 0, 0, 0]),
        (2, 3, 5, [0, 1, 2, 1, 0]),
        (1, 2, 5, [1, 0, 1, 0, 1]),
    ],
)
def test_windows_follow_the_rule_of_the_papers_tests(at, count, frames, window):
    assert frame_window(at, count, frames) == window


@pytest.mark.parametrize(
    "frames, height, width", [(4, 16, 24), (1, 16, 16), (3, 44, 60)]
)
def test_a_recurrent_network_gives_the_frames_of_its_own_forward(
    tmp_path, frames, height, width
):
    network, source = recurrent().float(), clip(frames, height, width)
    with torch.no_grad():
        expected = network(source[None])[0]
    restorer = vsr_restorer(tmp_path, network)
    torch.testing.assert_close(
        whole_clip(restorer, source), expected, atol=1e-4, rtol=0
    )
    part = list(restorer.frames(source, (frames // 2, frames)))
    torch.testing.assert_close(
        torch.stack(part), expected[frames // 2 :], atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    "network", [doubling(), released_form()], ids=["recurrent", "released"]
)
@pytest.mark.parametrize("frames, height, width", [(2, 33, 17), (1, 3, 2)])
def test_clips_of_any_size_and_length_become_four_times_larger(
    tmp_path, network, frames, height, width
):
    done = list(
        vsr_restorer(tmp_path, network).frames(clip(frames, height, width), (0, frames))
    )
    assert [frame.shape for frame in done] == [(3, 4 * height, 4 * width)] * frames
    assert all(frame.isfinite().all() for frame in done)


def test_a_released_network_sees_tiles_of_64_and_gives_their_centres(tmp_path):
    network, source = released_form(), clip(6, 70, 110)
    expected = torch.empty(3, 280, 440)
    for top, first, stop in (
        (0, 0, 22),
        (6, 22, 70),
    ):  # where a tile begins, and which rows it gives: the last one from its 16th on
        for left, begin, end in ((0, 0, 48), (32, 48, 62), (46, 62, 110)):
            with torch.no_grad():
                piece = network(source[None, :5, :, top : top + 64, left : left + 64])[
                    0, 2
                ]
            kept = piece[
                :,
                4 * (first - top) : 4 * (stop - top),
                4 * (begin - left) : 4 * (end - left),
            ]
            expected[:, 4 * first : 4 * stop, 4 * begin : 4 * end] = kept
    (done,) = vsr_restorer(tmp_path, network).frames(source, (2, 3))
    torch.testing.assert_close(done, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("height, width", [(200, 40), (70, 150)])
def test_tiles_of_a_recurrent_network_equal_the_frame_where_it_is_local(
    tmp_path, height, width
):
    source = clip(2, height, width)
    whole, tiled = (
        whole_clip(vsr_restorer(tmp_path, doubling(), **options), source)
        for options in ({}, {"tile": 64})
    )
    # bilinear: only the outermost two pixels of a tile see no neighbours, at low weight
    assert (whole - tiled).abs().mean() < 1e-3
    large = F.interpolate(
        source, scale_factor=4.0, mode="bilinear", align_corners=False
    )
    torch.testing.assert_close(
        whole[..., : 4 * height - 2, : 4 * width - 2],
        large[..., : 4 * height - 2, : 4 * width - 2],
    )


def test_clips_are_as_long_as_memory_allows_and_frames_are_tiled_if_memory_is_short(
    tmp_path,
):
    restorer = vsr_restorer(tmp_path, doubling())
    restorer.recurrent = RecurrentConfig()
    for height, width in ((180, 320), (360, 640), (1080, 1920)):
        assert (
            3 * restorer.facts.radius
            <= restorer.clip_length(height, width)
            <= restorer.facts.clip
        )
        assert restorer.memory(height, width) < 3.3e9
    assert restorer.memory(180, 320) < 1e9
    assert restorer.tile_size(180, 320) == (180, 320)
    assert restorer.tile_size(1080, 1920) < (1080, 1920)
    assert (
        restorer.clip_length(1080, 1920)
        < restorer.clip_length(180, 320)
        == restorer.facts.clip
    )


def test_the_kind_of_input_chooses_the_weights_unless_they_are_named(
    tmp_path, monkeypatch
):
    asked: list[str] = []

    def load_for(task: str, family: str, model: str, device: str) -> Any:
        asked.append(model)
        raise CheckpointError("enough")

    monkeypatch.setattr("vidrestore.restorers.vsr_restorer.load_for", load_for)
    for options in ({}, {"input": "clean"}, {"input": "clean", "model": "mine"}):
        with pytest.raises(CheckpointError, match="enough"):
            VsrRestorer(RestoreOptions(device="cpu", **options))
    assert asked == [COMPRESSED, CLEAN, "mine"]
    assert all(name in read_manifest() for name in TASKS["sr"].weights)
    with pytest.raises(
        OptionError, match="input must be 'auto', 'compressed' or 'clean', found 'raw'"
    ):
        RestoreOptions(input="raw")


@pytest.mark.parametrize(
    "capable, expected", [(True, torch.bfloat16), (False, torch.float32)]
)
def test_half_precision_is_used_on_processors_that_multiply_it(
    tmp_path, monkeypatch, capable, expected
):
    monkeypatch.setattr(
        "vidrestore.restorers.devices.processor_has", lambda name: capable
    )
    for network in (doubling(), released_form()):
        assert vsr_restorer(tmp_path, network)._network("auto").dtype == expected


def test_other_weights_and_tiles_are_refused(tmp_path):
    with pytest.raises(
        OptionError, match="only knows tiles of 64 pixels that share 32"
    ):
        vsr_restorer(tmp_path, released_form(), tile=128)
    with pytest.raises(CheckpointError, match="are for 'flow', not 'sr'"):
        VsrRestorer(
            RestoreOptions(
                model=write_weights(tmp_path, doubling(), "flow"), device="cpu"
            )
        )


def enlarged(source: Tensor, kind: Input) -> Tensor:
    """Return a clip (T, 3, H, W) enlarged by the bundled weights for a kind of input."""
    restorer = load_restorer("sr", RestoreOptions(device="cpu", input=kind))
    return torch.stack(list(restorer.frames(source, (0, len(source))))).clamp(0, 1)


@pytest.mark.parametrize("kind", ["clean", "compressed"])
def test_drawn_lines_of_one_and_two_pixels_stay_within_8_levels_of_what_was_drawn(kind):
    source = torch.full((1, 3, 24, 48), 60.0)
    source[..., 4:20, 4] = source[..., 12, 4:12] = source[..., 4:20, 12] = source[
        ..., 4:20, 20:22
    ] = 200
    source[..., torch.arange(4, 20), torch.arange(26, 42)] = 200  # a slope
    result = 255 * enlarged(source / 255, kind)
    assert 51.9 < result.min() < 70 and 190 < result.max() < 208.1


def test_what_flies_past_leaves_none_of_its_colour_in_other_frames():
    rows, columns = torch.meshgrid(
        torch.arange(240.0), torch.arange(320.0), indexing="ij"
    )
    sky = torch.stack(
        [
            level + 0.1 * torch.sin(columns / 23) * torch.cos(rows / 31)
            for level in (0.3, 0.35, 0.6)
        ]
    )
    large = []
    for at in range(4):
        inside = (
            (10 - torch.hypot(rows - 120 + 10 * math.sin(at), columns - 30 - 36 * at))
            / 6
            + 0.5
        ).clamp(0, 1)
        large.append(sky.lerp(torch.tensor([0.8, 0.2, 0.2]).view(3, 1, 1), inside))
    source = F.interpolate(
        torch.stack(large), scale_factor=0.25, mode="bicubic", antialias=True
    )
    colours = red_beside_green(enlarged(source, "compressed"))
    around = torch.cat((red_beside_green(source), -red_beside_green(source)), 1)
    most, less = F.interpolate(F.max_pool2d(around, 5, 1, 2), scale_factor=4).split(
        1, 1
    )
    assert (255 * torch.maximum(colours - most, -less - colours)).max() < 10


def red_beside_green(pictures: Tensor) -> Tensor:
    return pictures[:, :1] - pictures[:, 1:2]
