"""What a degradation does to a clip, in numbers, for comparing two implementations sample by sample."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

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
    soft = F.interpolate(torch.from_numpy(rng.uniform(0, 1, (1, 3, 5, 6))), (48, 65), mode="bicubic")[0]
    wide = 0.1 + 0.55 * soft.clamp(0, 1) + 0.1 * torch.from_numpy(rng.uniform(0, 1, (1, 48, 65)))
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

    slant = product(rest[..., 1:, 1:], rest[..., :-1, :-1]) - product(rest[..., 1:, :-1], rest[..., :-1, 1:])
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
