"""Recurrent networks that unfold the iterations of a sparse recovery: baselines of DUST.

SISTA and SISTA-RNN: sparse codes frame by frame, each predicted from the frame before.

S. Wisdom, T. Powers, J. Pitton, L. Atlas, "Building recurrent networks by unfolding iterative thresholding
for sequential sparse recovery", ICASSP 2017: iterative soft thresholding on, for every t,

    1/2 |x_t - A D h_t|^2 + lambda1 |h_t|_1 + lambda2 / 2 |D h_t - F D h_{t-1}|^2,

starting at the prediction D^T F D h_{t-1}. SISTA-RNN takes a few iterations and learns A, D, F, lambda1,
lambda2, c and the code before the first frame; SISTA takes many and learns nothing.

The DUST paper leaves open: pixels are grey levels 0-255 and the dictionary is the tight one (see dust.py).
The A of the RNNs is half of Glorot's rule at first, as by the authors of the l1-l1-RNN: otherwise c = 1 would
be far below the bound |A D|^2 of iterative thresholding, and codes would grow without bound from frame to
frame.

l1-l1-RNN: sparse codes frame by frame, whose change from frame to frame is sparse as well.

H. D. Le, H. Van Luong, N. Deligiannis, "Designing recurrent neural networks by unfolding an l1-l1
minimization algorithm", ICIP 2019: proximal gradient steps, one per layer, on

    1/2 |x_t - A D h_t|^2 + lambda1 |h_t|_1 + lambda2 |h_t - G h_{t-1}|_1   for every t,

starting at G h_{t-1}. A, D, G, lambda1, lambda2, c and the code before the first frame are learnt. The
choices that the DUST paper leaves open are those of SISTA-RNN.

reweighted-RNN: the l1-l1-RNN with a threshold per atom and a learnt mixing of the codes.

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

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.lab.papers.recovery import (
    Recovering,
    RecoverySystem,
    UnfoldingConfig,
    builder,
    positive,
    sensing_or_identity,
)
from vidrestore.models.dust import dct_dictionary
from vidrestore.models.fast_linear import Linear, Product, on_tokens

SENSING_SCALE = 0.5  # factor on Glorot's rule


@dataclass(frozen=True)
class SistaConfig(UnfoldingConfig):
    """`layers` is the number of iterations; `lambda1` and `lambda2` are constants."""

    layers: int = 100


class Sista(RecoverySystem):
    """SISTA with the DCT, F = I, and the smallest c that ensures convergence; nothing is learnt."""

    def __init__(self, config: SistaConfig) -> None:
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
        config = self.config
        dictionary = self.dictionary
        # with a step below the bound the iterations converge
        sensing = sensing_or_identity(self.sensing, dictionary)
        lambda1, lambda2 = (
            dictionary.new_tensor(value) for value in (config.lambda1, config.lambda2)
        )
        bound = (
            torch.linalg.matrix_norm(sensing @ dictionary, 2) ** 2
            + lambda2 * torch.linalg.matrix_norm(dictionary, 2) ** 2
        )
        correlation = torch.eye(len(dictionary)).to(dictionary)
        start = dictionary.new_zeros(config.atoms)
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

    def __init__(self, config: UnfoldingConfig, correlated: int | None = None) -> None:
        super().__init__(config.patch, config.measurements, scale=SENSING_SCALE)
        self.config = config
        # D (N, K)
        self.dictionary = nn.Parameter(dct_dictionary(config.patch, config.atoms))
        # F (N, N) of signals, or G (K, K) of codes
        self.correlation = nn.Parameter(torch.eye(correlated or config.patch**2))
        # the code before the first frame (K,)
        self.start = nn.Parameter(torch.zeros(config.atoms))
        self.log_lambda1 = positive(config.lambda1)
        self.log_lambda2 = positive(config.lambda2)
        self.log_step = positive(1.0)  # c

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> Recovering:
        """See `RecoverySystem.at`."""
        sensing = sensing_or_identity(self.sensing, self.dictionary)
        numbers = (self.log_lambda1.exp(), self.log_lambda2.exp(), self.log_step.exp())
        return Iterations(
            sensing,
            self.dictionary,
            self.correlation,
            self.start,
            numbers,
            self.config.layers,
            dtype,
            linear,
        )


class Iterations:
    """The iterations on groups (B, T, M), all groups of a frame at once; codes in units of lambda1 / c.

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
        # codes are in units of their threshold, so that it is 1
        lambda1, lambda2, c = numbers
        threshold = lambda1 / c
        self.coupling = lambda2 / c
        self.layers = layers
        gram = (
            sensing.mT @ sensing + lambda2 * torch.eye(len(dictionary)).to(dictionary)
        ) / c
        matrices = (
            sensing.mT / c,
            correlation,
            gram,
            dictionary * threshold,
            dictionary.mT / threshold,
        )
        self.data, self.correlation, self.gram, self.synthesis, self.analysis = (
            Product(matrix, dtype, linear) for matrix in matrices
        )
        self.before = dictionary @ start  # the signal before the first frame (N,)

    def __call__(self, measurements: Tensor) -> Tensor:
        """(B, T, M) -> (B, T, N) in the dtype of the measurements."""
        # A^T x of all frames at once
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
            code = F.softshrink(
                code + self.analysis(pull - self.gram(self.synthesis(code))), 1.0
            )
        return self.synthesis(code)


def double_plateau(values: Tensor, centre: Tensor, ratio: Tensor) -> Tensor:
    """Return argmin over u of 1/2 (u - v)^2 + |u| + r |u - a| for values v, centres a and a number r > 0.

    It is flat at 0 and at a. With s the sign of a, u is 0 for v in -s r +- 1, and a for v in a + s +- r;
    elsewhere u is v shifted by a constant. Each of the two terms subtracted from v follows v within its
    plateau and is constant outside.
    """
    # clipping the distance to each centre makes its plateau
    sign = torch.copysign(torch.ones_like(centre), centre)
    near_zero = F.hardtanh(values + ratio * sign)
    near_centre = ratio * F.hardtanh((values - (centre + sign)) / ratio)
    return values - near_zero - near_centre


class L1L1Rnn(SistaRnn):
    """(B, T, M) -> (B, T, N); see the module."""

    def __init__(self, config: UnfoldingConfig) -> None:
        super().__init__(config, config.atoms)

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> Recovering:
        """See `RecoverySystem.at`."""
        c = self.log_step.exp()
        unit = self.log_lambda1.exp() / c
        # A D (M, K)
        projected = sensing_or_identity(self.sensing, self.dictionary) @ self.dictionary
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
    """The layers on groups (B, T, M), all groups of a frame at once; codes in units of lambda1 / c.

    I - D^T A^T A D / c is not computed: multiplying by A D and then by its transpose takes fewer operations.
    """

    layers: int
    carry: Product  # G (K, K)
    # applied to codes before the gradient step; here the identity
    mix: Callable[[Tensor], Tensor]
    back: Product  # D^T A^T / c (K, M)
    forth: Product  # A D (M, K)
    synthesis: Product  # D (N, K)
    ratio: Tensor  # lambda2 / lambda1
    start: Tensor  # (K,)

    def __call__(self, measurements: Tensor) -> Tensor:
        """(B, T, M) -> (B, T, N) in the dtype of the measurements."""
        # D^T A^T x / c (T, B, K)
        data = on_tokens(self.back, measurements.transpose(0, 1))
        code = self.start.expand(len(measurements), -1)
        codes = []
        for frame_data in data:
            predicted = code = self.carry(code)
            for _ in range(self.layers):
                mixed = self.mix(code)
                code = double_plateau(
                    mixed + frame_data - self.back(self.forth(mixed)),
                    predicted,
                    self.ratio,
                )
            codes.append(code)
        return on_tokens(self.synthesis, torch.stack(codes, dim=1))


class ReweightedRnn(L1L1Rnn):
    """(B, T, M) -> (B, T, N); see the module."""

    def __init__(self, config: UnfoldingConfig) -> None:
        super().__init__(config)
        self.mixing = nn.Parameter(torch.eye(config.atoms))  # Z (K, K)
        self.log_weights = nn.Parameter(torch.zeros(config.atoms))  # log g (K,)

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> Recurrence:
        """See `RecoverySystem.at`."""
        c = self.log_step.exp()
        # each code is in units of its atom's threshold
        units = (self.log_lambda1 + self.log_weights).exp() / c
        # A D (M, K)
        projected = sensing_or_identity(self.sensing, self.dictionary) @ self.dictionary
        return Recurrence(
            layers=self.config.layers,
            carry=Product(self.correlation * units / units[:, None], dtype, linear),
            mix=Product(self.mixing * units / units[:, None], dtype, linear),
            back=Product(
                self.mixing @ projected.mT / (c * units[:, None]), dtype, linear
            ),
            forth=Product(projected * units, dtype, linear),
            synthesis=Product(self.dictionary * units, dtype, linear),
            ratio=(self.log_lambda2 - self.log_lambda1).exp(),
            start=self.start / units,
        )


build_sista = builder(Sista, SistaConfig)
build_sista_rnn = builder(SistaRnn, UnfoldingConfig)
build_l1_l1_rnn = builder(L1L1Rnn, UnfoldingConfig)
build_reweighted_rnn = builder(ReweightedRnn, UnfoldingConfig)
