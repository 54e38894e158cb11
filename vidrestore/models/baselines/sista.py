"""SISTA and SISTA-RNN: sparse codes frame by frame, each predicted from the frame before.

S. Wisdom, T. Powers, J. Pitton, L. Atlas, "Building recurrent networks by unfolding iterative thresholding
for sequential sparse recovery", ICASSP 2017: iterative soft thresholding on, for every t,

    1/2 |x_t - A D h_t|^2 + lambda1 |h_t|_1 + lambda2 / 2 |D h_t - F D h_{t-1}|^2,

starting at the prediction D^T F D h_{t-1}. SISTA-RNN takes a few iterations and learns A, D, F, lambda1,
lambda2, c and the code before the first frame; SISTA takes many and learns nothing.

The DUST paper leaves open: pixels are grey levels 0-255 and the dictionary is the tight one (see dust.py).
The A of the RNNs is half of Glorot's rule at first, as by the authors of the l1-l1-RNN: otherwise c = 1 would
be far below the bound |A D|^2 of iterative thresholding, and codes would grow without bound from frame to
frame.
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
from vidrestore.models.dust import dct_dictionary
from vidrestore.models.fast.linear import Linear, Product, on_tokens

SENSING_SCALE = 0.5  # factor on Glorot's rule


@dataclass(frozen=True)
class SistaConfig(UnfoldingConfig):
    """`layers` is the number of iterations; `lambda1` and `lambda2` are constants."""

    layers: int = 100


def build(config: dict[str, Any]) -> Sista:
    """Build SISTA from the configuration in its weights file."""
    return Sista(SistaConfig(**config))


def build_rnn(config: dict[str, Any]) -> SistaRnn:
    """Build SISTA-RNN from the configuration in its weights file."""
    return SistaRnn(UnfoldingConfig(**config))


class Sista(RecoverySystem):
    """SISTA with the DCT, F = I, and the smallest c for which convergence is guaranteed. It learns
    nothing.
    """

    def __init__(self, config: SistaConfig) -> None:
        super().__init__(config.patch, config.measurements, learned=False)
        self.config = config
        # D (N, K)
        self.dictionary = nn.Parameter(dct_dictionary(config.patch, config.atoms), requires_grad=False)

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """See `RecoverySystem.at`. `dtype` is ignored: in 16 bits the iterations would accumulate rounding
        errors.
        """
        config, dictionary = self.config, self.dictionary
        sensing = sensing_or_identity(self.sensing, dictionary)
        lambda1, lambda2 = (dictionary.new_tensor(value) for value in (config.lambda1, config.lambda2))
        bound = (
            torch.linalg.matrix_norm(sensing @ dictionary, 2) ** 2
            + lambda2 * torch.linalg.matrix_norm(dictionary, 2) ** 2
        )
        correlation, start = torch.eye(len(dictionary)).to(dictionary), dictionary.new_zeros(config.atoms)
        return Iterations(
            sensing,
            dictionary,
            correlation,
            start,
            (lambda1, lambda2, bound),
            config.layers,
            dictionary.dtype,
            linear,
        )


class SistaRnn(RecoverySystem):
    """(B, T, M) -> (B, T, N); see the module."""

    def __init__(self, config: UnfoldingConfig) -> None:
        super().__init__(config.patch, config.measurements, scale=SENSING_SCALE)
        self.config = config
        self.dictionary = nn.Parameter(dct_dictionary(config.patch, config.atoms))  # D (N, K)
        self.correlation = nn.Parameter(torch.eye(config.patch**2))  # F (N, N)
        self.start = nn.Parameter(torch.zeros(config.atoms))  # the code before the first frame (K,)
        self.log_lambda1, self.log_lambda2 = positive(config.lambda1), positive(config.lambda2)
        self.log_step = positive(1.0)  # c

    def at(self, sigma: float, dtype: torch.dtype, linear: type[Linear]) -> Callable[[Tensor], Tensor]:
        """See `RecoverySystem.at`."""
        sensing = sensing_or_identity(self.sensing, self.dictionary)
        numbers = (self.log_lambda1.exp(), self.log_lambda2.exp(), self.log_step.exp())
        return Iterations(
            sensing, self.dictionary, self.correlation, self.start, numbers, self.config.layers, dtype, linear
        )


class Iterations:
    """The iterations on groups (B, T, M), all groups of a frame at once. Codes are in units of their
    threshold lambda1 / c.

    I - D^T (A^T A + lambda2 I) D / c is not computed: multiplying by D, by an (N, N) matrix and by D^T takes
    half the operations.
    """

    def __init__(
        self,
        sensing: Tensor,
        dictionary: Tensor,
        correlation: Tensor,
        start: Tensor,
        numbers: tuple[Tensor, Tensor, Tensor],
        layers: int,
        dtype: torch.dtype,
        linear: type[Linear],
    ) -> None:
        lambda1, lambda2, c = numbers
        threshold, self.coupling, self.layers = lambda1 / c, lambda2 / c, layers
        gram = (sensing.mT @ sensing + lambda2 * torch.eye(len(dictionary)).to(dictionary)) / c
        matrices = (sensing.mT / c, correlation, gram, dictionary * threshold, dictionary.mT / threshold)
        self.data, self.correlation, self.gram, self.synthesis, self.analysis = (
            Product(matrix, dtype, linear) for matrix in matrices
        )
        self.before = dictionary @ start  # the signal before the first frame (N,)

    def __call__(self, measurements: Tensor) -> Tensor:
        """(B, T, M) -> (B, T, N) in the dtype of the measurements."""
        data = on_tokens(self.data, measurements.transpose(0, 1))  # A^T x / c (T, B, N)
        signal = self.before.expand(len(measurements), -1)
        recovered = []
        for frame_data in data:
            signal = self._frame(frame_data, signal)
            recovered.append(signal)
        return torch.stack(recovered, dim=1)

    def _frame(self, data: Tensor, before: Tensor) -> Tensor:
        """Return the signals (B, N) of one frame from its data (B, N) and the signals of the frame before."""
        predicted = self.correlation(before)  # F D h_{t-1}
        pull = data + self.coupling * predicted
        code = self.analysis(predicted)  # D^T F D h_{t-1}
        for _ in range(self.layers):
            code = F.softshrink(code + self.analysis(pull - self.gram(self.synthesis(code))), 1.0)
        return self.synthesis(code)
