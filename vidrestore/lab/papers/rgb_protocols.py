"""The protocols of single pictures and of super-resolution, both on R, G, B.

Pictures, as in MB-TaylorFormer V2's release: whole, reflected to multiples of 8, output clamped, no border
cropped. For desnowing nothing was released; it is measured as the training validates it.

Super-resolution, as in VSR-Transformer's release: x4 from bicubically downscaled frames. Frames are cropped
at the right and bottom to multiples of 4. Low-resolution frames are the release's own (REDS) or made here as
MATLAB's imresize does, in 8 bits. A window never leaves its clip: beyond its ends, frames are taken from the
window's other side. Output is clamped and rounded to 8 bits; PSNR and SSIM are of R, G, B, or of BasicSR's Y
(BT.601, limited range, not rounded), without cropping borders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.errors import DatasetError
from vidrestore.lab.degrade import imresize
from vidrestore.lab.papers.dataset_files import (
    FrameSequence,
    Pair,
    clean_frames,
    picture_frames,
    read_pair,
    stacked,
)
from vidrestore.lab.papers.tables import Table, TableSet
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.pages.results import BICUBIC, GIVEN, ClipMetrics, Comparison, System
from vidrestore.pages.sequence_frames import channels_last, eight_bits
from vidrestore.pixels.metrics import (
    SSIM_K1,
    SSIM_K2,
    SSIM_SIGMA,
    SSIM_WINDOW,
    bgr_to_luma,
    psnr,
    ssim,
)
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.restorers.vsr_restorer import VsrRestorer
from vidrestore.settings.options import RestoreOptions

Metrics = Callable[[Tensor, Tensor], dict[str, float]]
Enlarger = Callable[[Tensor, tuple[int, ...]], Iterator[Tensor]]  # see `enlarger`


def _options(system: System) -> RestoreOptions:
    return RestoreOptions(model=system.source, device=system.device, precision="fp32")


def _comparison(index: int, *pictures: Tensor) -> Comparison:
    return Comparison(index, *map(channels_last, pictures))


# Metrics of pictures (C, H, W) of R, G, B, uint8 or float in [0, 1], as the papers' scripts compute them

# weights of rgb2ycbcr for R, G, B in [0, 1]; the offset is 16
MATLAB_LUMA = (65.481, 128.553, 24.966)


def rgb_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR over all samples and SSIM as the mean of the channels; uint8, or floats in [0, 1]."""
    top = 255.0 if restored.dtype == torch.uint8 else 1.0
    output = channels_last(restored)
    target = channels_last(clean)
    return {"psnr": psnr(output, target, top), "ssim": ssim(output, target, top)}


def luma_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR and SSIM of BasicSR's Y (BT.601, limited range, not rounded) of uint8 pictures."""
    output = basicsr_luma(restored)
    target = basicsr_luma(clean)
    return {"psnr": psnr(output, target), "ssim": ssim(output, target)}


def basicsr_luma(picture: Tensor) -> NDArray[np.float32]:
    """Return BasicSR's Y of a uint8 picture, not rounded."""
    return bgr_to_luma(channels_last(picture.flip(0)).astype(np.uint8))


def matlab_luma(picture: Tensor) -> NDArray[np.uint8]:
    """Return Y of MATLAB's rgb2ycbcr of a uint8 picture, rounded to 8 bits: (H, W)."""
    weights = torch.tensor(MATLAB_LUMA, dtype=torch.float64)[:, None, None]
    luma = (picture.double() / 255 * weights).sum(0) + 16
    return (luma + 0.5).floor_().to(torch.uint8).numpy()


def matlab_luma_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR and SSIM of `matlab_luma` of uint8 pictures, as the deraining papers' scripts do."""
    output = matlab_luma(restored)
    target = matlab_luma(clean)
    return {"psnr": psnr(output, target), "ssim": ssim(output, target)}


def volume_metrics(restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return PSNR over all samples and MATLAB's `ssim` of a colour picture; uint8, or floats in [0, 1]."""
    top = 255.0 if restored.dtype == torch.uint8 else 1.0
    return {
        "psnr": psnr(channels_last(restored), channels_last(clean), top),
        "ssim": volume_ssim(restored, clean, top),
    }


def volume_ssim(restored: Tensor, clean: Tensor, top: float) -> float:
    """Return the SSIM of a colour picture read as a volume, as MATLAB's `ssim` does: an 11x11x11 Gaussian
    window that mixes the channels, borders padded by replication, the mean over all positions.
    """
    a = restored.double()
    b = clean.double()
    # means, variances and covariance under the window, then the usual formula
    mean_a = _smooth(a)
    mean_b = _smooth(b)
    variance_a = _smooth(a * a) - mean_a**2
    variance_b = _smooth(b * b) - mean_b**2
    covariance = _smooth(a * b) - mean_a * mean_b
    c1 = (SSIM_K1 * top) ** 2
    c2 = (SSIM_K2 * top) ** 2
    likeness = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    most = (mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2)
    return float((likeness / most).mean())


def _smooth(volume: Tensor) -> Tensor:
    """Filter (C, H, W) by a Gaussian along all three axes."""
    for axis in range(3):
        matrix = _gaussian(volume.shape[axis])
        volume = torch.tensordot(matrix, volume, dims=([1], [axis])).movedim(0, axis)
    return volume


def _gaussian(length: int) -> Tensor:
    """Return (length, length): rows are windows; what is outside is added to the border samples."""
    # what lies outside counts as the border's sample
    offset = torch.arange(SSIM_WINDOW, dtype=torch.float64) - SSIM_WINDOW // 2
    window = torch.exp(-(offset**2) / (2 * SSIM_SIGMA**2))
    window /= window.sum()
    positions = (torch.arange(length)[:, None] + offset.long()).clamp(0, length - 1)
    return torch.zeros(length, length, dtype=torch.float64).scatter_add_(
        1, positions, window.expand(length, -1)
    )


# Pictures

PICTURE_PROTOCOL = (
    "whole pictures as long as memory allows, reflected to multiples of 8 at the right and bottom; output "
    "clamped",
    "{task}",
    "no border cropped; mean over pictures",
)
COLOUR_SSIM = "SSIM as MATLAB's of a colour picture, whose window spans the channels"
# Task -> its metrics, True if the output is rounded to 8 bits first, and both in words.
RULES: dict[str, tuple[Metrics, bool, str]] = {
    "dehaze": (rgb_metrics, False, "PSNR and SSIM of R, G, B in floats, not rounded"),
    "derain": (
        matlab_luma_metrics,
        True,
        "pictures in 8 bits; PSNR and SSIM of MATLAB's Y (rgb2ycbcr, rounded)",
    ),
    "desnow": (
        luma_metrics,
        True,
        "pictures in 8 bits; PSNR and SSIM of BasicSR's Y, as the release validates: it has no test for snow",
    ),
    "deblur": (
        volume_metrics,
        True,
        f"pictures in 8 bits; PSNR of R, G, B; {COLOUR_SSIM}",
    ),
    "denoise": (
        volume_metrics,
        False,
        f"PSNR of R, G, B in floats, not rounded; {COLOUR_SSIM}",
    ),
}


# what is measured in place of R, G, B
PLANES: dict[str, Callable[[Tensor], NDArray[Any]]] = {
    "derain": matlab_luma,
    "desnow": basicsr_luma,
}


def measure_pictures(
    table: Table,
    part: TableSet,
    pairs: Sequence[Pair],
    systems: Sequence[System],
    shown_count: int,
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system on every picture, with a comparison of the first `shown_count`."""
    # restorers are loaded once, pictures one at a time
    task = table.settings["task"]
    column = part.columns[0]
    restorers = [picture_restorer(task, system) for system in systems]
    for number, pair in enumerate(pairs):
        degraded, clean = read_pair(pair)
        for system, restore in zip(systems, restorers, strict=True):
            restored = restore(degraded.float() / 255).clamp(0, 1)
            frames = {
                name: (value,)
                for name, value in picture_metrics(task, restored, clean).items()
            }
            example = (
                _comparison(0, degraded, eight_bits(restored), clean)
                if number < shown_count
                else None
            )
            name = pair.degraded.stem
            yield ClipMetrics(
                system.name, part.name, column, name, frames, system.weights, example
            )


def picture_metrics(task: str, restored: Tensor, clean: Tensor) -> dict[str, float]:
    """Return the metrics of a task; `restored` is (3, H, W) in [0, 1], `clean` uint8."""
    metrics_of, in_eight_bits, _ = RULES[task]
    if in_eight_bits:
        return metrics_of(eight_bits(restored), clean)
    return metrics_of(restored, clean.float() / 255)


def picture_psnr(task: str, restored: Tensor, clean: Tensor) -> float:
    """Return the PSNR of `picture_metrics` alone, without the time that SSIM takes. Tasks that no table has
    are measured as dehazing.
    """
    _, in_eight_bits, _ = RULES.get(task, RULES["dehaze"])
    if in_eight_bits:
        planes = PLANES.get(task, channels_last)
        return psnr(planes(eight_bits(restored)), planes(clean))
    return psnr(channels_last(restored), channels_last(clean.float() / 255), 1.0)


def picture_restorer(task: str, system: System) -> Callable[[Tensor], Tensor]:
    """Return the function that restores a picture (3, H, W) in [0, 1]; its output is not clamped."""
    if system.name == GIVEN:
        return lambda picture: picture
    restorer = PictureRestorer(task, _options(system))
    return lambda picture: next(restorer.frames(picture[None], (0, 1)))


# Super-resolution

ENLARGING_PROTOCOL = (
    "frames cropped to multiples of 4; low-resolution frames {small}, 8 bits",
    "windows reflected within the clip; {restored}, output clamped and rounded to 8 bits",
    "PSNR and SSIM of {channels}, no border cropped; mean per clip, then over the clips",
)
CHANNELS = {"RGB": rgb_metrics, "Y": luma_metrics}
FRAMES_AT_ONCE = 16  # most enlarged frames in memory


def measure_enlarging(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    systems: Sequence[System],
    shown_count: int,
    measured_frames: tuple[int, ...] = (),
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system and channel on every clip. `measured_frames` are the indices of the
    frames to enlarge and measure, all of them if empty.
    """
    # enlargers are loaded once, clips one at a time
    enlargers = [enlarger(system) for system in systems]
    channels = table.settings["channels"]
    for number, sequence in enumerate(sequences):
        clean = stacked(map(_cropped, clean_frames(sequence)), sequence.name)
        small = small_frames(sequence, clean, bool(table.settings.get("made")))
        indices = measured_frames or tuple(range(len(clean)))
        middle = indices[len(indices) // 2] if number < shown_count else None
        for system, enlarge in zip(systems, enlargers, strict=True):
            by_channel, comparison = _enlarged_metrics(
                enlarge, small, clean, indices, channels, middle
            )
            for channel, values in by_channel.items():
                frames = {
                    metric: tuple(map(itemgetter(metric), values))
                    for metric in values[0]
                }
                yield ClipMetrics(
                    system.name,
                    part.name,
                    channel,
                    sequence.name,
                    frames,
                    system.weights,
                    comparison,
                )


def _enlarged_metrics(
    enlarge: Enlarger,
    small: Tensor,
    clean: Tensor,
    indices: tuple[int, ...],
    channels: Sequence[str],
    shown_index: int | None,
) -> tuple[dict[str, list[dict[str, float]]], Comparison | None]:
    """Return the metrics of each frame by channel, and the frame of `shown_index`."""
    # frame by frame, as large frames take much memory
    by_channel: dict[str, list[dict[str, float]]] = {
        channel: [] for channel in channels
    }
    comparison = None
    for index, large in zip(indices, enlarge(small, indices), strict=True):
        for channel in channels:
            by_channel[channel].append(CHANNELS[channel](large, clean[index]))
        if index == shown_index:
            comparison = _comparison(index, bicubic(small[index]), large, clean[index])
    return by_channel, comparison


def _cropped(frame: Tensor) -> Tensor:
    """Crop (3, H, W) at the right and bottom to multiples of 4."""
    return frame[
        :, : frame.shape[1] // SCALE * SCALE, : frame.shape[2] // SCALE * SCALE
    ]


def small_frames(sequence: FrameSequence, clean: Tensor, downscale: bool) -> Tensor:
    """Return low-resolution frames (T, 3, h, w) uint8, the release's own if it has them, unless `downscale`.
    Raises DatasetError for another size than a quarter.
    """
    # downscaled by us where the release has none
    if downscale or not sequence.degraded:
        return torch.stack(
            [eight_bits(imresize(frame.double() / 255, 1 / SCALE)) for frame in clean]
        )
    small = stacked(picture_frames(sequence.degraded), sequence.name)
    height, width = (side // SCALE for side in clean.shape[-2:])
    if tuple(small.shape[-2:]) != (height, width):
        raise DatasetError(
            f"{sequence.degraded_folder}: frames of {small.shape[-1]}x{small.shape[-2]}, but a quarter of "
            f"the clean ones is {width}x{height}; unpack the release again"
        )
    return small


def enlarger(system: System) -> Enlarger:
    """Return the function (clip (T, 3, h, w) uint8, indices of frames) -> frames (3, 4h, 4w) uint8."""
    if system.name == BICUBIC:
        return lambda small, indices: (bicubic(small[index]) for index in indices)
    return partial(_enlarged, VsrRestorer(_options(system)))


def _enlarged(
    restorer: VsrRestorer, small: Tensor, indices: tuple[int, ...]
) -> Iterator[Tensor]:
    # a few frames at once, of which those that are measured are kept
    clip = small.float() / 255
    for first in range(indices[0], indices[-1] + 1, FRAMES_AT_ONCE):
        stop = min(first + FRAMES_AT_ONCE, indices[-1] + 1)
        for index, large in zip(
            range(first, stop), restorer.frames(clip, (first, stop)), strict=True
        ):
            if index in indices:
                yield eight_bits(large)


def bicubic(small: Tensor) -> Tensor:
    """Enlarge (3, h, w) uint8 to (3, 4h, 4w) uint8 as MATLAB's imresize does."""
    return eight_bits(imresize(small.double() / 255, SCALE))
