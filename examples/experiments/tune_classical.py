"""Find the settings of the classical methods on training clips.

    python examples/experiments/tune_classical.py ../shared/data [TASK ...]

One setting after the other is set to its best choice, from the usual ones on, until none changes. What is
printed goes into `classical_restoration.TUNED`. Degraded as networks are trained, by `vidrestore.degrade`;
three minutes on one core.
"""

from __future__ import annotations

import pprint
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from classical_restoration import FRAMES, METHODS, Method
from torch import Tensor

from vidrestore.colour import planes_to_grey, yuv_to_rgb
from vidrestore.degrade import DEGRADATIONS
from vidrestore.media.reader import VideoReader
from vidrestore.metrics import psnr

CLIPS = "davis_*.mp4"  # of the training clips, those of the kind that the methods are judged on
FIRST, CROP = 10, (144, 192)  # frame of a clip, and rows and columns in its middle
KINDS = {"dehaze": "haze", "derain": "rain", "desnow": "snow", "deblur": "blur", "denoise": "noise"}
ROUNDS = 2  # at most, over all settings

Pair = tuple[Tensor, Tensor]  # degraded (FRAMES, 3, H, W), clean (3, H, W)


def main(data: Path, tasks: Iterable[str]) -> None:
    torch.set_num_threads(1)
    clips = [rgb_clip(path) for path in sorted((data / "train").glob(CLIPS))]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for task in tasks:
        pairs = list(degraded_pairs(clips, task))
        given = fmean(psnr(degraded[FRAMES // 2], clean, 1) for degraded, clean in pairs)
        found[task] = {}
        for method in METHODS[task]:
            best, settings = tuned(method, pairs)
            found[task][method.name] = settings
            print(
                f"{task}, {method.name}: {best:.2f} dB (given {given:.2f}) with {settings}",
                file=sys.stderr,
                flush=True,
            )
    sys.stdout.write(f"TUNED = {pprint.pformat(found, width=140, sort_dicts=False)}\n")


def rgb_clip(path: Path) -> Tensor:
    """(FRAMES, 3, H, W) of a training clip, as 8 bits hold it."""
    with VideoReader(str(path), threads=1) as reader:
        video = reader.info.video
        frames = [
            planes_to_grey(frame.planes, video.format)
            for frame in islice(reader.frames(), FIRST, FIRST + FRAMES)
        ]
    planes = [torch.stack(plane) for plane in zip(*frames, strict=True)]
    return stored(yuv_to_rgb(planes, video.format, video.colour, video.height))


def degraded_pairs(clips: Iterable[Tensor], task: str) -> Iterator[Pair]:
    """Every clip degraded for a task, the seed being its number, and its clean middle frame. Haze is seen
    over whole frames.
    """
    for number, clip in enumerate(clips):
        height, width = clip.shape[2:]
        top, left = (height - CROP[0]) // 2, (width - CROP[1]) // 2
        seen = clip if task == "dehaze" else clip[..., top : top + CROP[0], left : left + CROP[1]]
        yield stored(DEGRADATIONS[KINDS[task]](seen, np.random.default_rng(number))), seen[FRAMES // 2]


def stored(clip: Tensor) -> Tensor:
    return clip.clamp(0, 1).mul(255).round().div(255)


def tuned(method: Method, pairs: list[Pair]) -> tuple[float, dict[str, Any]]:
    """The highest mean PSNR (dB) that is reached by changing one setting at a time, and the settings."""
    scores: dict[tuple[Any, ...], float] = {}

    def score(settings: dict[str, Any]) -> float:
        key = tuple(settings.values())
        if key not in scores:
            scores[key] = fmean(
                psnr(method.middle(degraded, settings), clean, 1) for degraded, clean in pairs
            )
        return scores[key]

    settings = {name: values[0] for name, values in method.choices.items()}
    for _ in range(ROUNDS):
        before = dict(settings)
        for name, values in method.choices.items():
            settings = max(({**settings, name: value} for value in values), key=score)
        if settings == before:
            break
    return score(settings), settings


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or METHODS)
