"""Degradations of batches against what was measured of their forms for one clip, which they replaced, and the
same whatever the batch.

measured_degradations.json has quantiles of FEATURES of 3,000 clips (2,000 compressed ones) by the functions
of commit 3b239e1, which drew from NumPy.
"""

import json
import math
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.lab.degrade import BATCHED, per_sample
from vidrestore.lab.degrade.counters import Counters

MEASURED = json.loads(
    Path(__file__).with_name("measured_degradations.json").read_text()
)
QUANTILES, CLIPS = (0.1, 0.3, 0.5, 0.7, 0.9), 3000
SAMPLES = 240
SIGMAS = 3.5
FEATURES = (
    "change",  # mean
    "strength",  # logarithm of the root of the mean square of the change
    "changed",  # share of samples that change by more than 2 of 255
    "right",  # correlation of the change with that of the next pixel to the right,
    "down",  # below,
    "slant",  # and of that on one diagonal less that on the other
    "time",  # in the next frame,
    "colour",  # and in blue with that in red
    "top",  # mean change of the upper half less that of the lower
    "contrast",  # regression of the change on the clean values
    "gradient",  # logarithm of the ratio of mean gradients
)


def scene() -> Tensor:
    """Return (2, 3, 48, 64): soft shapes with edges and texture, moving by a pixel."""
    rng = np.random.default_rng(5)
    soft = F.interpolate(
        torch.from_numpy(rng.uniform(0, 1, (1, 3, 5, 6))), (48, 65), mode="bicubic"
    )[0]
    wide = (
        0.1
        + 0.55 * soft.clamp(0, 1)
        + 0.1 * torch.from_numpy(rng.uniform(0, 1, (1, 48, 65)))
    )
    wide[:, 10:30, 12:30] *= 0.4
    wide[:, 24:40, 36:56] += 0.25
    return torch.stack((wide[..., :64], wide[..., 1:])).float().clamp(0, 1)


def features(clean: Tensor, degraded: Tensor) -> Tensor:
    """Return (B, number of FEATURES) of clips (B, T, 3, H, W), float32."""
    change = degraded - clean
    dims = (1, 2, 3, 4)
    mean = change.mean(dims)
    rest = change - mean.view(-1, 1, 1, 1, 1)
    power = rest.square().mean(dims).clamp(min=1e-9)

    def product(one: Tensor, two: Tensor) -> Tensor:
        return (one * two).mean(dims) / power

    slant = product(rest[..., 1:, 1:], rest[..., :-1, :-1]) - product(
        rest[..., 1:, :-1], rest[..., :-1, 1:]
    )
    half = clean.shape[3] // 2
    varied = clean - clean.mean(dims, keepdim=True)
    return torch.stack(
        (
            mean,
            change.square().mean(dims).add(1e-8).log() / 2,
            (change.abs() > 2 / 255).float().mean(dims),
            product(rest[..., 1:], rest[..., :-1]),
            product(rest[..., 1:, :], rest[..., :-1, :]),
            slant,
            product(rest[:, 1:], rest[:, :-1]),
            product(rest[:, :, :1], rest[:, :, 2:]),
            change[..., :half, :].mean(dims) - change[..., half:, :].mean(dims),
            (rest * varied).mean(dims) / varied.square().mean(dims),
            (_gradient(degraded) / _gradient(clean)).log(),
        ),
        1,
    )


def _gradient(clips: Tensor) -> Tensor:
    return (clips[..., 1:] - clips[..., :-1]).abs().mean((1, 2, 3, 4)) + 1e-6


def counters(count: int, step: int = 0) -> Counters:
    return Counters(20, step, torch.arange(count))


@cache
def degraded(name: str) -> Tensor:
    """Return FEATURES (SAMPLES, F) of a small scene."""
    clips = scene().expand(SAMPLES, -1, -1, -1, -1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vidrestore.lab.degrade.weather.PAINTED_SHARE", 0.0)  # later
        # later
        patch.setattr(
            import_module("vidrestore.lab.degrade.blur"), "STRAIGHT_SHARE", 0.0
        )
        result = BATCHED[name](clips, counters(SAMPLES))
    assert result.shape == clips.shape and result.dtype == clips.dtype
    assert float(result.min()) >= 0 and float(result.max()) <= 1
    return features(clips, result)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("name", MEASURED)
def test_a_batch_is_degraded_as_one_clip_was(name, feature):
    values = degraded(name)[:, FEATURES.index(feature)]
    for share, quantile in zip(QUANTILES, MEASURED[name][feature], strict=True):
        below = (values < quantile).float() + 0.5 * (values == quantile)
        allowed = SIGMAS * math.sqrt(share * (1 - share) * (1 / SAMPLES + 1 / CLIPS))
        assert abs(float(below.mean()) - share) < allowed, (
            f"{float(below.mean()):.2f} below the {share}"
        )


def textured(count: int, side: int = 40) -> Tensor:
    return Counters(1, 0, torch.arange(count)).uniform(0.1, 0.9, 2, 3, side, side)


@pytest.mark.parametrize("name", BATCHED)
def test_a_sample_depends_on_its_own_numbers_and_not_on_the_batch(name, monkeypatch):
    clips = textured(5)
    whole = BATCHED[name](clips, counters(5))
    alone = torch.cat(
        [
            BATCHED[name](clips[[row]], counters(5).part(slice(row, row + 1)))
            for row in range(5)
        ]
    )
    torch.testing.assert_close(whole, alone, atol=2e-4, rtol=0)
    monkeypatch.setattr(per_sample, "CACHED_SAMPLES", 2 * clips[0].numel())
    torch.testing.assert_close(
        BATCHED[name](clips, counters(5)), whole, atol=2e-4, rtol=0
    )
    assert not torch.equal(BATCHED[name](clips, counters(5, step=1)), whole)
