"""One step of training, which reads no value from the device and so never waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vidrestore.training.data.planes import PlaneSource
from vidrestore.training.objective import Objective
from vidrestore.training.parallel import ProcessGroup

WARM = 3  # steps that run one operation at a time before the graph is captured, so that libraries are loaded


class TrainingStep:
    """Compute the loss of a batch and its gradients, update the weights, and average them.

    `rate` is the learning rate, `renewal` the share of the new weights in the average: tensors on the device,
    because a captured graph reads at every replay what is in them then.
    """

    def __init__(
        self,
        network: nn.Module,
        average: nn.Module,
        objective: Objective,
        group: ProcessGroup,
        scaler: torch.amp.GradScaler,
    ) -> None:
        self.network, self.objective, self.group, self.scaler = network, objective, group, scaler
        self.optimiser = objective.optimiser(network)
        self.weights = list[Tensor](network.parameters())
        self.means = list[Tensor](average.parameters())
        device = next((part.device for part in self.weights), torch.device("cpu"))
        self.rate, self.renewal = torch.zeros((), device=device), torch.zeros((), device=device)
        for group_of_weights in self.optimiser.param_groups:
            group_of_weights["lr"] = self.rate

    def __call__(self, batch: tuple[Any, ...], step: int) -> Tensor:
        """Take step number `step` and return the loss and the norm of the gradients: (2,) float32."""
        loss = self.objective.loss(self.network, batch, step)
        self.optimiser.zero_grad()
        learns = loss.requires_grad  # an algorithm without parameters is only validated and saved
        if learns:
            self.scaler.scale(loss).backward()
        mean = loss.detach()
        gradients = [part.grad for part in self.weights if part.grad is not None]
        self.group.average([mean, *gradients])
        if learns:
            self.scaler.unscale_(self.optimiser)
        norm = self._clip(gradients)
        if learns:
            self.scaler.step(self.optimiser)  # skips a step whose gradients overflowed in fp16
            self.scaler.update()
        with torch.no_grad():
            changes = list(torch._foreach_sub(self.weights, self.means))
            torch._foreach_mul_(changes, self.renewal)
            torch._foreach_add_(self.means, changes)
        return torch.stack((mean.float(), norm))

    def _clip(self, gradients: list[Tensor]) -> Tensor:
        """Scale gradients down to the norm that [training] allows, and return the norm that they had."""
        if not gradients:
            return torch.zeros_like(self.rate)
        norm: Tensor = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_mul_(gradients, (self.objective.settings.clip_norm / (norm + 1e-6)).clamp(max=1))
        return norm


class ResidentStep:
    """A step whose batch is drawn on the device: call it for the loss and the norm of the next one, from
    number `first` on.
    """

    def __init__(self, step: TrainingStep, source: PlaneSource, size: int, first: int) -> None:
        self.step, self.source, self.size = step, source, size
        self.number = torch.tensor(first, device=source.device)

    def __call__(self) -> Tensor:
        numbers = self.step(self.source.draw(self.number, self.size), -1)
        self.number += 1
        return numbers


class CapturedStep:
    """A step as one CUDA graph: the same operations, launched together; the first steps run as they are."""

    def __init__(self, step: Callable[[], Tensor], optimiser: torch.optim.Optimizer) -> None:
        self.step, self.optimiser, self.taken = step, optimiser, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.numbers = torch.empty(0)

    def __call__(self) -> Tensor:
        """Take the step and return its loss and norm, as `TrainingStep` does."""
        self.taken += 1
        if self.taken <= WARM:
            side, current = torch.cuda.Stream(), torch.cuda.current_stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                numbers = self.step()
            current.wait_stream(side)
            return numbers
        if self.graph is None:
            for group in self.optimiser.param_groups:
                group["capturable"] = True  # torch asks for it; fused optimisers are alike with it
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.numbers = self.step()
        self.graph.replay()
        return self.numbers.clone()
