"""A small convolutional network that finishes what DUST began: it sees the noisy frame, DUST's estimate of it and of its neighbours in
time, and how strong the noise is, and corrects the estimate.

DUST filters patches by themselves; their borders, coarse noise, colour that luma explains and what thresholds took from fine texture are
left. A network that sees all planes of a place at once repairs much of that for half of DUST's time. Convolutions run on the pixels of
2 x 2 luma samples, which are those of 4:2:0 chroma, and on two coarser scales (O. Ronneberger et al., "U-Net", MICCAI 2015; the corrections
are residual, as in K. Zhang et al., "Beyond a Gaussian denoiser", TIP 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS = 6  # of a frame: four luma samples and two of chroma
MIDDLE, SPAN = 128.0, 64.0  # of samples, to numbers about 1
LEAST = 1.0  # sigma: weaker noise is taken for this


@dataclass(frozen=True)
class FinisherConfig:
    """`widths` of the scales, from 2 x 2 pixels to ever coarser ones, and how many residual blocks each has on the way down and up.

    `neighbours`: estimates of so many frames before and after are seen.
    """

    widths: tuple[int, ...] = (48, 64, 96)
    blocks: tuple[int, ...] = (0, 2, 2)
    neighbours: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if not self.widths or len(self.widths) != len(self.blocks) or min(self.widths) < 1 or min(self.blocks) < 0:
            raise ValueError(f"widths and blocks must be as many numbers, of at least 1 and 0, got {self.widths} and {self.blocks}")
        if self.neighbours < 0:
            raise ValueError(f"neighbours must be 0 or more, got {self.neighbours}")

    @property
    def multiple(self) -> int:
        """Sides of packed frames must be multiples of this."""
        return int(2 ** (len(self.widths) - 1))


class Block(nn.Module):
    """x + conv(relu(conv(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(cast("Tensor", self.second.bias))

    def forward(self, maps: Tensor) -> Tensor:
        return maps + cast("Tensor", self.second(F.relu(self.first(maps))))


class Finisher(nn.Module):
    """forward: packed frames on the 0-255 scale, each (B, 6, h, w), and sigma (B, 2) of luma and chroma -> the estimates, corrected.

    Sides are multiples of `config.multiple`.
    """

    def __init__(self, config: FinisherConfig) -> None:
        super().__init__()
        self.config = config
        widths, blocks = config.widths, config.blocks
        self.head = nn.Conv2d(CHANNELS * (2 + 2 * config.neighbours) + 2, widths[0], 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(before, after, 2, stride=2) for before, after in pairwise(widths))
        self.up = nn.ModuleList(nn.Conv2d(after, 4 * before, 1) for before, after in pairwise(widths))
        self.before = nn.ModuleList(
            nn.Sequential(*(Block(width) for _ in range(count))) for width, count in zip(widths, blocks, strict=True)
        )
        self.after = nn.ModuleList(
            nn.Sequential(*(Block(width) for _ in range(count))) for width, count in zip(widths[:-1], blocks[:-1], strict=True)
        )
        self.body = nn.Conv2d(widths[0], widths[0], 3, padding=1)
        self.tail = nn.Conv2d(widths[0], CHANNELS, 3, padding=1)
        nn.init.zeros_(self.tail.weight)
        nn.init.zeros_(cast("Tensor", self.tail.bias))

    def forward(self, source: Tensor, estimate: Tensor, neighbours: Sequence[Tensor], sigma: Tensor) -> Tensor:
        units = noise_units(sigma)
        seen = [(source - estimate) / units, (estimate - MIDDLE) / SPAN]
        seen += [(neighbour - estimate) / units for neighbour in neighbours]
        level = (sigma.clamp(min=LEAST).log() - 2)[:, :, None, None].expand(-1, -1, *source.shape[2:])
        maps = torch.cat([*seen, level], 1).to(self.head.weight.dtype).contiguous(memory_format=torch.channels_last)
        correction = self.tail(F.relu(self.body(self._scales(F.relu(self.head(maps)), 0))))
        corrected: Tensor = estimate + correction.float() * units
        return corrected

    def _scales(self, maps: Tensor, scale: int) -> Tensor:
        """The blocks of a scale, and of the coarser ones between them."""
        maps = self.before[scale](maps)
        if scale == len(self.down):
            return maps
        coarse = self._scales(F.relu(self.down[scale](maps)), scale + 1)
        maps = maps + F.pixel_shuffle(self.up[scale](coarse), 2)
        return cast("Tensor", self.after[scale](maps))

    def operations(self, pixels: int) -> float:
        """Operations of the products for so many luma pixels; a multiply and an add are two."""
        total = 0.0
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d):
                scale = int(name.split(".")[1]) + name.startswith(("down", "up")) if "." in name else 0
                total += 2 * module.weight.numel() * pixels / 4 / 4**scale
        return total


def noise_units(sigma: Tensor) -> Tensor:
    """(B, 2) sigma of luma and chroma -> (B, 6, 1, 1), what each channel of a packed frame is measured in."""
    luma, chroma = sigma.clamp(min=LEAST).unbind(1)
    return torch.stack([luma] * 4 + [chroma] * 2, 1)[:, :, None, None]


def packed(y: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Planes (B, 2h, 2w), (B, h, w), (B, h, w) -> (B, 6, h, w)."""
    return torch.cat([F.pixel_unshuffle(y[:, None], 2), u[:, None], v[:, None]], 1)


def unpacked(frames: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The way back."""
    return F.pixel_shuffle(frames[:, :4], 2)[:, 0], frames[:, 4], frames[:, 5]


def build(config: dict[str, Any]) -> Finisher:
    """Network from the configuration that its file carries."""
    return Finisher(FinisherConfig(**config))
