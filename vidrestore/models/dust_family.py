"""The family `dust`: which network a configuration means."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vidrestore.models.dust import Dust, DustConfig
from vidrestore.models.dust_sigma import SigmaDust, SigmaDustConfig


def build(config: dict[str, Any]) -> Dust | SigmaDust:
    """Network from the configuration that its file carries; `kind` tells the printed form from the one for
    every sigma.
    """
    settings = dict(config)
    if settings.pop("kind", "printed") == "sigma":
        return SigmaDust(SigmaDustConfig(**settings))
    return Dust(DustConfig(**settings))


def config_of(network: Dust | SigmaDust) -> dict[str, Any]:
    """Return the settings from which `build` makes the network again."""
    kind = "printed" if isinstance(network, Dust) else "sigma"
    return {"kind": kind, **asdict(network.config)}
