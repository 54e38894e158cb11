"""A plain Vision Transformer over the measurements of a patch through time: a network without a sparse model.

A. Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021, in the shape with the 2.46 M of Table VIII
of the DUST paper: three pre-norm blocks, tokens of 256, an MLP of 1024, no bias on queries, keys and values.

Choices that the paper leaves open: the position in time is encoded by sinusoids, since learnt positions would
be undefined for the longer groups of its Table VII (the count would be the same to two decimals); four heads
of 64, the head size of ViT-B; internally patches are on the scale of 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.baselines.recovery import WHITE, RecoverySystem
from vidrestore.models.dust import check_measurements
from vidrestore.models.fast.linear import Linear, Product, on_tokens

# frames over which the slowest sinusoid turns by one radian (Vaswani et al. 2017)
LONGEST = 10_000.0


@dataclass(frozen=True)
class VitConfig:
    """`width` is the length of a token, `hidden` that of the MLP's hidden layer. Raises ValueError for
    impossible sizes.
    """

    patch: int = 16
    width: int = 256
    hidden: int = 1024
    blocks: int = 3
    heads: int = 4
    measurements: int | None = None

    def __post_init__(self) -> None:
        check_measurements(self.measurements, self.patch)
        if min(self.patch, self.width, self.hidden, self.blocks, self.heads) < 1:
            raise ValueError(f"patch, width, hidden, blocks and heads must be at least 1, got {self}")
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of twice the {self.heads} heads, got {self.width}")


def build(config: dict[str, Any]) -> Vit:
    """Build the network from the configuration in its weights file."""
    return Vit(VitConfig(**config))


def sinusoids(length: int, width: int) -> Tensor:
    """Return (length, width): the sines and then the cosines of each position, at frequencies from 1 down to
    1 / `LONGEST`.
    """
    frequencies = torch.exp(-math.log(LONGEST) * torch.arange(width // 2) / (width // 2))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Block(nn.Module):
    """The weights of one block."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        width = config.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, config.hidden), nn.Linear(config.hidden, width)


class Vit(RecoverySystem):
    """(B, T, M) -> (B, T, N); see the module."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__(config.patch, config.measurements)
        self.config = config
        pixels = config.patch**2
        self.embedding = nn.Linear(config.measurements or pixels, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.output = nn.Linear(config.width, pixels)

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """See `RecoverySystem.at`."""
        embed, output = Affine(self.embedding, dtype, linear), Affine(self.output, dtype, linear)
        blocks = [BlockAt(cast(Block, block), self.config.heads, dtype, linear) for block in self.blocks]

        def recover(measurements: Tensor) -> Tensor:
            tokens = embed(measurements / WHITE)
            tokens = tokens + sinusoids(tokens.shape[1], tokens.shape[2]).to(tokens)
            for block in blocks:
                tokens = block(tokens)
            return WHITE * output(self.norm(tokens))

        return recover


class Affine:
    """A linear layer whose product is in `dtype`, whatever the dtype of the tokens."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype, linear: type[Linear]) -> None:
        self.product, self.bias = Product(layer.weight, dtype, linear), layer.bias

    def __call__(self, tokens: Tensor) -> Tensor:
        result = on_tokens(self.product, tokens)
        return result if self.bias is None else result + self.bias


class BlockAt:
    """A block on tokens (B, T, width)."""

    def __init__(self, block: Block, heads: int, dtype: torch.dtype, linear: type[Linear]) -> None:
        self.norm1, self.norm2, self.heads = block.norm1, block.norm2, heads
        layers = (block.qkv, block.projection, block.expand, block.contract)
        self.qkv, self.projection, self.expand, self.contract = (
            Affine(layer, dtype, linear) for layer in layers
        )

    def __call__(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.projection(self._attention(self.norm1(tokens)))
        return tokens + self.contract(F.gelu(self.expand(self.norm2(tokens))))

    def _attention(self, tokens: Tensor) -> Tensor:
        """Return the attention of each head, concatenated."""
        queries, keys, values = self.qkv(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).flatten(2)
