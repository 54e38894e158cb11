"""One step of training, which reads no value from the device and so never waits for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vidrestore.training.objective import Objective
from vidrestore.training.parallel import ProcessGroup


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
        self.group.average([mean, *(part.grad for part in self.weights if part.grad is not None)])
        if learns:
            self.scaler.unscale_(self.optimiser)
        norm = nn.utils.clip_grad_norm_(self.weights, self.objective.settings.clip_norm)
        if learns:
            self.scaler.step(self.optimiser)  # skips a step whose gradients overflowed in fp16
            self.scaler.update()
        with torch.no_grad():
            changes = list(torch._foreach_sub(self.weights, self.means))
            torch._foreach_mul_(changes, self.renewal)
            torch._foreach_add_(self.means, changes)
        return torch.stack((mean.float(), norm.to(mean.device).float()))
