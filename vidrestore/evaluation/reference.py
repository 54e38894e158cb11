"""Compare videos with a clean reference frame by frame: PSNR, SSIM, and VMAF by an FFmpeg that has libvmaf.

libvmaf is given the gray picture (BT.601 of 8-bit R, G, B, weighted as in `sequence_frames.grey`) in limited
range, 16 to 235, in 8 bits, and uses its default model (vmaf_v0.6.1). VMAF measures motion, so the frames of
a clip must be added in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from vidrestore.errors import DatasetError, MediaError, OptionError
from vidrestore.evaluation.results import ClipMetrics, Comparison, Result, Row, psnr_of_mean, rounded
from vidrestore.evaluation.sequence_frames import GREY, channels_last, grey, timed_frames
from vidrestore.media.vmaf import Vmaf, ffmpeg_with_vmaf
from vidrestore.metrics import SSIM_WINDOW, psnr, ssim

_SAME_TIME = 0.0025  # seconds; Matroska rounds times to 1 ms


def compare_videos(videos: Sequence[Path], reference: Path, on_progress: Callable[[str], None]) -> Result:
    """Measure each of `videos` against `reference`, a clean video with the same frames.

    Raises OptionError without a video, MediaError if a video can't be read or its frames differ from the
    reference's in size or number.
    """
    if not videos:
        raise OptionError(
            "`reference`: name the video to compare: `vidrestore eval a.mp4 --reference clean.mp4`"
        )
    clips = [
        _clip(video, title, reference, on_progress)
        for video, title in zip(videos, titles(videos), strict=True)
    ]
    rows = [_row(clip) for clip, _ in clips]
    measured = tuple(dict.fromkeys(name for clip, _ in clips for name in clip.frames))
    protocol = (
        "psnr: of 8-bit R'G'B', all samples, mean over the frames that differ; psnr_mse: of the mean squared "
        "error over all frames; ssim: of luma (BT.601 of R'G'B')",
        *protocol_lines([VMAF] if VMAF in measured else []),
        "shown: the frame with the lowest PSNR, the reference on the left, the video on the right",
    )
    return Result(
        "reference",
        f"Against {reference.name}",
        "",
        tuple(rows),
        protocol,
        notes=tuple(note for clip, late in clips for note in _notes(clip, late, reference)),
        clips=tuple(clip for clip, _ in clips),
        names={clip.system: clip.system for clip, _ in clips},
    )


def titles(videos: Sequence[Path]) -> list[str]:
    """Return titles of videos: their names, or their paths if several have the same name."""
    names = [video.name for video in videos]
    return [name if names.count(name) == 1 else str(video) for video, name in zip(videos, names, strict=True)]


def _row(clip: ClipMetrics) -> Row:
    psnrs = clip.frames["psnr"]
    return Row("", clip.clip, rounded({**clip.means, "psnr_mse": psnr_of_mean(psnrs)}), count=len(psnrs))


def _notes(clip: ClipMetrics, late: float, reference: Path) -> Iterator[str]:
    equal = clip.frames["psnr"].count(math.inf)
    if 0 < equal < len(clip.frames["psnr"]):
        yield f"{clip.clip}: {equal} frames are equal to those of {reference.name}"
    if late > _SAME_TIME:
        yield (
            f"{clip.clip}: its frames have other times than those of {reference.name}, by up to "
            f"{late:.3f} s; compared one by one all the same"
        )


def _clip(
    video: Path, title: str, reference: Path, on_progress: Callable[[str], None]
) -> tuple[ClipMetrics, float]:
    """Return the measurements, and by how many seconds times of frames differ at most, from the first on."""
    values: dict[str, list[float]] = {"psnr": [], "ssim": []}
    comparison: Comparison | None = None
    ones, others = timed_frames(str(video)), timed_frames(str(reference))
    one, other = next(ones, None), next(others, None)
    if one is None or other is None:
        raise MediaError(f"{title if one is None else reference.name}: has no frame to compare")
    if one[1].shape != other[1].shape:
        sizes = [f"{each.shape[2]}x{each.shape[1]}" for _, each in (one, other)]
        raise MediaError(
            f"{title}: {sizes[0]}, but {reference.name} is {sizes[1]}; compare videos of one size"
        )
    shape, shift, late = one[1].shape, one[0] - other[0], 0.0
    names = [VMAF] if min(shape[1:]) >= SMALLEST and _has_vmaf() else []
    with FurtherMetrics(names, shape) as vmaf:
        while one is not None and other is not None:
            restored, clean = one[1], other[1]
            late = max(late, abs(one[0] - other[0] - shift))
            pictures = channels_last(restored), channels_last(clean)
            value = psnr(*pictures)
            if comparison is None or value < min(values["psnr"]):
                comparison = Comparison(len(values["psnr"]), pictures[1], pictures[0])
            values["psnr"].append(value)
            if min(shape[1:]) >= SSIM_WINDOW:
                values["ssim"].append(ssim(grey(restored), grey(clean)))
            vmaf.add(restored, clean)
            on_progress(f"{title}: frame {len(values['psnr'])}")
            one, other = next(ones, None), next(others, None)
        if (one is None) != (other is None):
            shorter = title if one is None else reference.name
            raise MediaError(
                f"{shorter}: ends after {len(values['psnr'])} frames, but the other video is longer"
            )
        frames = {name: tuple(values) for name, values in values.items() if values} | vmaf.frames()
    return ClipMetrics(title, "", "", title, frames, comparison=comparison), late


def _has_vmaf() -> bool:
    try:
        return bool(ffmpeg_with_vmaf())
    except OptionError:
        return False


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
            f"no metric {', '.join(unknown)} in addition to PSNR and SSIM; there are: {', '.join(NAMES)}"
        )
    if names:
        ffmpeg_with_vmaf()


def protocol_lines(names: Sequence[str]) -> tuple[str, ...]:
    """Return a line for each metric that says how it is measured."""
    return tuple(f"{name}: {LINES[name]}" for name in names)
