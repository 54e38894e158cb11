"""The command `vidrestore eval` in this process, and a small dataset for it."""

from functools import partial
from pathlib import Path

import numpy as np
from command_line import run as command
from dataset_folders import VID4
from sample_pictures import write_rgb

run = partial(command, "eval")


def write_vid4(folder: Path, frames: int = 1) -> None:
    rows, columns = np.mgrid[:32, :40] / 5
    for index, clip in enumerate(VID4):
        for number in range(frames):
            picture = [
                128 + 90 * np.sin(rows + index + number + channel) * np.cos(columns)
                for channel in range(3)
            ]
            write_rgb(
                folder / "GT" / clip / f"{number:08d}.png",
                np.stack(picture).clip(0, 255).astype(np.uint8),
            )
