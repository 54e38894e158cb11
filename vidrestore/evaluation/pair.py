"""Compare videos with a clean reference frame by frame: PSNR, SSIM, and VMAF if an FFmpeg measures it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vidrestore.errors import MediaError, OptionError
from vidrestore.evaluation.further_metrics import SMALLEST, VMAF, FurtherMetrics, protocol_lines
from vidrestore.evaluation.quick import titles
from vidrestore.evaluation.results import ClipMetrics, Comparison, Result, Row, rounded
from vidrestore.evaluation.sequence_frames import channels_last, grey, video_frames
from vidrestore.media.vmaf import ffmpeg_with_vmaf
from vidrestore.metrics import SSIM_WINDOW, psnr, ssim


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
    rows = [Row("", clip.clip, rounded(clip.means), count=len(clip.frames["psnr"])) for clip in clips]
    measured = tuple(dict.fromkeys(name for clip in clips for name in clip.frames))
    protocol = (
        "psnr: of 8-bit R'G'B', all samples; ssim: of luma (BT.601 of R'G'B')",
        *protocol_lines([VMAF] if VMAF in measured else []),
        "shown: the frame with the lowest PSNR, the reference on the left, the video on the right",
    )
    names = {clip.system: clip.system for clip in clips}
    return Result(
        "reference", f"Against {reference.name}", "", tuple(rows), protocol, clips=tuple(clips), names=names
    )


def _clip(video: Path, title: str, reference: Path, on_progress: Callable[[str], None]) -> ClipMetrics:
    values: dict[str, list[float]] = {"psnr": [], "ssim": []}
    comparison: Comparison | None = None
    one, other = video_frames(str(video)), video_frames(str(reference))
    first, clean = next(one, None), next(other, None)
    if first is None or clean is None:
        raise MediaError(f"{title if first is None else reference.name}: has no frame to compare")
    if first.shape != clean.shape:
        sizes = [f"{each.shape[2]}x{each.shape[1]}" for each in (first, clean)]
        raise MediaError(
            f"{title}: {sizes[0]}, but {reference.name} is {sizes[1]}; compare videos of one size"
        )
    names = [VMAF] if min(first.shape[1:]) >= SMALLEST and _has_vmaf() else []
    with FurtherMetrics(names, first.shape) as vmaf:
        while first is not None and clean is not None:
            pictures = channels_last(first), channels_last(clean)
            value = psnr(*pictures)
            if comparison is None or value < min(values["psnr"]):
                comparison = Comparison(len(values["psnr"]), pictures[1], pictures[0])
            values["psnr"].append(value)
            if min(first.shape[1:]) >= SSIM_WINDOW:
                values["ssim"].append(ssim(grey(first), grey(clean)))
            vmaf.add(first, clean)
            on_progress(f"{title}: frame {len(values['psnr'])}")
            first, clean = next(one, None), next(other, None)
        if (first is None) != (clean is None):
            shorter = title if first is None else reference.name
            raise MediaError(
                f"{shorter}: ends after {len(values['psnr'])} frames, but the other video is longer"
            )
        frames = {name: tuple(values) for name, values in values.items() if values} | vmaf.frames()
    return ClipMetrics(title, "", "", title, frames, comparison=comparison)


def _has_vmaf() -> bool:
    try:
        return bool(ffmpeg_with_vmaf())
    except OptionError:
        return False
