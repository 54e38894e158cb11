"""One step of everything that a run does, in a folder that is gone afterwards: what would fail after hours
fails now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from vidrestore.jobs.frame_progress import peak_memory
from vidrestore.restorers.devices import torch_device
from vidrestore.training.config import RunConfig
from vidrestore.training.data.batches import workers_watched
from vidrestore.training.data.sources import IN_MEMORY, Reading, make_data
from vidrestore.training.loop import Run, on_device, sources_of
from vidrestore.training.memory_watch import memory_watched
from vidrestore.weights import load_model


@dataclass(frozen=True)
class Rehearsed:
    """One thing that was done, and what it took."""

    what: str
    seconds: float


def rehearse(
    config: RunConfig,
    *,
    init: str | Path | Sequence[str | Path] | None = None,
    device: str = "auto",
    reading: Reading = IN_MEMORY,
) -> Iterator[Rehearsed]:
    """Build, read, train a step, judge, save, load: what each took, as soon as it is done. Raises what
    `train` raises.
    """
    with memory_watched(config), workers_watched(), TemporaryDirectory(prefix="vidrestore-") as folder:
        clock = _Clock()
        run = Run(config, Path(folder), torch_device(device))
        for weights in sources_of(init):
            run.start_from(weights)
        parameters = sum(part.numel() for part in run.network.parameters())
        yield clock(f"{config.family} with {parameters:,} parameters on {run.device}")
        source, held_out = make_data(config, run.architecture, reading)
        yield clock("held-out data")
        batches = source.batches(range(2), config.training.batch, reading.workers)
        batch = next(batches)
        yield clock(f"first batch: {_shapes(batch)}")
        loss = run.update(*on_device(batch, run.device))
        yield clock(f"update: loss {loss:.4f}")
        next(batches)
        yield clock("second batch")
        progress = run.validate(held_out, [loss])
        yield clock(
            "validation: " + ", ".join(f"{name} {psnr:.2f} dB" for name, psnr in progress.psnr.items())
        )
        run.save_checkpoint()
        yield clock(f"checkpoint written: {_size(run.checkpoint)}")
        run.load_checkpoint()
        yield clock("checkpoint read")
        weights = run.save_weights()
        yield clock(f"weights written: {_size(weights)}")
        load_model(weights)
        yield clock("weights loaded")


class _Clock:
    """Seconds from one call to the next."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, what: str) -> Rehearsed:
        now = time.monotonic()
        self.last, before = now, self.last
        return Rehearsed(what, now - before)


def memory_used() -> str:
    """The most that this process held so far, where the system says it, and that of the GPU, where there is
    one.
    """
    peak = peak_memory()
    held = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return ("unknown memory" if peak is None else f"{peak / 1e9:.2f} GB") + (
        f", GPU {held / 1e9:.2f} GB" if held else ""
    )


def _shapes(batch: tuple[Any, ...]) -> str:
    return ", ".join(
        "x".join(map(str, part.shape)) if isinstance(part, torch.Tensor) else f"{part:.3g}" for part in batch
    )


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
