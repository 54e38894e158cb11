"""What a finisher is trained on: windows in noise of many kinds, DUST's estimate of them, and the clean frames."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vidrestore.models.finisher import packed
from vidrestore.noise.meter import FRAMES_SEEN, NoiseMeter
from vidrestore.options import Quality, RestoreOptions
from vidrestore.restorers.dust_restorer import DenoiseRestorer
from vidrestore.training.config import FinishDataConfig
from vidrestore.training.data.batches import WHOLE, Share, Source, in_order
from vidrestore.training.data.footage import Footage
from vidrestore.training.data.noise_mix import Noisy, noisy_window

LOOKS = 8  # every so many frames of a window are measured, as a plan does
SURE = 0.5  # of windows in white noise are given the sigma that was drawn, as a user may
QUALITIES: tuple[tuple[Quality, float], ...] = (("default", 0.65), ("fast", 0.2), ("best", 0.15))  # and their shares of windows
JITTER = 0.12  # of the logarithm of the sigma that a network is told
HELD_OUT = ("white 10", "white 20", "white 50", "mixed")


@dataclass(frozen=True)
class FinishWindow:
    """Packed frames (T, 6, h, w): what was seen and the clean ones uint8, the estimates float16; `sigma` of luma and chroma."""

    seen: Tensor
    estimate: Tensor
    clean: Tensor
    sigma: tuple[float, float]

    def example(self, frame: int, crop: tuple[slice, slice]) -> tuple[Tensor, Tensor, Tensor]:
        """Seen, (3, 6, h, w) estimates of the frame before, this and after, and clean, float32."""
        around = [max(frame - 1, 0), frame, min(frame + 1, len(self.seen) - 1)]
        rows, columns = crop
        return (
            self.seen[frame, :, rows, columns].float(),
            self.estimate[around][:, :, rows, columns].float(),
            self.clean[frame, :, rows, columns].float(),
        )


class WindowMaker:
    """Makes windows, each from a generator of its own. Raises as `Footage` and `DenoiseRestorer` do."""

    def __init__(self, footage: Footage, config: FinishDataConfig) -> None:
        self.footage, self.config = footage, config

    @cached_property
    def _restorers(self) -> dict[Quality, DenoiseRestorer]:
        model = self.config.estimates
        return {name: DenoiseRestorer(RestoreOptions(model=model, quality=name), finish=False) for name, _ in QUALITIES}

    def __getstate__(self) -> dict[str, Any]:
        return {"footage": self.footage, "config": self.config}

    def window(self, draw: np.random.Generator, sigma: float | None = None, quality: Quality | None = None) -> FinishWindow:
        """In noise of a drawn kind, or white noise of `sigma`."""
        clean = self._clean(draw)
        noisy = noisy_window(clean, draw) if sigma is None else white_window(clean, sigma, draw)
        told = noisy.sigma if noisy.sigma and (sigma is not None or draw.random() < SURE) else measured(noisy)
        told = tuple(level * math.exp(draw.normal(0, JITTER)) if sigma is None else level for level in told)
        if quality is None:
            names, shares = zip(*QUALITIES, strict=True)
            quality = names[draw.choice(len(names), p=shares)]
        with torch.inference_mode():
            estimate = self._restorers[quality].restore(noisy.seen, told)
        return FinishWindow(
            packed(*noisy.seen).to(torch.uint8),
            packed(*estimate).half().clone(),
            packed(*noisy.clean).to(torch.uint8),
            (told[0], math.sqrt((told[1] ** 2 + told[2] ** 2) / 2)),
        )

    def _clean(self, draw: np.random.Generator) -> tuple[Tensor, ...]:
        """A window of 4:2:0 with sides of the configuration's, from a random place."""
        height, width = self.config.window
        while True:
            planes = self.footage.window(draw, self.config.crop)
            rows, columns = (min(size, most) // 16 * 16 for size, most in zip(planes[0].shape[1:], (height, width), strict=True))
            if len(planes) == 3 and min(rows, columns) >= self.config.crop and 2 * planes[1].shape[2] - planes[0].shape[2] in (0, 1):
                break
        top, left = (
            2 * int(draw.integers((size - most) // 2 + 1)) for size, most in zip(planes[0].shape[1:], (rows, columns), strict=True)
        )
        chroma = (plane[:, top // 2 : (top + rows) // 2, left // 2 : (left + columns) // 2] for plane in planes[1:])
        return tuple(plane.float() for plane in (planes[0][:, top : top + rows, left : left + columns], *chroma))


def white_window(clean: tuple[Tensor, ...], sigma: float, draw: np.random.Generator) -> Noisy:
    generator = torch.Generator().manual_seed(int(draw.integers(2**62)))
    seen = [(plane + sigma * torch.randn(plane.shape, generator=generator)).round().clamp(0, 255) for plane in clean]
    return Noisy(tuple(seen), clean, (sigma,) * 3)


def measured(noisy: Noisy) -> tuple[float, ...]:
    """Sigma of every plane, as a plan measures it."""
    meter = NoiseMeter(3, colour=True)
    frames = [tuple(plane.numpy() for plane in planes) for planes in zip(*noisy.seen, strict=True)]
    for first in range(0, len(frames), LOOKS):
        meter.add(frames[first : first + FRAMES_SEEN])
    return tuple(noise.sigma for noise in meter.noise())


class FinishPool(Source):
    """Crops of some windows, renewed little by little; nothing here depends on what was drawn before, as in `GroupPool`."""

    def __init__(self, maker: WindowMaker, seed: int) -> None:
        self.maker, self.config, self.seed = maker, maker.config, seed
        self.windows: dict[int, FinishWindow] = {}
        self._made: Generator[FinishWindow] | None = None

    def batches(self, steps: range, size: int, workers: int = 0, share: Share = WHOLE) -> Generator[tuple[Any, ...]]:
        """As `Source.batches`; the processes make windows, which is what takes long."""
        if workers and steps:
            self._made = in_order(self._window, range(self._wanted(steps[0]).start, self._wanted(steps[-1]).stop), workers)
        try:
            yield from super().batches(steps, size, 0, share)
        finally:
            if self._made is not None:
                self._made.close()

    def batch(self, step: int, size: int, share: Share = WHOLE) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Seen (B, 6, h, w), estimates (B, 3, 6, h, w), clean (B, 6, h, w) and sigma (B, 2)."""
        self._advance(step)
        drawn = [self._example(np.random.default_rng((self.seed, 1, step, number))) for number in range(size)[share.of(size)]]
        seen, estimate, clean, sigma = zip(*drawn, strict=True)
        return torch.stack(seen), torch.stack(estimate), torch.stack(clean), torch.tensor(sigma)

    def _example(self, draw: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, tuple[float, float]]:
        """Of one drawn frame; mirrored, and turned in time, at random."""
        window = list(self.windows.values())[draw.integers(len(self.windows))]
        side = self.config.crop // 2
        top, left = (int(draw.integers(size - side + 1)) for size in window.seen.shape[2:])
        crop = slice(top, top + side), slice(left, left + side)
        seen, estimate, clean = window.example(int(draw.integers(len(window.seen))), crop)
        if draw.random() < 0.5:
            estimate = estimate.flip(0)
        flips = [axis for axis in (-2, -1) if draw.random() < 0.5]
        return *(mirrored(part, flips) for part in (seen, estimate, clean)), window.sigma  # type: ignore[return-value]

    def _advance(self, step: int) -> None:
        wanted = self._wanted(step)
        self.windows = {number: self.windows.get(number) or self._next(number) for number in wanted}

    def _wanted(self, step: int) -> range:
        """Numbers of the windows that the pool holds at a step; it begins a fifth full."""
        stop = max(1, self.config.pool // 5) + step // self.config.steps_per_window
        return range(max(0, stop - self.config.pool), stop)

    def _next(self, number: int) -> FinishWindow:
        return self._window(number) if self._made is None else next(self._made)

    def _window(self, number: int) -> FinishWindow:
        return self.maker.window(np.random.default_rng((self.seed, 0, number)))


def mirrored(packed_frames: Tensor, axes: list[int]) -> Tensor:
    """Packed frames (..., 6, h, w) flipped, the four luma samples of a place with them."""
    for axis in axes:
        order = [2, 3, 0, 1, 4, 5] if axis == -2 else [1, 0, 3, 2, 4, 5]
        packed_frames = packed_frames.flip(axis)[..., order, :, :]
    return packed_frames


def held_out_windows(maker: WindowMaker, count: int) -> dict[str, list[FinishWindow]]:
    """`count` windows of each kind of noise to judge a network by, the same for every run of a configuration."""
    found: dict[str, list[FinishWindow]] = {}
    for name in HELD_OUT:
        sigma = float(name.split()[1]) if name.startswith("white") else None
        found[name] = [maker.window(np.random.default_rng((1, number)), sigma, "default") for number in range(count)]
    return found
