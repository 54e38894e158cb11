"""Training runs of tiny networks on small datasets in the releases' layouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sample_pictures import write_rgb
from training_runs import SMALL, TAYLOR, Sections, write_config

TRAINING = {
    "steps": 2,
    "batch": 2,
    "validate_every": 2,
    "warmup": 1,
    "learning_rate": 0.003,
}
RUNS: dict[str, Sections] = {
    "pairs": {
        "": {"name": "tiny", "task": "derain", "family": "mb-taylorformer"},
        "model": TAYLOR,
        "data": {
            "dataset": "rain13k",
            "folder": "sets",
            "validation": ["rain100l/test"],
            "crop": 16,
        },
        "training": TRAINING,
    },
    "clips": {
        "": {"name": "tiny", "task": "sr", "family": "vsr-transformer"},
        "model": SMALL,
        "data": {
            "dataset": "reds",
            "folder": "sets",
            "validation": ["test"],
            "frames": 2,
            "crop": 8,
        },
        "training": TRAINING,
    },
}


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(
        0, 256, (3, height, width), dtype=np.uint8
    )


def write_rain(root: Path, size: tuple[int, int] = (20, 28), count: int = 3) -> None:
    """Clean pictures, and the same somewhat brighter."""
    for folder in ("Rain13K/train", "Rain13K/test/Rain100L"):
        for number in range(count):
            clean = noise(*size, seed=number) // 2
            write_rgb(root / folder / "target" / f"{number}.png", clean)
            write_rgb(root / folder / "input" / f"{number}.png", clean + 40)


def write_reds(
    root: Path, size: tuple[int, int] = (40, 56), frames: int = 3, small: bool = False
) -> None:
    """Two clips to train on, and the four of REDS4."""
    for seed, clip in enumerate(("000", "001", "002", "011", "015", "020")):
        for number in range(frames):
            large = noise(*size, seed=10 * seed + number)
            write_rgb(root / "train_sharp" / clip / f"{number:08d}.png", large)
            if small:
                write_rgb(
                    root / "train_sharp_bicubic" / "X4" / clip / f"{number:08d}.png",
                    large[:, ::4, ::4],
                )


def configured(folder: Path, kind: str, **changes: Mapping[str, Any]) -> Path:
    """A configuration of a tiny network; its data is written where it isn't there."""
    if not (folder / "sets").exists():
        (write_rain if kind == "pairs" else write_reds)(folder / "sets")
    return write_config(folder, changes, RUNS[kind])
