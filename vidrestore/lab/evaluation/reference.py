"""Compare videos with a clean reference frame by frame: PSNR, SSIM, and VMAF by an FFmpeg that has libvmaf.

libvmaf is given the gray picture (BT.601 of 8-bit R, G, B, as in `pages.sequence_frames.grey`) in limited
range, in 8 bits, and uses its default model (vmaf_v0.6.1). VMAF measures motion: frames are added in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, zip_longest
from pathlib import Path

import torch
from torch import Tensor

from vidrestore.errors import MediaError, OptionError
from vidrestore.lab.evaluation.vmaf import Vmaf, ffmpeg_with_vmaf
from vidrestore.pages.results import (
    ClipMetrics,
    Comparison,
    Result,
    Row,
    psnr_of_mean,
    rounded,
)
from vidrestore.pages.sequence_frames import GREY, channels_last, grey, timed_frames
from vidrestore.pixels.metrics import SSIM_WINDOW, psnr, ssim

_SAME_TIME = 0.0025  # seconds; Matroska rounds times to 1 ms
# pixels of the shorter side; libvmaf's values are wrong for smaller frames
SMALLEST = 33


def compare_videos(
    videos: Sequence[Path], reference: Path, on_progress: Callable[[str], None]
) -> Result:
    """Measure each of `videos` against `reference`, a clean video with the same frames.

    Raises OptionError without a video, MediaError if a video can't be read or its frames differ from the
    reference's in size or number.
    """
    if not videos:
        raise OptionError(
            "`reference`: name the video to compare: `vidrestore eval a.mp4 --reference clean.mp4`"
        )
    names = [video.name for video in videos]
    titles = [
        video.name if names.count(video.name) == 1 else str(video) for video in videos
    ]
    clips = [
        _clip(*pair, reference, on_progress)
        for pair in zip(videos, titles, strict=True)
    ]
    # a row for each video
    rows = []
    for clip, _ in clips:
        psnrs = clip.frames["psnr"]
        means = rounded({**clip.means, "psnr_mse": psnr_of_mean(psnrs)})
        rows.append(Row("", clip.clip, means, count=len(psnrs)))
    with_vmaf = any("vmaf" in clip.frames for clip, _ in clips)
    protocol = (
        "psnr: of 8-bit R'G'B', all samples, mean over the frames that differ; psnr_mse: of the mean squared "
        "error over all frames; ssim: of luma (BT.601 of R'G'B')",
        *(
            ["vmaf: libvmaf's default model, of BT.601 luma in limited range in 8 bits"]
            if with_vmaf
            else []
        ),
        "shown: the frame with the lowest PSNR, the reference on the left, the video on the right",
    )
    notes = tuple(
        note for clip, late in clips for note in _notes(clip, late, reference)
    )
    return Result(
        "reference",
        f"Against {reference.name}",
        "",
        tuple(rows),
        protocol,
        notes=notes,
        clips=tuple(clip for clip, _ in clips),
        names={clip.system: clip.system for clip, _ in clips},
    )


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
    # the first frames decide size and offset
    values: dict[str, list[float]] = {"psnr": [], "ssim": []}
    comparison: Comparison | None = None
    pairs = zip_longest(timed_frames(str(video)), timed_frames(str(reference)))
    frame, clean_frame = first = next(pairs, (None, None))
    if frame is None or clean_frame is None:
        raise MediaError(
            f"{title if frame is None else reference.name}: has no frame to compare"
        )
    if frame[1].shape != clean_frame[1].shape:
        sizes = [
            f"{picture.shape[2]}x{picture.shape[1]}"
            for _, picture in (frame, clean_frame)
        ]
        raise MediaError(
            f"{title}: {sizes[0]}, but {reference.name} is {sizes[1]}; compare videos of one size"
        )
    shape = frame[1].shape
    shift = frame[0] - clean_frame[0]
    late = 0.0
    # frame by frame, of any length
    with ExitStack() as stack:
        can = min(shape[1:]) >= SMALLEST and ffmpeg_with_vmaf()
        vmaf = (
            stack.enter_context(Vmaf(shape[1], shape[2], torch.get_num_threads()))
            if can
            else None
        )
        for frame, clean_frame in chain([first], pairs):
            if frame is None or clean_frame is None:
                shorter = title if frame is None else reference.name
                raise MediaError(
                    f"{shorter}: ends after {len(values['psnr'])} frames, but the other video is longer"
                )
            # the worst frame is shown
            restored = frame[1]
            clean = clean_frame[1]
            late = max(late, abs(frame[0] - clean_frame[0] - shift))
            pictures = channels_last(restored), channels_last(clean)
            value = psnr(*pictures)
            if comparison is None or value < min(values["psnr"]):
                comparison = Comparison(len(values["psnr"]), pictures[1], pictures[0])
            values["psnr"].append(value)
            if min(shape[1:]) >= SSIM_WINDOW:
                values["ssim"].append(ssim(grey(restored), grey(clean)))
            if vmaf:
                vmaf.add(gray_levels(restored).numpy(), gray_levels(clean).numpy())
            on_progress(f"{title}: frame {len(values['psnr'])}")
        # VMAF comes when its program ends
        frames = {name: tuple(values) for name, values in values.items() if values}
        if vmaf:
            frames["vmaf"] = vmaf.values()
    return ClipMetrics(title, "", "", title, frames, comparison=comparison), late


def gray_levels(picture: Tensor) -> Tensor:
    """Return the gray levels, (H, W) float64 in [0, 255] and not rounded, of a (3, H, W) uint8 picture."""
    levels: Tensor = torch.tensordot(
        torch.tensor(GREY, dtype=torch.float64), picture.double(), dims=1
    )
    return levels
