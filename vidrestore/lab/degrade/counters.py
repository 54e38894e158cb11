"""Random numbers for batches that depend on counters alone, so that a step of training draws the same ones
after every interruption.

Philox 4x32-10: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10
LARGEST_WORD = 0xFFFFFFFF  # the largest word of 32 bits
RUN = 256  # blocks of four words: the first words of all, then the second, and so on
# words; calls that need more draw their own, the others take them from a run
FEW_WORDS = 128
RUNS_AT_ONCE = 64  # runs that are computed together, so that they stay in its cache
# proposals for a gamma variate; all are rejected once in 100,000 draws or less often
GAMMA_TRIES = 4

Words = tuple[Tensor, Tensor, Tensor, Tensor]
Bound = float | Tensor


@cache
def constants(values: tuple[float, ...]) -> Tensor:
    """Return (N,) float32."""
    return torch.tensor(values)


def log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    """Return a number between two bounds above 0, uniform in its logarithm."""
    return math.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1])))


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Return four 32-bit words for each counter of four words (int64 that broadcast) and two words of key."""
    # Products wrap at 64 bits, which changes none of them. Words that are next multiplied are cut to 32 bits,
    # the other two only at the end.
    first, second, third, fourth = counter
    for number in range(PHILOX_ROUNDS):
        low, high = (
            (word + number * step) & LARGEST_WORD
            for word, step in zip(key, KEY_STEPS, strict=True)
        )
        one = first * MULTIPLIERS[0]
        two = third * MULTIPLIERS[1]
        first = _xor(two >> 32, second).bitwise_xor_(low).bitwise_and_(LARGEST_WORD)
        third = _xor(one >> 32, fourth).bitwise_xor_(high).bitwise_and_(LARGEST_WORD)
        second = two
        fourth = one
    return (
        first,
        second.bitwise_and_(LARGEST_WORD),
        third,
        fourth.bitwise_and_(LARGEST_WORD),
    )


def _xor(one: Tensor, two: Tensor) -> Tensor:
    """Return them combined, in place if that has the shape of the first."""
    return one.bitwise_xor_(two) if one.shape == two.shape else one ^ two


class Counters:
    """Draw numbers for B samples; a sample's depend on (seed, step, sample) and the calls before.

    `samples` are B different numbers in [0, 2^32), int64; `step` is in the same range, `seed` in [0, 2^64).
    Methods return (B, *shape), and (B,) without a shape; bounds may be tensors that broadcast to that.
    """

    def __init__(self, seed: int, step: int, samples: Tensor) -> None:
        self.key = (seed & LARGEST_WORD, seed >> 32)
        self.step = step
        self.samples = samples
        self.calls = 0
        self._pool = samples[:, None][:, :0]

    def branch(self) -> Counters:
        """Return counters of the same samples with other numbers, whatever is drawn there and here."""
        digest = hashlib.blake2b(
            repr((self.key, self.calls)).encode(), digest_size=8
        ).digest()
        self.calls += 1
        return Counters(int.from_bytes(digest), self.step, self.samples)

    def part(self, rows: slice | Tensor) -> Counters:
        """Return counters of some of the samples, whose next numbers are those that they would get here."""
        part = Counters(
            self.key[0] + (self.key[1] << 32), self.step, self.samples[rows]
        )
        part.calls, part._pool = self.calls, self._pool[rows]
        return part

    def uniform(self, low: Bound = 0.0, high: Bound = 1.0, *shape: int) -> Tensor:
        """Return float32 from `low` to below `high`, in steps of 2^-24 of their difference."""
        return self._drawn(shape, _uniform) * (high - low) + low

    def log_uniform(self, bounds: tuple[float, float], *shape: int) -> Tensor:
        """Return float32 between two bounds above 0, uniform in their logarithm."""
        return self.uniform(math.log(bounds[0]), math.log(bounds[1]), *shape).exp()

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Return int64 from `low` to `high - 1`."""
        return (self._drawn(shape, _as_drawn) * (high - low) >> 32) + low

    def chance(self, share: Bound, *shape: int) -> Tensor:
        """Return bool, true in a `share` of cases."""
        return self._drawn(shape, _uniform) < share

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal float32, at most 4.86: two per word, 16 bits each of radius and angle."""
        return self._drawn(shape, _normal, 2)

    def gamma(self, *alphas: float) -> Tensor:
        """Return gamma variates (B, number of alphas): divided by their sum they are Dirichlet's, two are
        the parts of a beta variate.

        G. Marsaglia, W. Tsang, "A simple method for generating gamma variables", 2000.
        """
        count = len(alphas)
        alpha = constants(alphas)
        scale = alpha + 2 / 3
        normal = self.normal(GAMMA_TRIES, count)
        cubes = (1 + normal / (9 * scale).sqrt()).clamp(min=1e-6) ** 3
        bound = 0.5 * normal**2 + scale * (1 - cubes + cubes.log())
        accepted = self.uniform(2**-24, 1, GAMMA_TRIES, count).log() < bound
        variates = cubes.gather(1, accepted.int().argmax(1, keepdim=True))[:, 0]
        return scale * variates * self.uniform(2**-24, 1, count) ** (1 / alpha)

    def _drawn(
        self,
        shape: tuple[int, ...],
        finish: Callable[[Tensor], tuple[Tensor, ...]],
        per_word: int = 1,
    ) -> Tensor:
        """Return (B, *shape) of numbers of which `finish` makes `per_word` from a word."""
        count = math.prod(shape)
        words = -(-count // per_word)
        if words > FEW_WORDS:
            numbers = self._philox(words, finish)
        else:
            if self._pool.shape[1] < words:
                self._pool = self._philox(1, _as_drawn)
            numbers = torch.stack(finish(self._pool[:, :words]), 2).flatten(1)
            self._pool = self._pool[:, words:]
        return numbers[:, :count].unflatten(1, shape) if shape else numbers[:, 0]

    def _philox(
        self, words: int, finish: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> Tensor:
        """Return (B, `words` or more) numbers; a multiple of that if `finish` makes several of a word."""
        runs = -(-words // (4 * RUN))
        width = max(1, RUNS_AT_ONCE // len(self.samples))
        parts = []
        for start in range(0, runs, width):
            number = torch.arange(start * RUN, min(start + width, runs) * RUN)[None]
            call, step = (
                torch.full_like(number[:, :1], value)
                for value in (self.calls, self.step)
            )
            drawn = philox((number, call, self.samples[:, None], step), self.key)
            numbers = [
                values.unflatten(1, (-1, RUN))
                for word in drawn
                for values in finish(word)
            ]
            parts.append(torch.stack(numbers, 2).flatten(1))
        self.calls += 1
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]


def _as_drawn(words: Tensor) -> tuple[Tensor, ...]:
    return (words,)


def _uniform(words: Tensor) -> tuple[Tensor, ...]:
    return ((words >> 8).float().mul_(2**-24),)


def _normal(words: Tensor) -> tuple[Tensor, ...]:
    """Transform pairs of uniform numbers (G. Box, M. Muller, 1958)."""
    # of which two are 0
    halves = words.contiguous().view(torch.int16).unflatten(-1, (-1, 4))
    radius = halves[..., 0].float().add_(2**15 + 0.5).mul_(2**-16)
    radius = radius.log_().mul_(-2).sqrt_()
    angle = halves[..., 1].float().mul_(math.tau / 2**16)
    return angle.cos().mul_(radius), angle.sin_().mul_(radius)
