"""What tiles and `--steady` change, on held-out footage.

    python examples/experiments/tiles_and_flicker.py tiles|flicker [--task T]
    [--weights FILE]

Prints a table in Markdown. `tiles`: a frame restored whole and in tiles, their distance in dB, and the step
across tile borders. `flicker`: how much the error changes from frame to frame along the motion, on a photo
that stands, one that is panned, and a real clip.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from held_out_degradations import MODELS
from held_out_table import DATA, rgb_picture
from torch import Tensor

from vidrestore.options import RestoreOptions
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.tiling import tile_spans

SEQUENCE = "dog"
SIDES = (96, 128, 192, 256, 384, 512)
OVERLAPS = (0, 16, 32, 64)
FRAMES = 6
PAN = (1, 2)  # rows and columns per frame


def tiles(restorer: Callable[..., PictureRestorer], task: str) -> Iterator[str]:
    """A row for every side and overlap."""
    clip = frames_of(SEQUENCE, 1)
    degraded, clean = (part[0] for part in MODELS[task](clip, 0))
    whole = restored(restorer(), degraded)
    yield (
        "| task | tile | overlap | dB to the whole frame | dB to clean | whole to clean | border step "
        "|\n|---|---|---|---|---|---|---|"
    )
    for side in SIDES:
        for overlap in OVERLAPS:
            if overlap * 2 >= side or (overlap != 32 and side not in (128, 256)):
                continue
            tiled = restored(restorer(tile=side, tile_overlap=overlap), degraded)
            step = border_step(tiled, whole, restorer(tile=side, tile_overlap=overlap))
            cells = [f"{decibels(*pair):.2f}" for pair in ((tiled, whole), (tiled, clean), (whole, clean))]
            yield f"| {task} | {side} | {overlap} | {' | '.join(cells)} | {step:.2f} |"


def border_step(tiled: Tensor, whole: Tensor, restorer: PictureRestorer) -> float:
    """Mean gradient across the edges of tiles, over that of the whole frame's picture at the same places."""
    ratios = []
    for axis, side in zip((1, 2), restorer.tile_size(*tiled.shape[1:]), strict=True):
        length = tiled.shape[axis] + -tiled.shape[axis] % 8
        edges = sorted(
            {edge for span in tile_spans(length, side, restorer.tile_overlap) for edge in span} - {0, length}
        )
        if edges:
            gradients = [
                picture.diff(dim=axis).abs().index_select(axis, torch.tensor(edges) - 1).mean()
                for picture in (tiled, whole)
            ]
            ratios.append(float(gradients[0] / gradients[1]))
    return max(ratios, default=1.0)


def flicker(restorer: Callable[..., PictureRestorer], task: str) -> Iterator[str]:
    """A row for every video, with and without."""
    yield (
        "| task | video | steady | change of the error (of 255) | as given | PSNR (dB) "
        "|\n|---|---|---|---|---|---|"
    )
    for name, (clip, shift) in videos().items():
        degraded, clean = MODELS[task](clip, 0)
        for steady in (False, True):
            result = torch.stack(list(restorer(steady=steady).frames(degraded, (0, len(degraded)))))
            figures = (
                change_of_error(result - clean, shift),
                change_of_error(degraded - clean, shift),
                decibels(result.clamp(0, 1), clean),
            )
            yield (
                f"| {task} | {name} | {'yes' if steady else 'no'} | "
                f"{' | '.join(f'{figure:.2f}' for figure in figures)} |"
            )


def videos() -> dict[str, tuple[Tensor, tuple[int, int]]]:
    """Clips, and how many rows and columns what is seen moves up and left per frame."""
    still = frames_of(SEQUENCE, 1)[0]
    height, width = 256, 320
    panned = [still[:, 100 + PAN[0] * t :, 200 + PAN[1] * t :][:, :height, :width] for t in range(FRAMES)]
    return {
        "standing": (torch.stack([panned[0]] * FRAMES), (0, 0)),
        "panned": (torch.stack(panned), PAN),
        "real": (frames_of(SEQUENCE, FRAMES)[:, :, 100 : 100 + height, 200 : 200 + width], (0, 0)),
    }


def change_of_error(error: Tensor, shift: tuple[int, int]) -> float:
    """Root of the mean square of what the error of a frame differs from that of the next at the place that
    moved there, of 255.
    """
    down, right = shift
    before, after = (
        error[:-1, :, down:, right:],
        error[1:, :, : error.shape[2] - down, : error.shape[3] - right],
    )
    return 255 * float((after - before).square().mean().sqrt())


def decibels(picture: Tensor, other: Tensor) -> float:
    return float(-10 * (picture - other).square().mean().log10())


def restored(restorer: PictureRestorer, picture: Tensor) -> Tensor:
    return restorer.picture(picture[None]).clamp(0, 1)


def frames_of(sequence: str, count: int) -> Tensor:
    """(count, 3, H, W) in [0, 1]."""
    return torch.stack(
        [
            rgb_picture(path)
            for path in sorted((DATA / "eval" / "davis480p_heldout" / sequence).iterdir())[:count]
        ]
    )


def main(options: Namespace) -> None:
    table = tiles if options.what == "tiles" else flicker
    for task in options.task or MODELS:
        for row in table(partial(restorer_of, task, options.weights), task):
            sys.stdout.write(row + "\n")
            sys.stdout.flush()


def restorer_of(task: str, weights: str | None, **given: Any) -> PictureRestorer:
    return PictureRestorer(task, RestoreOptions(model=weights, device="cpu", **given))


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["tiles", "flicker"])
    parser.add_argument("--task", action="append", choices=list(MODELS))
    parser.add_argument("--weights", help="name or file; the bundled ones unless given")
    main(parser.parse_args())
