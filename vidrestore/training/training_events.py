"""Events of a training run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Figures = dict[float | str, float]  # PSNR in dB by noise level or degradation


def noted(figures: Figures) -> dict[str, float]:
    """As checkpoints and cards keep them: names as JSON has them, to 0.001 dB."""
    return {name if isinstance(name, str) else f"{name:g}": round(psnr, 3) for name, psnr in figures.items()}


@dataclass(frozen=True)
class Began:
    """A run begins at `step`: anew, or from `checkpoint`."""

    step: int
    steps: int
    device: str
    checkpoint: Path | None


@dataclass(frozen=True)
class Reached:
    """A stage of a run begins: `read` data, make the first `batches`, `train`, `judge` or `save`."""

    stage: str


@dataclass(frozen=True)
class Stepped:
    """`step` of `steps` are done: loss and length of the gradient at the last, the rate it was made at,
    seconds of training in all.
    """

    step: int
    steps: int
    loss: float
    learning_rate: float
    gradient_norm: float
    seconds: float


@dataclass(frozen=True)
class Validated:
    """A validation: seconds of training in all, mean loss since the last one (or since the run was resumed),
    held-out PSNR.

    That is in dB by sigma, or by degradation, with the PSNR of what the network was given in `before`. `best`
    says that no earlier one was better, in the mean.
    """

    step: int
    seconds: float
    loss: float
    psnr: Figures
    before: Figures = field(default_factory=dict)
    best: bool = False


@dataclass(frozen=True)
class Interrupted:
    """Ctrl-C: everything up to `step` is in `checkpoint`."""

    step: int
    checkpoint: Path


@dataclass(frozen=True)
class Noticed:
    """Something to know that doesn't stop the run."""

    message: str


Event = Began | Reached | Stepped | Validated | Interrupted | Noticed
Listener = Callable[[Event], None]


def to_all(*listeners: Listener) -> Listener:
    """A listener that passes every event on."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell
