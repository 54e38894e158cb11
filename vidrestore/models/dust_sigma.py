"""DUST for every noise level, and for groups of patches that follow the motion.

Differences from the published network (dust.py), each measured (weights/README.md, "What was decided by
measurement"):

- Noise units: the mean of a group is subtracted and the rest divided by sigma, so that the noise has variance
  1 at every level, and thresholds, gains and the attention's temperature are smooth functions of log sigma
  (polynomials, one per atom and block).
- Attention by distance: the softmax of -|D h_t - D h_s|^2 / (N tau), which is the weighted softmax of Eq. 13
  and Algorithm 1 with a temperature tau. In noise units flat patches are all alike and are averaged;
  normalised tokens would amplify their noise instead.
- U = u + P D, the structure that U = I - D^T A^T A D starts with, with P (K, N) free: half the operations,
  and D h is the attention's token already.
- The data term also takes the measurements of similar patches: V x_t becomes a V x_t + b sum_s S_ts V x_s, so
  that detail below the threshold of a single frame is averaged before it is thresholded.
- A token's distance to itself lacks the noise that separates equal tokens: a learnt self distance replaces
  it, so that tau can be small enough to separate different content.
- Thresholds follow the remaining noise: a weighted mean with weights w has |w|_2 times a single frame's, so a
  token with many similar ones is thresholded less than one without.

All blocks share D, V and P as in the paper; the curves differ per block.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vidrestore.models.dust import (
    HEAD_SPREAD,
    Dust,
    DustConfig,
    check_sizes,
    dct_dictionary,
)
from vidrestore.models.fast_linear import Linear, PlainLinear, on_tokens
from vidrestore.models.fitted import on_device

# level = ln(sigma / SIGMA_CENTRE) / SIGMA_SPREAD lies in about [-1.8, 1.1] for sigma 1-75
SIGMA_CENTRE, SIGMA_SPREAD = 15.0, 1.5
SIGMA_RANGE = (1.0, 75.0)


def noise_level(sigma: float) -> float:
    """Return the variable of the polynomials for a sigma, clamped to the range of training."""
    low, high = SIGMA_RANGE
    return math.log(min(max(sigma, low), high) / SIGMA_CENTRE) / SIGMA_SPREAD


@dataclass(frozen=True)
class SigmaDustConfig:
    """Sizes of a network. Raises ValueError for impossible ones."""

    patch: int = 16  # side in pixels; N = patch * patch
    atoms: int = 1024  # K
    blocks: int = 3
    heads: int = 1
    degree: int = 2  # of the polynomials in the noise level

    def __post_init__(self) -> None:
        check_sizes(self.patch, self.atoms, self.blocks, self.heads)
        if self.degree < 0:
            raise ValueError(f"degree must be 0 or more, got {self.degree}")


class SigmaDust(nn.Module):
    """forward: noisy groups (B, T, N) on the 0-255 scale and their sigma -> restored groups (B, T, N)."""

    def __init__(self, config: SigmaDustConfig) -> None:
        super().__init__()
        self.config = config
        dictionary = dct_dictionary(config.patch, config.atoms)
        self.dictionary = nn.Parameter(dictionary.clone())  # D (N, K)
        self.analysis = nn.Parameter(dictionary.mT.clone())  # V (K, N)
        self.correction = nn.Parameter(-0.4 * dictionary.mT)  # P (K, N)
        later = config.blocks - 1
        self.log_threshold = self._curve(config.blocks, math.log(0.5))
        self.carried = self._curve(later, 0.4)  # u, initially lambda2
        self.own = self._curve(later, 0.5)  # a
        self.attended = self._curve(later, 0.5)  # b
        self.log_gain = self._curve(1, 0.0)  # per atom of the output
        self.log_temperature = self._number(later, math.log(0.3))  # tau
        self.self_distance = self._number(later, 0.3)
        # share of the noise that attention does not average, through a sigmoid
        self.own_share = self._number(later, 0.0)
        # thresholds scale with the remaining noise to this power
        self.noise_power = self._number(later, 0.5)
        if config.heads > 1:
            self.head_dictionaries = nn.Parameter(
                dictionary + HEAD_SPREAD * torch.randn(config.heads, *dictionary.shape)
            )

    def _curve(self, blocks: int, start: float) -> nn.Parameter:
        """Return (blocks, degree + 1, K) coefficients of a polynomial that is constant at first."""
        coefficients = torch.zeros(blocks, self.config.degree + 1, self.config.atoms)
        coefficients[:, 0] = start
        return nn.Parameter(coefficients)

    def measure(self, patches: Tensor) -> Tensor:
        """Return the network's input for clean patches, as `Dust.measure` does: the patches themselves."""
        return patches

    def _number(self, blocks: int, start: float) -> nn.Parameter:
        """Return (blocks, degree + 1) coefficients of one number per block."""
        return nn.Parameter(
            F.pad(torch.full((blocks, 1), start), (0, self.config.degree))
        )

    def at(
        self, sigma: float | Tensor, dtype: torch.dtype, linear: type[Linear]
    ) -> LevelDust:
        """Return the network at one sigma, with products in `dtype`: `PackedLinear` for inference,
        `PlainLinear` for gradients. A tensor of one number stays on the device.
        """
        if isinstance(sigma, Tensor):
            level = (sigma.clamp(*SIGMA_RANGE) / SIGMA_CENTRE).log() / SIGMA_SPREAD
            powers = torch.stack(
                [level**power for power in range(self.config.degree + 1)]
            )
        else:
            number = noise_level(sigma)
            powers = torch.tensor(
                [number**power for power in range(self.config.degree + 1)]
            )
            powers = on_device(powers.to(self.dictionary.dtype), self.dictionary.device)
        # a block's tokens are in units of its own threshold, so what it takes over is scaled
        thresholds = self._at(powers, self.log_threshold).exp()
        ratios, to_first = (
            thresholds[:-1] / thresholds[1:],
            thresholds[0] / thresholds[1:],
        )
        gain = thresholds[-1] * self._at(powers, self.log_gain)[0].exp()
        carried, self_gain, attended = (
            self._at(powers, curve).to(dtype)
            for curve in (self.carried, self.own, self.attended)
        )
        inverse_temperatures = 1 / (
            self.config.patch**2 * (self.log_temperature @ powers).exp()
        )
        self_distances = self.config.patch**2 * (self.self_distance @ powers)
        own_shares, noise_powers = (
            (self.own_share @ powers).sigmoid(),
            self.noise_power @ powers,
        )
        heads = self.head_dictionaries if self.config.heads > 1 else ()
        blocks = [
            LevelBlock(
                tokens=linear(self.dictionary * thresholds[block], dtype),
                heads=[linear(head * thresholds[block], dtype) for head in heads],
                correction=linear(
                    self.correction / thresholds[block + 1, :, None], dtype
                ),
                carried=carried[block] * ratios[block].to(dtype),
                self_gain=self_gain[block] * to_first[block].to(dtype),
                attended=attended[block] * to_first[block].to(dtype),
                inverse_temperature=inverse_temperatures[block],
                self_distance=self_distances[block],
                own_share=own_shares[block],
                noise_power=noise_powers[block],
            )
            for block in range(self.config.blocks - 1)
        ]
        analysis = self.analysis / (sigma * thresholds[0, :, None])
        synthesis = self.dictionary * (sigma * gain)
        return LevelDust(
            dtype, linear(analysis, dtype), blocks, linear(synthesis, dtype)
        )

    @staticmethod
    def _at(powers: Tensor, curve: Tensor) -> Tensor:
        """Evaluate (blocks, degree + 1, K) coefficients to (blocks, K) values."""
        return torch.einsum("p,bpk->bk", powers, curve)

    def forward(self, noisy: Tensor, sigma: float) -> Tensor:
        return self.at(sigma, noisy.dtype, PlainLinear)(noisy)


class _SoftThreshold(torch.autograd.Function):
    """Soft threshold (B, T, K) by (B, T, 1) for training; the backward pass needs only the result.

    The backward pass of minimum and maximum would take 40 % of a training step.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, threshold: Tensor) -> Tensor:
        result = values - torch.maximum(torch.minimum(values, threshold), -threshold)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        (result,) = ctx.saved_tensors
        above = torch.ops.aten.threshold_backward(gradient, result, 0)
        below = torch.ops.aten.threshold_backward(gradient, -result, 0)
        return above + below, (below - above).sum(-1, keepdim=True)


@dataclass
class LevelBlock:
    """One block after the first, with thresholds divided out of codes, data and weights."""

    tokens: Linear  # D (N, K)
    # D_m (N, K) of MH-DUST; empty: attention uses the tokens themselves
    heads: list[Linear]
    correction: Linear  # P (K, N)
    carried: Tensor  # (K,), like the next two
    self_gain: Tensor
    attended: Tensor
    inverse_temperature: Tensor  # a scalar, like the next three
    self_distance: Tensor
    own_share: Tensor
    noise_power: Tensor


@dataclass
class LevelDust:
    """`SigmaDust` at one sigma, in a faster form.

    Thresholds are 1 before the factor for the remaining noise, one batched product averages codes and data,
    and the first and last product convert to noise units and back.
    """

    dtype: torch.dtype
    analysis: Linear  # V (K, N)
    blocks: list[LevelBlock]
    synthesis: Linear  # D (N, K)

    def __call__(self, noisy: Tensor) -> Tensor:
        """Restore (B, T, N) noisy groups to (B, T, N) float32."""
        mean = noisy.mean((1, 2), keepdim=True)
        data = on_tokens(self.analysis, (noisy - mean).to(self.dtype))
        code = F.softshrink(data, 1.0)
        for block in self.blocks:
            code = self._step(block, code, data)
        return mean + on_tokens(self.synthesis, code)

    @staticmethod
    def _step(block: LevelBlock, code: Tensor, data: Tensor) -> Tensor:
        """Compute one block after the first.

        Without gradients it overwrites `code` and `pull`: allocating memory would cost as much as the sums.
        """
        tokens = on_tokens(block.tokens, code)
        heads = [on_tokens(head, code) for head in block.heads] or [tokens]
        maps = [_distance_attention(head, block) for head in heads]
        attention = torch.stack(maps).mean(0) if len(maps) > 1 else maps[0]
        remaining, mixing = (
            _remaining_noise(attention, block).to(code.dtype),
            attention.to(code.dtype),
        )
        pull = on_tokens(block.correction, torch.bmm(mixing, tokens))
        if torch.is_grad_enabled():
            values = code * block.carried + data * block.attended
            mixed = torch.baddbmm(pull, mixing, values) + data * block.self_gain
            return cast("Tensor", _SoftThreshold.apply(mixed, remaining))  # type: ignore[no-untyped-call]
        spare, result = code, pull
        values = torch.addcmul(
            torch.mul(code, block.carried, out=spare), data, block.attended, out=spare
        )
        mixed = torch.addcmul(
            torch.baddbmm(pull, mixing, values, out=result),
            data,
            block.self_gain,
            out=result,
        )
        # where torch.clamp with tensors as bounds takes four times as long
        if mixed.device.type == "cpu":
            bounded = torch.maximum(
                torch.minimum(mixed, remaining, out=spare), -remaining, out=spare
            )
        else:
            bounded = torch.clamp(mixed, -remaining, remaining, out=spare)
        return torch.sub(mixed, bounded, out=result)


def _distance_attention(tokens: Tensor, block: LevelBlock) -> Tensor:
    """Return the (B, T, T) softmax of minus the squared distance, without terms constant along a row."""
    products = torch.bmm(tokens, tokens.mT).float()
    norms = products.diagonal(dim1=1, dim2=2)
    itself = block.self_distance * torch.eye(tokens.shape[1], device=tokens.device)
    similarity = 2 * products - norms[:, None] - itself
    return (similarity * block.inverse_temperature).softmax(-1)


def _remaining_noise(attention: Tensor, block: LevelBlock) -> Tensor:
    """Return (B, T, 1): the share of noise that a token's weighted mean leaves, to the block's power."""
    averaged = 1 - block.own_share
    diagonal = attention.diagonal(dim1=1, dim2=2)
    of_others = averaged**2 * attention.square().sum(-1)
    of_both = 2 * averaged * block.own_share * diagonal
    squared = of_others + of_both + block.own_share**2
    return (squared ** (0.5 * block.noise_power)).unsqueeze(-1)


def build(config: dict[str, Any]) -> Dust | SigmaDust:
    """Build a network of the family `dust` from the configuration in its weights file.

    `kind` is "printed" for the published form, "sigma" for the one that takes every noise level.
    """
    settings = dict(config)
    if settings.pop("kind", "printed") == "sigma":
        return SigmaDust(SigmaDustConfig(**settings))
    return Dust(DustConfig(**settings))


def config_of(network: Dust | SigmaDust) -> dict[str, Any]:
    """Return the settings from which `build` rebuilds the network."""
    kind = "printed" if isinstance(network, Dust) else "sigma"
    return {"kind": kind, **asdict(network.config)}
