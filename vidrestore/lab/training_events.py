"""The events of a training run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Metrics = dict[float | str, float]  # PSNR in dB by noise level or degradation


def rounded_metrics(metrics: Metrics) -> dict[str, float]:
    """Return metrics as checkpoints and cards hold them: names are strings, values rounded to 0.001 dB."""
    return {
        name if isinstance(name, str) else f"{name:g}": round(psnr, 3)
        for name, psnr in metrics.items()
    }


@dataclass(frozen=True)
class Began:
    """A run begins at `step`: from the start, or from `checkpoint`."""

    step: int
    steps: int
    device: str
    checkpoint: Path | None


@dataclass(frozen=True)
class Reached:
    """A stage begins: `load` the program, `read`, first `batches`, `train`, `validate` or `save`."""

    stage: str


@dataclass(frozen=True)
class Stepped:
    """A step was taken."""

    step: int
    steps: int  # of the run
    loss: float
    learning_rate: float
    gradient_norm: float
    seconds: float  # of training in total


@dataclass(frozen=True)
class Validated:
    """A validation."""

    step: int
    seconds: float  # of training in total
    loss: float  # mean since the last validation, or the start
    psnr: Metrics  # dB, by sigma or degradation
    before: Metrics = field(default_factory=dict)  # the same of the network's input
    best: bool = False  # True for the highest mean so far
    # False for the data of training, since the configuration names no others
    held_out: bool = True


@dataclass(frozen=True)
class Interrupted:
    """Ctrl-C was pressed, or the time is over; everything up to `step` is in `checkpoint`."""

    step: int
    checkpoint: Path


@dataclass(frozen=True)
class Noticed:
    """A message that doesn't stop the run."""

    message: str


Event = Began | Reached | Stepped | Validated | Interrupted | Noticed
Listener = Callable[[Event], None]
