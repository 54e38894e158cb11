"""Building blocks of image networks: products and norms at every pixel, depthwise convolutions, pixels as
tokens.

Maps (B, C, H, W) are channels_last: the channels of a pixel are contiguous, so tokens are a view.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORM_EPS = 1e-5


def weight(*shape: int, fan_in: int) -> nn.Parameter:
    """Return a parameter with PyTorch's default initialisation of convolutions: uniform within 1 /
    sqrt(fan_in) of 0.
    """
    return nn.Parameter(torch.empty(shape).uniform_(-1, 1) / math.sqrt(fan_in))


def pointwise(maps: Tensor, matrix: Tensor) -> Tensor:
    """Multiply (B, C, H, W) by an (O, C) matrix at every pixel: a 1x1 convolution, which PyTorch computes
    slowly on one thread.
    """
    return maps_of(F.linear(tokens_of(maps), matrix), maps)


def depthwise(maps: Tensor, kernels: Tensor) -> Tensor:
    """Convolve (B, C, H, W) by (C, 1, 3, 3) kernels, padded with zeros."""
    return F.conv2d(maps, kernels, padding=1, groups=len(kernels))


def depthwise_rows(maps: Tensor, kernels: Tensor) -> Tensor:
    """Convolve a window with a halo of one row as `depthwise` does; the result has no halo."""
    return F.conv2d(maps, kernels, padding=(0, 1), groups=len(kernels))


def few_filters(maps: Tensor, kernels: Tensor) -> Tensor:
    """Convolve (B, n d, H, W) by (n, d, side, side) kernels, each over its own d channels, to (B, n, H, W),
    padded with zeros.

    A convolution with so few outputs leaves a processor's vectors nearly empty. Here one product computes the
    contribution of every pixel to each position around it, and `fold` adds them up.
    """
    count, width, side, _ = kernels.shape
    taps = kernels.flip(2, 3).flatten(2).mT  # (n, side^2, d)
    contributions = taps @ maps.flatten(2).unflatten(1, (count, width))
    return F.fold(contributions.flatten(1, 2), maps.shape[2:], side, padding=side // 2)


def tokens_of(maps: Tensor) -> Tensor:
    """Return (B, C, H, W) as tokens (B, H W, C), a view if the maps are channels_last."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


def maps_of(tokens: Tensor, like: Tensor) -> Tensor:
    """Return tokens (B, H W, C) as maps (B, C, H, W) with the height and width of `like`."""
    return tokens.view(len(tokens), *like.shape[2:], -1).permute(0, 3, 1, 2)


def normalised(maps: Tensor, *, centred: bool = False) -> Tensor:
    """Divide every pixel by the standard deviation of its channels.

    Their mean stays, as in Restormer's "bias-free" norm, unless `centred`: then it is a layer norm without
    parameters, for which PyTorch has a kernel that is several times faster.
    """
    if centred:
        tokens = tokens_of(maps)
        with torch.autocast(
            maps.device.type, enabled=False
        ):  # autocast would return float32, a copy, on CUDA
            return maps_of(F.layer_norm(tokens, tokens.shape[-1:], eps=NORM_EPS), maps)
    wide = maps.to(torch.promote_types(maps.dtype, torch.float32))
    deviations = wide - wide.mean(1, keepdim=True)
    return maps * deviations.square_().mean(1, keepdim=True).add_(NORM_EPS).rsqrt_().to(maps.dtype)
