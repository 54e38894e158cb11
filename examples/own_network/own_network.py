"""A network of one's own, which vidrestore trains, verifies, evaluates and restores with.

pip install ./own_network
vidrestore train --config own_network/own-desnow.toml
vidrestore desnow in.mp4 --model runs/own-desnow.safetensors
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vidrestore.settings.families import PICTURE_RESTORERS, PICTURES, Family


@dataclass(frozen=True)
class Config:
    """The values of [model]; `frames`, `multiple`, `tasks` and `pixel_memory` would mean something to
    vidrestore (`restorers.base.PictureForm`).
    """

    width: int = 24
    depth: int = 4


class Residual(nn.Module):
    """Pictures (B, 3, H, W) in [0, 1] -> the same plus what a stack of convolutions finds."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        layers: list[nn.Module] = [nn.Conv2d(3, config.width, 3, padding=1)]
        for _ in range(config.depth):
            layers += [nn.ReLU(), nn.Conv2d(config.width, config.width, 3, padding=1)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(config.width, 3, 3, padding=1)

    def initialise(self) -> None:
        """Begin as an identity."""
        nn.init.zeros_(self.head.weight)

    def forward(self, pictures: Tensor) -> Tensor:
        return pictures + self.head(self.body(pictures))


def build(settings: dict[str, Any]) -> Residual:
    """Build the network from the settings in its weights file."""
    return Residual(Config(**settings))


FAMILY = Family("own_network:build", PICTURE_RESTORERS, training=PICTURES, speed="fast")
