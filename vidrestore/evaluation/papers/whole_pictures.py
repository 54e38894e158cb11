"""The protocols of MB-TaylorFormer V2's release for pictures: whole pictures, reflected to multiples of 8,
output clamped.

Dehazing is judged on R, G, B as the network gives them, not rounded; deraining on MATLAB's Y of 8-bit
pictures; desnowing, for which nothing was released, as the training validates it, on BasicSR's Y of 8-bit
pictures; deblurring on 8-bit R, G, B with MATLAB's SSIM of colour pictures, denoising so, too, but not
rounded. No border is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from vidrestore.datasets import Pair, read_pair
from vidrestore.evaluation.contestants import GIVEN, Contestant
from vidrestore.evaluation.figures import (
    luma_figures,
    matlab_luma_figures,
    rgb_figures,
    rows_last,
    volume_figures,
)
from vidrestore.evaluation.papers.published import Table, TableSet
from vidrestore.evaluation.results import ClipFigures, Shown
from vidrestore.evaluation.sequence_frames import eight_bits
from vidrestore.options import RestoreOptions
from vidrestore.restorers.mb_taylorformer_restorer import ImageRestorer

Measure = Callable[[Tensor, Tensor], dict[str, float]]

# Task -> its figures, and whether pictures are rounded to 8 bits first.
RULES: dict[str, tuple[Measure, bool]] = {
    "dehaze": (rgb_figures, False),
    "derain": (matlab_luma_figures, True),
    "desnow": (luma_figures, True),
    "deblur": (volume_figures, True),
    "denoise": (volume_figures, False),
}
PROTOCOLS = {
    "dehaze": "PSNR and SSIM of R, G, B in floats, not rounded",
    "derain": "pictures in 8 bits; PSNR and SSIM of MATLAB's Y (rgb2ycbcr, rounded)",
    "desnow": "pictures in 8 bits; PSNR and SSIM of BasicSR's Y, as the release validates: it has no test "
    "for snow",
    "deblur": "pictures in 8 bits; PSNR of R, G, B; SSIM as MATLAB's of a colour picture, whose window "
    "spans the channels",
    "denoise": "PSNR of R, G, B in floats, not rounded; SSIM as MATLAB's of a colour picture, whose window "
    "spans the channels",
}


def judge(
    table: Table, part: TableSet, pairs: Sequence[Pair], taking: Sequence[Contestant], looked_at: int
) -> Iterator[ClipFigures]:
    """Yield the figures of every system on every picture; the first `looked_at` pictures to see."""
    restorers = [restorer(table.settings["task"], contestant) for contestant in taking]
    for number, pair in enumerate(pairs):
        degraded, clean = read_pair(pair)
        for contestant, restore in zip(taking, restorers, strict=True):
            restored = restore(degraded.float() / 255).clamp(0, 1)
            figures = judged(table.settings["task"], restored, clean)
            shown, stored = None, eight_bits(restored)
            if number < looked_at:
                shown = Shown(0, *(rows_last(picture) for picture in (degraded, stored, clean)))
            frames = {metric: (value,) for metric, value in figures.items()}
            yield ClipFigures(
                contestant.system,
                part.name,
                part.columns[0],
                pair.degraded.stem,
                frames,
                contestant.weights,
                shown,
            )


def judged(task: str, restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Figures of a task: `restored` (3, H, W) in [0, 1], `clean` uint8."""
    measure, in_eight_bits = RULES[task]
    return measure(eight_bits(restored), clean) if in_eight_bits else measure(restored, clean.float() / 255)


def restorer(task: str, contestant: Contestant) -> Callable[[Tensor], Tensor]:
    """(3, H, W) in [0, 1] -> the same restored, not clamped."""
    if contestant.system == GIVEN:
        return lambda picture: picture
    made = ImageRestorer(
        task, RestoreOptions(model=contestant.source, device=contestant.device, precision="fp32")
    )
    return lambda picture: next(made.frames(picture[None], (0, 1)))


PROTOCOL = (
    "whole pictures as long as memory allows, reflected to multiples of 8 at the right and bottom; output "
    "clamped",
    "{task}",
    "no border cut; mean over pictures",
)
