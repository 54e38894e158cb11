"""A model family of three small tensors, so that weights can be tested without a real one."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vidrestore.weights.importing import Adopted


@dataclass(frozen=True)
class TinyConfig:
    width: int = 4


class Tiny(nn.Module):
    def __init__(self, config: TinyConfig, depth: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.more = nn.ModuleList(
            nn.Linear(config.width, config.width) for _ in range(depth)
        )
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.linear(values)


def build(config: dict[str, Any]) -> Tiny:
    settings = dict(config)
    depth = settings.pop("depth", 0)
    return Tiny(TinyConfig(**settings), depth)


def adopt(tensors: dict[str, Tensor], arguments: dict[str, Any]) -> Adopted:
    """The checkpoint of imagined authors, who say `fc` and `size`."""
    if arguments["size"] < 1:
        raise ValueError(f"size is {arguments['size']}, expected 1 or more")
    renamed = {
        name.replace("fc.", "linear."): tensor for name, tensor in tensors.items()
    }
    return Adopted({"width": arguments["size"]}, renamed, "count", {"scale": 2})
