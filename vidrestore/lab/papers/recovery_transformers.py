"""Transformers without a sparse model: baselines of DUST.

The unfolded Transformer: attention and a rectified linear map, derived from the energy of a plain
Transformer.

Y. Yang, Z. Huang, D. P. Wipf, "Transformers from an Optimization Perspective", NeurIPS 2022, as the DUST
paper uses it (Eq. 8 to 10, with the token normalisation of its Section III-C): y <- ReLU(W_b sum_s
softmax_s(q_t . q_s) y_s), q = W_a y normalised. A linear map turns measurements into tokens before the first
block, another one tokens into patches after the last.

Choices that the paper leaves open or contradicts: the shape is the one with the 0.49 M of Table VIII, which
needs separate weights in each block, although Section IV-B shares them in everything but the ViT. Without
normalisation (Table II b) the weights of the softmax are computed from W_a y, as in the energy, and not from
y, as printed after Eq. 10. Tokens have no positions: Table VII has the same values at any length. Internally
patches are on the scale of 0 to 1.

A plain Vision Transformer over the measurements of a patch through time: a network without a sparse model.

A. Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021, in the shape with the 2.46 M of Table VIII
of the DUST paper: three pre-norm blocks, tokens of 256, an MLP of 1024, no bias on queries, keys and values.

Choices that the paper leaves open: the position in time is encoded by sinusoids, since learnt positions would
be undefined for the longer groups of its Table VII (the count would be the same to two decimals); four heads
of 64, the head size of ViT-B; internally patches are on the scale of 0 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.lab.papers.recovery import (
    WHITE_LEVEL,
    Recovering,
    RecoverySystem,
    builder,
)
from vidrestore.models.dust import (
    check_measurements,
    normalised_attention,
    weighted_attention,
)
from vidrestore.models.fast_linear import Linear, Product, on_tokens


@dataclass(frozen=True)
class UnfoldedTransformerConfig:
    """`width` of a token; the softmax as derived without `normalise`. Raises ValueError for wrong sizes."""

    patch: int = 16
    width: int = 256
    blocks: int = 3
    measurements: int | None = None
    normalise: bool = True

    def __post_init__(self) -> None:
        check_measurements(self.measurements, self.patch)
        if min(self.patch, self.width, self.blocks) < 1:
            raise ValueError(
                f"patch, width and blocks must be at least 1, got {self.patch}, {self.width} and "
                f"{self.blocks}"
            )


class UnfoldedTransformer(RecoverySystem):
    """Recovers patches (B, T, N) from measurements (B, T, M) by unfolded attention; see the module."""

    def __init__(self, config: UnfoldedTransformerConfig) -> None:
        super().__init__(config.patch, config.measurements)
        self.config = config
        pixels = config.patch**2
        # without measurements the patches themselves are the input
        self.embedding = nn.Linear(config.measurements or pixels, config.width)
        # W_a of each block
        self.attending = nn.Parameter(_glorot(config.blocks, config.width))
        # W_b of each block
        self.mapping = nn.Parameter(_glorot(config.blocks, config.width))
        self.output = nn.Linear(config.width, pixels)

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> Recovering:
        """See `RecoverySystem.at`. W_b precedes the attention, so one product yields q and W_b y."""
        # the scale of 0 to 1 is put into the first and last product
        embed = Product(self.embedding.weight / WHITE_LEVEL, dtype, linear)
        output = Product(WHITE_LEVEL * self.output.weight, dtype, linear)
        blocks = [
            Product(torch.cat(pair), dtype, linear)
            for pair in zip(self.attending, self.mapping, strict=True)
        ]
        attention = (
            normalised_attention if self.config.normalise else weighted_attention
        )

        def recover(measurements: Tensor) -> Tensor:
            tokens = on_tokens(embed, measurements) + self.embedding.bias
            for block in blocks:
                queries, values = on_tokens(block, tokens).chunk(2, dim=-1)
                tokens = F.relu(attention(queries) @ values)
            return on_tokens(output, tokens) + WHITE_LEVEL * self.output.bias

        return recover


def _glorot(blocks: int, width: int) -> Tensor:
    """Return (blocks, width, width), uniform as in X. Glorot and Y. Bengio (2010)."""
    bound = (3 / width) ** 0.5
    return torch.empty(blocks, width, width).uniform_(-bound, bound)


# frames over which the slowest sinusoid turns by one radian (Vaswani et al. 2017)
LONGEST_WAVE = 10_000.0


@dataclass(frozen=True)
class VitConfig:
    """Sizes; `width` of a token, `hidden` of the MLP. Raises ValueError for impossible ones."""

    patch: int = 16
    width: int = 256
    hidden: int = 1024
    blocks: int = 3
    heads: int = 4
    measurements: int | None = None

    def __post_init__(self) -> None:
        check_measurements(self.measurements, self.patch)
        if min(self.patch, self.width, self.hidden, self.blocks, self.heads) < 1:
            raise ValueError(
                f"patch, width, hidden, blocks and heads must be at least 1, got {self}"
            )
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width must be a multiple of twice the {self.heads} heads, got {self.width}"
            )


def sinusoids(length: int, width: int) -> Tensor:
    """Return (length, width): sines, then cosines of positions, at frequencies from 1 to 1 / LONGEST_WAVE."""
    frequencies = torch.exp(
        -math.log(LONGEST_WAVE) * torch.arange(width // 2) / (width // 2)
    )
    angles = torch.arange(length)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class VitBlock(nn.Module):
    """The weights of one block."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        width = config.width
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width)
        self.expand = nn.Linear(width, config.hidden)
        self.contract = nn.Linear(config.hidden, width)


class Vit(RecoverySystem):
    """(B, T, M) -> (B, T, N); see the module."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__(config.patch, config.measurements)
        self.config = config
        pixels = config.patch**2
        self.embedding = nn.Linear(config.measurements or pixels, config.width)
        self.blocks = nn.ModuleList(VitBlock(config) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.output = nn.Linear(config.width, pixels)

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> Recovering:
        """See `RecoverySystem.at`."""
        # parts for this dtype, made once
        embed, output = (
            Affine(self.embedding, dtype, linear),
            Affine(self.output, dtype, linear),
        )
        blocks = [
            BlockAt(cast(VitBlock, block), self.config.heads, dtype, linear)
            for block in self.blocks
        ]

        def recover(measurements: Tensor) -> Tensor:
            tokens = embed(measurements / WHITE_LEVEL)
            tokens = tokens + sinusoids(tokens.shape[1], tokens.shape[2]).to(tokens)
            for block in blocks:
                tokens = block(tokens)
            return WHITE_LEVEL * output(self.norm(tokens))

        return recover


class Affine:
    """A linear layer whose product is in `dtype`, whatever the dtype of the tokens."""

    def __init__(
        self, layer: nn.Linear, dtype: torch.dtype, linear: type[Linear]
    ) -> None:
        self.product = Product(layer.weight, dtype, linear)
        self.bias = layer.bias

    def __call__(self, tokens: Tensor) -> Tensor:
        result = on_tokens(self.product, tokens)
        return result if self.bias is None else result + self.bias


class BlockAt:
    """A block on tokens (B, T, width)."""

    def __init__(
        self, block: VitBlock, heads: int, dtype: torch.dtype, linear: type[Linear]
    ) -> None:
        self.norm1 = block.norm1
        self.norm2 = block.norm2
        self.heads = heads
        layers = (block.qkv, block.projection, block.expand, block.contract)
        self.qkv, self.projection, self.expand, self.contract = (
            Affine(layer, dtype, linear) for layer in layers
        )

    def __call__(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.projection(self._attention(self.norm1(tokens)))
        return tokens + self.contract(F.gelu(self.expand(self.norm2(tokens))))

    def _attention(self, tokens: Tensor) -> Tensor:
        """Return the attention of each head, concatenated."""
        queries, keys, values = (
            self.qkv(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        return (
            F.scaled_dot_product_attention(queries, keys, values)
            .transpose(1, 2)
            .flatten(2)
        )


build_unfolded_transformer = builder(UnfoldedTransformer, UnfoldedTransformerConfig)
build_vit = builder(Vit, VitConfig)
