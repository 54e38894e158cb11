"""Algorithm 1 of the DUST paper: the iterative sparse recovery that DUST unfolds. A slow reference for tests
and tables.

Two misprints are corrected: line 3 uses the codes of iteration k - 1, and line 6 thresholds by lambda1 / c,
as in the derivation (Eq. 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vidrestore.models.dust import (
    check_measurements,
    check_sizes,
    check_weights,
    dct_dictionary,
    normalised_attention,
    soft_threshold,
    weighted_attention,
)
from vidrestore.models.fast.linear import Linear, PlainLinear, on_tokens
from vidrestore.papers.recovery import RecoverySystem, sensing_or_identity


def recover(
    measurements: Tensor,
    sensing: Tensor,
    dictionary: Tensor,
    *,
    iterations: int,
    lambda1: float = 0.1,
    lambda2: float = 0.4,
    c: float = 1.0,
    normalise: bool = True,
    linear: type[Linear] = PlainLinear,
) -> Tensor:
    """Recover signals (..., T, N) from measurements (..., T, M) = s A^T, with sensing A (M, N) and dictionary
    D (N, K).
    """
    attention = normalised_attention if normalise else weighted_attention
    projected = sensing @ dictionary
    synthesis, forth, back = (
        linear(matrix, measurements.dtype) for matrix in (dictionary, projected, projected.mT / c)
    )
    threshold = torch.tensor(lambda1 / c)
    code = measurements.new_zeros(*measurements.shape[:-1], dictionary.shape[1])
    for _ in range(iterations):
        mixed = lambda2 * attention(on_tokens(synthesis, code)) @ code
        residual = measurements - on_tokens(forth, mixed)
        code = soft_threshold(mixed + on_tokens(back, residual), threshold)
    return on_tokens(synthesis, code)


@dataclass(frozen=True)
class Algorithm1Config:
    """Sizes as in `DustConfig`; `lambda1` on the 0-255 scale; `normalise` False is the weighted softmax of
    line 5.

    Raises ValueError for impossible sizes and for weights that are not above 0.
    """

    patch: int = 16
    atoms: int = 1024
    iterations: int = 100
    measurements: int | None = None
    lambda1: float = 0.1
    lambda2: float = 0.4
    normalise: bool = True

    def __post_init__(self) -> None:
        check_sizes(self.patch, self.atoms, self.iterations)
        check_measurements(self.measurements, self.patch)
        check_weights(self.lambda1, self.lambda2)


def build(config: dict[str, Any]) -> Algorithm1:
    """Build the system from the configuration in its weights file."""
    return Algorithm1(Algorithm1Config(**config))


class Algorithm1(RecoverySystem):
    """(B, T, M) -> (B, T, N): `recover` with the DCT and c = |A D|^2, the bound of its step size. Nothing is
    learnt.
    """

    def __init__(self, config: Algorithm1Config) -> None:
        super().__init__(config.patch, config.measurements, learned=False)
        self.config = config
        # D (N, K)
        self.dictionary = nn.Parameter(dct_dictionary(config.patch, config.atoms), requires_grad=False)

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """See `RecoverySystem.at`. `dtype` is ignored: in 16 bits the iterations would accumulate rounding
        errors.
        """
        config, sensing = self.config, sensing_or_identity(self.sensing, self.dictionary)
        bound = float(torch.linalg.matrix_norm(sensing @ self.dictionary, 2)) ** 2
        return lambda measurements: recover(
            measurements,
            sensing,
            self.dictionary,
            iterations=config.iterations,
            lambda1=config.lambda1,
            lambda2=config.lambda2,
            c=bound,
            normalise=config.normalise,
            linear=linear,
        )
