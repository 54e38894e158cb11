"""A network with its optimiser and the average of its weights, the learning rate of each step, and the
validations, which select the best weights.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vidrestore.lab.run_config import Schedule
from vidrestore.lab.training.networks import recompute_activations
from vidrestore.lab.training.objective import Objective
from vidrestore.lab.training.parallel import ProcessGroup
from vidrestore.lab.training_events import Metrics, rounded_metrics

LAG = 2  # steps that a GPU may be behind
WARMUP = 200  # steps, unless a number is set
# share of the learning rate at the end of a cosine, unless a floor is set
LOWEST = 0.01


def learning_rate(step: int, settings: Schedule, reduction: float = 1.0) -> float:
    """Return the learning rate of a step by `settings.schedule`, after a linear warm-up. `reduction` is the
    share of the rate that a plateau has been reduced to.
    """
    # the share of the rate that is left by the schedule
    rate = settings.learning_rate
    share = 1.0
    floor = LOWEST * rate if settings.floor is None else settings.floor
    left = 1.0
    match settings.schedule:
        case "cosine":
            falling = settings.steps * settings.decay
            left = min(1.0, (settings.steps - step) / falling) if falling else 1.0
        case "restarts":
            position = step * len(settings.restarts) / settings.steps
            share = settings.restarts[int(position)]
            left = 1 - position % 1
        case "plateau":
            rate = max(rate * reduction, settings.floor or 0.0)
            floor = 0.0
    # half a cosine from the rate to the floor, after a linear rise
    rate = floor + share * (rate - floor) * 0.5 * (1 - math.cos(math.pi * left))
    warmup = min(WARMUP, settings.steps) if settings.warmup is None else settings.warmup
    return rate * min(1.0, (step + 1) / max(warmup, 1))


class Learner:
    """A network, the average of its weights, and the optimiser that its objective asks for."""

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        group: ProcessGroup,
        device: torch.device,
    ) -> None:
        self.network = network
        self.objective = objective
        self.group = group
        self.device = device
        self.average = copy.deepcopy(network).eval()
        self.optimiser = objective.optimiser(network)
        # True asks all processes to stop; `agreed` is True when they do
        self.stops = False
        # whether one asked, in each of the latest steps
        self._flags: deque[Tensor] = deque()
        if objective.settings.recompute:
            recompute_activations(network)
        if objective.settings.compile:
            network.compile()

    def update(self, batch: tuple[Any, ...], step: int, rate: float) -> Tensor:
        """Update the weights and their average; return loss and gradient norm, (2,), still on the device."""
        # a tensor, so that a compiled step isn't compiled again for each rate
        for group in self.optimiser.param_groups:
            group["lr"] = torch.tensor(rate)  # in single precision
        self.optimiser.zero_grad()
        mean = torch.zeros((), device=self.device)
        learns = False
        count = self.objective.settings.accumulate
        # gradients of the parts add up
        for objective, part in self.objective.parts(batch, count):
            loss = objective.loss(self.network, part, step) / count
            # an algorithm without parameters is only validated and saved
            learns = loss.requires_grad
            if learns:
                loss.backward()
            mean += loss.detach()
        # means over all processes, and whether one wants to stop
        gradients = [
            part.grad for part in self.network.parameters() if part.grad is not None
        ]
        flag = torch.full_like(mean, self.stops)
        self.group.average([mean, flag, *gradients])
        if not self.group.is_single:
            self._flags.append(flag)
        norm = self._clip(gradients)
        if learns:
            self.optimiser.step()
        # the average follows faster while it is young
        self._renew(1 - min(self.objective.settings.average, (1 + step) / (10 + step)))
        return torch.stack((mean.float(), norm))

    def agreed(self) -> bool:
        """Return True if a process has asked to stop; all processes get the same after the same step. On GPUs
        it is about `LAG` steps ago, so that the answer is there and isn't waited for.
        """
        if self.group.is_single:
            return self.stops
        lag = LAG if self.device.type == "cuda" else 0
        return any(bool(self._flags.popleft()) for _ in range(len(self._flags) - lag))

    def _clip(self, gradients: list[Tensor]) -> Tensor:
        """Scale gradients down to the norm that [training] allows, and return the norm that they had."""
        if not gradients:
            return torch.zeros((), device=self.device)
        # one norm of all gradients
        norm: Tensor = torch.stack(torch._foreach_norm(gradients)).norm()
        if largest := self.objective.settings.clip_norm:
            torch._foreach_mul_(gradients, (largest / (norm + 1e-6)).clamp(max=1))
        return norm

    @torch.no_grad()
    def _renew(self, share: float) -> None:
        """Move the average by a share of the way to the network."""
        weights, means = (
            list[Tensor](part.parameters()) for part in (self.network, self.average)
        )
        changes = list(torch._foreach_sub(weights, means))
        torch._foreach_mul_(changes, share)
        torch._foreach_add_(means, changes)


class Plateau:
    """The share of the learning rate that is left, multiplied by `factor` after each `patience` validations
    in a row without improvement, as DUST is trained (0.3 after 5 epochs).
    """

    def __init__(self, patience: int, factor: float) -> None:
        self.patience = patience
        self.factor = factor
        self.waited = 0
        self.share = 1.0

    def step(self, better: bool) -> None:
        """Count a validation."""
        self.waited = 0 if better else self.waited + 1
        if self.waited >= self.patience:
            self.waited = 0
            self.share *= self.factor

    def state_dict(self) -> dict[str, float]:
        return {"waited": self.waited, "share": self.share}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.waited = int(state["waited"])
        self.share = state["share"]


@dataclass(frozen=True)
class Best:
    """The weights of the best validation, and its PSNR (dB), the mean over the held-out metrics."""

    step: int
    psnr: float
    weights: dict[str, Tensor]


class Validations:
    """The validations of a run: the curve of their metrics, the best one, and the plateau they make."""

    def __init__(self, settings: Schedule) -> None:
        self.settings = settings
        self.curve: list[dict[str, Any]] = []
        self.best: Best | None = None
        self.plateau = Plateau(settings.patience, settings.factor)

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        return learning_rate(step, self.settings, self.plateau.share)

    def due(self, step: int) -> bool:
        """Return True if a validation is due after `step` steps."""
        validated = self.curve[-1]["step"] if self.curve else 0
        return validated < step and (
            step % self.settings.validate_every == 0 or step >= self.settings.steps
        )

    def add(
        self, step: int, metrics: Metrics, before: Metrics, network: nn.Module
    ) -> bool:
        """Add metrics to the curve; return True, and keep the network's weights, if they are the best."""
        # the curve of a card has few digits
        parts = {"psnr": metrics} | ({"before": before} if before else {})
        self.curve.append(
            {"step": step}
            | {name: rounded_metrics(part) for name, part in parts.items()}
        )
        psnr = sum(metrics.values()) / len(metrics)
        better = not math.isnan(psnr) and (self.best is None or psnr > self.best.psnr)
        self.plateau.step(better)
        if better:
            weights = {
                name: tensor.detach().cpu().clone()
                for name, tensor in network.state_dict().items()
            }
            self.best = Best(step, psnr, weights)
        return better

    def state_dict(self) -> dict[str, Any]:
        best = None if self.best is None else vars(self.best)
        return {"curve": self.curve, "best": best, "plateau": self.plateau.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.curve = state["curve"]
        best = state["best"]
        self.best = None if best is None else Best(**best)
        self.plateau.load_state_dict(state["plateau"])
