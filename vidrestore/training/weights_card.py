"""Write the weights of a run, with a card of their training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from vidrestore.training.config import RunConfig, config_toml
from vidrestore.training.networks import full_model, with_full_model
from vidrestore.training.objective import Objective
from vidrestore.weights.checkpoint import save_model

MOST_POINTS = 40  # validations on a card


def write_weights(
    path: Path,
    network: nn.Module,
    config: RunConfig,
    objective: Objective,
    *,
    curve: Sequence[dict[str, Any]],
    init: Sequence[str],
    step: int,
    seconds: int,
) -> None:
    """Write a network in half precision. Its card has the configuration, and `curve`: the validations until
    `step`, which the run reached after `seconds`. `init` are the sources of the initial weights.
    """
    training = {
        "data": "; ".join(f"{what}: {name}" for what, name in config.data.card_entries().items() if name),
        "command": config.command(init),
        "configuration": config_toml(with_full_model(config, network)),
        "steps": step,
        "weights": "averaged" if config.training.average else "not averaged",
        "seconds": seconds,
        "curve": list(curve[-MOST_POINTS:]),
    }
    save_model(
        path,
        network,
        family=config.family,
        config=full_model(config, network),
        task=config.task,
        parameters=config.parameters or objective.parameters,
        extra={"training": training, "measured": objective.card_metrics(curve[-1]) if curve else {}},
        half=True,
    )
