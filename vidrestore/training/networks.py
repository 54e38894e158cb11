"""The network of a run: built from its configuration, or initialised from other weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from vidrestore.errors import CheckpointError, ConfigError
from vidrestore.models.mb_taylorformer import MBTaylorFormer, MBTaylorFormerConfig
from vidrestore.models.spynet import Spynet
from vidrestore.models.vsr_transformer import VsrTransformer
from vidrestore.training.config import RunConfig
from vidrestore.training.data.pairs import task_indices
from vidrestore.training.data_config import ClipDataConfig, ClipSetConfig, PairDataConfig, PairSetConfig
from vidrestore.training.losses import GroupNetwork
from vidrestore.training.tables import known_names
from vidrestore.weights import load_model
from vidrestore.weights.checkpoint import build_network

FREE = ("slope", "aligned")  # settings of networks that may change between trainings
FRAME_SETTINGS = (
    "features",
    "extraction",
    "reconstruction",
    "tail",
)  # settings of the parts that see single frames


def new_network(config: RunConfig) -> nn.Module:
    """Build the network that [model] describes, with random parameters from the seed. Raises ConfigError for
    a wrong [model].
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.training.seed)
            return build_network(config.family, config.model).train()
    except CheckpointError as error:
        _check_names(config)
        raise ConfigError(f"{config.path}: {error}") from error


def _check_names(config: RunConfig) -> None:
    """Raise ConfigError for names in [model], or in a table of it, that the family's configuration doesn't
    have.
    """
    base: dict[str, Any] = {name: config.model[name] for name in ("kind", "size") if name in config.model}
    try:
        known = base | asdict(cast("GroupNetwork", build_network(config.family, base)).config)
    except CheckpointError:  # kind or size is wrong
        return
    tables = {
        f"[model] {name}": (part, known.get(name))
        for name, part in config.model.items()
        if isinstance(part, dict)
    }
    for where, (values, names) in ({"[model]": (config.model, known)} | tables).items():
        if isinstance(names, dict) and (unknown := sorted(values.keys() - names.keys())):
            raise ConfigError(
                f"{config.path}, {where}: unknown: {', '.join(unknown)}; there are: "
                f"{known_names(unknown[0], names)}"
            )


def full_model(config: RunConfig, network: nn.Module) -> dict[str, Any]:
    """Return the network's full configuration, defaults included, from which it can be rebuilt."""
    return config.model | asdict(cast("GroupNetwork", network).config)


def with_full_model(config: RunConfig, network: nn.Module | None = None) -> RunConfig:
    """Return the same run with the full [model], as TOML has it: lists, and no None. Raises ConfigError as
    `new_network` does.
    """
    network = network or new_network(config)
    return replace(config, model=_without_none(json.loads(json.dumps(full_model(config, network)))))


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }


def check_sizes(config: RunConfig, network: nn.Module) -> None:
    """Raise ConfigError if the network can't take clips as [data] crops them."""
    data = config.data
    if isinstance(network, MBTaylorFormer):
        _check_pictures(config, network.config)
    if isinstance(network, VsrTransformer) and isinstance(data, ClipDataConfig | ClipSetConfig):
        try:
            network.check_size(data.frames, data.crop, data.crop)
        except ValueError as error:
            raise ConfigError(
                f"{config.path}: [data] doesn't fit [model]: {error}; change data.crop and data.frames, or "
                "[model]"
            ) from error


def _check_pictures(config: RunConfig, architecture: MBTaylorFormerConfig) -> None:
    data = config.data
    frames = data.frames if isinstance(data, PairDataConfig) else 1
    if frames != architecture.frames:
        raise ConfigError(
            f"{config.path}: [model] takes {architecture.frames} frames at once, but data.frames is "
            f"{frames}; set both to the same number"
        )
    if isinstance(data, PairSetConfig) and architecture.tasks:
        raise ConfigError(f"{config.path}: [model] tasks need data.degradations, not a dataset; remove tasks")
    if isinstance(data, PairDataConfig):
        try:
            task_indices(data, architecture.tasks)
        except ConfigError as error:
            raise ConfigError(f"{config.path}: {error}") from error
    if isinstance(data, PairDataConfig | PairSetConfig) and data.crop % architecture.multiple:
        raise ConfigError(
            f"{config.path}: data.crop must be a multiple of {architecture.multiple} for this [model], "
            f"found {data.crop}"
        )


def sources_of(init: str | Path | Sequence[str | Path] | None) -> Sequence[str | Path]:
    """Return the sources of initial weights as a sequence."""
    return [] if init is None else [init] if isinstance(init, str | Path) else init


def load_initial_weights(config: RunConfig, networks: Iterable[nn.Module], source: str | Path) -> None:
    """Load the weights of `source` into the networks of a run.

    Besides weights of the same network these are accepted: a flow network for the flow of a super-resolution
    network, which may have fewer levels; a super-resolution network that takes single frames for the same
    parts of one that takes several; an image network without tasks for one with tasks; a network whose
    settings differ in FREE. Other parameters are unchanged. Raises CheckpointError for any other weights.
    """
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


def _matching_parameters(network: nn.Module, given: nn.Module) -> dict[str, Tensor] | None:
    """Return the parameters of `given` by their names in `network`; None unless it is the same network or a
    part of it.
    """
    ours, theirs, found = (
        cast("GroupNetwork", network).config,
        cast("GroupNetwork", given).config,
        given.state_dict(),
    )
    if type(given) is type(network):
        known = replace(theirs, **{name: getattr(ours, name) for name in FREE if hasattr(ours, name)})
        if known == ours or (isinstance(network, MBTaylorFormer) and known == replace(ours, tasks=())):
            return found
    if not isinstance(network, VsrTransformer):
        return None
    if isinstance(given, Spynet):
        if (
            not network.flow
            or given.config.finest > ours.flow.finest
            or replace(given.config, finest=ours.flow.finest) != ours.flow
        ):
            return None
        return {f"flow.{name}": found[name] for name in network.flow.state_dict()}
    if (
        not isinstance(given, VsrTransformer)
        or theirs.radius
        or any(getattr(theirs, name) != getattr(ours, name) for name in FRAME_SETTINGS)
    ):
        return None
    return found if found.keys() <= network.state_dict().keys() else None
