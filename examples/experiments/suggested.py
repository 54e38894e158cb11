"""Measure videos as `vidrestore suggest` does: as they are, and with drawn rain, snow and blur.

    python examples/experiments/suggested.py VIDEO... [--seed N]

Prints a table in Markdown: the least, median and greatest value of each measurement. The limits in
vidrestore/jobs/findings.py were chosen so on 24 training clips, 22 photos, and the real haze, snow and
blur in `../shared/data/real`.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections import defaultdict
from statistics import median

import numpy as np
import torch

from vidrestore.jobs.findings import (
    detail_level,
    edge_ratio,
    middle_of,
    rgb_of,
)
from vidrestore.jobs.suggestion import read_places
from vidrestore.lab.degrade import DEGRADATIONS
from vidrestore.media.reading.reader import VideoReader
from vidrestore.restorers.dehaze import DehazeRestorer
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.settings.options import RestoreOptions

KINDS = {"as it is": lambda clip, rng: clip} | {
    name: DEGRADATIONS[name] for name in ("rain", "snow", "blur")
}
COLUMNS = ("haze", "derain", "desnow", "edges")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    rng, found = (
        np.random.default_rng(given.seed),
        defaultdict[str, list[list[float]]](list),
    )
    restorers = {
        task: PictureRestorer(task, RestoreOptions()) for task in ("derain", "desnow")
    }
    dehaze = DehazeRestorer(RestoreOptions())
    for path in given.videos:
        with VideoReader(path) as reader:
            place, video = list(read_places(reader))[-1], reader.info.video
            clip = torch.stack(
                [middle_of(rgb_of(frame, video)) for frame in place.frames[:3]]
            )
        for kind, degrade in KINDS.items():
            found[kind].append(measured(degrade(clip, rng), dehaze, restorers))
    print(f"| | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for kind, rows in found.items():
        cells = [
            f"{min(column):.2f}, {median(column):.2f}, {max(column):.2f}"
            for column in zip(*rows, strict=True)
        ]
        print(f"| {kind} | {' | '.join(cells)} |")


def measured(
    clip: torch.Tensor, dehaze: DehazeRestorer, restorers: dict[str, PictureRestorer]
) -> list[float]:
    """The values of the middle one of three frames, by columns."""
    changed = [detail_level(restorers[task], clip) for task in ("derain", "desnow")]
    return [dehaze.haze_level(clip[1]), *changed, edge_ratio(clip[1])]


if __name__ == "__main__":
    main()
