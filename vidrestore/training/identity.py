"""The settings that may not change between a run and its continuation; length and learning rate may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from vidrestore.errors import ConfigError
from vidrestore.training.config import RunConfig


def identity_of(config: RunConfig, model: Mapping[str, Any], fixed: Iterable[str]) -> dict[str, Any]:
    """Return those settings by name: the full network (`model`), the data, and the settings of training named
    in `fixed`.
    """
    sections = {"model": model, "data": asdict(config.data)}
    values = {
        f"[{section}] {name}": value for section, part in sections.items() for name, value in part.items()
    }
    values |= {f"[training] {name}": getattr(config.training, name) for name in fixed}
    return {"task": config.task, "family": config.family} | values


def check_same(
    checkpoint: Path, config: RunConfig, earlier: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raise ConfigError if the configuration has changed since the checkpoint, with the old and new values.

    Checkpoints of versions that saved no identity are accepted.
    """
    names = (
        [name for name in earlier.keys() | now.keys() if name in earlier or not _is_default(name, config)]
        if earlier
        else []
    )
    changed = [name for name in names if earlier.get(name) != now.get(name)]
    if changed:
        details = "; ".join(
            f"{name} was {earlier.get(name)!r} and is {now.get(name)!r}" for name in sorted(changed)
        )
        raise ConfigError(
            f"{checkpoint}: belongs to another run: {details}; change them back, or choose another `output`"
        )


def _is_default(name: str, config: RunConfig) -> bool:
    """Return True if a value that an earlier version didn't have is the default."""
    section, _, key = name.partition("] ")
    if section == "[model":
        return key not in config.model
    now = {"[data": config.data, "[training": config.training}.get(section)
    return now is not None and {item.name: item.default for item in fields(now)}.get(key) == getattr(now, key)
