"""Training runs that take a second: tiny clips, networks of each family, and their configurations."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sample_videos import write_video
from torch import Tensor

from vidrestore.lab.run_config import RunConfig, read_config
from vidrestore.lab.training_events import Reached, Stepped
from vidrestore.weights import load_model


class RecordedEvents(list[Any]):
    """A listener that keeps what it is events, but for the single steps and the stages."""

    def __call__(self, event: object) -> None:
        if not isinstance(event, Stepped | Reached):
            self.append(event)


# for commands in other processes: few groups and crops are held out
SMALL_VALIDATION = """
from vidrestore.lab.training.data import sources
sources.VALIDATION_GROUPS, sources.VALIDATION_PAIRS, sources.VALIDATION_SIDE = 40, 2, 16
"""
STEPS = {"steps": 12, "warmup": 4, "validate_every": 5, "learning_rate": 0.003}
# without patches that follow the motion, whose search takes most of a run
WINDOWS = {
    "strides": [4],
    "groups_per_window": 40,
    "pool": 200,
    "reuse": 2,
    "match_share": 0.0,
}
Sections = Mapping[str, Mapping[str, Any]]
LENGTHS = {"one": 22, "two": 9, "held": 20}  # frames
CONFIG: Sections = {
    "": {"name": "tiny", "task": "denoise", "family": "dust"},
    "model": {"kind": "sigma", "patch": 4, "atoms": 64, "blocks": 2, "degree": 1},
    "data": {"clips": "clips", "validation": ["held.mkv"], **WINDOWS},
    "training": {"sigma": [10.0, 40.0], "batch": 16, "precision": "fp32", **STEPS},
}
PRINTED = {"kind": "printed", "degree": None, "temperature": True}
SENSING: Sections = {  # changes to it
    "": {"task": "recover"},
    "model": PRINTED | {"measurements": 6},
    "training": {"sigma": [0.0]},
}
SIDE = 16
ONES = [1, 1, 1, 1]
TAYLOR = {"size": "t", "widths": [4, 8, 8, 8], "expansion": 1.0}
TAYLOR |= {"blocks": ONES, "branches": ONES, "heads": ONES}
PAIRS: Sections = {
    "": {"name": "tiny", "task": "all", "family": "mb-taylorformer"},
    "model": TAYLOR,
    "data": {"clips": "clips", "validation": ["held.mkv"], "crop": SIDE},
    "training": {"steps": 6, "validate_every": 4, "warmup": 2, "learning_rate": 0.003},
}
NO_BLOCKS = {"extraction": 0, "reconstruction": 0}
SMALL = NO_BLOCKS | {
    "size": "n",
    "features": 4,
    "layers": 0,
    "shared": 2,
    "keys": 1,
    "hidden": 2,
}
FLOW = {"levels": 1, "widths": [4], "kernel": 3}
RELEASED = (
    NO_BLOCKS
    | {"propagation": 0}
    | {"size": "reds", "features": 4, "blocks": 1, "tail": 2, "flow": FLOW}
)
CLIPS: Sections = {
    "": {"name": "tiny", "task": "sr", "family": "vsr-transformer"},
    "model": SMALL,
    "data": {"frames": 3, "crop": 8, "clips": "clips", "validation": ["held.mkv"]},
    "training": {
        "steps": 30,
        "validate_every": 15,
        "warmup": 2,
        "learning_rate": 0.003,
    },
}


def write_config(
    folder: Path, changes: Sections | None = None, base: Sections = CONFIG
) -> Path:
    """A configuration in `folder`: `base` with values added or changed by section ("" is the top); None takes
    a value away.
    """
    changes, lines = changes or {}, []
    for section in {**base, **changes}:
        values = {**base.get(section, {}), **changes.get(section, {})}
        lines += [f"[{section}]"] * bool(section)
        lines += [
            f"{name} = {_toml(value)}"
            for name, value in values.items()
            if value is not None
        ]
    path = folder / "tiny.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items())
            + "}"
        )
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value)


def write_clips(folder: Path, lengths: Mapping[str, int] = LENGTHS) -> None:
    """Clips of so many frames; one is held out."""
    (folder / "clips").mkdir()
    for name, frames in lengths.items():
        write_video(folder / "clips" / f"{name}.mkv", frames=frames)


def tensors(path: Path) -> dict[str, Tensor]:
    """The weights of a file."""
    return load_model(path).network.state_dict()


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(part, other[name]) for name, part in one.items()
    )


def tiny_run(
    folder: Path,
    changes: Sections | None = None,
    base: Sections = CONFIG,
    lengths: Mapping[str, int] = LENGTHS,
) -> RunConfig:
    """The configuration, read, with its clips in place."""
    if not (folder / "clips").exists():
        write_clips(folder, lengths)
    return read_config(write_config(folder, changes, base))


def pair_run(folder: Path, **changes: Mapping[str, Any]) -> RunConfig:
    """A run of a tiny image network on degraded pairs."""
    return tiny_run(folder, changes, PAIRS)


def clip_run(folder: Path, **changes: Mapping[str, Any]) -> RunConfig:
    """A run of a tiny network for super-resolution."""
    return tiny_run(folder, changes, CLIPS, {"one": 6, "held": 6})
