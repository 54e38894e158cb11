"""`vidrestore train --dry-run`: one step of everything, in a temporary folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from vidrestore.jobs.frame_progress import peak_memory
from vidrestore.lab.run_config import RunConfig
from vidrestore.lab.training.data.batches import on_device, worker_errors
from vidrestore.lab.training.data.pairs import HeldOutPictures
from vidrestore.lab.training.data.sources import IN_MEMORY, Reading, make_data
from vidrestore.lab.training.loop import Run, memory_errors
from vidrestore.restorers.devices import torch_device
from vidrestore.weights import load_model


def rehearse(
    config: RunConfig,
    *,
    init: Sequence[str | Path] = (),
    device: str = "auto",
    reading: Reading = IN_MEMORY,
) -> Iterator[tuple[str, float]]:
    """Build, read, train a step, validate, save, load; yield each with its seconds. Raises as `train`."""
    # each part of a run once, in the order of a run
    with (
        memory_errors(config),
        worker_errors(),
        TemporaryDirectory(prefix="vidrestore-") as folder,
    ):
        last = time.monotonic()

        def lap(description: str) -> tuple[str, float]:
            nonlocal last
            before, last = last, time.monotonic()
            return description, last - before

        # build it and begin from other weights
        run = Run(config, Path(folder), torch_device(device))
        for weights in init:
            run.initialise_from(weights)
        parameters = sum(part.numel() for part in run.network.parameters())
        yield lap(
            f"{config.family} with {parameters:,} parameters on {run.learner.device}"
        )
        # read data, and take a step
        source, held_out = make_data(config, run.network, reading)
        yield lap("held-out data")
        batches = source.batches(range(2), config.training.batch, reading.workers)
        batch = next(batches)
        yield lap(f"first batch: {_shapes(batch)}")
        run.update(*on_device(batch, run.learner.device))
        run.losses = [stepped.loss for stepped in run.read()]
        yield lap(f"update: loss {run.losses[0]:.4f}")
        next(batches)
        yield lap("second batch")
        # validate, and save as at the end
        progress = run.validate(
            held_out.first if isinstance(held_out, HeldOutPictures) else held_out
        )
        yield lap(
            "validation: "
            + ", ".join(f"{name} {psnr:.2f} dB" for name, psnr in progress.psnr.items())
        )
        run.save_checkpoint()
        yield lap(f"checkpoint written: {_size(run.checkpoint)}")
        run.load_checkpoint()
        yield lap("checkpoint read")
        weights = run.save_weights()
        yield lap(f"weights written: {_size(weights)}")
        load_model(weights)
        yield lap("weights loaded")


def memory_used() -> str:
    """Describe the peak memory of this process, if the system reports it, and of the GPU, if there is one."""
    peak = peak_memory()
    gpu_peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return ("unknown memory" if peak is None else f"{peak / 1e9:.2f} GB") + (
        f", GPU {gpu_peak / 1e9:.2f} GB" if gpu_peak else ""
    )


def _shapes(batch: tuple[Any, ...]) -> str:
    return ", ".join(
        "x".join(map(str, part.shape))
        if isinstance(part, torch.Tensor)
        else f"{part:.3g}"
        for part in batch
    )


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
