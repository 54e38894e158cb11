"""Metrics besides PSNR and SSIM: VMAF, by an FFmpeg that has libvmaf.

It sees the gray picture (BT.601 of 8-bit R, G, B, as `sequence_frames.grey` weighs it) in the range of video,
16 to 235, in 8 bits, with libvmaf's default model (vmaf_v0.6.1). It looks at motion, so a clip's frames must
come in order.
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
SMALLEST = 33  # pixels of the shorter side; libvmaf's values are wrong below
LINES = {VMAF: "libvmaf's default model, of BT.601 luma in the range of video in 8 bits, by FFmpeg"}


class FurtherMetrics:
    """The metrics `names` of one clip of frames (..., H, W) = `shape`; a context that holds files while it is
    open.

    Raises DatasetError for frames that are too small.
    """

    def __init__(self, names: Sequence[str], shape: Sequence[int]) -> None:
        height, width = shape[-2:]
        if names and min(height, width) < SMALLEST:
            size = f"needs {SMALLEST} lines and columns"
            raise DatasetError(
                f"frames of {width}x{height} are too small for {VMAF}, which {size}; leave it out of "
                "`metrics`"
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
        """The next frame, (C, H, W) uint8 each: gray or R, G, B."""
        if self._vmaf:
            self._vmaf.add(gray_levels(restored).numpy(), gray_levels(clean).numpy())

    def frames(self) -> dict[str, tuple[float, ...]]:
        """Every metric frame by frame, once all frames were added. Raises MediaError if FFmpeg fails."""
        return {VMAF: self._vmaf.values(torch.get_num_threads())} if self._vmaf else {}


def gray_levels(picture: Tensor) -> Tensor:
    """(1, H, W) or (3, H, W) uint8 -> (H, W) float64, 0 to 255, not rounded."""
    weights = GREY if len(picture) == 3 else (1.0,)
    levels: Tensor = torch.tensordot(torch.tensor(weights, dtype=torch.float64), picture.double(), dims=1)
    return levels


def check_metrics(names: Sequence[str]) -> None:
    """Raise OptionError for an unknown metric, or if no FFmpeg measures it."""
    if unknown := [name for name in names if name not in NAMES]:
        raise OptionError(
            f"no metric {', '.join(unknown)} besides PSNR and SSIM; there are: {', '.join(NAMES)}"
        )
    if names:
        ffmpeg_with_vmaf()


def lines_of(names: Sequence[str]) -> tuple[str, ...]:
    """Describe for a reader how they are measured."""
    return tuple(f"{name}: {LINES[name]}" for name in names)
