"""The common part of the baselines of DUST: they recover groups of patches from
measurements, and are called alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vidrestore.models.dust import check_measurements, check_sizes, check_weights
from vidrestore.models.fast.linear import Linear, PlainLinear

WHITE = 255.0


@dataclass(frozen=True)
class UnfoldingConfig:
    """Sizes as of `DustConfig`, with layers for blocks, and the values, on the 0-255 scale, that learning
    starts from (DUST paper, Section IV-B) or that stay. Raises ValueError for sizes that no system can have,
    and for values that are not above 0.
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
    """Recovers patches s from measurements x = A s (Eq. 1 of the DUST paper); the interface is that of
    `Dust`.

    forward: measurements (B, T, M) of patches on the 0-255 scale -> patches (B, T, N), N = patch * patch.
    `measure` makes them. Without `measurements` A is the identity and never learned: the system denoises.
    Otherwise A is drawn by Glorot's rule times `scale`, and learned with the rest, unless the system learns
    nothing (`learned` False): its parameters are without gradients.
    """

    config: Any  # with `patch` and `measurements`, and what else a system has
    sensing: nn.Parameter | None  # A (M, N)

    def __init__(
        self, patch: int, measurements: int | None, *, scale: float = 1.0, learned: bool = True
    ) -> None:
        super().__init__()
        drawn = (
            None
            if measurements is None
            else scale * nn.init.xavier_uniform_(torch.empty(measurements, patch**2))
        )
        self.register_parameter(
            "sensing", None if drawn is None else nn.Parameter(drawn, requires_grad=learned)
        )

    def measure(self, patches: Tensor) -> Tensor:
        """(..., N) patches -> (..., M) measurements A s."""
        return patches if self.sensing is None else patches @ self.sensing.mT

    def forward(self, measurements: Tensor) -> Tensor:
        return self.at(0.0, measurements.dtype, PlainLinear)(measurements)

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """The function (B, T, M) -> (B, T, N) with products in `dtype`: `PackedLinear` for inference,
        `PlainLinear` where gradients are wanted. What depends on the weights alone is worked out here, once.
        No system is told sigma: each is trained for one.
        """
        raise NotImplementedError


def sensing_or_identity(sensing: Tensor | None, dictionary: Tensor) -> Tensor:
    """A (M, N) to go with a dictionary (N, K)."""
    return torch.eye(dictionary.shape[0]).to(dictionary) if sensing is None else sensing


def positive(value: float) -> nn.Parameter:
    """A parameter whose exponential is a positive number. A number that is learned as it is can turn negative
    within a few steps.
    """
    return nn.Parameter(torch.tensor(math.log(value)))
