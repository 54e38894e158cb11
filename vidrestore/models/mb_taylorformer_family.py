"""The family `mb-taylorformer`: which network a configuration means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from vidrestore.models.mb_taylorformer import VARIANTS, MBTaylorFormer, MBTaylorFormerConfig
from vidrestore.models.taylor_attention import AttentionRule


def build(config: dict[str, Any]) -> MBTaylorFormer:
    """Network from the configuration that its file carries."""
    return MBTaylorFormer(config_from(config))


def config_from(settings: Mapping[str, Any]) -> MBTaylorFormerConfig:
    """Fields of MBTaylorFormerConfig as JSON has them, on top of a `variant` ("T", "B", "L", "XL") where one is named."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    variant = values.pop("variant", "B")
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    if "attention" in values:
        values["attention"] = AttentionRule(**values["attention"])
    return replace(VARIANTS[variant], **values)


def settings_of(config: MBTaylorFormerConfig) -> dict[str, Any]:
    """What `build` takes to make the network again, as JSON has it."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
