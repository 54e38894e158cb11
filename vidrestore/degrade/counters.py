"""Random numbers for batches that depend on counters alone, so that a step of training draws the same ones on
every device, after every interruption and in a captured CUDA graph.

Philox 4x32-10: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Nothing here reads a
value or waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF  # the largest word of 32 bits
POOL = 1024  # words of a sample that are drawn together, for calls that need few
FEW = 128  # words; calls that need more draw their own
CHUNK = 16_384  # blocks of four words that are computed together on a CPU, so that they stay in its cache
TRIES = 4  # of a gamma variate; all are rejected once in 100,000 draws or less often

Words = tuple[Tensor, Tensor, Tensor, Tensor]
Bound = float | Tensor


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Return four words of 32 bits for each counter of four words, int64 that broadcast, and two words of
    key.
    """
    # Products wrap at 64 bits, which changes none of them. Words that are next multiplied are cut to 32 bits,
    # the other two only at the end.
    first, second, third, fourth = counter
    for number in range(ROUNDS):
        low, high = ((word + number * step) & WORD for word, step in zip(key, KEY_STEPS, strict=True))
        one, two = first * MULTIPLIERS[0], third * MULTIPLIERS[1]
        first = ((two >> 32) ^ second ^ low).bitwise_and_(WORD)
        third = ((one >> 32) ^ fourth ^ high).bitwise_and_(WORD)
        second, fourth = two, one
    return first, second & WORD, third, fourth & WORD


class Counters:
    """Draw numbers for B samples; a sample's depend on (seed, step, sample) and the calls before.

    `samples` are B different numbers in [0, 2^32), int64, on the device that the numbers are for. `step`, in
    the same range, may be a tensor of one int64 there, which a captured graph reads at every replay. `seed`
    is in [0, 2^64). Methods return (B, *shape), and (B,) without a shape; bounds may be tensors that
    broadcast to that.
    """

    def __init__(self, seed: int, step: int | Tensor, samples: Tensor) -> None:
        self.key, self.step, self.samples = (seed & WORD, seed >> 32), step, samples
        self.calls, self._pool = 0, samples[:, None][:, :0]

    def part(self, rows: slice) -> Counters:
        """Return the counters of some of the samples, which go on from here by themselves."""
        part = Counters(self.key[0] + (self.key[1] << 32), self.step, self.samples[rows])
        part.calls = self.calls
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
        """Return standard normal float32, at most 4.86: two from each word, of 16 bits of radius and of
        angle.
        """
        return self._drawn(shape, _normal, 2)

    def gamma(self, *alphas: float) -> Tensor:
        """Return gamma variates (B, number of alphas): divided by their sum they are Dirichlet's, two are
        the parts of a beta variate.

        G. Marsaglia, W. Tsang, "A simple method for generating gamma variables", 2000.
        """
        count, alpha = len(alphas), self._constants(alphas)
        scale = alpha + 2 / 3
        normal = self.normal(TRIES, count)
        cubes = (1 + normal / (9 * scale).sqrt()).clamp(min=1e-6) ** 3
        bound = 0.5 * normal**2 + scale * (1 - cubes + cubes.log())
        accepted = self.uniform(2**-24, 1, TRIES, count).log() < bound
        found = cubes.gather(1, accepted.int().argmax(1, keepdim=True))[:, 0]
        return scale * found * self.uniform(2**-24, 1, count) ** (1 / alpha)

    def _constants(self, values: Sequence[float]) -> Tensor:
        """Return (N,) float32, filled on the device: a copy would wait for it."""
        return torch.stack([torch.full((), value, device=self.samples.device) for value in values])

    def _drawn(
        self, shape: tuple[int, ...], finish: Callable[[Tensor], tuple[Tensor, ...]], each: int = 1
    ) -> Tensor:
        """Return (B, *shape) of numbers of which `finish` makes `each` from a word."""
        count = math.prod(shape)
        words = -(-count // each)
        if words > FEW:
            drawn = self._philox(words, finish)
        else:
            if self._pool.shape[1] < words:
                self._pool = self._philox(POOL, _as_drawn)
            drawn = torch.cat(finish(self._pool[:, :words]), 1)
            self._pool = self._pool[:, words:]
        return drawn[:, :count].unflatten(1, shape) if shape else drawn[:, 0]

    def _philox(self, words: int, finish: Callable[[Tensor], tuple[Tensor, ...]]) -> Tensor:
        """Return (B, `words` or some more) of numbers, several times as many if `finish` makes several."""
        blocks, device = -(-words // 4), self.samples.device
        width = blocks if device.type != "cpu" else max(1, CHUNK // len(self.samples))
        parts = []
        for start in range(0, blocks, width):
            number = torch.arange(start, min(start + width, blocks), device=device)
            number = number.expand(len(self.samples), -1)
            call, step = torch.full_like(number, self.calls), torch.zeros_like(number) + self.step
            sample = self.samples[:, None].expand_as(number)
            drawn = philox((number, call, sample, step), self.key)
            parts.append(torch.stack([each for word in drawn for each in finish(word)], 1))
        self.calls += 1
        return (torch.cat(parts, 2) if len(parts) > 1 else parts[0]).flatten(1)


def _as_drawn(words: Tensor) -> tuple[Tensor, ...]:
    return (words,)


def _uniform(words: Tensor) -> tuple[Tensor, ...]:
    return ((words >> 8).float().mul_(2**-24),)


def _normal(words: Tensor) -> tuple[Tensor, ...]:
    """Transform pairs of uniform numbers (G. Box, M. Muller, 1958)."""
    radius = (words & 0xFFFF).float().add_(0.5).mul_(2**-16).log_().mul_(-2).sqrt_()
    angle = (words >> 16).float().mul_(math.tau / 2**16)
    return radius * angle.cos(), radius * angle.sin()
