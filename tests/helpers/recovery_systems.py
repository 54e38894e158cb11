"""The systems that DUST is held against, small, with weights moved off their symmetric start; and patches to
try them on.
"""

from typing import Any

import torch
from torch import Tensor

from vidrestore.weights.checkpoint import build_network

PATCH, PIXELS, ATOMS, MEASUREMENTS = 4, 16, 36, 6
SIZES: dict[str, dict[str, Any]] = {  # of each family, small
    "algorithm1": {"atoms": ATOMS, "iterations": 4, "lambda1": 2.0},
    "dust": {"atoms": ATOMS, "heads": 2, "correlation": True},
    "l1-l1-rnn": {"atoms": ATOMS, "lambda1": 2.0, "lambda2": 0.6},
    "reweighted-rnn": {"atoms": ATOMS, "lambda1": 2.0, "lambda2": 0.6},
    "sista": {"atoms": ATOMS, "layers": 4, "lambda1": 2.0, "lambda2": 0.3},
    "sista-rnn": {"atoms": ATOMS, "lambda1": 2.0, "lambda2": 0.3},
    "unfolded-transformer": {"width": 12},
    "vit": {"width": 12, "hidden": 20, "heads": 3},
}
LEARNING = [family for family in SIZES if family not in ("algorithm1", "sista")]


def config(
    family: str, measurements: int | None = None, **changes: object
) -> dict[str, Any]:
    sensing = {"measurements": measurements} if measurements else {}
    return {"patch": PATCH, **SIZES[family], **sensing, **changes}


def system(
    family: str, measurements: int | None = None, seed: int = 0, **changes: object
) -> Any:
    """In double precision, trained a little: a wrong transpose or a forgotten factor shows."""
    torch.manual_seed(seed)
    return (
        moved(build_network(family, config(family, measurements, **changes)))
        .double()
        .eval()
    )


def moved(network: Any, by: float = 0.02) -> Any:
    """The network with weights off their symmetric start, so that a wrong transpose shows."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter += by * torch.randn_like(parameter)
    return network


def patches(groups: int = 3, frames: int = 5, seed: int = 1) -> Tensor:
    """(groups, frames, PIXELS) that change a little from frame to frame."""
    rng = torch.Generator().manual_seed(seed)
    first = 255 * torch.rand(groups, 1, PIXELS, generator=rng, dtype=torch.float64)
    return first + 20 * torch.randn(
        groups, frames, PIXELS, generator=rng, dtype=torch.float64
    )
