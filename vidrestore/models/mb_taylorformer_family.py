"""The family `mb-taylorformer`: which network a configuration means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from vidrestore.models.mb_taylorformer import SIZES, MBTaylorFormer, MBTaylorFormerConfig
from vidrestore.models.taylor_attention import AttentionRule


def build(config: dict[str, Any]) -> MBTaylorFormer:
    """Network from the configuration that its file carries."""
    return MBTaylorFormer(config_from(config))


def config_from(settings: Mapping[str, Any]) -> MBTaylorFormerConfig:
    """`size`, one of SIZES ("b" unless told), and fields of MBTaylorFormerConfig that differ from it, as JSON
    has them.
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
    """Return the settings from which `build` makes the network, as JSON values, independent of SIZES."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
