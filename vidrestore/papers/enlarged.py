"""The protocol of VSR-Transformer's release: x4 from bicubically downscaled frames, measured in 8 bits with
borders.

Frames are cropped at the right and bottom to multiples of 4. Low-resolution frames are the release's own
(REDS) or made here as MATLAB's imresize does, in 8 bits. A window never leaves its clip: beyond its ends,
frames are taken from the window's other side. Output is clamped and rounded to 8 bits; PSNR and SSIM are of
R, G, B, or of BasicSR's Y (BT.601, limited range, not rounded), without cropping borders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from vidrestore.degrade import imresize
from vidrestore.errors import DatasetError
from vidrestore.evaluation.reference import FurtherMetrics
from vidrestore.evaluation.results import BICUBIC, ClipMetrics, Comparison, System
from vidrestore.evaluation.sequence_frames import channels_last, eight_bits
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.options import RestoreOptions
from vidrestore.papers.paper_metrics import luma_metrics, rgb_metrics
from vidrestore.papers.set_files import FrameSequence, clean_frames, picture_frames, stacked
from vidrestore.papers.tables import Table, TableSet
from vidrestore.restorers.vsr_restorer import VsrRestorer

CHANNELS = {"RGB": rgb_metrics, "Y": luma_metrics}
FRAMES_AT_ONCE = 16  # most enlarged frames in memory

# (clip (T, 3, h, w) uint8, indices of frames) -> those frames enlarged
Enlarger = Callable[[Tensor, tuple[int, ...]], Iterator[Tensor]]


def measure(
    table: Table,
    part: TableSet,
    sequences: Sequence[FrameSequence],
    systems: Sequence[System],
    shown_count: int,
    metrics: Sequence[str] = (),
    measured_frames: tuple[int, ...] = (),
) -> Iterator[ClipMetrics]:
    """Yield the metrics of every system and channel on every clip.

    `measured_frames` are the indices of the frames to enlarge and measure, all of them if empty. `metrics`
    are measured in addition to PSNR and SSIM, the same for each channel.
    """
    enlargers = [enlarger(system) for system in systems]
    for number, sequence in enumerate(sequences):
        clean = stacked(map(crop, clean_frames(sequence)), sequence.name)
        small = small_frames(sequence, clean, bool(table.settings.get("made")))
        at = measured_frames or tuple(range(len(clean)))
        for system, enlarge in zip(systems, enlargers, strict=True):
            further = FurtherMetrics(metrics, clean.shape)
            yield from _measure_clip(
                table, part, sequence.name, small, clean, at, system, enlarge, further, number < shown_count
            )


def crop(frame: Tensor) -> Tensor:
    """Crop (3, H, W) at the right and bottom to multiples of 4."""
    return frame[:, : frame.shape[1] // SCALE * SCALE, : frame.shape[2] // SCALE * SCALE]


def small_frames(sequence: FrameSequence, clean: Tensor, made: bool) -> Tensor:
    """Return the low-resolution frames (T, 3, h, w) uint8: the release's own if there are any, unless `made`.

    Raises DatasetError if the release's frames are not a quarter of the clean ones' size.
    """
    if made or not sequence.degraded:
        return torch.stack([eight_bits(imresize(frame.double() / 255, 1 / SCALE)) for frame in clean])
    small = stacked(picture_frames(sequence.degraded), sequence.name)
    if (*small.shape[-2:],) != tuple(side // SCALE for side in clean.shape[-2:]):
        raise DatasetError(
            f"{sequence.degraded_folder}: frames of {small.shape[-1]}x{small.shape[-2]}, but a quarter of "
            f"the clean ones is {clean.shape[-1] // SCALE}x{clean.shape[-2] // SCALE}; unpack the release "
            "again"
        )
    return small


def _measure_clip(
    table: Table,
    part: TableSet,
    clip: str,
    small: Tensor,
    clean: Tensor,
    at: tuple[int, ...],
    system: System,
    enlarge: Enlarger,
    further: FurtherMetrics,
    show: bool,
) -> Iterator[ClipMetrics]:
    channels: list[str] = table.settings["channels"]
    by_channel: dict[str, list[dict[str, float]]] = {channel: [] for channel in channels}
    middle, comparison = at[len(at) // 2], None
    with further:
        for index, large in zip(at, enlarge(small, at), strict=True):
            for channel in channels:
                by_channel[channel].append(CHANNELS[channel](large, clean[index]))
            further.add(large, clean[index])
            if show and index == middle:
                pictures = (bicubic(small[index]), large, clean[index])
                comparison = Comparison(index, *(channels_last(picture) for picture in pictures))
        more = further.frames()
    for channel, values in by_channel.items():
        frames = {metric: tuple(value[metric] for value in values) for metric in values[0]} | more
        yield ClipMetrics(system.name, part.name, channel, clip, frames, system.weights, comparison)


def enlarger(system: System) -> Enlarger:
    """Return the function by which a system enlarges frames of a clip (T, 3, h, w) uint8 to (3, 4h, 4w)
    uint8.
    """
    if system.name == BICUBIC:
        return lambda small, at: (bicubic(small[index]) for index in at)
    assert system.model is not None
    return partial(
        enlarged,
        VsrRestorer(RestoreOptions(model=system.source, device=system.device, precision="fp32")),
    )


def enlarged(restorer: VsrRestorer, small: Tensor, at: tuple[int, ...]) -> Iterator[Tensor]:
    """Yield the frames `at` of a clip, enlarged by a network; see `enlarger`."""
    clip = small.float() / 255
    for first in range(at[0], at[-1] + 1, FRAMES_AT_ONCE):
        stop = min(first + FRAMES_AT_ONCE, at[-1] + 1)
        for index, large in zip(range(first, stop), restorer.frames(clip, (first, stop)), strict=True):
            if index in at:
                yield eight_bits(large)


def bicubic(small: Tensor) -> Tensor:
    """Enlarge (3, h, w) uint8 to (3, 4h, 4w) uint8 as MATLAB's imresize does."""
    return eight_bits(imresize(small.double() / 255, SCALE))


PROTOCOL = (
    "frames cropped to multiples of 4; low-resolution frames {small}, 8 bits",
    "windows reflected within the clip; {restored}, output clamped and rounded to 8 bits",
    "PSNR and SSIM of {channels}, no border cropped; mean per clip, then over the clips",
)
