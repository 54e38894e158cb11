"""Degraded frames of the shared clips, restored by networks and by what one could run instead.

    python examples/experiments/held_out_table.py --kind slow --kind fast --kind alone

Prints a table in Markdown for each kind: clips of slow motion, clips of fast motion, and single frames of
both. Nothing was trained or tuned with the frames or with the models that degrade them (see
`held_out_degradations`). A clip's middle frame is compared: PSNR and SSIM of R'G'B' in 8 bits, the mean
of all clips.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import av
import torch
from classical_restoration import FRAMES, METHODS
from held_out_degradations import MODELS, degraded_clips
from torch import Tensor

from vidrestore import restore_frames
from vidrestore.errors import VidRestoreError
from vidrestore.pixels.metrics import psnr, ssim
from vidrestore.restorers.base import load_restorer
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.restorers.shake import ShakeRestorer
from vidrestore.settings.options import Quality, RestoreOptions
from vidrestore.weights import read_manifest

DATA = Path(__file__).parents[3] / "shared" / "data"
SEQUENCES = ("car-shadow", "dog", "kite-surf")  # of slow motion
FAST = ("breakdance", "drift-straight")
FOLDERS = dict.fromkeys(SEQUENCES, "davis480p_heldout") | dict.fromkeys(
    FAST, "davis480p_fast"
)
KINDS = {"slow": SEQUENCES, "fast": FAST, "alone": (*SEQUENCES, *FAST)}

# a degraded clip (T, 3, H, W) to its middle frame (3, H, W)
Restorer = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Figures:
    """PSNR (dB) and SSIM, means over the judged frames."""

    psnr: float
    ssim: float


@dataclass(frozen=True)
class Verdict:
    """How the frames of a task came out: as given, by classical methods, by networks."""

    task: str
    given: Figures
    classical: Mapping[str, Figures]
    networks: Mapping[str, Figures]

    def rows(self) -> Iterator[str]:
        """Yield the rows of the table."""
        for name, figures in {
            "degraded": self.given,
            **self.classical,
            **self.networks,
        }.items():
            yield f"| {self.task} | {name} | {figures.psnr:.2f} | {figures.ssim:.4f} |"


def eval_clips(data: Path, count: int, kind: str = "slow") -> list[tuple[str, Tensor]]:
    """Clips (FRAMES, 3, H, W) around `count` evenly spread frames of every sequence of a kind, each with the
    name of its middle frame.
    """
    clips = []
    for number in range(count):
        for sequence in KINDS[kind]:
            files = sorted((data / "eval" / FOLDERS[sequence] / sequence).iterdir())
            first = round((len(files) - FRAMES) * (number + 1) / (count + 1))
            name = f"{sequence}-{files[first + FRAMES // 2].stem}"
            clips.append(
                (
                    name,
                    torch.stack([rgb_picture(path) for path in files[first:][:FRAMES]]),
                )
            )
    return clips


def rgb_picture(path: Path) -> Tensor:
    """(3, H, W) in [0, 1]."""
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
    return (
        torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1).float()
        / 255
    )


def measure(
    task: str,
    clips: Sequence[tuple[str, Tensor]],
    networks: Mapping[str, Restorer],
    *,
    alone: bool = False,
) -> Verdict:
    """All methods on all clips degraded for a task; `alone`: on their middle frames, which classical methods
    get as their own neighbours.
    """
    classical: dict[str, Restorer] = {
        method.name: method.middle for method in METHODS[task]
    }
    scores: dict[str, list[tuple[float, float]]] = {}
    for degraded, clean in degraded_clips([clip for _, clip in clips], task):
        middle = degraded[FRAMES // 2]
        seen = middle[None] if alone else degraded
        versions = {"degraded": middle}
        versions |= {
            label: restore(seen.expand_as(degraded))
            for label, restore in classical.items()
        }
        versions |= {label: restore(seen) for label, restore in networks.items()}
        for label, picture in versions.items():
            scores.setdefault(label, []).append(_scores(picture, clean[FRAMES // 2]))
    means = {
        label: Figures(*map(fmean, zip(*values, strict=True)))
        for label, values in scores.items()
    }
    return Verdict(
        task,
        means["degraded"],
        {name: means[name] for name in classical},
        {name: means[name] for name in networks},
    )


def _scores(picture: Tensor, clean: Tensor) -> tuple[float, float]:
    pair = picture.permute(1, 2, 0), clean.permute(1, 2, 0)
    return psnr(*pair, 1), ssim(*pair, 1)


def network(task: str, source: str) -> Restorer:
    """The network of weights by name or path, alone, on whole frames as long as memory allows. Raises
    CheckpointError.
    """
    restorer = load_restorer(task, RestoreOptions(model=source))
    assert isinstance(restorer, PictureRestorer)
    return middle_frame(restorer)


def middle_frame(restorer: PictureRestorer) -> Restorer:
    """The middle frame of clips, as a restorer makes it."""

    def restore(degraded: Tensor) -> Tensor:
        middle = len(degraded) // 2
        (picture,) = restorer.frames(degraded, (middle, middle + 1))
        return picture.clamp(0, 1).mul(255).round().div(255)

    return restore


def command(task: str, **options: Any) -> Restorer:
    """The task with these options, noise measured, on the clip as R'G'B' planes."""

    def restore(degraded: Tensor) -> Tensor:
        frames = degraded.movedim(1, 3).numpy()
        restored = restore_frames(frames, task=task, **options)
        middle = torch.from_numpy(restored[len(restored) // 2]).movedim(2, 0)
        return middle.clamp(0, 1).mul(255).round().div(255)

    return restore


def bundled(task: str) -> str | None:
    """The name of the MB-TaylorFormer weights that are bundled for a task; None where there are none."""
    name = f"mb-taylorformer-h-{task}"
    return name if name in read_manifest() else None


def networks_of(
    task: str, weights: Sequence[str], qualities: Sequence[Quality] = ()
) -> dict[str, Restorer]:
    """Return the bundled network, those given as NAME=FILE, both of `dehaze` as the command joins them,
    `deblur` with its kernels, and qualities of `denoise`. SystemExit for one that can't be had.
    """
    sources = dict(given.split("=", 1) for given in weights)
    if name := bundled(task):
        sources = {name: name} | sources
    elif not weights:
        print(f"{task}: no weights are bundled; the rest follows", file=sys.stderr)
    found = {}
    for name, source in sources.items():
        try:
            found[name] = network(task, source.replace("{task}", task))
        except (VidRestoreError, OSError) as error:
            sys.exit(f"{task}: {name}: {error}")
    if task == "dehaze" and name:
        found["both networks"] = command(task)
        found["both, haze always"] = command(task, haze="always")
    if task == "deblur" and name:
        found["deblur"] = middle_frame(ShakeRestorer(RestoreOptions()))
    if task == "denoise":
        for quality in qualities:
            found[f"denoise, {quality}"] = command(task, quality=quality)
            if name:
                found[f"denoise, {quality}, {name}"] = command(
                    task, quality=quality, model=name
                )
    return found


def main(options: Namespace) -> None:
    for kind in options.kind or ["slow"]:
        clips = eval_clips(options.data, options.frames, kind)
        print(
            f"{len(clips)} frames: {', '.join(name for name, _ in clips)}",
            file=sys.stderr,
        )
        sys.stdout.write(f"| {kind} | method | PSNR (dB) | SSIM |\n|---|---|---|---|\n")
        for task in options.task or MODELS:
            networks = networks_of(task, options.weights, options.quality)
            verdict = measure(task, clips, networks, alone=kind == "alone")
            sys.stdout.write("".join(f"{row}\n" for row in verdict.rows()))
            sys.stdout.flush()


def options() -> Namespace:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--task",
        action="append",
        choices=list(MODELS),
        help="one of the tasks; may be given again (all)",
    )
    parser.add_argument(
        "--kind", action="append", choices=list(KINDS), help="of motion (slow)"
    )
    parser.add_argument(
        "--quality",
        action="append",
        default=[],
        choices=get_args(Quality),
        help="judge the command `denoise` at this quality, too: slow on such short clips; may be given again",
    )
    parser.add_argument(
        "--frames", type=int, default=3, help="frames of each of the three sequences"
    )
    return add_sources(parser).parse_args()


def add_sources(parser: ArgumentParser) -> ArgumentParser:
    """Add the options that name further networks, and the folder of the clips."""
    parser.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="more networks; {task} in FILE is replaced",
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="where the shared clips lie"
    )
    return parser


if __name__ == "__main__":
    main(options())
