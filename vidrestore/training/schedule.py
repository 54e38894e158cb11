"""The learning rate of each step, and what a plateau of the held-out metrics leaves of it."""

from __future__ import annotations

import math

from vidrestore.training.config import Schedule

LOWEST = 0.01  # share of the learning rate at the end of a cosine, unless a floor is given


def learning_rate(step: int, settings: Schedule, reduced: float = 1.0) -> float:
    """Return the learning rate of a step: linear warm-up, then `settings.schedule`. `reduced` is the share
    left by a plateau.

    "cosine": constant, then half a cosine. "restarts": half cosines of equal length, each from its share of
    the rate, as in SGDR (I. Loshchilov and F. Hutter, ICLR 2017). "plateau": constant, reduced if the
    held-out metrics stop improving. None falls below the floor.
    """
    rate, lowest = settings.learning_rate, LOWEST
    if settings.floor is not None:
        lowest = settings.floor / rate
    if settings.schedule == "restarts":
        period = settings.steps / len(settings.restarts)
        cycle = min(int(step / period), len(settings.restarts) - 1)
        fall = _cosine(cycle + 1 - step / period, max(settings.restarts[cycle], lowest), lowest)
    elif settings.schedule == "plateau":
        fall = max(reduced, 0.0 if settings.floor is None else lowest)
    else:
        falling = settings.steps * settings.decay
        left = (settings.steps - step) / falling if falling else 1.0
        fall = 1.0 if left >= 1 else _cosine(left, 1.0, lowest)
    return rate * min(1.0, (step + 1) / max(settings.warmup, 1)) * fall


def _cosine(left: float, high: float, low: float) -> float:
    """Interpolate by half a cosine from `high` at left = 1 to `low` at left = 0."""
    return low + (high - low) * 0.5 * (1 - math.cos(math.pi * left))


class Plateau:
    """Reduces the learning rate by `factor` after `patience` validations in a row without improvement.

    DUST is trained so, by 0.3 after 5 epochs (De Weerdt et al., IEEE Trans. Signal Processing 72, 2024),
    which watches the loss.
    """

    def __init__(self, patience: int, factor: float) -> None:
        self.patience, self.factor = patience, factor
        self.waited, self.share = 0, 1.0

    def step(self, better: bool) -> None:
        """Count a validation."""
        self.waited = 0 if better else self.waited + 1
        if self.waited >= self.patience:
            self.waited, self.share = 0, self.share * self.factor

    def state_dict(self) -> dict[str, float]:
        return {"waited": self.waited, "share": self.share}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.waited, self.share = int(state["waited"]), state["share"]
