"""reweighted-RNN: the l1-l1-RNN with a threshold per atom and a learnt mixing of the codes.

H. V. Luong, B. Joukovsky, N. Deligiannis, "Designing Interpretable Recurrent Neural Networks for Video
Reconstruction via Deep Unfolding", IEEE Trans. Image Processing 30 (2021): proximal gradient steps, one per
layer, on

    1/2 |x_t - A D Z h_t|^2 + lambda1 |g o Z h_t|_1 + lambda2 |g o (Z h_t - G h_{t-1})|_1   for every t,

which are h <- prox(Z h - Z D^T A^T (A D Z h - x_t) / c) with thresholds lambda1 g / c at 0 and lambda2 g / c
at G h_{t-1}, the starting point. The result of the proximal operator stands for Z h, so the signal is D h.
Its authors have a Z and a g for every layer; Table VIII of the DUST paper counts one of each, shared by all
layers (2.37 M; it would be 4.47 M), and so does this. Z and G start as the identity and g as ones: untrained,
it is the l1-l1-RNN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vidrestore.models.baselines.l1_l1_rnn import L1L1Rnn, Recurrence
from vidrestore.models.baselines.recovery import UnfoldingConfig, sensing_or_identity
from vidrestore.models.fast.linear import Linear, Product


def build(config: dict[str, Any]) -> ReweightedRnn:
    """Build the network from the configuration in its weights file."""
    return ReweightedRnn(UnfoldingConfig(**config))


class ReweightedRnn(L1L1Rnn):
    """(B, T, M) -> (B, T, N); see the module."""

    def __init__(self, config: UnfoldingConfig) -> None:
        super().__init__(config)
        self.mixing = nn.Parameter(torch.eye(config.atoms))  # Z (K, K)
        self.log_weights = nn.Parameter(torch.zeros(config.atoms))  # of g (K,)

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Recurrence:
        """See `RecoverySystem.at`."""
        c = self.log_step.exp()
        units = (
            self.log_lambda1 + self.log_weights
        ).exp() / c  # each code is in units of its atom's threshold
        projected = sensing_or_identity(self.sensing, self.dictionary) @ self.dictionary  # A D (M, K)
        return Recurrence(
            layers=self.config.layers,
            carry=Product(self.correlation * units / units[:, None], dtype, linear),
            mix=Product(self.mixing * units / units[:, None], dtype, linear),
            back=Product(self.mixing @ projected.mT / (c * units[:, None]), dtype, linear),
            forth=Product(projected * units, dtype, linear),
            synthesis=Product(self.dictionary * units, dtype, linear),
            ratio=(self.log_lambda2 - self.log_lambda1).exp(),
            start=self.start / units,
        )
