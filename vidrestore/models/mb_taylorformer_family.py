"""The family `mb-taylorformer`: build networks from their configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from vidrestore.models.mb_taylorformer import SIZES, MBTaylorFormer, MBTaylorFormerConfig
from vidrestore.models.taylor_attention import AttentionRule


def build(config: dict[str, Any]) -> MBTaylorFormer:
    """Build the network from the configuration in its weights file."""
    return MBTaylorFormer(config_from(config))


def config_from(settings: Mapping[str, Any]) -> MBTaylorFormerConfig:
    """Return the configuration of `settings`: `size`, one of SIZES (default "b"), and fields that differ from
    it, as JSON values.

    Raises ValueError for an unknown size.
    """
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    size = values.pop("size", "b")
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; there are {', '.join(SIZES)}")
    if "attention" in values:
        values["attention"] = AttentionRule(**values["attention"])
    return replace(SIZES[size], **values)


def settings_of(config: MBTaylorFormerConfig) -> dict[str, Any]:
    """Return the settings from which `build` rebuilds the network, as JSON values, independent of SIZES."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
