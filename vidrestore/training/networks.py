"""The network of a run: built from its configuration, or taken over from other weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
from vidrestore.training.objective import GroupNetwork
from vidrestore.training.tables import known_names
from vidrestore.weights import load_model
from vidrestore.weights.checkpoint import build_network

ALONE = ("features", "extraction", "reconstruction", "tail")  # settings of the parts that see single frames


def new_network(config: RunConfig) -> nn.Module:
    """The network that [model] describes, its parameters drawn from the seed. Raises ConfigError if it
    describes none.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.training.seed)
            return build_network(config.family, config.model).train()
    except CheckpointError as error:
        _check_names(config)
        raise ConfigError(f"{config.path}: {error}") from error


def _check_names(config: RunConfig) -> None:
    """Raise ConfigError for names in [model], or in a table of it, that the configuration of the family
    doesn't have.
    """
    form: dict[str, Any] = {name: config.model[name] for name in ("kind", "size") if name in config.model}
    try:
        known = form | asdict(cast("GroupNetwork", build_network(config.family, form)).config)
    except CheckpointError:  # the form itself is wrong
        return
    tables = {
        f"[model] {name}": (part, known.get(name))
        for name, part in config.model.items()
        if isinstance(part, dict)
    }
    for where, (values, names) in ({"[model]": (config.model, known)} | tables).items():
        if isinstance(names, dict) and (unknown := sorted(values.keys() - names.keys())):
            there_are = known_names(unknown[0], names)
            raise ConfigError(
                f"{config.path}, {where}: unknown: {', '.join(unknown)}; there are: {there_are}"
            )


def full_model(config: RunConfig, network: nn.Module) -> dict[str, Any]:
    """The network's configuration in full, defaults included: what builds it again."""
    return config.model | asdict(cast("GroupNetwork", network).config)


def complete(config: RunConfig, network: nn.Module | None = None) -> RunConfig:
    """The same run with [model] in full, as TOML has it: lists, and nothing that is None. Raises ConfigError
    as `new_network` does.
    """
    network = network or new_network(config)
    return replace(config, model=_said(json.loads(json.dumps(full_model(config, network)))))


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _said(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }


def check_sizes(config: RunConfig, network: nn.Module) -> None:
    """Raises ConfigError if the network can't take clips as [data] cuts them."""
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
            f"{config.path}: [model] sees {architecture.frames} frames at once, but data.frames is "
            f"{frames}; set them alike"
        )
    if isinstance(data, PairSetConfig) and architecture.tasks:
        raise ConfigError(
            f"{config.path}: [model] tasks need data.degradations, not a dataset; leave tasks out"
        )
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


def take_over(config: RunConfig, networks: Iterable[nn.Module], source: str | Path) -> None:
    """Give the networks of a run other weights.

    A flow network's go to the flow of a super-resolution one, which may leave out its finest levels; those of
    one that sees single frames to the same parts of one that sees others; those of an image network without
    tasks to one that has tasks. What is not given stays. Raises CheckpointError unless the weights are of the
    network that the configuration describes, or of such a part.
    """
    model = load_model(source)
    for network in networks:
        taken = _taken(network, model.network)
        if taken is None:
            raise CheckpointError(
                f"{source}: weights of {model.card.family} {dict(model.card.config)}, but the configuration "
                "asks for"
                f" {config.family} {full_model(config, network)}; change [model], or start without `init`"
            )
        network.load_state_dict(network.state_dict() | taken)


def _taken(network: nn.Module, given: nn.Module) -> dict[str, Tensor] | None:
    """Parameters that a network takes over from another, by its own names; None unless the other is the same,
    or a part of it.
    """
    ours, theirs, found = (
        cast("GroupNetwork", network).config,
        cast("GroupNetwork", given).config,
        given.state_dict(),
    )
    if type(given) is type(network) and theirs == ours:
        return found
    if isinstance(network, MBTaylorFormer) and theirs == replace(ours, tasks=()):
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
        or any(getattr(theirs, name) != getattr(ours, name) for name in ALONE)
    ):
        return None
    return found if found.keys() <= network.state_dict().keys() else None
