"""Each bundled network on a real GPU beside the CPU, on a synthetic clip that every machine makes alike."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vidrestore.jobs.bench import SYNTHETIC_SIGMA, write_video
from vidrestore.jobs.in_memory import restore_frames
from vidrestore.jobs.run import restore
from vidrestore.models.fast_linear import PackedLinear
from vidrestore.models.grouping import GROUP
from vidrestore.models.matching import Grid, matched_positions
from vidrestore.settings.options import RestoreOptions
from vidrestore.weights import load_model, read_manifest
from vidrestore.weights.manifest import Card

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

CARDS = {card.name: card for card in read_manifest().values() if card.file}
SIDE, FRAMES = 64, 5


@cache
def clip() -> NDArray[np.float32]:
    """(T, H, W, 3) in [0, 1]: a texture that moves, in noise."""
    frames, rows, columns, colours = np.ogrid[:FRAMES, :SIDE, :SIDE, :3]
    texture = np.sin((rows + 2 * frames) / 9 + colours) * np.cos((columns - frames) / 7)
    noise = np.random.default_rng(0).normal(0, SYNTHETIC_SIGMA / 255, texture.shape)
    return (0.5 + 0.3 * texture + noise).clip(0, 1).astype(np.float32)


def restored(card: Card, device: str, precision: Any) -> NDArray[np.float32]:
    """The clip; patches of DUST stay at their places, which the test of patches looks at."""
    options = RestoreOptions(
        model=card.name, device=device, precision=precision, scene_detect=False
    )
    if card.task == "denoise" and card.family == "dust":
        options = replace(options, sigma=SYNTHETIC_SIGMA, match=False)
    return restore_frames(clip(), task=card.task, options=options)


def recovered(card: Card, device: str, precision: str) -> NDArray[np.float32]:
    """Groups of patches from their compressed-sensing measurements."""
    network: Any = load_model(card.name, device).network
    pixels = torch.from_numpy(np.resize(clip(), (8, GROUP, network.config.patch**2)))
    with torch.inference_mode():
        measurements = network.measure(255 * pixels.to(device))
        dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        patches = network.at(0.0, dtype, PackedLinear)(measurements) / 255
    return patches.float().cpu().numpy()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CARDS)
def test_a_bundled_network_gives_on_a_gpu_what_it_gives_on_the_cpu(name, precision):
    work = recovered if CARDS[name].task == "recover" else restored
    expected, output = (
        work(CARDS[name], "cpu", "fp32"),
        work(CARDS[name], "cuda", precision),
    )
    errors = np.abs(output.astype(np.float64) - expected)
    if precision == "fp32":
        assert errors.max() <= 1e-4
    assert np.square(errors).mean() <= 1e-4, "40 dB over the CPU's fp32"


def test_patches_are_found_on_a_gpu_where_the_cpu_finds_them():
    luma, grid = torch.from_numpy(255 * clip()[..., 1]), Grid(SIDE, SIDE, 16, 16)
    same = (
        matched_positions(luma.cuda(), grid).cpu() == matched_positions(luma, grid)
    ).all(-1)
    assert same.float().mean() >= 0.99, "ties are broken by rounding"


def test_all_frames_of_a_video_pass_a_gpu_and_an_encoder(tmp_path):
    video, output = str(tmp_path / "video.mkv"), str(tmp_path / "output.mp4")
    write_video(video, 320, 180, frames=24)
    options = RestoreOptions(device="cuda", sigma=SYNTHETIC_SIGMA)
    assert restore(video, output, task="denoise", options=options).frames == 24
