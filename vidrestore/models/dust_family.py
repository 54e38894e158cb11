"""The family `dust`: build networks from their configurations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vidrestore.models.dust import Dust, DustConfig
from vidrestore.models.dust_sigma import SigmaDust, SigmaDustConfig


def build(config: dict[str, Any]) -> Dust | SigmaDust:
    """Build the network from the configuration in its weights file.

    `kind` is "printed" for the published form, "sigma" for the one that takes every noise level.
    """
    settings = dict(config)
    if settings.pop("kind", "printed") == "sigma":
        return SigmaDust(SigmaDustConfig(**settings))
    return Dust(DustConfig(**settings))


def config_of(network: Dust | SigmaDust) -> dict[str, Any]:
    """Return the settings from which `build` rebuilds the network."""
    kind = "printed" if isinstance(network, Dust) else "sigma"
    return {"kind": kind, **asdict(network.config)}
