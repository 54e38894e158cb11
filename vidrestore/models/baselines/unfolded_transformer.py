"""The unfolded Transformer: attention and a rectified linear map, derived from the energy of a plain
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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.baselines.recovery import WHITE, RecoverySystem
from vidrestore.models.dust import check_measurements, normalised_attention, weighted_attention
from vidrestore.models.fast.linear import Linear, Product, on_tokens


@dataclass(frozen=True)
class UnfoldedTransformerConfig:
    """`width` is the length of a token; `normalise` False is the weighted softmax as derived.

    Raises ValueError for impossible sizes.
    """

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


def build(config: dict[str, Any]) -> UnfoldedTransformer:
    """Build the network from the configuration in its weights file."""
    return UnfoldedTransformer(UnfoldedTransformerConfig(**config))


class UnfoldedTransformer(RecoverySystem):
    """(B, T, M) -> (B, T, N); see the module."""

    def __init__(self, config: UnfoldedTransformerConfig) -> None:
        super().__init__(config.patch, config.measurements)
        self.config = config
        pixels = config.patch**2
        self.embedding = nn.Linear(config.measurements or pixels, config.width)
        self.attending = nn.Parameter(_glorot(config.blocks, config.width))  # W_a of each block
        self.mapping = nn.Parameter(_glorot(config.blocks, config.width))  # W_b of each block
        self.output = nn.Linear(config.width, pixels)

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """See `RecoverySystem.at`. W_b is applied before the attention, which is equivalent, so one product
        yields q and W_b y.
        """
        embed, output = (
            Product(self.embedding.weight / WHITE, dtype, linear),
            Product(WHITE * self.output.weight, dtype, linear),
        )
        blocks = [
            Product(torch.cat(pair), dtype, linear) for pair in zip(self.attending, self.mapping, strict=True)
        ]
        attention = normalised_attention if self.config.normalise else weighted_attention

        def recover(measurements: Tensor) -> Tensor:
            tokens = on_tokens(embed, measurements) + self.embedding.bias
            for block in blocks:
                queries, values = on_tokens(block, tokens).chunk(2, dim=-1)
                tokens = F.relu(attention(queries) @ values)
            return on_tokens(output, tokens) + WHITE * self.output.bias

        return recover


def _glorot(blocks: int, width: int) -> Tensor:
    """Return (blocks, width, width), uniform as in X. Glorot and Y. Bengio (2010)."""
    bound = (3 / width) ** 0.5
    return torch.empty(blocks, width, width).uniform_(-bound, bound)
