"""DUST and MH-DUST: deep unfolding sparse transformers for compressed sensing and denoising of video.

B. De Weerdt, Y. C. Eldar, N. Deligiannis, "Deep Unfolding Transformers for Sparse Recovery of Video", IEEE
Trans. Signal Processing 72 (2024), doi 10.1109/TSP.2024.3381749. Equation numbers below are the paper's.
Tokens are rows here: a group of T patches is (T, N), its codes are (T, K).

Choices that the paper leaves open:

- Pixel scale: grey levels 0-255 (Table I trains with lambda1 = 10, which only makes sense there).
- The DCT dictionary is exactly tight (half-sample cosines, D D^T = I), so that c = 1 meets the bound of ISTA
  and an untrained denoiser with threshold 0 returns its input.
- lambda1 is learnt through a softplus, since a raw lambda1 turns negative within steps of training; c is
  learnt as it is. Both act by the threshold lambda1 / c of Eq. 15 alone, and c by the initial U and V.
- MH-DUST averages its heads (Eq. 17, 18) and has a separate dictionary for the output: the count of Table
  VIII.
- `temperature`: the printed softmax of normalised tokens has logits of up to N = 256 and is nearly one-hot,
  so that frames hardly help each other; with temperature the logits are divided by N times a learnt positive
  number. The default is the printed form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.fast_linear import Linear, on_tokens

# std of the noise that makes the heads' dictionaries differ (paper, Section IV-B)
HEAD_SPREAD = 3e-4
NORM_EPS = 1e-5


@dataclass(frozen=True)
class DustConfig:
    """Sizes of a network: N = patch * patch pixels, K = atoms, M = measurements (None: A is the identity,
    denoising).

    Raises ValueError for sizes and values that no network can have.
    """

    patch: int = 16
    atoms: int = 1024
    blocks: int = 3
    measurements: int | None = None
    heads: int = 1
    temperature: bool = False
    # attention tokens, Section III-C; without it the weighted softmax of Eq. 13 (Table II a)
    normalise: bool = True
    # attention is on F D h with F (N, N) learnt (Appendix B, Table X)
    correlation: bool = False
    # initial values, on the 0-255 scale (Section IV-B, Table I)
    lambda1: float = 0.1
    lambda2: float = 0.4
    c: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(self.patch, self.atoms, self.blocks, self.heads)
        check_measurements(self.measurements, self.patch)
        check_weights(self.lambda1, self.lambda2)
        if self.c <= 0:
            raise ValueError(f"c must be above 0, got {self.c}")
        if self.temperature and not self.normalise:
            raise ValueError(
                "temperature is for normalised tokens only; remove it, or set normalise"
            )


def check_measurements(measurements: int | None, patch: int) -> None:
    """Raise ValueError for a number of measurements that no patch can have."""
    if measurements is not None and not 0 < measurements <= patch**2:
        raise ValueError(f"measurements must be in [1, {patch**2}], got {measurements}")


def check_weights(lambda1: float, lambda2: float) -> None:
    """Raise ValueError for weights of an objective's terms that are not above 0."""
    if min(lambda1, lambda2) <= 0:
        raise ValueError(
            f"lambda1 and lambda2 must be above 0, got {lambda1} and {lambda2}"
        )


def check_sizes(patch: int, atoms: int, blocks: int, heads: int = 1) -> None:
    """Raise ValueError for sizes that no network can have."""
    if math.isqrt(atoms) ** 2 != atoms or atoms < patch**2:
        raise ValueError(
            f"atoms must be a square of at least {patch**2} (a separable DCT), got {atoms}"
        )
    if min(patch, blocks, heads) < 1:
        raise ValueError(
            f"patch, blocks and heads must be at least 1, got {patch}, {blocks} and {heads}"
        )


def dct_dictionary(patch: int, atoms: int) -> Tensor:
    """Return the (N, K) overcomplete separable DCT: D D^T = I, each column of norm sqrt(N / K)."""
    side = math.isqrt(atoms)
    position = torch.arange(patch, dtype=torch.float64) + 0.5
    frequency = torch.arange(side, dtype=torch.float64)
    angles = math.pi / side * position[:, None] * frequency
    cosines = torch.cos(angles) * math.sqrt(2 / side)
    cosines[:, 0] /= math.sqrt(2)
    return torch.kron(cosines, cosines).float()


class Transform:
    """The DCT of patches (..., side * side), with products in `dtype`."""

    def __init__(
        self, side: int, dtype: torch.dtype, linear: type[Linear], device: torch.device
    ) -> None:
        basis = dct_dictionary(side, side**2).mT.contiguous().to(device)
        self.side, self._dtype = side, dtype
        self._product = linear(basis, dtype)

    def forward(self, patches: Tensor) -> Tensor:
        return on_tokens(self._product, patches.to(self._dtype)).float()


def soft_threshold(code: Tensor, threshold: Tensor) -> Tensor:
    """Return phi_t(u) = sign(u) max(|u| - t, 0), the proximal operator of t ||u||_1 (after Eq. 3)."""
    return code.sign() * F.relu(code.abs() - threshold)


def normalise_tokens(tokens: Tensor) -> Tensor:
    """Scale each token to zero mean and unit variance over its N entries (Section III-C)."""
    centred = tokens - tokens.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + NORM_EPS).rsqrt()


def normalised_attention(tokens: Tensor) -> Tensor:
    """Return the (..., T, T) softmax of products of normalised tokens (..., T, N) (Section III-C)."""
    normalised = normalise_tokens(tokens)
    return (normalised @ normalised.mT).softmax(-1)


def weighted_attention(tokens: Tensor) -> Tensor:
    """Return the (..., T, T) attention of tokens (..., T, N) by the weighted softmax of Eq. 13, with weights
    exp(-|q_u|^2 / 2).

    beta_u exp(q_t . q_u) / sum is a softmax of -|q_t - q_u|^2 / 2, which does not overflow. It is computed
    relative to the mean of the tokens.
    """
    centred = tokens - tokens.mean(-2, keepdim=True)
    products = centred @ centred.mT
    return (products - 0.5 * products.diagonal(dim1=-2, dim2=-1)[..., None, :]).softmax(
        -1
    )


class Dust(nn.Module):
    """DUST (heads = 1) or MH-DUST, as published.

    forward: measurements (B, T, M) of patches on the 0-255 scale -> patches (B, T, N). `measure` makes the
    measurements. For denoising M = N and the measurements are the noisy patches. All blocks share their
    parameters.
    """

    def __init__(self, config: DustConfig) -> None:
        super().__init__()
        self.config = config
        pixels = config.patch**2
        dictionary = dct_dictionary(config.patch, config.atoms)
        if config.measurements is not None:
            # A (M, N)
            self.sensing = nn.Parameter(
                nn.init.xavier_uniform_(torch.empty(config.measurements, pixels))
            )
        sensing = (
            torch.eye(pixels) if config.measurements is None else self.sensing.detach()
        )
        self.dictionary = nn.Parameter(dictionary.clone())  # D (N, K)
        # U (K, K)
        self.transition = nn.Parameter(torch.empty(config.atoms, config.atoms))
        # V (K, M)
        self.analysis = nn.Parameter(torch.empty(config.atoms, len(sensing)))
        self.set_sensing(sensing)
        if config.heads > 1:
            spread = HEAD_SPREAD * torch.randn(config.heads, pixels, config.atoms)
            # D_m (heads, N, K)
            self.head_dictionaries = nn.Parameter(dictionary + spread)
        if config.correlation:
            self.correlation = nn.Parameter(torch.eye(pixels))  # F (N, N)
        # the inverse softplus of lambda1
        self.raw_threshold = nn.Parameter(
            torch.tensor(math.log(math.expm1(config.lambda1)))
        )
        self.gain = nn.Parameter(torch.tensor(config.lambda2))  # lambda2
        self.step = nn.Parameter(torch.tensor(config.c))  # c
        if config.temperature:
            self.raw_temperature = nn.Parameter(
                torch.tensor(math.log(math.expm1(1 / 16)))
            )

    @property
    def threshold(self) -> Tensor:
        return F.softplus(self.raw_threshold) / self.step  # lambda1 / c

    @staticmethod
    def current(
        tensors: dict[str, Tensor], config: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Return the tensors of a file with this configuration in today's form. In files without `c` the
        threshold isn't divided by c, but V x is.
        """
        if "c" in config:
            return tensors
        analysis = tensors["analysis"].float() / tensors["step"].float()
        return tensors | {"analysis": analysis, "step": torch.tensor(1.0)}

    @torch.no_grad()
    def set_sensing(self, sensing: Tensor) -> None:
        """Set A (M, N), and U and V as they follow from A, D and the initial c (Eq. 15)."""
        if self.config.measurements is not None:
            self.sensing.copy_(sensing)
        projected = sensing @ self.dictionary  # A D (M, K)
        scaled = projected.mT / self.config.c
        self.transition.copy_(
            torch.eye(self.config.atoms).to(projected) - scaled @ projected
        )
        self.analysis.copy_(scaled)

    def measure(self, patches: Tensor) -> Tensor:
        """Return the measurements A s (..., M) of patches (..., N) (Eq. 1)."""
        return (
            patches if self.config.measurements is None else patches @ self.sensing.mT
        )

    def attention(self, code: Tensor) -> Tensor:
        """Return the (B, T, T) attention of codes (B, T, K), averaged over the heads (Eq. 14 and 18)."""
        maps = [
            self._map(code @ dictionary.mT)
            for dictionary in self.attention_dictionaries()
        ]
        return torch.stack(maps).mean(0)

    def attention_dictionaries(self) -> Tensor:
        """Return the (heads, N, K) matrices that map codes to attention tokens: D_m or F D_m."""
        dictionaries = (
            self.head_dictionaries if self.config.heads > 1 else self.dictionary[None]
        )
        return (
            self.correlation @ dictionaries if self.config.correlation else dictionaries
        )

    def _map(self, tokens: Tensor) -> Tensor:
        if not self.config.normalise:
            return weighted_attention(tokens)
        normalised = normalise_tokens(tokens)
        logits = normalised @ normalised.mT
        if self.config.temperature:
            logits = logits / (tokens.shape[-1] * F.softplus(self.raw_temperature))
        return logits.softmax(-1)

    def forward(self, measurements: Tensor) -> Tensor:
        data = measurements @ self.analysis.mT  # V x (B, T, K)
        code = soft_threshold(data, self.threshold)  # the first block starts from h = 0
        for _ in range(self.config.blocks - 1):
            mixed = self.gain * self.attention(code) @ code  # Eq. 14
            # Eq. 15
            code = soft_threshold(mixed @ self.transition.mT + data, self.threshold)
        return code @ self.dictionary.mT

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> FastDust:
        """Return the same function in a faster form: `PackedLinear` for inference, `PlainLinear` for
        gradients. Unlike that of `SigmaDust.at` it is the same for every sigma.
        """
        return FastDust(self, dtype, linear)


class FastDust:
    """`Dust` with everything that depends on the weights alone precomputed; equal to it within 1e-3 grey
    levels in float32.

    Codes are in units of their threshold, which thus becomes 1. The gain lambda2 is folded into U, the mean
    over a token into D, and the unit variance is read from the diagonal of the attention's own product: one
    product per block yields both attention tokens and transitions.
    """

    def __init__(self, network: Dust, dtype: torch.dtype, linear: type[Linear]) -> None:
        config, threshold = network.config, network.threshold
        self.blocks, self.pixels, self.heads, self.dtype = (
            config.blocks,
            config.patch**2,
            config.heads,
            dtype,
        )
        heads = network.attention_dictionaries()
        self.normalise = config.normalise
        compared = threshold * (
            heads - heads.mean(1, keepdim=True) if config.normalise else heads
        )
        self.analysis = linear(network.analysis / threshold, dtype)
        self.block = linear(
            torch.cat([compared.flatten(0, 1), network.gain * network.transition]),
            dtype,
        )
        self.synthesis = linear(network.dictionary * threshold, dtype)
        self.scale = torch.tensor(1.0)
        if config.temperature:
            self.scale = 1 / (self.pixels * F.softplus(network.raw_temperature))

    def __call__(self, measurements: Tensor) -> Tensor:
        """(B, T, M) -> (B, T, N) float32."""
        groups, tokens, _ = measurements.shape
        data = self.analysis(measurements.reshape(groups * tokens, -1).to(self.dtype))
        data = data.view(groups, tokens, -1)
        code = F.softshrink(data, 1.0)
        for _ in range(self.blocks - 1):
            product = self.block(code.view(groups * tokens, -1)).view(
                groups, tokens, -1
            )
            heads = product[..., : self.heads * self.pixels].split(self.pixels, dim=-1)
            attention = (
                torch.stack([self._map(head) for head in heads]).mean(0).to(self.dtype)
            )
            code = F.softshrink(
                torch.baddbmm(
                    data, attention, product[..., self.heads * self.pixels :]
                ),
                1.0,
            )
        return (
            self.synthesis(code.view(groups * tokens, -1))
            .view(groups, tokens, -1)
            .float()
        )

    def _map(self, tokens: Tensor) -> Tensor:
        if not self.normalise:
            return weighted_attention(tokens.float())
        products = torch.bmm(tokens, tokens.mT).float()
        inverse = (products.diagonal(dim1=1, dim2=2) / self.pixels + NORM_EPS).rsqrt()
        return (products * inverse[:, :, None] * inverse[:, None] * self.scale).softmax(
            -1
        )
