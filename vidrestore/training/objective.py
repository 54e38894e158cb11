"""What a network is trained for and judged by: groups of patches, measured and made noisy, that it should give back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from vidrestore.degrade import add_gaussian_noise
from vidrestore.models.linear import Linear, PlainLinear

LOSS_POWER = 1.3  # errors grow about so with sigma: dividing by sigma ** 1.3 gives every level about the same say
CHUNK = 200  # groups that are judged at once
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class GroupNetwork(Protocol):
    """What training asks of a network, which is an nn.Module besides."""

    config: Any  # a dataclass with at least `patch`, the side of its patches

    def measure(self, patches: Tensor) -> Tensor:
        """Clean patches (B, T, N) -> what the network is given (B, T, M), before noise; a denoiser is given the patches themselves."""
        ...

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """The function (B, T, M) -> (B, T, N) at one noise level, products in `dtype`."""
        ...


def restored_groups(network: nn.Module, clean: Tensor, sigma: float, seed: int, precision: str) -> Tensor:
    """Clean groups (B, T, N) on the 0-255 scale, degraded and restored: (B, T, N) float32, with gradients.

    The noise follows from the seed (and the kind of device). On patches it is clipped and rounded, as a video file holds it; on the
    measurements of compressed sensing it stays as drawn.
    """
    form = cast("GroupNetwork", network)
    measured = form.measure(clean)
    generator = torch.Generator(clean.device).manual_seed(seed)
    noisy = add_gaussian_noise(measured, sigma, generator, clip_and_round=measured is clean) if sigma else measured
    return form.at(sigma, DTYPES[precision], PlainLinear)(noisy)


def batch_loss(network: nn.Module, clean: Tensor, sigma: float, seed: int, precision: str) -> Tensor:
    """Mean squared error of the restored groups, in grey levels; with noise weighted so that every level counts alike."""
    error = (restored_groups(network, clean, sigma, seed, precision) - clean).square().mean()
    return error / sigma**LOSS_POWER if sigma else error


@torch.no_grad()
def group_psnr(network: nn.Module, groups: Tensor, sigma: float, precision: str) -> float:
    """PSNR (dB) over all of the (P, T, N) groups together, with the same noise each time; computed where the network is."""
    device = next(network.parameters()).device
    squares, count = 0.0, 0
    for index, part in enumerate(groups.split(CHUNK)):
        clean = part.to(device).float()
        restored = restored_groups(network, clean, sigma, index, precision).clamp(0, 255)
        squares += float((restored - clean).square().double().sum())
        count += clean.numel()
    return 10 * math.log10(255**2 * count / squares) if squares else math.inf
