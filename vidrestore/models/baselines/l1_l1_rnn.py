"""l1-l1-RNN: sparse codes frame by frame, whose change from frame to frame is sparse as well.

H. D. Le, H. Van Luong, N. Deligiannis, "Designing recurrent neural networks by unfolding an l1-l1
minimization algorithm", ICIP 2019: proximal gradient steps, one per layer, on

    1/2 |x_t - A D h_t|^2 + lambda1 |h_t|_1 + lambda2 |h_t - G h_{t-1}|_1   for every t,

starting at G h_{t-1}. A, D, G, lambda1, lambda2, c and the code before the first frame are learnt. The
choices that the DUST paper leaves open are those of SISTA-RNN (sista.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.baselines.recovery import (
    RecoverySystem,
    UnfoldingConfig,
    positive,
    sensing_or_identity,
)
from vidrestore.models.baselines.sista import SENSING_SCALE
from vidrestore.models.dust import dct_dictionary
from vidrestore.models.fast.linear import Linear, Product, on_tokens


def build(config: dict[str, Any]) -> L1L1Rnn:
    """Build the network from the configuration in its weights file."""
    return L1L1Rnn(UnfoldingConfig(**config))


def double_plateau(values: Tensor, centre: Tensor, ratio: Tensor) -> Tensor:
    """Return argmin over u of 1/2 (u - v)^2 + |u| + r |u - a| for values v, centres a and a number r > 0.

    It is flat at 0 and at a. With s the sign of a, u is 0 for v in -s r +- 1, and a for v in a + s +- r;
    elsewhere u is v shifted by a constant. Each of the two terms subtracted from v follows v within its
    plateau and is constant outside.
    """
    sign = torch.copysign(torch.ones_like(centre), centre)
    near_zero = F.hardtanh(values + ratio * sign)
    near_centre = ratio * F.hardtanh((values - (centre + sign)) / ratio)
    return values - near_zero - near_centre


class L1L1Rnn(RecoverySystem):
    """(B, T, M) -> (B, T, N); see the module."""

    def __init__(self, config: UnfoldingConfig) -> None:
        super().__init__(config.patch, config.measurements, scale=SENSING_SCALE)
        self.config = config
        self.dictionary = nn.Parameter(dct_dictionary(config.patch, config.atoms))  # D (N, K)
        self.correlation = nn.Parameter(torch.eye(config.atoms))  # G (K, K)
        self.start = nn.Parameter(torch.zeros(config.atoms))  # the code before the first frame (K,)
        self.log_lambda1, self.log_lambda2 = positive(config.lambda1), positive(config.lambda2)
        self.log_step = positive(1.0)  # c

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """See `RecoverySystem.at`."""
        c = self.log_step.exp()
        unit = self.log_lambda1.exp() / c
        projected = sensing_or_identity(self.sensing, self.dictionary) @ self.dictionary  # A D (M, K)
        return Recurrence(
            layers=self.config.layers,
            carry=Product(self.correlation, dtype, linear),
            mix=lambda code: code,
            back=Product(projected.mT / (c * unit), dtype, linear),
            forth=Product(projected * unit, dtype, linear),
            synthesis=Product(self.dictionary * unit, dtype, linear),
            ratio=(self.log_lambda2 - self.log_lambda1).exp(),
            start=self.start / unit,
        )


@dataclass
class Recurrence:
    """The layers on groups (B, T, M), all groups of a frame at once. Codes are in units of their threshold
    lambda1 / c.

    I - D^T A^T A D / c is not computed: multiplying by A D and then by its transpose takes fewer operations.
    """

    layers: int
    carry: Product  # G (K, K)
    mix: Callable[[Tensor], Tensor]  # applied to codes before the gradient step; here the identity
    back: Product  # D^T A^T / c (K, M)
    forth: Product  # A D (M, K)
    synthesis: Product  # D (N, K)
    ratio: Tensor  # lambda2 / lambda1
    start: Tensor  # (K,)

    def __call__(self, measurements: Tensor) -> Tensor:
        """(B, T, M) -> (B, T, N) in the dtype of the measurements."""
        data = on_tokens(self.back, measurements.transpose(0, 1))  # D^T A^T x / c (T, B, K)
        code = self.start.expand(len(measurements), -1)
        codes = []
        for frame_data in data:
            predicted = code = self.carry(code)
            for _ in range(self.layers):
                mixed = self.mix(code)
                code = double_plateau(
                    mixed + frame_data - self.back(self.forth(mixed)), predicted, self.ratio
                )
            codes.append(code)
        return on_tokens(self.synthesis, torch.stack(codes, dim=1))
