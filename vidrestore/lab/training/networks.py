"""The network of a run: built from its configuration, initialised from other weights, and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.lab.run_config import RunConfig, config_toml
from vidrestore.lab.training.objective import Objective
from vidrestore.models.deform_conv import DeformableEmbedding
from vidrestore.models.mb_taylorformer import ConvolutionPair
from vidrestore.models.taylor_attention import Block
from vidrestore.models.vsr_transformer import Direction, VsrAttention
from vidrestore.settings.checking import known_names
from vidrestore.weights import load_model
from vidrestore.weights.checkpoint import build_network, save_model

# parts of networks whose inputs are kept if activations are computed again
NETWORK_UNITS = (Block, ConvolutionPair, DeformableEmbedding, Direction, VsrAttention)
FREE = ("slope", "aligned")  # settings of networks that may change between trainings


def new_network(config: RunConfig) -> nn.Module:
    """Build the network of [model], with parameters from the seed. Raises ConfigError."""
    # weights follow from the seed, whatever was drawn before
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.training.seed)
            network = build_network(config.family, config.model).train()
            # the network's own initialisation
            if initialise := getattr(network, "initialise", None):
                initialise()
            return network
    except CheckpointError as error:
        _check_names(config)
        raise ConfigError(f"{config.path}: {error}") from error


def recompute_activations(network: nn.Module) -> None:
    """Let the network keep the inputs of its blocks alone for the gradients, and compute what is within them
    again. Results and names of parameters stay the same.
    """
    # the inputs of these parts are kept, all else is computed again
    units = [
        module for module in network.modules() if isinstance(module, NETWORK_UNITS)
    ]
    for unit in units:
        unit.forward = partial(checkpoint, unit.forward, use_reentrant=False)  # type: ignore[method-assign]


def check_speed(config: RunConfig, network: nn.Module) -> None:
    """Raise ConfigError for `recompute` and `compile` if the network can't make use of them."""
    settings = config.training
    is_picture_network = not hasattr(network, "measure")
    has_units = any(isinstance(module, NETWORK_UNITS) for module in network.modules())
    for name, holds in (("recompute", has_units), ("compile", is_picture_network)):
        if getattr(settings, name) and not holds:
            raise ConfigError(
                f"{config.path}: training.{name} is not for this [model]; remove it"
            )


def train_parts(config: RunConfig, network: nn.Module) -> None:
    """Train only parameters whose names begin with one of `training.parts`. Raises ConfigError for others."""
    parts: tuple[str, ...] = getattr(config.training, "parts", ())
    # a name of parts that no parameter begins with is a mistake
    names = [name for name, _ in network.named_parameters()]
    for part in parts:
        if not any(name.startswith(part) for name in names):
            prefixes = ", ".join(dict.fromkeys(name.split(".")[0] for name in names))
            raise ConfigError(
                f"{config.path}: training.parts: no parameter begins with {part!r}; there are {prefixes}"
            )
    if parts:
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name.startswith(parts))


def _check_names(config: RunConfig) -> None:
    """Raise ConfigError for names in [model], or a table of it, that the family doesn't have."""
    # the settings that a network of this kind has, by building one
    base: dict[str, Any] = {
        name: config.model[name] for name in ("kind", "size") if name in config.model
    }
    try:
        settings = base | settings_of(build_network(config.family, base))
    except CheckpointError:  # kind or size is wrong
        return
    tables: dict[str, tuple[dict[str, Any], Any]] = {
        "[model]": (config.model, settings)
    }
    for name, part in config.model.items():
        if isinstance(part, dict):
            tables[f"[model] {name}"] = (part, settings.get(name))
    for section, (values, names) in tables.items():
        if isinstance(names, dict) and (
            unknown := sorted(values.keys() - names.keys())
        ):
            raise ConfigError(
                f"{config.path}, {section}: unknown: {', '.join(unknown)}; there are: "
                f"{known_names(unknown[0], names)}"
            )


def full_model(config: RunConfig, network: nn.Module) -> dict[str, Any]:
    """Return the network's full configuration, defaults included."""
    return config.model | settings_of(network)


def settings_of(network: nn.Module) -> dict[str, Any]:
    """Return the fields of a network's `config`; empty if it has none that is a dataclass."""
    stated = getattr(network, "config", None)
    return (
        asdict(stated) if is_dataclass(stated) and not isinstance(stated, type) else {}
    )


def with_full_model(config: RunConfig, network: nn.Module | None = None) -> RunConfig:
    """Return the same run with the full [model]. Raises ConfigError as `new_network` does."""
    return replace(config, model=full_model(config, network or new_network(config)))


def load_initial_weights(
    config: RunConfig, networks: Iterable[nn.Module], source: str | Path
) -> None:
    """Load the weights of `source` into the networks of a run.

    Besides weights of the same network these are accepted: a flow network for the flow of a super-resolution
    network; a super-resolution network that takes single frames for the same parts of one that takes several;
    an image network without tasks for one with tasks; a network whose settings differ in FREE. Other
    parameters are unchanged. Raises CheckpointError for any other weights.
    """
    # loaded as a model, and then matched to each network
    model = load_model(source)
    for network in networks:
        parameters = _matching_parameters(network, model.network)
        if parameters is None:
            raise CheckpointError(
                f"{source}: weights of {model.card.family} {dict(model.card.config)}, but the configuration "
                f"asks for {config.family} {full_model(config, network)}; change [model], or start without "
                "`init`"
            )
        network.load_state_dict(network.state_dict() | parameters)


def _matching_parameters(
    network: nn.Module, source: nn.Module
) -> dict[str, Tensor] | None:
    """Return the parameters of `source` by name if it is the same network or a part of it, else None."""
    # the same network, or one that says which of its parts fit
    settings = settings_of(network)
    source_settings = settings_of(source)
    if type(source) is type(network):
        merged_settings = source_settings | {
            name: settings[name] for name in FREE if name in settings
        }
        if merged_settings in (settings, settings | {"tasks": ()}):
            return source.state_dict()
    parts_of: Callable[[nn.Module], dict[str, Tensor] | None] | None = getattr(
        network, "parts_of", None
    )
    return parts_of(source) if parts_of else None


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
) -> None:
    """Write a network in half precision; the card has the configuration, the validations until `step`, and
    the sources of the initial weights, but no times, so the same run writes the same bytes.
    """
    # the card, which repeats all that the run was asked for
    entries = config.data.card_entries()
    data = "; ".join(f"{label}: {name}" for label, name in entries.items() if name)
    training = {
        "data": data,
        "command": config.command(init),
        "configuration": config_toml(with_full_model(config, network)),
        "steps": step,
        "weights": "averaged" if config.training.average else "not averaged",
        "curve": list(curve[-MOST_POINTS:]),
    }
    measured = objective.card_metrics(curve[-1]) if curve else {}
    save_model(
        path,
        network,
        family=config.family,
        config=full_model(config, network),
        task=config.task,
        parameters=config.parameters or objective.parameters(network),
        extra={"training": training, "measured": measured},
        half=True,
    )
