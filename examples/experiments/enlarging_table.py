"""Held-out clips made small and enlarged again, by networks and bicubically.

    python examples/experiments/enlarging_table.py

Prints a table in Markdown. `bicubic`: small frames by bicubic resizing alone, in 8 bits. `practical`: through
a soft lens, resized, and compressed with x264 at crf 28. Nothing was trained with these sequences. All frames
are judged: PSNR and SSIM of BT.601 luma in 8 bits, border frames and all, without cutting the border.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import torch
from held_out_table import DATA, SEQUENCES, beside, rgb_picture, write_png
from torch import Tensor

from vidrestore.degrade import gaussian_blurred, imresize
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.options import RestoreOptions
from vidrestore.papers.paper_metrics import luma_metrics
from vidrestore.restorers.vsr_restorer import VsrRestorer
from vidrestore.training.data.pairs import encoded
from vidrestore.weights import read_manifest

LENS = 1.5  # sigma in pixels of the large frame
CRF = 28
KINDS = ("bicubic", "practical")
BUNDLED = ("vsr-transformer-n-x4", "vsr-transformer-n-practical-x4")

Enlarger = Callable[[Tensor], Tensor]  # (T, 3, H, W) in [0, 1] to (T, 3, 4H, 4W)


def clean_clip(data: Path, sequence: str, frames: int) -> Tensor:
    """(T, 3, H, W) in [0, 1] from the middle of a sequence, cut so that a quarter of the sides is even."""
    files = sorted((data / "eval" / "davis480p_heldout" / sequence).iterdir())
    first = max(0, len(files) - frames) // 2
    clip = torch.stack([rgb_picture(path) for path in files[first:][:frames]])
    height, width = (side // (2 * SCALE) * 2 * SCALE for side in clip.shape[-2:])
    return clip[..., :height, :width]


def small_clip(clip: Tensor, kind: str) -> Tensor:
    """The same a quarter as large, as 8 bits hold it."""
    if kind == "practical":
        return encoded(imresize(gaussian_blurred(clip, LENS), 1 / SCALE).clamp(0, 1), CRF)
    return imresize(clip, 1 / SCALE).clamp(0, 1).mul(255).round().div(255)


def bicubic(clip: Tensor) -> Tensor:
    return torch.stack([imresize(frame, SCALE) for frame in clip])


def network(source: str) -> Enlarger:
    """Weights by name or path, as the command runs them. Raises CheckpointError."""
    restorer = VsrRestorer(RestoreOptions(model=source))
    return lambda clip: torch.stack(list(restorer.frames(clip, (0, len(clip)))))


def judged(picture: Tensor, clean: Tensor) -> tuple[float, float]:
    one, other = (each.clamp(0, 1).mul(255).round().byte() for each in (picture, clean))
    figures = luma_metrics(one, other)
    return figures["psnr"], figures["ssim"]


def main(options: Namespace) -> None:
    sources = {name: name for name in BUNDLED if name in read_manifest()} | dict(
        given.split("=", 1) for given in options.weights
    )
    enlargers: dict[str, Enlarger] = {"bicubic": bicubic} | {
        name: network(source) for name, source in sources.items()
    }
    sys.stdout.write(
        "| small frames | method | "
        + " | ".join([*SEQUENCES, "mean"])
        + " |\n|---|---|"
        + "---|" * (len(SEQUENCES) + 1)
        + "\n"
    )
    for kind in options.kind or KINDS:
        scores: dict[str, list[tuple[float, float]]] = {name: [] for name in enlargers}
        for sequence in SEQUENCES:
            clean = clean_clip(options.data, sequence, options.frames)
            small = small_clip(clean, kind)
            shown = []
            for name, enlarge in enlargers.items():
                large = enlarge(small)
                pairs = [judged(*pair) for pair in zip(large, clean, strict=True)]
                scores[name].append((fmean(pair[0] for pair in pairs), fmean(pair[1] for pair in pairs)))
                shown.append(large[len(large) // 2])
            if options.pictures:
                options.pictures.mkdir(parents=True, exist_ok=True)
                pictures = [
                    each.clamp(0, 1).mul(255).round().byte() for each in [*shown, clean[len(clean) // 2]]
                ]
                write_png(options.pictures / f"{kind}-{sequence}.png", beside(pictures))
        for name, values in scores.items():
            cells = [
                f"{one:.2f} / {two:.4f}"
                for one, two in [*values, tuple(map(fmean, zip(*values, strict=True)))]
            ]
            sys.stdout.write(f"| {kind} | {name} | {' | '.join(cells)} |\n")
            sys.stdout.flush()


def options() -> Namespace:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weights", action="append", default=[], metavar="NAME=FILE", help="more networks")
    parser.add_argument(
        "--kind", action="append", choices=KINDS, help="of small frames; may be given again (all)"
    )
    parser.add_argument("--frames", type=int, default=20, help="of each of the three sequences")
    parser.add_argument(
        "--pictures",
        type=Path,
        metavar="DIR",
        help="write bicubic | networks | clean here, a frame of each sequence",
    )
    parser.add_argument("--data", type=Path, default=DATA, help="where the shared clips lie")
    return parser.parse_args()


if __name__ == "__main__":
    main(options())
