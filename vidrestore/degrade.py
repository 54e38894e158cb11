"""Clean video made worse in known ways, for training and evaluation."""

from __future__ import annotations

import torch
from torch import Tensor


def add_gaussian_noise(
    samples: Tensor, sigma: float, generator: torch.Generator | int, clip_and_round: bool = True, depth: int = 8
) -> Tensor:
    """White Gaussian noise of standard deviation `sigma` (0-255 scale) on samples of any shape; same shape, dtype and device back.

    `samples` are integers of `depth` bits, or floats on their scale. `generator` draws the noise, on its own device; a seed stands for a
    new one on the CPU, which draws the same on every machine. Frames of a video need one generator: with the same seed for each, their
    noise would stand still. `clip_and_round` gives what a file can hold, whole samples in [0, 2^depth - 1]; integers can't do without it
    (ValueError).
    """
    if not (clip_and_round or samples.dtype.is_floating_point):
        raise ValueError(f"noise on {samples.dtype} samples has to be clipped and rounded; convert to float to keep it as drawn")
    if isinstance(generator, int):
        generator = torch.Generator().manual_seed(generator)
    noise = torch.randn(samples.shape, generator=generator, device=generator.device).to(samples.device)
    noisy = noise.mul_(sigma * 2 ** (depth - 8)).add_(samples.to(torch.float32))
    if clip_and_round:
        noisy = noisy.round_().clamp_(0, 2**depth - 1)
    return noisy.to(samples.dtype)
