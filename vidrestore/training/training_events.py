"""The events of a training run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Metrics = dict[float | str, float]  # PSNR in dB by noise level or degradation


def rounded_metrics(metrics: Metrics) -> dict[str, float]:
    """Return metrics as checkpoints and cards hold them: names are strings, values rounded to 0.001 dB."""
    return {name if isinstance(name, str) else f"{name:g}": round(psnr, 3) for name, psnr in metrics.items()}


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
    """`step` of `steps` are done; loss, rate and norm of the last one, total seconds of training."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    gradient_norm: float
    seconds: float


@dataclass(frozen=True)
class Validated:
    """A validation: total seconds, mean loss since the last one (or the start), and PSNR in dB by sigma or
    degradation; `before` is that of the network's input, `best` is True for the highest mean so far.
    `held_out` is False if the data are those of training, since the configuration names no others.
    """

    step: int
    seconds: float
    loss: float
    psnr: Metrics
    before: Metrics = field(default_factory=dict)
    best: bool = False
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


def to_all(*listeners: Listener) -> Listener:
    """Return a listener that passes every event on to all `listeners`."""

    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return emit
