"""Crops drawn from decoded planes, in the memory of a device or in files, and what is drawn on a device."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from clip_runs import clip_run
from pair_runs import SIDE, pair_run
from torch import Tensor
from training_runs import tiny_run

from vidrestore.colour import yuv_to_rgb
from vidrestore.degrade.coding import coded
from vidrestore.degrade.counters import Counters
from vidrestore.errors import ConfigError
from vidrestore.frames import ColourTags, PixelFormat
from vidrestore.training.config import ClipDataConfig
from vidrestore.training.data import planes
from vidrestore.training.data.footage import shot_of
from vidrestore.training.data.pairs import encoded
from vidrestore.training.data.planes import Planes, View
from vidrestore.training.data.sources import check_resident, make_data
from vidrestore.training.data.super_resolution import ClipSource
from vidrestore.training.loop import Run, train

CPU = torch.device("cpu")
TAGS = ColourTags(matrix=1, range=1, chroma_location=1)
CODINGS = [PixelFormat("yuv420p", "yuv", 8, 1, 1), PixelFormat("yuv422p", "yuv", 8, 0, 1)]
CODINGS += [PixelFormat("gray", "gray", 8, 0, 0), PixelFormat("gbrp", "rgb", 8, 0, 0)]


def shot(format: PixelFormat, frames: int = 7, side: int = 40, still: bool = False) -> Any:
    sizes = [(side, side)] + [(side >> format.chroma_height_shift, side >> format.chroma_width_shift)] * 2
    generator = torch.Generator().manual_seed(len(format.name))
    planes = tuple(
        torch.randint(256, (frames, *size), generator=generator, dtype=torch.uint8)
        for size in sizes[: 1 if format.family == "gray" else 3]
    )
    return shot_of(Path(format.name), still, planes, (format, TAGS))


@pytest.mark.parametrize("format", CODINGS, ids=lambda format: format.name)
def test_a_crop_at_integer_positions_equals_the_decoded_pixels(format):
    given = shot(format)
    planes = Planes([shot(CODINGS[0]), given], CPU, 16)
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
    given = shot_of(Path("ramp"), True, (ramp,) * 3, (PixelFormat("gbrp", "rgb", 8, 0, 0), TAGS))
    planes = Planes([given], CPU, 16)
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
    return clip_run(tmp_path, data={"resident": True} | data, training={"steps": 9})


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
    files = source_of(clips(tmp_path, practical=practical, resident=False)).batch(5, 3)
    assert torch.equal(files[1], large) and torch.equal(files[0], small) == (not practical)
    means = small.mean((3, 4)), large.mean((3, 4))
    torch.testing.assert_close(*means, atol=0.05 if practical else 0.01, rtol=0)


def test_photos_slide_and_pan_within_their_borders_and_have_their_share():
    photo, still = shot(CODINGS[3], 1, 200, still=True), ClipDataConfig("x", frames=5, crop=8, native=0.5)
    footage = Mock(shots=lambda: [shot(CODINGS[0], 9, 64), photo], still_share=0.5)
    source = ClipSource(footage, CPU, still, 3)
    assert [(kind, len(part)) for kind, part in source.parts(8, range(8))] == [(True, 4), (False, 4)]
    assert [(kind, len(part)) for kind, part in source.parts(2, range(2))] == [(True, 1), (False, 1)]
    view = source.camera.view(source.counters(1, range(400)), source.planes, still=True)
    assert view.rows.min() > -8 and view.columns.max() < 208 and view.stretch.max() <= 2.5
    steps = (view.rows[:, 1:].mean(2) - view.rows[:, :-1].mean(2)).abs()
    assert 0.2 < float((steps < 0.01).all(1).float().mean()) < 0.6  # of cameras stand still
    assert float(steps.max()) > 8
    fractions = view.stretch[:, 0] != 1
    assert 0.6 < float(fractions.float().mean()) < 0.9


def test_too_much_data_is_refused_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(planes, "room_for_data", lambda device: 3000)
    with pytest.raises(
        ConfigError, match=r"take 0.00 GB and more, but cpu has room for 0.00 GB .*resident=false"
    ):
        train(clips(tmp_path), tmp_path / "runs", device="cpu")
    with pytest.raises(ConfigError, match="no clip has frames of at least 512x512 pixels"):
        monkeypatch.undo()
        Planes([shot(CODINGS[0])], CPU, 512)


def test_what_can_not_be_resident_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="resident isn't supported for this kind of training"):
        check_resident(clips(tmp_path), Mock())


def moving_texture(frames: int = 5, side: int = 64) -> Tensor:
    rng = np.random.default_rng(4)
    texture = torch.from_numpy(rng.random((3, side * 2, side * 2))).float()[None]
    smooth = torch.nn.functional.avg_pool2d(texture, 5, 1, 2)[0]
    smooth = ((smooth - 0.5) * 3 + 0.5).clamp(0, 1).mul(255).round() / 255
    return torch.stack([smooth[:, t : t + side, 2 * t : 2 * t + side] for t in range(frames)])


@pytest.mark.parametrize("crf", [18.0, 30.0])
def test_imitated_coding_is_as_far_from_the_clip_as_x264(crf):
    clip, one = moving_texture(), torch.ones(1)
    mine = coded(clip[None], crf * one, 4 * one, one < 0)[0]
    real = encoded(clip, crf)
    errors = [float((part - clip).square().mean().log10()) for part in (mine, real)]
    assert errors[0] == pytest.approx(errors[1], abs=0.25)  # 2.5 dB
    assert torch.equal(mine, (mine * 255).round() / 255)
    finer = coded(clip[None], 0.5 * crf * one, 4 * one, one < 0)[0]
    assert (finer - clip).square().mean() < (mine - clip).square().mean()


def test_a_clip_that_stands_still_is_coded_once():
    clip, one = moving_texture(1).expand(4, -1, -1, -1)[None], torch.ones(1)
    noisy = clip + 0.004 * Counters(1, 0, torch.tensor([0])).normal(4, 3, 64, 64)
    decoded = coded(noisy, 34 * one, one, one < 0)
    assert torch.equal(decoded[:, 1], decoded[:, 3])
    alone = coded(noisy, 34 * one, 4 * one, one > 0)
    assert not torch.equal(alone[:, 1], alone[:, 3])


# Groups and pairs


def test_groups_are_patches_of_the_planes_at_one_level_for_all(tmp_path):
    config = tiny_run(tmp_path, {"data": {"resident": True, "match_share": 0.0, "chroma_share": 0.0}})
    source = source_of(config)
    clean, sigma, noise = source.batch(3, 64)
    assert clean.shape == noise.shape == (64, 20, 16) and 10 <= float(sigma) <= 40
    assert torch.equal(clean, clean.round()) and 0.97 < float(noise.std()) < 1.03
    lumas = [shot.planes[0][:, None].float() for shot in source.footage.shots()]
    patches = torch.cat([F.unfold(luma, 4).mT.flatten(0, 1) for luma in lumas])
    turned = [clean[0, 7].view(4, 4).rot90(times) for times in range(4)]
    turned += [part.flip(0) for part in turned]
    assert any((patches == part.flatten()).all(1).any() for part in turned)
    assert not torch.equal(source.batch(4, 64)[1], sigma)
    loss = Run(config, tmp_path / "runs", CPU).update(clean, sigma, noise)
    stated = Run(config, tmp_path / "runs", CPU).update(clean, float(sigma), noise)
    assert float(loss) == pytest.approx(float(stated), rel=1e-4)
    with pytest.raises(ConfigError, match="set match_share = 0, found 0.5"):
        train(tiny_run(tmp_path, {"data": {"resident": True, "match_share": 0.5}}), tmp_path, device="cpu")


def test_pairs_are_degraded_as_drawn_and_know_their_task(tmp_path):
    data = {
        "resident": True,
        "degradations": ["haze", "noise"],
        "frames": 3,
        "untouched": 0.2,
        "alone": 0.2,
        "combined": 0.0,
    }
    tasks = ["denoise", "dehaze"]
    source = source_of(pair_run(tmp_path, data=data, model={"frames": 3, "tasks": tasks}))
    given, clean, task = source.batch(2, 48)
    assert given.shape == (48, 3, 3, SIDE, SIDE) and clean.shape == (48, 3, SIDE, SIDE)
    assert torch.equal(given, (given * 255).round() / 255) and given.min() >= 0 and given.max() <= 1
    change = (given[:, 1] - clean).abs().mean((1, 2, 3))
    untouched = change == 0
    assert 2 <= untouched.sum() <= 20
    mean = (given[:, 1] - clean).mean((1, 2, 3)).abs()
    hazy = mean[(task == 1) & ~untouched].mean()
    assert hazy > 2 * mean[(task == 0) & ~untouched].mean()
    assert 2 <= (given[:, 0] == given[:, 2]).flatten(1).all(1).sum() <= 30
    assert all(map(torch.equal, source.batch(2, 48), (given, clean, task)))


def test_resident_pairs_refuse_degradations_that_only_the_host_draws(tmp_path):
    for data, message in (
        ({"degradations": ["coloured"]}, "resident data have no coloured"),
        ({"distracted": 0.1, "degradations": ["noise"]}, "resident data have no distracted crops"),
    ):
        with pytest.raises(ConfigError, match=message):
            source_of(pair_run(tmp_path, data={"resident": True} | data))
