"""Videos against a clean reference, frame by frame: PSNR, SSIM, and VMAF if an FFmpeg measures it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vidrestore.errors import MediaError, OptionError
from vidrestore.evaluation.figures import rows_last
from vidrestore.evaluation.further_metrics import SMALLEST, VMAF, FurtherMetrics, lines_of
from vidrestore.evaluation.quick import titles
from vidrestore.evaluation.results import ClipFigures, Result, Row, Shown, rounded
from vidrestore.evaluation.sequence_frames import grey, video_frames
from vidrestore.media.vmaf import ffmpeg_with_vmaf
from vidrestore.metrics import SSIM_WINDOW, psnr, ssim


def compare_videos(videos: Sequence[Path], reference: Path, tell: Callable[[str], None]) -> Result:
    """Measure each of `videos` against `reference`, which has the same frames without the damage.

    Raises MediaError if frames differ in size or number, too.
    """
    if not videos:
        raise OptionError(
            "`reference`: name the video to compare: `vidrestore eval a.mp4 --reference clean.mp4`"
        )
    clips = [
        _clip(video, title, reference, tell) for video, title in zip(videos, titles(videos), strict=True)
    ]
    rows = [Row("", clip.clip, rounded(clip.means), count=len(clip.frames["psnr"])) for clip in clips]
    measured = tuple(dict.fromkeys(name for clip in clips for name in clip.frames))
    protocol = (
        "psnr: of 8-bit R'G'B', all samples; ssim: of luma (BT.601 of R'G'B')",
        *lines_of([VMAF] if VMAF in measured else []),
        "the frame with the lowest PSNR: the reference on the left, the video on the right",
    )
    names = {clip.system: clip.system for clip in clips}
    return Result(
        "reference", f"Against {reference.name}", "", tuple(rows), protocol, clips=tuple(clips), names=names
    )


def _clip(video: Path, title: str, reference: Path, tell: Callable[[str], None]) -> ClipFigures:
    found: dict[str, list[float]] = {"psnr": [], "ssim": []}
    shown: Shown | None = None
    one, other = video_frames(str(video)), video_frames(str(reference))
    first, clean = next(one, None), next(other, None)
    if first is None or clean is None:
        raise MediaError(f"{title if first is None else reference.name}: holds no frame to compare")
    if first.shape != clean.shape:
        sizes = [f"{each.shape[2]}x{each.shape[1]}" for each in (first, clean)]
        raise MediaError(
            f"{title}: {sizes[0]}, but {reference.name} is {sizes[1]}; compare videos of one size"
        )
    names = [VMAF] if min(first.shape[1:]) >= SMALLEST and _has_vmaf() else []
    with FurtherMetrics(names, first.shape) as further:
        while first is not None and clean is not None:
            pictures = rows_last(first), rows_last(clean)
            value = psnr(*pictures)
            if shown is None or value < min(found["psnr"]):
                shown = Shown(len(found["psnr"]), pictures[1], pictures[0])
            found["psnr"].append(value)
            if min(first.shape[1:]) >= SSIM_WINDOW:
                found["ssim"].append(ssim(grey(first), grey(clean)))
            further.add(first, clean)
            tell(f"{title}: frame {len(found['psnr'])}")
            first, clean = next(one, None), next(other, None)
        if (first is None) != (clean is None):
            shorter = title if first is None else reference.name
            raise MediaError(f"{shorter}: ends after {len(found['psnr'])} frames, the other video goes on")
        frames = {name: tuple(values) for name, values in found.items() if values} | further.frames()
    return ClipFigures(title, "", "", title, frames, shown=shown)


def _has_vmaf() -> bool:
    try:
        return bool(ffmpeg_with_vmaf())
    except OptionError:
        return False
