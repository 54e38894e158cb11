"""SPyNet: optical flow from coarse to fine; each level of a pyramid corrects the flow of the level before.

A. Ranjan, M. J. Black, "Optical Flow Estimation using a Spatial Pyramid Network", CVPR 2017. Coordinates and
borders are those of mmediting, whose form VSR networks load: colours are normalised by the means of ImageNet,
sides are resized to a multiple of the coarsest level's pixels and back, flows are upsampled with corners
aligned, frames are warped with a replicated border.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast_maps import is_traced

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of R, G, B in ImageNet
INPUTS = 8  # channels of a level: reference (3), warped supporting frame (3), flow (2)


@dataclass(frozen=True)
class SpynetConfig:
    """Sizes of a network; the defaults are the published ones. Raises ValueError for impossible sizes."""

    levels: int = 6  # of the pyramid, the finest being the frame itself
    # channels between the convolutions of a level
    widths: tuple[int, ...] = (32, 64, 32, 16)
    kernel: int = 7

    def __post_init__(self) -> None:
        # a list if it comes from a file
        object.__setattr__(self, "widths", tuple(self.widths))
        if self.levels < 1:
            raise ValueError(f"levels must be at least 1, got {self.levels}")
        if self.kernel % 2 == 0 or min(self.widths, default=0) < 1:
            raise ValueError(
                f"kernel must be odd and widths at least 1, got {self.kernel} and {self.widths}"
            )


class Spynet(nn.Module):
    """forward: reference and supporting frames (B, 3, H, W), RGB in [0, 1], any size -> flow (B, 2, H, W) in
    pixels, x then y.

    `warp(supporting, flow)` approximates `reference`.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: SpynetConfig | None = None) -> None:
        super().__init__()
        self.config = config or SpynetConfig()
        # coarse to fine
        self.levels = nn.ModuleList(
            _level(self.config) for _ in range(self.config.levels)
        )
        self.register_buffer(
            "mean", torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False
        )
        self.register_buffer(
            "std", torch.tensor(STD).view(1, 3, 1, 1), persistent=False
        )

    def forward(self, reference: Tensor, supporting: Tensor) -> Tensor:
        height, width = reference.shape[-2:]
        return resized_flow(self.flows(reference, supporting)[-1], height, width)

    def flows(self, reference: Tensor, supporting: Tensor) -> list[Tensor]:
        """Return the flow of every level, coarsest first, in pixels of that level."""
        references, supports = self._pyramid(reference), self._pyramid(supporting)
        flows: list[Tensor] = []
        for picture, support, level in zip(
            references, supports, self.levels, strict=True
        ):
            if flows:
                flow = 2 * F.interpolate(
                    flows[-1], scale_factor=2.0, mode="bilinear", align_corners=True
                )
            else:
                flow = picture.new_zeros(len(picture), 2, *picture.shape[-2:])
            flows.append(
                flow
                + level(
                    torch.cat([picture, warp(support, flow, border="border"), flow], 1)
                )
            )
        return flows

    def _pyramid(self, frames: Tensor) -> list[Tensor]:
        """Return the levels, coarsest first, normalised."""
        coarsest = 2 ** (self.config.levels - 1)
        height, width = (-(-side // coarsest) * coarsest for side in frames.shape[-2:])
        if frames.shape[-2:] != (height, width):
            frames = F.interpolate(
                frames, size=(height, width), mode="bilinear", align_corners=False
            )
        levels = [(frames - self.mean) / self.std]
        for _ in range(self.config.levels - 1):
            levels.append(F.avg_pool2d(levels[-1], 2))
        return levels[::-1]


def _level(config: SpynetConfig) -> nn.Sequential:
    channels = (INPUTS, *config.widths, 2)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [
            nn.Conv2d(inputs, outputs, config.kernel, padding=config.kernel // 2),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers[:-1])


def resized_flow(flow: Tensor, height: int, width: int) -> Tensor:
    """Resize a flow (B, 2, h, w) to (B, 2, height, width), with vectors in pixels of the new size."""
    if flow.shape[-2:] == (height, width):
        return flow
    ratios = width / flow.shape[-1], height / flow.shape[-2]
    scale = torch.cat([flow.new_full((1, 1, 1, 1), ratio) for ratio in ratios], 1)
    return (
        F.interpolate(flow, size=(height, width), mode="bilinear", align_corners=False)
        * scale
    )


def warp(
    maps: Tensor,
    flow: Tensor,
    border: Literal["zeros", "border"] = "zeros",
    mode: Literal["bilinear", "bicubic"] = "bilinear",
) -> Tensor:
    """Sample `maps` (B, C, H, W) at each pixel plus `flow` (B, 2, H, W); outside is zero or the
    border.

    Half precision is sampled in float32, because positions need it.
    """
    return sampled(maps, sampling_grid(flow), border, mode)


def sampling_grid(flow: Tensor) -> Tensor:
    """Return the places (B, H, W, 2) of each pixel plus `flow` (B, 2, H, W), for `F.grid_sample`."""
    height, width = flow.shape[-2:]
    # sizes are tensors, which `linspace` and `alpha` would make constants
    if is_traced():
        x, y = (
            torch.arange(side, device=flow.device, dtype=flow.dtype)
            for side in (width, height)
        )
        across = (x + flow[:, 0]) * (2 / (width - 1)) - 1
        down = (y[:, None] + flow[:, 1]) * (2 / (height - 1)) - 1
        return torch.stack((across, down), 3)
    x = torch.linspace(-1, 1, width, device=flow.device, dtype=flow.dtype)
    y = torch.linspace(-1, 1, height, device=flow.device, dtype=flow.dtype)[:, None]
    across = torch.add(x, flow[:, 0], alpha=2 / max(width - 1, 1))
    down = torch.add(y, flow[:, 1], alpha=2 / max(height - 1, 1))
    return torch.stack((across, down), 1).permute(0, 2, 3, 1)


def sampled(
    maps: Tensor,
    grid: Tensor,
    border: Literal["zeros", "border"] = "zeros",
    mode: Literal["bilinear", "bicubic"] = "bilinear",
) -> Tensor:
    """Sample `maps` (B, C, h, w) at the places of a `sampling_grid` (B, H, W, 2), in its number format."""
    values = F.grid_sample(
        maps.to(grid.dtype), grid, mode=mode, padding_mode=border, align_corners=True
    )
    return values.to(maps.dtype)


def build(config: dict[str, Any]) -> Spynet:
    """Build a flow network from fields of SpynetConfig; the defaults are the published sizes."""
    return Spynet(SpynetConfig(**config))
