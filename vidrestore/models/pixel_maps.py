"""Steps that image networks are made of: products and norms at every pixel, depthwise convolutions, and
pixels as tokens.

Maps (B, C, H, W) are channels_last: at a pixel its channels lie side by side, and tokens are a view of them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORM_EPS = 1e-5


def weight(*shape: int, fan_in: int) -> nn.Parameter:
    """A parameter with PyTorch's usual start for convolutions: uniform within 1 / sqrt(fan_in)."""
    return nn.Parameter(torch.empty(shape).uniform_(-1, 1) / math.sqrt(fan_in))


def pointwise(maps: Tensor, matrix: Tensor) -> Tensor:
    """(B, C, H, W) by an (O, C) matrix at every pixel: a 1x1 convolution, which PyTorch computes slowly on
    one thread.
    """
    return maps_of(F.linear(tokens_of(maps), matrix), maps)


def depthwise(maps: Tensor, kernels: Tensor) -> Tensor:
    """(B, C, H, W) by (C, 1, 3, 3) kernels, in a frame of zeros."""
    return F.conv2d(maps, kernels, padding=1, groups=len(kernels))


def within(maps: Tensor, kernels: Tensor) -> Tensor:
    """As `depthwise` for a window with a halo of one row, which is used up."""
    return F.conv2d(maps, kernels, padding=(0, 1), groups=len(kernels))


def few_filters(maps: Tensor, kernels: Tensor) -> Tensor:
    """(B, n d, H, W) by (n, d, side, side) kernels, each for d channels of its own -> (B, n, H, W), in a
    frame of zeros.

    A convolution with so few outputs keeps a processor's vectors empty. Here one product gives what every
    pixel adds to each place around it, and folding adds that up.
    """
    count, width, side, _ = kernels.shape
    taps = kernels.flip(2, 3).flatten(2).mT  # (n, side^2, d)
    added = taps @ maps.flatten(2).unflatten(1, (count, width))
    return F.fold(added.flatten(1, 2), maps.shape[2:], side, padding=side // 2)


def tokens_of(maps: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, H W, C), a view where the maps are channels_last."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


def maps_of(tokens: Tensor, like: Tensor) -> Tensor:
    """The way back, to the rows and columns of `like`."""
    return tokens.view(len(tokens), *like.shape[2:], -1).permute(0, 3, 1, 2)


def normalised(maps: Tensor, *, centred: bool = False) -> Tensor:
    """Every pixel divided by the standard deviation of its channels.

    Their mean stays, as in Restormer's "bias-free" norm, unless `centred`: then it is a layer norm without
    parameters, for which PyTorch has a kernel that is several times faster.
    """
    if centred:
        tokens = tokens_of(maps)
        with torch.autocast(maps.device.type, enabled=False):  # on CUDA it would give float32 and take a copy
            return maps_of(F.layer_norm(tokens, tokens.shape[-1:], eps=NORM_EPS), maps)
    wide = maps.to(torch.promote_types(maps.dtype, torch.float32))
    deviations = wide - wide.mean(1, keepdim=True)
    return maps * deviations.square_().mean(1, keepdim=True).add_(NORM_EPS).rsqrt_().to(maps.dtype)
