"""The CPU time of each stage of `denoise`, and the least that its products take on this processor.

    python examples/experiments/denoise_stages.py [--quality default|fast|best] [--size 854x480] [--times 3]

One clip of a synthetic video is restored by one thread, some times over; the least time of each stage counts,
per frame that is new in a clip. The floor: the operations of a stage's products, counted in a run apart, at
the speed that one core reaches with large packed products in the same number format. What is moved, compared,
or done by LAPACK comes on top. Prints a table in Markdown.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from roofline import Products
from torch import Tensor

from vidrestore.jobs.bench import PEAK_SIZE, _picture, _products
from vidrestore.models.patch_positions import ClipPositions
from vidrestore.options import RestoreOptions
from vidrestore.parsing import size as parse_size
from vidrestore.restorers.denoise import PRESETS, DenoiseRestorer, FurtherEstimates, denoiser

SIGMA = 20.0
# The rest: halved and doubled planes, resized luma, and what calls the stages.
REST = "the rest"
STAGES: dict[str, tuple[type, str]] = {
    "patch positions": (ClipPositions, "origins"),
    "first estimates by DUST": (DenoiseRestorer, "restored_plane"),
    "Wiener's filter": (FurtherEstimates, "_wiener_estimate"),
    "non-local Bayes": (FurtherEstimates, "nonlocal_estimate"),
    "small networks": (FurtherEstimates, "correct"),
}
Spent = dict[str, np.ndarray]


class ByFormat(Products):
    """Counts the operations of products by their number format, fp32 and bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.fp32 = self.bf16 = self._told = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_dispatch__(func, types, args, kwargs)
        if func._overloadpacket is torch.ops.mkldnn._convolution_pointwise:  # of a packed layer
            taps = int(np.prod([2 * side + 1 for side in args[3]]))  # by the padding of a filter
            self.operations += 2 * made.numel() * args[0].shape[1] * taps
        if counted := self.operations - self._told:  # what ran inside has told its own
            numbers = "bf16" if made.dtype == torch.bfloat16 else "fp32"
            setattr(self, numbers, getattr(self, numbers) + counted)
            self._told = self.operations
        return made


@contextmanager
def divided(reading: Callable[[], np.ndarray], spent: Spent) -> Iterator[None]:
    """Divide what a meter counts in the block among the stages: each has what it counts itself, without the
    stages inside it.
    """
    running, last = [REST], reading()
    before = [(owner, name, getattr(owner, name)) for owner, name in STAGES.values()]

    def count() -> None:
        nonlocal last
        now = reading()
        spent[running[-1]] = spent.get(running[-1], 0) + now - last
        last = now

    def counted(stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*args: Any, **kwargs: Any) -> Any:
            count()
            running.append(stage)
            try:
                return work(*args, **kwargs)
            finally:
                count()
                running.pop()

        return inside

    for stage, (owner, name, work) in zip(STAGES, before, strict=True):
        setattr(owner, name, counted(stage, work))
    try:
        yield
        count()
    finally:
        for owner, name, work in before:
            setattr(owner, name, work)


def clip(width: int, height: int, frames: int) -> tuple[Tensor, ...]:
    """Return the planes of a noisy clip that is made up, 4:2:0."""
    draw, sizes = np.random.default_rng(0), [(height, width), *[(height // 2, width // 2)] * 2]
    planes = [np.stack([_picture(draw, number, *size) for number in range(frames)]) for size in sizes]
    return tuple(torch.from_numpy(plane).float() for plane in planes)


def measured(quality: str, width: int, height: int, times: int) -> tuple[Spent, Spent]:
    """Return by stage the CPU ms, and the 10^9 operations of products in fp32 and in bf16, per frame."""
    restorer = denoiser(RestoreOptions(quality=quality, sigma=SIGMA, device="cpu"))
    planes, frames = clip(width, height, restorer.facts.clip), restorer.facts.clip - restorer.facts.overlap
    tries = []
    with torch.inference_mode():
        for _ in range(times + 1):  # the first one also makes what is kept
            spent: Spent = {}
            with divided(lambda: np.array(time.thread_time()), spent):
                restorer.restore(planes, (SIGMA,) * 3)
            tries.append(spent)
        products: Spent = {}
        with ByFormat() as meter, divided(lambda: np.array([meter.fp32, meter.bf16], float), products):
            restorer.restore(planes, (SIGMA,) * 3)
    least = {stage: 1e3 * min(spent[stage] for spent in tries[1:]) / frames for stage in tries[-1]}
    return least, {stage: counted / 1e9 / frames for stage, counted in products.items()}


def least_time(work: Callable[[], Any], times: int = 4) -> float:
    """Return the least CPU seconds of some tries."""
    tries = []
    for _ in range(times):
        began = time.thread_time()
        work()
        tries.append(time.thread_time() - began)
    return min(tries)


def table(quality: str, width: int, height: int, times: int) -> Iterator[str]:
    torch.set_num_threads(1)
    spent, products = measured(quality, width, height, times)
    rates = np.array([2 * PEAK_SIZE**3 / least_time(work) / 1e9 for work in _products().values()])
    yield f"one core, 10^9 operations per second: fp32 {rates[0]:.0f}, bf16 {rates[1]:.0f}\n"
    yield f"| {quality}, {width}x{height} | CPU ms a frame | products, 10^9: fp32, bf16 | their floor, ms |"
    yield "|---|---|---|---|"
    stages = [stage for stage in (*STAGES, REST) if stage in spent]
    rows = [(stage, spent[stage], products[stage]) for stage in stages]
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    for stage, cpu, counted in rows:
        floor = 1e3 * (counted / rates).sum()
        yield f"| {stage} | {cpu:.1f} | {counted[0]:.2f}, {counted[1]:.2f} | {floor:.1f} |"


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--quality", choices=list(PRESETS), default="default")
    parser.add_argument("--size", type=parse_size, default=(854, 480), metavar="WxH")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    for line in table(options.quality, *options.size, options.times):
        sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
