"""The base of DUST's baselines, which recover groups of patches from measurements, and Algorithm 1 of its
paper: the iterative sparse recovery that DUST unfolds, a slow reference for tests and tables.

Two misprints of Algorithm 1 are corrected: line 3 uses the codes of iteration k - 1, and line 6 thresholds by
lambda1 / c, as in the derivation (Eq. 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

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
from vidrestore.models.fast_linear import Linear, PlainLinear, on_tokens

T = TypeVar("T")
Recovering = Callable[[Tensor], Tensor]  # groups of patches, (B, T, M) -> (B, T, N)
WHITE_LEVEL = 255.0


@dataclass(frozen=True)
class UnfoldingConfig:
    """Sizes as in `DustConfig`, with layers for blocks. `lambda1` and `lambda2`, on the 0-255 scale, are
    initial values (DUST paper, Section IV-B) or constants. Raises ValueError for impossible values.
    """

    patch: int = 16
    atoms: int = 1024
    layers: int = 3
    measurements: int | None = None
    lambda1: float = 0.3
    lambda2: float = 0.02

    def __post_init__(self) -> None:
        check_sizes(self.patch, self.atoms, self.layers)
        check_measurements(self.measurements, self.patch)
        check_weights(self.lambda1, self.lambda2)


class RecoverySystem(nn.Module):
    """Recovers patches s from measurements x = A s (Eq. 1 of the DUST paper), with the interface of `Dust`.

    forward: measurements (B, T, M) of patches on the 0-255 scale -> patches (B, T, N), N = patch * patch.
    `measure` makes the measurements. Without `measurements` A is the identity and never learnt: the system
    denoises. Otherwise A is random by Glorot's rule times `scale`, and learnt with the rest, unless `learned`
    is False: the system then has no trainable parameters.
    """

    config: Any  # a dataclass with at least `patch` and `measurements`
    sensing: nn.Parameter | None  # A (M, N)

    def __init__(
        self,
        patch: int,
        measurements: int | None,
        *,
        scale: float = 1.0,
        learned: bool = True,
    ) -> None:
        super().__init__()
        initial = (
            None
            if measurements is None
            else scale * nn.init.xavier_uniform_(torch.empty(measurements, patch**2))
        )
        self.register_parameter(
            "sensing",
            None if initial is None else nn.Parameter(initial, requires_grad=learned),
        )

    def measure(self, patches: Tensor) -> Tensor:
        """Return the measurements A s (..., M) of patches (..., N)."""
        return patches if self.sensing is None else patches @ self.sensing.mT

    def forward(self, measurements: Tensor) -> Tensor:
        return self.at(0.0, measurements.dtype, PlainLinear)(measurements)

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> Recovering:
        """Return the function (B, T, M) -> (B, T, N) with products in `dtype`.

        Use `PackedLinear` for inference and `PlainLinear` for gradients. Values that depend on the weights
        alone are computed here, once. `sigma` is ignored: each system is trained for one noise level.
        """
        raise NotImplementedError


def builder(
    network: Callable[[Any], T], config: Callable[..., Any]
) -> Callable[[dict[str, Any]], T]:
    """Return the function that builds a network from the configuration in its weights file."""
    return lambda values: network(config(**values))


def sensing_or_identity(sensing: Tensor | None, dictionary: Tensor) -> Tensor:
    """Return the sensing matrix (M, N), by default the identity for a dictionary (N, K)."""
    return torch.eye(dictionary.shape[0]).to(dictionary) if sensing is None else sensing


def positive(value: float) -> nn.Parameter:
    """Return the logarithm of a positive number as a parameter; learnt directly, it could turn negative."""
    return nn.Parameter(torch.tensor(math.log(value)))


def recover(
    measurements: Tensor,
    sensing: Tensor,
    dictionary: Tensor,
    *,
    iterations: int,
    lambda1: float = 0.1,
    lambda2: float = 0.4,
    c: float = 1.0,
    normalise: bool = False,
    linear: type[Linear] = PlainLinear,
) -> Tensor:
    """Recover signals (..., T, N) from measurements (..., T, M) = s A^T; A is (M, N), D is (N, K).

    With `normalise` the tokens of the attention are normalised, as DUST's are; else line 5 is as printed.
    """
    # A D and its transpose, so that the dictionary is applied once a step
    attention = normalised_attention if normalise else weighted_attention
    projected = sensing @ dictionary
    synthesis, forth, back = (
        linear(matrix, measurements.dtype)
        for matrix in (dictionary, projected, projected.mT / c)
    )
    threshold = torch.tensor(lambda1 / c)
    # from codes of 0, a gradient step and a threshold at a time
    code = measurements.new_zeros(*measurements.shape[:-1], dictionary.shape[1])
    for _ in range(iterations):
        mixed = lambda2 * attention(on_tokens(synthesis, code)) @ code
        residual = measurements - on_tokens(forth, mixed)
        code = soft_threshold(mixed + on_tokens(back, residual), threshold)
    return on_tokens(synthesis, code)


@dataclass(frozen=True)
class Algorithm1Config:
    """Sizes as in `DustConfig`; `lambda1` on the 0-255 scale; the softmax of line 5, or with `normalise` that
    of tokens normalised as DUST's. Raises ValueError for impossible values.
    """

    patch: int = 16
    atoms: int = 1024
    iterations: int = 100
    measurements: int | None = None
    lambda1: float = 0.1
    lambda2: float = 0.4
    normalise: bool = False

    def __post_init__(self) -> None:
        check_sizes(self.patch, self.atoms, self.iterations)
        check_measurements(self.measurements, self.patch)
        check_weights(self.lambda1, self.lambda2)


class Algorithm1(RecoverySystem):
    """(B, T, M) -> (B, T, N): `recover` with the DCT and c = |A D|^2, its step bound; nothing is learnt."""

    def __init__(self, config: Algorithm1Config) -> None:
        super().__init__(config.patch, config.measurements, learned=False)
        self.config = config
        # D (N, K)
        self.dictionary = nn.Parameter(
            dct_dictionary(config.patch, config.atoms), requires_grad=False
        )

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> Recovering:
        """See `RecoverySystem.at`; `dtype` is ignored, since 16 bits would accumulate rounding errors."""
        config, sensing = (
            self.config,
            sensing_or_identity(self.sensing, self.dictionary),
        )
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


build = builder(Algorithm1, Algorithm1Config)
