"""The protocols of MB-TaylorFormer V2's release for pictures: whole pictures, reflected to multiples of 8,
output clamped.

Dehazing is measured on R, G, B as the network outputs them, not rounded; deraining on MATLAB's Y of 8-bit
pictures; desnowing, for which nothing was released, on BasicSR's Y of 8-bit pictures, as the training
validates it; deblurring on 8-bit R, G, B with MATLAB's SSIM of colour pictures; denoising like deblurring,
but not rounded. No border is cropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from vidrestore.evaluation.results import GIVEN, ClipMetrics, Comparison, System
from vidrestore.evaluation.sequence_frames import channels_last, eight_bits
from vidrestore.options import RestoreOptions
from vidrestore.papers.paper_metrics import luma_metrics, matlab_luma_metrics, rgb_metrics, volume_metrics
from vidrestore.papers.set_files import Pair, read_pair
from vidrestore.papers.tables import Table, TableSet
from vidrestore.restorers.picture_restorer import PictureRestorer

Metrics = Callable[[Tensor, Tensor], dict[str, float]]

# Task -> its metrics, and True if the output is rounded to 8 bits first.
RULES: dict[str, tuple[Metrics, bool]] = {
    "dehaze": (rgb_metrics, False),
    "derain": (matlab_luma_metrics, True),
    "desnow": (luma_metrics, True),
    "deblur": (volume_metrics, True),
    "denoise": (volume_metrics, False),
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


def measure(
    table: Table, part: TableSet, pairs: Sequence[Pair], systems: Sequence[System], shown_count: int
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system on every picture, with a comparison of the first `shown_count`."""
    restorers = [restorer(table.settings["task"], system) for system in systems]
    for number, pair in enumerate(pairs):
        degraded, clean = read_pair(pair)
        for system, restore in zip(systems, restorers, strict=True):
            restored = restore(degraded.float() / 255).clamp(0, 1)
            metrics = picture_metrics(table.settings["task"], restored, clean)
            comparison, stored = None, eight_bits(restored)
            if number < shown_count:
                comparison = Comparison(0, *(channels_last(picture) for picture in (degraded, stored, clean)))
            frames = {metric: (value,) for metric, value in metrics.items()}
            yield ClipMetrics(
                system.name,
                part.name,
                part.columns[0],
                pair.degraded.stem,
                frames,
                system.weights,
                comparison,
            )


def picture_metrics(task: str, restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return the metrics of a task; `restored` is (3, H, W) in [0, 1], `clean` uint8."""
    metrics_of, in_eight_bits = RULES[task]
    if in_eight_bits:
        return metrics_of(eight_bits(restored), clean)
    return metrics_of(restored, clean.float() / 255)


def restorer(task: str, system: System) -> Callable[[Tensor], Tensor]:
    """Return the function by which a system restores a picture (3, H, W) in [0, 1]; its output is not
    clamped.
    """
    if system.name == GIVEN:
        return lambda picture: picture
    image_restorer = PictureRestorer(
        task, RestoreOptions(model=system.source, device=system.device, precision="fp32")
    )
    return lambda picture: next(image_restorer.frames(picture[None], (0, 1)))


PROTOCOL = (
    "whole pictures as long as memory allows, reflected to multiples of 8 at the right and bottom; output "
    "clamped",
    "{task}",
    "no border cropped; mean over pictures",
)
