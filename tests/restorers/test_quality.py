"""Visible errors, measured on real clips with the bundled weights: colour shifts, steps between
blocks, estimated noise.
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from vidrestore.lab.degrade import add_gaussian_noise
from vidrestore.media.reading.pictures import read_picture
from vidrestore.noise import NoiseEstimator
from vidrestore.pixels.clips import clip_bounds, crossfade, join_clips
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.settings.options import RestoreOptions

pytestmark = [pytest.mark.data, pytest.mark.slow]
SIZE = (256, 320)


@pytest.fixture(scope="module")
def dog(shared_data: Path) -> Tensor:
    """(40, 256, 320) clean luma of a moving scene."""
    paths = sorted((shared_data / "eval" / "davis480p_heldout" / "dog").iterdir())[:40]
    return torch.stack(
        [
            torch.from_numpy(
                read_picture(path)[0][100 : 100 + SIZE[0], 200 : 200 + SIZE[1]]
            )
            for path in paths
        ]
    ).float()


def denoised(noisy: Tensor, sigma: float, offset: int = 0) -> Tensor:
    """Restored in blocks of 20 frames, joined as in a restoration; `offset` moves the blocks' edges."""
    restorer = DenoiseRestorer(RestoreOptions(device="cpu"))
    bounds = [(0, offset + restorer.facts.overlap)] * bool(offset) + [
        (first + offset, stop + offset)
        for first, stop in clip_bounds(
            len(noisy) - offset, [], restorer.facts.clip, restorer.facts.overlap
        )
    ]
    clips = (
        (
            (first, stop),
            [(plane,) for plane in restorer.restore((noisy[first:stop],), (sigma,))[0]],
        )
        for first, stop in bounds
    )
    return torch.stack([planes[0] for planes in join_clips(clips, crossfade)])


def psnr(restored: Tensor, clean: Tensor) -> Tensor:
    """(T,) PSNR of each frame, dB."""
    return 10 * torch.log10(
        255**2 / (restored.round().clamp(0, 255) - clean).square().mean((1, 2))
    )


def test_a_clean_video_keeps_the_mean_of_its_planes(dog):
    shift = denoised(dog, 1.0).mean((1, 2)) - dog.mean((1, 2))
    assert shift.abs().max() < 0.1


def test_quality_does_not_step_between_blocks(dog):
    noisy = add_gaussian_noise(dog, 20.0, 1)
    difference = psnr(denoised(noisy, 20.0), dog) - psnr(
        denoised(noisy, 20.0, offset=9), dog
    )
    # shared by two blocks here, inside a block with the offset
    assert difference[18:20].mean().abs() < 0.1
    assert difference[9:11].mean().abs() < 0.1  # the other way round


@pytest.mark.parametrize("sigma", [5.0, 50.0])
def test_estimated_noise_costs_little_against_the_true_one(dog, sigma):
    noisy = add_gaussian_noise(dog[:20], sigma, 2)
    estimator = NoiseEstimator()
    for frame in noisy[::8]:
        estimator.add(frame.numpy())
    known, estimated = denoised(noisy, sigma), denoised(noisy, estimator.sigma())
    assert (psnr(known, dog[:20]) - psnr(estimated, dog[:20])).mean() < 0.15
