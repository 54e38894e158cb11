"""The optimiser Muon, with which the small networks of the denoiser are fitted.

It takes steps of equal size in all directions of a weight matrix, for the inner convolutions, and Adam's
for the rest. K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024: the momentum
of a matrix is replaced by the nearest orthogonal matrix, approximated by five iterations of a polynomial.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ADAM = (0.9, 0.99)  # betas of the other parameters
TINY = 1e-8
POLYNOMIAL, ITERATIONS = (3.4445, -4.7750, 2.0315), 5  # singular values end between 0.7 and 1.2
LEAST_SIDE = 16  # rows and columns; smaller matrices use Adam
# Norm below which a matrix gets a smaller step, or none: that of a layer without gradients decays for ever,
# until its square is no number in 32 bits.
LEAST_NORM = 1e-12


class Muon(torch.optim.Optimizer):
    """Muon for the weights of `network` that are large matrices, Adam for all others and for those in
    `apart`.

    A step of a matrix has a root mean square of about 0.85 times the learning rate, much as Adam's, so one
    rate serves both.
    """

    def __init__(self, network: nn.Module, lr: float, apart: Iterable[nn.Parameter] = ()) -> None:
        others = {id(parameter) for parameter in apart}
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for parameter in network.parameters():
            is_large = parameter.ndim > 1 and min(parameter.shape[:2]) >= LEAST_SIDE
            groups[is_large and id(parameter) not in others].append(parameter)
        super().__init__(
            [{"params": part, "orthogonal": kind} for kind, part in groups.items() if part], {"lr": lr}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step with the gradients of the parameters."""
        assert closure is None, "closures are not supported"
        for group in self.param_groups:
            updated = [parameter for parameter in group["params"] if parameter.grad is not None]
            if updated:
                (self._orthogonal if group["orthogonal"] else self._adam)(updated, group["lr"])

    def _orthogonal(self, parameters: list[Tensor], rate: float | Tensor) -> None:
        gradients = [cast("Tensor", parameter.grad) for parameter in parameters]
        momenta = [self._state_tensor(parameter, "momentum") for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        by_shape: defaultdict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        for parameter, direction in zip(parameters, ahead, strict=True):
            by_shape[direction.flatten(1).shape].append((parameter, direction.flatten(1)))
        for (rows, columns), part in by_shape.items():
            steps = orthogonal(torch.stack([direction for _, direction in part]))
            steps = steps * (rate * max(rows, columns) ** 0.5)
            for (parameter, _), step in zip(part, steps, strict=True):
                parameter.sub_(step.view(parameter.shape))

    def _adam(self, parameters: list[Tensor], rate: float | Tensor) -> None:
        slow, fast = ADAM
        gradients = [cast("Tensor", parameter.grad) for parameter in parameters]
        means, squares, counts = (
            [self._state_tensor(parameter, name) for parameter in parameters]
            for name in ("mean", "square", "count")
        )
        torch._foreach_add_(counts, 1)
        torch._foreach_lerp_(means, gradients, 1 - slow)
        torch._foreach_lerp_(squares, torch._foreach_mul(gradients, gradients), 1 - fast)
        missing = [torch._foreach_neg(torch._foreach_pow(beta, counts)) for beta in ADAM]
        for part in missing:
            torch._foreach_add_(part, 1)
        scales = torch._foreach_sqrt(torch._foreach_div(squares, missing[1]))
        torch._foreach_add_(scales, TINY)
        steps = torch._foreach_div(torch._foreach_div(means, missing[0]), scales)
        torch._foreach_mul_(steps, rate)
        torch._foreach_sub_(parameters, steps)

    def _state_tensor(self, parameter: Tensor, name: str) -> Tensor:
        state: dict[str, Any] = self.state[parameter]
        if name not in state:
            state[name] = torch.zeros_like(parameter)
        tensor: Tensor = state[name]
        return tensor


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximate the nearest matrices with orthonormal rows, or columns if there are fewer, of (N, rows,
    columns); those that have vanished become 0.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    steps = (matrices.mT if tall else matrices).bfloat16()
    steps = steps / steps.norm(dim=(1, 2), keepdim=True).clamp(min=LEAST_NORM)
    a, b, c = POLYNOMIAL
    for _ in range(ITERATIONS):
        square = steps @ steps.mT
        steps = a * steps + (b * square + c * square @ square) @ steps
    result: Tensor = (steps.mT if tall else steps).to(matrices.dtype)
    return result
