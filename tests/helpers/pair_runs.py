"""A training run of a tiny image network on degraded pairs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training_runs import CONFIG, tiny_run

SIDE = 16
ONES = [1, 1, 1, 1]
MODEL = {"size": "t", "widths": [4, 8, 8, 8], "expansion": 1.0}
MODEL |= {"blocks": ONES, "branches": ONES, "heads": ONES}
PAIRS: dict[str, dict[str, Any]] = {
    "": {"task": "all", "family": "mb-taylorformer"},
    "model": dict.fromkeys(CONFIG["model"], None) | MODEL,
    "data": dict.fromkeys(CONFIG["data"], None)
    | {"clips": "clips", "validation": ["held.mkv"], "crop": SIDE},
    "training": dict.fromkeys(CONFIG["training"], None)
    | {"steps": 6, "validate_every": 4, "warmup": 2, "learning_rate": 0.003},
}


def changed(changes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        section: PAIRS.get(section, {}) | dict(changes.get(section, {}))
        for section in PAIRS.keys() | changes.keys()
    }


def pair_run(folder: Path, **changes: Mapping[str, Any]) -> Any:
    return tiny_run(folder, changed(changes))
