"""Small convolutional networks that correct the last estimates, one for luma and one for colour differences.

Non-local Bayes and Wiener's filter restore groups of similar patches. What is alike nowhere, fine texture and
small details, is left in the difference between source and estimate, and the pixels around show where. A
network sees both, in units of the noise, and adds a correction (residual, as in K. Zhang et al., "Beyond a
Gaussian Denoiser", TIP 2017). For colour it sees luma, too, which has most of the edges. It works at full
resolution and looks five pixels far; at half the resolution, or with dilated filters, networks of the same
cost gained half as much. `examples/experiments/fit_finisher.py` trains them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast.linear import processor_has
from vidrestore.models.fitted import fitted

# Wider layers cost a processor more per weight, and so do 3x3 filters with a single output.
WIDTH, DEPTH = 16, 5
SLOPE = 0.1  # of negative values, so that no channel stops learning
AROUND = 16  # pixels: the brightness of blocks of this side is taken off
LEAST_CONTRAST = 10.0  # grey levels: with sigma, the unit of the picture itself
LUMA, COLOUR = 3, 4  # maps that are seen
MIDDLE = 3.0  # of the logarithms of sigma
BYTES = 256  # per pixel, of all maps at once
ROWS = 96  # corrected at once on a CPU, so that they stay in its cache


class Finisher(nn.Module):
    """Compute corrections by `depth` filters of 3x3 pixels; zero before training."""

    def __init__(self, seen: int, width: int = WIDTH, depth: int = DEPTH) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(width if index else seen, width, 3, padding=1) for index in range(depth)
        )
        self.last = nn.Conv2d(width, 1, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)  # type: ignore[arg-type]

    def forward(self, seen: Tensor) -> Tensor:
        """Map what `features` gives, (B, C, H, W), to corrections (B, 1, H, W) in units of sigma."""
        for layer in self.layers:
            seen = F.leaky_relu_(layer(seen), SLOPE)
        correction: Tensor = self.last(seen)
        return correction

    def for_inference(self) -> Callable[[Tensor], Tensor]:
        """Return `forward` in its fastest form: in bf16 on a CPU that has it, layers with their slopes."""
        weight = self.last.weight
        if weight.device.type != "cpu" or weight.dtype != torch.bfloat16 or not processor_has("avx512_bf16"):
            return self
        layers = [packed(cast("nn.Conv2d", layer)) for layer in self.layers]

        def forward(seen: Tensor) -> Tensor:
            for layer in layers:
                seen = layer(seen)
            correction: Tensor = self.last(seen)
            return correction

        return forward


def packed(layer: nn.Conv2d) -> Callable[[Tensor], Tensor]:
    """Return a layer and its leaky ReLU as one operation of oneDNN, which saves a sixth of the time.

    Its operators are private; a torch without them does both in turn.
    """
    weight, bias = layer.weight.detach(), cast("Tensor", layer.bias).detach()
    where: tuple[Any, ...] = ([1, 1], [1, 1], [1, 1], 1)  # padding, stride, dilation and groups
    try:
        reordered = torch.ops.mkldnn._reorder_convolution_weight(weight, *where, None)
        convolve = torch.ops.mkldnn._convolution_pointwise
    except (AttributeError, RuntimeError, NotImplementedError):
        return lambda seen: F.leaky_relu_(layer(seen), SLOPE)
    return lambda seen: convolve(seen, reordered, bias, *where, "leaky_relu", [SLOPE], "")


def features(
    noisy: Tensor,
    estimate: Tensor,
    sigma: Tensor,
    luma: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return what a network sees of planes (B, H, W) with noise `sigma` (B,), on the 0-255 scale: (B, C, H,
    W), the estimate without the brightness around, the difference of the source, the noise level and, for
    colour differences, `luma` (B, H, W) as the estimate.
    """
    level, maps = sigma[:, None, None], LUMA if luma is None else COLOUR
    # in memory the channels of a pixel are neighbours; each is written once, in `dtype`
    seen = noisy.new_empty((*noisy.shape, maps), dtype=dtype)
    contrast(estimate, level, seen[..., 0])
    torch.div(noisy - estimate, level, out=seen[..., 1])
    seen[..., 2] = level.log() - MIDDLE
    if luma is not None:
        contrast(luma, level, seen[..., 3])
    return seen.permute(0, 3, 1, 2)


def contrast(estimate: Tensor, level: Tensor, out: Tensor) -> None:
    """Write planes (B, H, W) without the brightness around, in units of the noise `level` (B, 1, 1) and
    more.
    """
    size, unit = (estimate.shape[1], estimate.shape[2]), (level + LEAST_CONTRAST).reciprocal()
    blocks = F.avg_pool2d(estimate[:, None], AROUND, ceil_mode=True, count_include_pad=False)
    around = F.interpolate(blocks * -unit[:, None], size, mode="bilinear")[:, 0]
    torch.addcmul(around, estimate, unit, out=out)


def finish(
    network: Finisher,
    noisy: Tensor,
    estimate: Tensor,
    sigma: float,
    luma: Tensor | None = None,
    at_once: int = 1,
) -> Tensor:
    """Return the corrected estimate of a plane (T, H, W) on the 0-255 scale; a colour difference's needs
    `luma` of its size. Products have the dtype of the network; `at_once` frames are corrected together.
    """
    height, reach, on_cpu = noisy.shape[1], len(network.layers), noisy.device.type == "cpu"
    correct, rows = (network.for_inference(), ROWS) if on_cpu else (network, height)
    level = noisy.new_full((1,), sigma)
    finished = torch.empty_like(estimate)
    for frame in range(0, len(noisy), at_once):
        at = slice(frame, frame + at_once)
        around = None if luma is None else luma[at]
        seen = features(noisy[at], estimate[at], level, around, network.last.weight.dtype)
        before, result = estimate[at], finished[at]
        for top in range(0, height, rows):
            first, end = max(0, top - reach), min(height, top + rows + reach)
            correction = correct(seen[:, :, first:end])[:, 0, top - first :][:, :rows]
            torch.add(before[:, top : top + rows], correction, alpha=sigma, out=result[:, top : top + rows])
    return finished


@cache
def finisher(seen: int, dtype: torch.dtype, device: torch.device) -> Finisher:
    """Return the trained network for LUMA or COLOUR, for inference."""
    network = Finisher(seen)
    network.load_state_dict(part_of(fitted("models/finisher"), "luma." if seen == LUMA else "colour."))
    network.to(device=device, dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval().requires_grad_(False)


def part_of(stored: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors of one of the networks of a file."""
    return {name.removeprefix(prefix): each for name, each in stored.items() if name.startswith(prefix)}
