"""Cut the large pictures of SIDD or GoPro into crops, once, so that training reads small files.

    python examples/cut_pairs.py sidd datasets -o crops     # SIDD_Medium_Srgb/Data -> crops/train/SIDD
    python examples/cut_pairs.py gopro datasets -o crops    # GOPRO_Large/train     -> crops/train/GoPro
    vidrestore train --config examples/train/mb-taylorformer-b-sidd.toml --set data.folder=$PWD/crops

A picture of SIDD has 16 million pixels, of which a step takes 65,536: reading it takes 0.7 CPU s, a crop of
512x512 0.02. Crops are 512x512 as Restormer's, the last ones flush with the border, and overlap by 128 pixels
(SIDD) or 256 (GoPro). They are PNG files in input_crops and target_crops, which the data sets' readers find.
Pairs that were cut before are left alone, so a run that was stopped continues.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from vidrestore.errors import VidRestoreError
from vidrestore.files.atomic import replacing
from vidrestore.lab.papers.dataset_files import Pair, read_pair
from vidrestore.lab.papers.datasets import find
from vidrestore.media.reading.pictures import png

SIDE = 512
OVERLAP = {"sidd": 128, "gopro": 256}  # pixels that neighbouring crops share
FOLDERS = {"sidd": "train/SIDD", "gopro": "train/GoPro"}


def starts(length: int, side: int, overlap: int) -> list[int]:
    """Return where crops of `side` begin that cover `length` pixels; one at 0 if it is no longer."""
    last = max(length - side, 0)
    return sorted({*range(0, last, side - overlap), last})


def name_of(pair: Pair) -> str:
    """Return a name that no other pair has: that of the clip or scene, and the picture's."""
    folders = pair.degraded.parent.parts[-2:]
    scene = folders[0] if folders[1] == "blur" else folders[1]
    return f"{scene}-{pair.degraded.stem}"


def cut(pair: Pair, output: Path, side: int, overlap: int) -> int:
    """Write all crops of a pair; return how many there are. Raises DatasetError, MediaError, OSError."""
    pictures = read_pair(pair)
    height, width = pictures[0].shape[1:]
    corners = [
        (y, x)
        for y in starts(height, side, overlap)
        for x in starts(width, side, overlap)
    ]
    # the clean crop is written last, so that its presence says that both are whole
    for number, (y, x) in enumerate(corners):
        name = f"{name_of(pair)}-{number:03d}.png"
        for picture, folder in zip(
            pictures, ("input_crops", "target_crops"), strict=True
        ):
            path = output / folder / name
            if path.exists():
                continue
            crop = picture[:, y : y + side, x : x + side].permute(1, 2, 0).contiguous()
            with replacing(path, sync=False) as stream:
                stream.write(png(crop.numpy()))
    return len(corners)


def cut_all(dataset: str, root: Path, output: Path, jobs: int) -> Iterator[int]:
    """Cut all training pairs by `jobs` processes; yield the crops of each."""
    pairs = find(dataset, root, "train")
    folder = output / FOLDERS[dataset]
    for name in ("input_crops", "target_crops"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    task = partial(cut, output=folder, side=SIDE, overlap=OVERLAP[dataset])
    fresh = multiprocessing.get_context(
        "spawn"
    )  # a fork of a process with threads may wait for a lock for ever
    with ProcessPoolExecutor(jobs, mp_context=fresh) as pool:
        yield from pool.map(task, pairs)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("dataset", choices=sorted(OVERLAP))
    parser.add_argument(
        "folder", type=Path, help="the release, or the folder that holds it"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("crops"), help="folder for the crops"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes"
    )
    options = parser.parse_args()
    pairs = crops = 0
    try:
        for count in cut_all(
            options.dataset, options.folder, options.output, options.jobs
        ):
            pairs, crops = pairs + 1, crops + count
            print(f"\r{pairs} pairs, {crops} crops", end="", file=sys.stderr)
    except (VidRestoreError, OSError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    print(
        f"\n{options.output / FOLDERS[options.dataset]}: {crops} crops of {pairs} pairs",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
