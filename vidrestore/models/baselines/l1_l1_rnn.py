"""l1-l1-RNN: sparse codes of one frame after another, whose change from frame to frame is sparse too.

H. D. Le, H. Van Luong, N. Deligiannis, "Designing recurrent neural networks by unfolding an l1-l1
minimization algorithm", ICIP 2019: proximal gradient steps, as many as layers, on

    1/2 |x_t - A D h_t|^2 + lambda1 |h_t|_1 + lambda2 |h_t - G h_{t-1}|_1   for every t,

beginning at G h_{t-1}. A, D, G, lambda1, lambda2, c and the code before the first frame are learned. What the
DUST paper leaves open is as for SISTA-RNN (sista.py).
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
    """The network from the configuration that its file carries."""
    return L1L1Rnn(UnfoldingConfig(**config))


def double_plateau(values: Tensor, centre: Tensor, ratio: Tensor) -> Tensor:
    """argmin over u of 1/2 (u - v)^2 + |u| + r |u - a| for values v, centres a and a number r > 0: flat at 0
    and at a.

    Beyond a plateau the result runs along v again, shifted: each of the two terms taken off v follows it
    within its plateau and stays what it is at the end outside. With s the sign of a, u is 0 for v in -s r +-
    1, and a for v in a + s +- r.
    """
    sign = torch.copysign(torch.ones_like(centre), centre)
    near_zero = F.hardtanh(values + ratio * sign)
    near_centre = ratio * F.hardtanh((values - (centre + sign)) / ratio)
    return values - near_zero - near_centre


class L1L1Rnn(RecoverySystem):
    """(B, T, M) -> (B, T, N), see the module."""

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

    I - D^T A^T A D / c is never made: A D and its transpose one after the other are less arithmetic.
    """

    layers: int
    carry: Product  # G (K, K)
    mix: Callable[[Tensor], Tensor]  # what codes go through before the gradient's step; here nothing
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
        for known in data:
            predicted = code = self.carry(code)
            for _ in range(self.layers):
                mixed = self.mix(code)
                code = double_plateau(mixed + known - self.back(self.forth(mixed)), predicted, self.ratio)
            codes.append(code)
        return on_tokens(self.synthesis, torch.stack(codes, dim=1))
