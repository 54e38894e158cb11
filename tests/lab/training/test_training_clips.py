"""Super-resolution: the clips that it is trained on, its losses, and whole runs of tiny networks."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_videos
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training_runs import FLOW, RELEASED, SMALL, RecordedEvents, clip_run

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.lab.degrade import gaussian_blurred
from vidrestore.lab.run_config import ClipTrainingConfig
from vidrestore.lab.training.data.super_resolution import (
    downscale_bicubically,
    downscale_practically,
    random_resizing,
)
from vidrestore.lab.training.loop import Run, train
from vidrestore.lab.training.objective import ClipObjective
from vidrestore.media.writing.recompress import recompress
from vidrestore.models.spynet import Spynet, SpynetConfig
from vidrestore.weights import load_model, read_card, save_model

CPU = torch.device("cpu")


def picture(frames: int = 3, side: int = 64) -> Tensor:
    """Smooth shapes that move."""
    rows, columns = np.mgrid[:side, :side] / 9
    return torch.from_numpy(
        np.stack(
            [
                [
                    0.5 + 0.4 * np.sin(rows + t / 3) * np.cos(columns * (c + 1))
                    for c in range(3)
                ]
                for t in range(frames)
            ]
        )
    ).float()


# Small clips


def test_practical_clips_are_worse_than_bicubic_ones_in_8_bits_and_come_again():
    large = picture()
    bicubic = downscale_bicubically(large)
    for seed in range(4):
        practical = downscale_practically(large, np.random.default_rng(seed))
        assert practical.shape == bicubic.shape
        assert torch.equal(practical, (practical * 255).round() / 255)
        assert torch.equal(
            practical, downscale_practically(large, np.random.default_rng(seed))
        )
        assert 0.002 < float((practical - bicubic).abs().mean()) < 0.2


def test_a_gaussian_blurs_by_its_formula():
    point = torch.zeros(1, 3, 31, 31)
    point[..., 15, 15] = 1
    rows, columns = np.mgrid[-15:16, -15:16]
    expected = np.exp(-(rows**2 + columns**2) / (2 * 1.5**2)) / (2 * np.pi * 1.5**2)
    np.testing.assert_allclose(gaussian_blurred(point, 1.5)[0, 1], expected, atol=1e-4)
    torch.testing.assert_close(
        gaussian_blurred(torch.full((1, 3, 9, 9), 0.3), 2.0),
        torch.full((1, 3, 9, 9), 0.3),
    )


# A real encoder


@pytest.mark.parametrize("seed", range(12))
def test_a_way_to_make_frames_small_keeps_flat_ones_and_where_things_are(seed):
    resize = random_resizing(np.random.default_rng(seed))
    large = torch.full((2, 3, 32, 48), 0.3)
    torch.testing.assert_close(resize(large), torch.full((2, 3, 8, 12), 0.3))
    ramp = torch.linspace(0, 1, 48).expand(1, 3, 32, 48)
    torch.testing.assert_close(
        resize(ramp)[..., 3:-3], F.avg_pool2d(ramp, 4)[..., 3:-3], atol=1e-3, rtol=0
    )


def test_recompressed_frames_are_as_many_in_order_and_the_same_each_time():
    frames = [
        tuple(
            np.full(size, 60 + 20 * number, np.uint8)
            for size in ((32, 48), (16, 24), (16, 24))
        )
        for number in range(5)
    ]
    one, two = (recompress(frames, 20) for _ in range(2))
    assert [round(float(planes[0].mean()), -1) for planes in one] == [
        60,
        80,
        100,
        120,
        140,
    ]
    assert all(
        (a == b).all()
        for first, second in zip(one, two, strict=True)
        for a, b in zip(first, second, strict=True)
    )
    assert [plane.shape for plane in one[4]] == [(32, 48), (16, 24), (16, 24)]


def test_odd_sides_are_refused():
    with pytest.raises(ValueError, match="4:2:0 has even sides in H.264, got 48x31"):
        recompress([(np.zeros((31, 48), np.uint8),) * 3], 20)


# Runs


def test_the_loss_psnr_of_clips_is_that_of_their_frames_on_average():
    objective = ClipObjective(ClipTrainingConfig(steps=1, loss="psnr"))
    clips = torch.rand(2, 3, 3, 8, 8)
    errors = torch.tensor([0.01, 0.1, 0.3, 0.05, 0.2, 0.02]).view(2, 3, 1, 1, 1)
    loss = objective.loss(nn.Identity(), (clips + errors, clips), 0)
    expected = np.mean(
        [math.log(float(error) ** 2 + 1e-3) for error in errors.flatten()]
    )
    assert float(loss) == pytest.approx(expected, abs=1e-4)


def test_parts_that_are_named_are_trained_and_no_others(tmp_path):
    config = clip_run(tmp_path, training={"parts": ["to_later", "tail"], "steps": 3})
    run = Run(config, tmp_path / "start", CPU)
    # as weights are stored
    before = {
        name: part.half().float() for name, part in run.network.state_dict().items()
    }
    after = load_model(
        train(config, tmp_path / "runs", device="cpu")
    ).network.state_dict()
    changed = {
        name.split(".")[0]
        for name, part in after.items()
        if not torch.equal(part, before[name])
    }
    assert changed == {"to_later", "tail"}
    with pytest.raises(
        ConfigError,
        match="no parameter begins with 'tial'; there are extractor, tail, to_e",
    ):
        Run(clip_run(tmp_path, training={"parts": ["tial"]}), tmp_path, CPU)


@pytest.mark.slow
def test_a_few_dozen_steps_lower_the_loss_and_the_card_has_the_metrics(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sample_videos, "sample_planes", sample_videos.chequered_planes)
    events, training = (
        RecordedEvents(),
        {"steps": 60, "validate_every": 30, "learning_rate": 0.01},
    )
    config = clip_run(tmp_path, training=training)
    card = read_card(train(config, tmp_path / "runs", device="cpu", on_event=events))
    first, last = events[1], events[-1]
    # with eight seeds 0.90 to 0.94; 0.98 to 1.03 at a learning rate of 0, or with the targets of other clips
    assert last.loss < 0.96 * first.loss
    assert list(last.psnr) == list(last.before) == ["x4"]
    assert last.psnr["x4"] > last.before["x4"]
    assert [part["psnr"] for part in card.measured.values()] == [
        round(last.psnr["x4"], 3)
    ]
    assert card.parameters == {"scale": 4}


def test_a_fresh_network_of_single_frames_enlarges_bilinearly(tmp_path):
    network = Run(
        clip_run(tmp_path, model={"neighbours": False}), tmp_path, CPU
    ).network
    clip = torch.rand(1, 3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    expected = torch.nn.functional.interpolate(clip[0], scale_factor=4, mode="bilinear")
    torch.testing.assert_close(network(clip)[0], expected)


def released_run(folder: Path, **changes: Any) -> Run:
    """A run of the released form with a small flow network, with `changes` to its model."""
    model = dict.fromkeys(SMALL) | RELEASED | changes
    return Run(clip_run(folder, model=model, data={"crop": 64}), folder, CPU)


def test_a_flow_network_goes_into_a_released_network_and_no_other(tmp_path):
    given = tmp_path / "flow.safetensors"
    save_model(
        given, Spynet(SpynetConfig(**FLOW)), family="spynet", config=FLOW, task="flow"
    )
    run = released_run(tmp_path)
    before = {name: tensor.clone() for name, tensor in run.network.state_dict().items()}
    run.initialise_from(given)
    for network in (run.network, run.learner.average):
        kept = {
            name
            for name, tensor in network.state_dict().items()
            if torch.equal(tensor, before[name])
        }
        assert kept == {name for name in before if not name.startswith("flow.")}
    assert run.config.command(run.init).endswith(f"--init {given}")
    for other in (
        released_run(tmp_path, flow=FLOW | {"widths": [8]}),
        Run(clip_run(tmp_path), tmp_path, CPU),
    ):
        with pytest.raises(CheckpointError, match="weights of spynet"):
            other.initialise_from(given)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"crop": 40}, "this network takes 64x64 pixels"),
        ({"crop": 64, "frames": 7}, "at most 5 frames, got 64x64 and 7 frames"),
    ],
)
def test_crops_that_the_network_can_not_take_are_refused_before_a_clip_is_read(
    tmp_path, data, message, monkeypatch
):
    monkeypatch.setattr(
        "vidrestore.lab.training.loop.make_data",
        lambda *arguments: pytest.fail("data was read"),
    )
    model = dict.fromkeys(SMALL) | RELEASED
    config = clip_run(tmp_path, model=model, data=data)
    with pytest.raises(ConfigError, match=message):
        train(config, tmp_path / "runs", device="cpu")
