"""Crops drawn from decoded planes, and what is made of them."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from training_runs import SIDE, clip_run, pair_run

from vidrestore.errors import ConfigError
from vidrestore.lab.run_config import ClipDataConfig
from vidrestore.lab.training.data.footage import shot_of
from vidrestore.lab.training.data.planes import Planes, View
from vidrestore.lab.training.data.sources import make_data
from vidrestore.lab.training.data.super_resolution import ClipSource
from vidrestore.lab.training.loop import Run
from vidrestore.pixels.colour import yuv_to_rgb
from vidrestore.pixels.frames import ColourTags, PixelFormat

CPU = torch.device("cpu")
TAGS = ColourTags(matrix=1, range=1, chroma_location=1)
CODINGS = [
    PixelFormat("yuv420p", "yuv", 8, 1, 1),
    PixelFormat("yuv422p", "yuv", 8, 0, 1),
]
CODINGS += [PixelFormat("gray", "gray", 8, 0, 0), PixelFormat("gbrp", "rgb", 8, 0, 0)]


def shot(
    format: PixelFormat, frames: int = 7, side: int = 40, still: bool = False
) -> Any:
    sizes = [(side, side)] + [
        (side >> format.chroma_height_shift, side >> format.chroma_width_shift)
    ] * 2
    generator = torch.Generator().manual_seed(len(format.name))
    planes = tuple(
        torch.randint(256, (frames, *size), generator=generator, dtype=torch.uint8)
        for size in sizes[: 1 if format.family == "gray" else 3]
    )
    return shot_of(Path(format.name), still, planes, (format, TAGS))


def planes_of(*shots: Any, side: int = 16) -> Planes:
    return Planes(shots, side, shots.__getitem__)


@pytest.mark.parametrize("format", CODINGS, ids=lambda format: format.name)
def test_a_crop_at_integer_positions_equals_the_decoded_pixels(format):
    given = shot(format)
    planes = planes_of(shot(CODINGS[0]), given)
    rows, columns = torch.arange(10, 26.0), torch.arange(31, 15, -1.0)  # mirrored
    frames = torch.tensor([[5, 2]])
    view = View(
        torch.tensor([1]),
        frames,
        rows.expand(1, 2, 16),
        columns.expand(1, 2, 16),
        torch.ones(1, 2),
        torch.tensor([True]),
    )
    whole = yuv_to_rgb([plane.float() for plane in given.planes], format, TAGS, 40)
    expected = whole[frames[0]][..., 10:26, 16:32].flip(-1).mT
    torch.testing.assert_close(planes.rgb(view)[0], expected, atol=2e-5, rtol=0)


def test_a_reduced_crop_keeps_places_and_means():
    side = 96
    ramp = torch.arange(side).float().expand(1, side, side).mul(2).to(torch.uint8)
    given = shot_of(
        Path("ramp"), True, (ramp,) * 3, (PixelFormat("gbrp", "rgb", 8, 0, 0), TAGS)
    )
    planes = planes_of(given)
    place = 20.5 + 2.5 * torch.arange(16.0)
    view = View(
        torch.tensor([0]),
        torch.zeros(1, 1, dtype=torch.long),
        place.expand(1, 1, 16),
        place.expand(1, 1, 16),
        torch.full((1, 1), 2.5),
        torch.tensor([False]),
    )
    expected = ((2 * place - 16) / 219).expand(3, 16, 16)
    torch.testing.assert_close(planes.rgb(view)[0, 0], expected, atol=2e-3, rtol=0)


def clips(tmp_path: Path, **data: Any) -> Any:
    return clip_run(tmp_path, data=data, training={"steps": 9})


def source_of(config: Any) -> Any:
    return make_data(config, Run(config, config.folder / "unused", CPU).network)[0]


@pytest.mark.parametrize("practical", [False, True])
def test_a_batch_is_clips_of_the_footage_and_follows_from_the_step(tmp_path, practical):
    one, two = (source_of(clips(tmp_path, practical=practical)) for _ in range(2))
    small, large = one.batch(5, 3)
    assert (small.shape, large.shape) == ((3, 3, 3, 8, 8), (3, 3, 3, 32, 32))
    assert all(torch.equal(part, (part * 255).round() / 255) for part in (small, large))
    one.batch(6, 3)
    assert all(map(torch.equal, two.batch(5, 3), (small, large)))
    assert not torch.equal(two.batch(6, 3)[1], large)
    means = small.mean((3, 4)), large.mean((3, 4))
    torch.testing.assert_close(*means, atol=0.05 if practical else 0.01, rtol=0)


def test_photos_slide_and_pan_within_their_borders_and_have_their_share():
    photo, still = (
        shot(CODINGS[3], 1, 200, still=True),
        ClipDataConfig("x", frames=5, crop=8, native=0.5),
    )
    shots = [shot(CODINGS[0], 9, 64), photo]
    footage = Mock(shots=lambda: shots, shot=shots.__getitem__, still_share=0.5)
    source = ClipSource(footage, still, 3)
    assert [(kind, len(part)) for kind, part in source.parts(8, range(8))] == [
        (True, 4),
        (False, 4),
    ]
    assert [(kind, len(part)) for kind, part in source.parts(2, range(2))] == [
        (True, 1),
        (False, 1),
    ]
    view = source.camera.view(source.counters(1, range(400)), source.planes, still=True)
    assert (
        view.rows.min() > -8 and view.columns.max() < 208 and view.stretch.max() <= 2.5
    )
    steps = (view.rows[:, 1:].mean(2) - view.rows[:, :-1].mean(2)).abs()
    # of cameras stand still
    assert 0.2 < float((steps < 0.01).all(1).float().mean()) < 0.6
    assert float(steps.max()) > 8
    fractions = view.stretch[:, 0] != 1
    assert 0.6 < float(fractions.float().mean()) < 0.9


def test_footage_of_small_clips_alone_is_refused():
    with pytest.raises(
        ConfigError, match="no clip has frames of at least 512x512 pixels"
    ):
        planes_of(shot(CODINGS[0]), side=512)


def test_pairs_are_degraded_as_drawn_and_know_their_task(tmp_path):
    data = {
        "degradations": ["haze", "noise"],
        "frames": 3,
        "untouched": 0.2,
        "alone": 0.2,
        "combined": 0.0,
    }
    tasks = ["denoise", "dehaze"]
    source = source_of(
        pair_run(tmp_path, data=data, model={"frames": 3, "tasks": tasks})
    )
    given, clean, task = source.batch(2, 48)
    assert given.shape == (48, 3, 3, SIDE, SIDE) and clean.shape == (48, 3, SIDE, SIDE)
    assert (
        torch.equal(given, (given * 255).round() / 255)
        and given.min() >= 0
        and given.max() <= 1
    )
    change = (given[:, 1] - clean).abs().mean((1, 2, 3))
    untouched = change == 0
    assert 2 <= untouched.sum() <= 20
    mean = (given[:, 1] - clean).mean((1, 2, 3)).abs()
    hazy = mean[(task == 1) & ~untouched].mean()
    assert hazy > 2 * mean[(task == 0) & ~untouched].mean()
    assert 2 <= (given[:, 0] == given[:, 2]).flatten(1).all(1).sum() <= 30
    assert all(map(torch.equal, source.batch(2, 48), (given, clean, task)))
