"""Training runs of tiny networks for super-resolution."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_videos import write_video
from training_runs import CONFIG, write_config

from vidrestore.training.config import RunConfig, read_config

FLOW = {"levels": 1, "widths": [4], "kernel": 3}
NO_BLOCKS = {"extraction": 0, "reconstruction": 0}
SMALL = NO_BLOCKS | {"size": "n", "features": 4, "layers": 0, "shared": 2, "keys": 1, "hidden": 2}
RELEASED = (
    NO_BLOCKS | {"propagation": 0} | {"size": "reds", "features": 4, "blocks": 1, "tail": 2, "flow": FLOW}
)
GIVEN: dict[str, dict[str, Any]] = {
    "": {"task": "sr", "family": "vsr-transformer"},
    "model": SMALL,
    "data": {"frames": 3, "crop": 8, "clips": "clips", "validation": ["held.mkv"]},
    "training": {"steps": 30, "validate_every": 15, "warmup": 2, "learning_rate": 0.003},
}


def clip_run(folder: Path, **changes: Mapping[str, Any]) -> RunConfig:
    """A configuration of a tiny network, read, with its clips in place."""
    sections = {
        name: dict.fromkeys(CONFIG[name] if name else (), None) | inputs | dict(changes.get(name, {}))
        for name, inputs in GIVEN.items()
    }
    if not (folder / "clips").exists():
        (folder / "clips").mkdir()
        for name in ("one", "held"):
            write_video(folder / "clips" / f"{name}.mkv", frames=6)
    return read_config(write_config(folder, sections))
