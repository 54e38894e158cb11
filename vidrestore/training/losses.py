"""Losses of training, and PSNR on held-out data: of groups of patches, and of pictures and clips."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from vidrestore.degrade import add_gaussian_noise
from vidrestore.models.fast.linear import Linear, PlainLinear
from vidrestore.training.data.batches import WHOLE, Share

# The squared error grows about as sigma ** 1.3; divided by that, every level has about the same weight.
LOSS_POWER = 1.3
CHUNK = 200  # groups validated at once
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
LEAST_ERROR = 1e-3  # squared error in [0, 1], 30 dB; crops with a smaller one have less weight in `psnr_loss`
SPECTRUM_WEIGHT = 0.1  # of the spectra's error in `picture_loss`
MOST_PSNR = 50.0  # dB; held-out pictures count as at most this, beyond which no difference is visible
VALIDATION_SIGMAS = (5.0, 20.0, 50.0)


class GroupNetwork(Protocol):
    """The methods that training needs of a network in addition to those of nn.Module."""

    config: Any  # a dataclass with at least `patch`, the side of the patches in pixels

    def measure(self, patches: Tensor) -> Tensor:
        """Map clean patches (B, T, N) to the network's input (B, T, M), before noise; the identity for a
        denoiser.
        """
        ...

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """Return the function (B, T, M) -> (B, T, N) for one noise level, with matrix products in `dtype`."""
        ...


def restored_groups(
    network: nn.Module,
    clean: Tensor,
    sigma: float,
    seed: int,
    precision: str,
    share: Share = WHOLE,
    *,
    clip_noise: bool = True,
) -> Tensor:
    """Degrade and restore clean groups (B, T, N) on the 0-255 scale; return a share of them (B', T, N)
    float32, with gradients.

    The noise depends only on the seed (and the kind of device). With `clip_noise` noisy patches are clipped
    and rounded, as a video file holds them; noise on the measurements of compressed sensing is left as drawn.
    """
    group_network = cast("GroupNetwork", network)
    measured = group_network.measure(clean)
    generator = torch.Generator(clean.device).manual_seed(seed)
    noisy = (
        add_gaussian_noise(measured, sigma, generator, clip_and_round=clip_noise and measured is clean)
        if sigma
        else measured
    )
    return group_network.at(sigma, DTYPES[precision], PlainLinear)(noisy[share.of(len(noisy))])


def batch_loss(
    network: nn.Module,
    clean: Tensor,
    sigma: float,
    seed: int,
    precision: str,
    share: Share = WHOLE,
    *,
    clip_noise: bool = True,
) -> Tensor:
    """Return the mean squared error of the restored groups, in grey levels; with noise, weighted so that
    levels count alike.
    """
    restored = restored_groups(network, clean, sigma, seed, precision, share, clip_noise=clip_noise)
    error = (restored - clean[share.of(len(clean))]).square().mean()
    return error / sigma**LOSS_POWER if sigma else error


@torch.no_grad()
def group_psnr(
    network: nn.Module, groups: Tensor, sigma: float, precision: str, *, clip_noise: bool = True
) -> float:
    """Return the PSNR (dB) over all (P, T, N) groups together, always with the same noise, computed on the
    network's device.
    """
    device = next(network.parameters()).device
    squares, count = 0.0, 0
    for index, part in enumerate(groups.split(CHUNK)):
        clean = part.to(device).float()
        restored = restored_groups(network, clean, sigma, index, precision, clip_noise=clip_noise).clamp(
            0, 255
        )
        squares += float((restored - clean).square().double().sum())
        count += clean.numel()
    return 10 * math.log10(255**2 * count / squares) if squares else math.inf


def validation_sigmas(trained: tuple[float, ...]) -> tuple[float, ...]:
    """Return the noise levels to validate at.

    That is the single level trained, or the usual levels within the range, or its geometric mean if there are
    none.
    """
    low, high = trained[0], trained[-1]
    usual = tuple(sigma for sigma in VALIDATION_SIGMAS if low <= sigma <= high) if low < high else (low,)
    return usual or (min(max(float(f"{math.sqrt(low * high):.3g}"), low), high),)


def restored_pictures(network: nn.Module, degraded: Tensor, precision: str, *tasks: Tensor) -> Tensor:
    """Return pictures (B, 3, H, W) or clips (B, T, 3, H, W) in [0, 1] after the network: float32, not
    clamped.

    A network with tasks takes their indices (B,).
    """
    with in_precision(degraded.device, precision):
        restored: Tensor = network(degraded, *tasks)
    return restored.float()


def in_precision(device: torch.device, precision: str) -> torch.autocast:
    """Return an autocast context for half precision, which is disabled for fp32."""
    return torch.autocast(
        device.type, DTYPES["bf16" if precision == "fp32" else precision], enabled=precision != "fp32"
    )


def charbonnier(error: Tensor) -> Tensor:
    """Return the mean of sqrt(error^2 + 1e-12); VSR-Transformer's release has the sum, which grows with a
    crop.
    """
    return (error.square() + 1e-12).sqrt().mean()


def picture_loss(restored: Tensor, clean: Tensor) -> Tensor:
    """Return the mean absolute error plus 0.1 times that of the real and imaginary parts of the spectra.

    This is the loss of MB-TaylorFormer V2.
    """
    error = restored - clean
    # the difference of the spectra is the spectrum of the difference
    spectrum = torch.view_as_real(torch.fft.fft2(error))
    return error.abs().mean() + SPECTRUM_WEIGHT * spectrum.abs().mean()


def psnr_loss(restored: Tensor, clean: Tensor, least: float = LEAST_ERROR) -> Tensor:
    """Return the mean over crops of log(squared error + `least`), which falls as PSNR rises."""
    return ((restored - clean).square().mean((1, 2, 3)) + least).log().mean()


@torch.no_grad()
def picture_psnr(network: nn.Module, degraded: Tensor, clean: Tensor, task: int | None = None) -> float:
    """Return the mean PSNR (dB) over pictures (N, 3, H, W) uint8, or middle frames of clips, restored one by
    one.

    All have the same task, given by its index if the network has tasks. Computed on the network's device.
    """
    device = next(network.parameters()).device
    tasks = [] if task is None else [torch.tensor([task], device=device)]
    restored = [network(picture[None].to(device) / 255, *tasks).clamp(0, 1).cpu() for picture in degraded]
    return mean_psnr(torch.cat(restored), clean / 255)


def mean_psnr(pictures: Tensor, reference: Tensor) -> float:
    """Return the mean PSNR (dB) over pictures (N, 3, H, W) in [0, 1], each counted as at most MOST_PSNR, so
    that a crop that needed no restoration doesn't outweigh the others.
    """
    squared = (pictures.double() - reference.double()).square().mean((1, 2, 3))
    squared = squared.clamp(min=10 ** (-MOST_PSNR / 10))
    return float((-10 * squared.log10()).mean())
