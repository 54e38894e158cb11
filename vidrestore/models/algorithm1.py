"""Algorithm 1 of the DUST paper: the iterative sparse recovery that DUST unfolds. A reference to test against, far too slow for video.

Printed slips mended: line 3 uses the codes of iteration k - 1, and line 6 thresholds by lambda1 / c, as the derivation (Eq. 3) has it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vidrestore.models.dust import normalise_tokens, soft_threshold


def weighted_attention(signals: Tensor) -> Tensor:
    """(T, T) weights of line 5. beta_u exp(q_t . q_u) / sum is a softmax of -|q_t - q_u|^2 / 2, which does not overflow."""
    return (-0.5 * torch.cdist(signals, signals).square()).softmax(-1)


def normalised_attention(signals: Tensor) -> Tensor:
    """(T, T) weights with token normalisation (Section III-C): a plain softmax of products."""
    tokens = normalise_tokens(signals)
    return (tokens @ tokens.mT).softmax(-1)


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
) -> Tensor:
    """Signals (T, N) from measurements (T, M) = s A^T, with sensing A (M, N) and dictionary D (N, K)."""
    attention = normalised_attention if normalise else weighted_attention
    code = measurements.new_zeros(len(measurements), dictionary.shape[1])
    projected = sensing @ dictionary
    for _ in range(iterations):
        mixed = lambda2 * attention(code @ dictionary.mT) @ code
        residual = measurements - mixed @ projected.mT
        code = soft_threshold(mixed + residual @ projected / c, torch.tensor(lambda1 / c))
    return code @ dictionary.mT
