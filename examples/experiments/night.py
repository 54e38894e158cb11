"""Judge derain and desnow on a night street at 8 frames a second: lamps, signs and headlights aren't weather.

    python examples/experiments/night.py

A held-out clip is darkened in linear light to a night, every third frame of it kept. Pairs of headlights
come nearer, a lit sign stands, street lamps pass. Without weather the clip should come back as it is (PSNR
to itself); with drawn snow or rain (`held_out_degradations`) lights should keep their brightness: the mean
light of their pixels afterwards, over that of the clean clip.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
import torch
from held_out_degradations import Array, linear, rainy, snowy, stored
from held_out_table import FRAMES, add_sources, networks_of, rgb_picture

from vidrestore.metrics import psnr

SEQUENCES = {"car-shadow": "davis480p_heldout", "drift-straight": "davis480p_fast"}
EVERY = 3  # frames of 24 a second
NIGHT = 0.06  # of the light of day
WEATHER = {"derain": rainy, "desnow": snowy}


def lights(size: tuple[int, int], number: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the light (3, H, W) that lamps add in frame `number`, and where they are brightest (H, W)."""
    height, width = size
    rows, columns = np.mgrid[:height, :width].astype(float)
    added, seen = np.zeros((3, height, width)), np.zeros((height, width))
    for _ in range(3):  # cars, whose two headlights grow and part as they come nearer
        near = rng.uniform(1.0, 2.0) + rng.uniform(0.05, 0.3) * number
        middle = width * rng.uniform(0.2, 0.8) + rng.uniform(-25, 25) * number
        for side in (-1, 1):
            shape = lamp(rows - height * 0.6, columns - middle - side * 9 * near, 2.2 * near)
            added += shape * np.array([1.0, 0.95, 0.85])[:, None, None]
            seen = np.maximum(seen, shape > 0.9)
    for _ in range(4):  # street lamps, passed by
        place = height * rng.uniform(0.05, 0.3), width * rng.uniform(0, 1) + rng.uniform(-12, 12) * number
        shape = lamp(rows - place[0], columns - place[1], rng.uniform(1.5, 4))
        added += shape * np.array([1.0, 0.75, 0.4])[:, None, None]
        seen = np.maximum(seen, shape > 0.9)
    top, left = int(height * rng.uniform(0.1, 0.3)), int(width * rng.uniform(0.1, 0.6))
    letters = np.kron(rng.integers(0, 2, (7, 30)), np.ones((4, 4)))
    sign = added[:, top : top + 28, left : left + 120]
    sign += letters[: sign.shape[1], : sign.shape[2]] * rng.uniform(0.3, 1, 3)[:, None, None]
    seen[top : top + 28, left : left + 120] = np.maximum(seen[top : top + 28, left : left + 120], letters)
    return added, seen


def lamp(down: Array, right: Array, radius: float) -> Array:
    """A disc with a glow about it."""
    distance = np.hypot(down, right)
    shape: Array = np.maximum(np.clip(radius + 0.5 - distance, 0, 1), 0.25 * np.exp(-distance / (3 * radius)))
    return shape


def night_clip(files: list[Path], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a clip (T, 3, H, W) R'G'B' in [0, 1], and the places of its lights (T, H, W)."""
    light = NIGHT * linear(torch.stack([rgb_picture(path) for path in files]))
    drawn = [lights(light.shape[2:], number, np.random.default_rng(seed)) for number in range(len(light))]
    added, seen = (np.stack(parts) for parts in zip(*drawn, strict=True))
    return stored(light + added), torch.from_numpy(seen) > 0


def main(options: Namespace) -> None:
    print("| task | weights | clip | to itself (dB) | under weather (dB) | restored (dB) | light kept |")
    print("|---|---|---|---|---|---|---|")
    for task in WEATHER:
        for name, restore in networks_of(task, options.weights).items():
            for seed, (sequence, folder) in enumerate(SEQUENCES.items()):
                files = sorted((options.data / "eval" / folder / sequence).iterdir())[::EVERY][:FRAMES]
                clip, seen = night_clip(files, seed)
                middle = FRAMES // 2
                degraded, _ = WEATHER[task](clip, seed)
                alone, restored = restore(clip), restore(degraded)
                figures = [
                    psnr(one.permute(1, 2, 0), clip[middle].permute(1, 2, 0), 1)
                    for one in (alone, degraded[middle], restored)
                ]
                kept = [linear(each)[:, seen[middle].numpy()].mean() for each in (restored, clip[middle])]
                cells = " | ".join(f"{each:.2f}" for each in figures)
                print(f"| {task} | {name} | {sequence} | {cells} | {kept[0] / kept[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main(add_sources(ArgumentParser(description=__doc__.split("\n")[0])).parse_args())
