"""VMAF, the one metric in addition to PSNR and SSIM, measured by an FFmpeg that has libvmaf.

libvmaf is given the gray picture (BT.601 of 8-bit R, G, B, weighted as in `sequence_frames.grey`) in limited
range, 16 to 235, in 8 bits, and uses its default model (vmaf_v0.6.1). VMAF measures motion, so the frames of
a clip must be added in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from vidrestore.errors import DatasetError, OptionError
from vidrestore.evaluation.sequence_frames import GREY
from vidrestore.media.vmaf import Vmaf, ffmpeg_with_vmaf

VMAF = "vmaf"
NAMES = (VMAF,)
SMALLEST = 33  # pixels of the shorter side; libvmaf's values are wrong for smaller frames
LINES = {VMAF: "libvmaf's default model, of BT.601 luma in limited range in 8 bits, by FFmpeg"}


class FurtherMetrics:
    """Measure the metrics `names` of one clip, whose frames have the shape (..., H, W).

    A context manager that owns temporary files while it is open. Raises DatasetError if the frames are too
    small.
    """

    def __init__(self, names: Sequence[str], shape: Sequence[int]) -> None:
        height, width = shape[-2:]
        if names and min(height, width) < SMALLEST:
            raise DatasetError(
                f"frames of {width}x{height} are too small for {VMAF}, which needs {SMALLEST} lines and "
                f"columns; remove it from `metrics`"
            )
        self._vmaf = Vmaf(height, width) if names else None

    def __enter__(self) -> Self:
        if self._vmaf:
            self._vmaf.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._vmaf:
            self._vmaf.__exit__(*error)

    def add(self, restored: Tensor, clean: Tensor) -> None:
        """Add the next frame, restored and clean, (C, H, W) uint8 each: gray or R, G, B."""
        if self._vmaf:
            self._vmaf.add(gray_levels(restored).numpy(), gray_levels(clean).numpy())

    def frames(self) -> dict[str, tuple[float, ...]]:
        """Return the values of each metric by frame, after all frames were added. Raises MediaError if FFmpeg
        fails.
        """
        return {VMAF: self._vmaf.values(torch.get_num_threads())} if self._vmaf else {}


def gray_levels(picture: Tensor) -> Tensor:
    """Return the gray levels, (H, W) float64 in [0, 255] and not rounded, of a (1, H, W) or (3, H, W) uint8
    picture.
    """
    weights = GREY if len(picture) == 3 else (1.0,)
    levels: Tensor = torch.tensordot(torch.tensor(weights, dtype=torch.float64), picture.double(), dims=1)
    return levels


def check_metrics(names: Sequence[str]) -> None:
    """Raise OptionError for an unknown metric, and if there is no FFmpeg that measures it."""
    if unknown := [name for name in names if name not in NAMES]:
        raise OptionError(
            f"no metric {', '.join(unknown)} besides PSNR and SSIM; there are: {', '.join(NAMES)}"
        )
    if names:
        ffmpeg_with_vmaf()


def protocol_lines(names: Sequence[str]) -> tuple[str, ...]:
    """Return a line for each metric that says how it is measured."""
    return tuple(f"{name}: {LINES[name]}" for name in names)
