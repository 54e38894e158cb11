"""A training run that takes a second: tiny clips, a network of 4x4 patches, and its configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sample_videos import write_video
from torch import Tensor

from vidrestore.training.config import RunConfig, read_config
from vidrestore.training.training_events import Reached, Stepped
from vidrestore.weights import load_model


class RecordedEvents(list[Any]):
    """A listener that keeps what it is events, but for the single steps and the stages."""

    def __call__(self, event: object) -> None:
        if not isinstance(event, Stepped | Reached):
            self.append(event)


# for commands in other processes: few groups and crops are held out
SMALL_VALIDATION = """
from vidrestore.training.data import sources
sources.VALIDATION_GROUPS, sources.VALIDATION_PAIRS, sources.VALIDATION_SIDE = 40, 2, 16
"""
STEPS = {"steps": 12, "warmup": 4, "validate_every": 5, "learning_rate": 0.003}
# without patches that follow the motion, whose search takes most of a run
WINDOWS = {"strides": [4], "groups_per_window": 40, "pool": 200, "reuse": 2, "match_share": 0.0}
CONFIG: dict[str, dict[str, object]] = {
    "": {"name": "tiny", "task": "denoise", "family": "dust"},
    "model": {"kind": "sigma", "patch": 4, "atoms": 64, "blocks": 2, "degree": 1},
    "data": {"clips": "clips", "validation": ["held.mkv"], **WINDOWS},
    "training": {"sigma": [10.0, 40.0], "batch": 16, "precision": "fp32", **STEPS},
}


def write_config(folder: Path, changes: Mapping[str, Mapping[str, object]] | None = None) -> Path:
    """A configuration in `folder` with values added or changed by section ("" is the top); None takes a value
    away.
    """
    sections = {name: values | dict((changes or {}).get(name, {})) for name, values in CONFIG.items()}
    sections |= {name: dict(values) for name, values in (changes or {}).items() if name not in sections}
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]"] * bool(section)
        lines += [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]
    path = folder / "tiny.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value)


def write_clips(folder: Path) -> None:
    """Two clips to train on and one that is held out."""
    (folder / "clips").mkdir()
    for name, frames in (("one", 22), ("two", 9), ("held", 20)):
        write_video(folder / "clips" / f"{name}.mkv", frames=frames)


def tensors(path: Path) -> dict[str, Tensor]:
    """The weights of a file."""
    return load_model(path).network.state_dict()


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(part, other[name]) for name, part in one.items())


def tiny_run(folder: Path, changes: Mapping[str, Mapping[str, object]] | None = None) -> RunConfig:
    """The configuration, read, with its clips in place."""
    if not (folder / "clips").exists():
        write_clips(folder)
    return read_config(write_config(folder, changes))
