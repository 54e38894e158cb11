"""Compare videos with a clean reference frame by frame: PSNR, SSIM, and VMAF by an FFmpeg that has libvmaf.

libvmaf is given the gray picture (BT.601 of 8-bit R, G, B, weighted as in `sequence_frames.grey`) in limited
range, in 8 bits, and uses its default model (vmaf_v0.6.1). VMAF measures motion: frames are added in order.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import av
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.errors import MediaError, OptionError
from vidrestore.evaluation.results import ClipMetrics, Comparison, Result, Row, psnr_of_mean, rounded
from vidrestore.evaluation.sequence_frames import GREY, channels_last, grey, timed_frames
from vidrestore.metrics import SSIM_WINDOW, psnr, ssim

_SAME_TIME = 0.0025  # seconds; Matroska rounds times to 1 ms
SMALLEST = 33  # pixels of the shorter side; libvmaf's values are wrong for smaller frames


def compare_videos(videos: Sequence[Path], reference: Path, on_progress: Callable[[str], None]) -> Result:
    """Measure each of `videos` against `reference`, a clean video with the same frames.

    Raises OptionError without a video, MediaError if a video can't be read or its frames differ from the
    reference's in size or number.
    """
    if not videos:
        raise OptionError(
            "`reference`: name the video to compare: `vidrestore eval a.mp4 --reference clean.mp4`"
        )
    names = [video.name for video in videos]
    titles = [each.name if names.count(each.name) == 1 else str(each) for each in videos]
    clips = [_clip(*each, reference, on_progress) for each in zip(videos, titles, strict=True)]
    rows = []
    for clip, _ in clips:
        psnrs = clip.frames["psnr"]
        means = rounded({**clip.means, "psnr_mse": psnr_of_mean(psnrs)})
        rows.append(Row("", clip.clip, means, count=len(psnrs)))
    with_vmaf = any("vmaf" in clip.frames for clip, _ in clips)
    protocol = (
        "psnr: of 8-bit R'G'B', all samples, mean over the frames that differ; psnr_mse: of the mean squared "
        "error over all frames; ssim: of luma (BT.601 of R'G'B')",
        *(["vmaf: libvmaf's default model, of BT.601 luma in limited range in 8 bits"] if with_vmaf else []),
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
    pairs = zip_longest(timed_frames(str(video)), timed_frames(str(reference)))
    one, other = first = next(pairs, (None, None))
    if one is None or other is None:
        raise MediaError(f"{title if one is None else reference.name}: has no frame to compare")
    if one[1].shape != other[1].shape:
        sizes = [f"{each.shape[2]}x{each.shape[1]}" for _, each in (one, other)]
        raise MediaError(
            f"{title}: {sizes[0]}, but {reference.name} is {sizes[1]}; compare videos of one size"
        )
    shape, shift, late = one[1].shape, one[0] - other[0], 0.0
    with ExitStack() as stack:
        can = min(shape[1:]) >= SMALLEST and ffmpeg_with_vmaf()
        vmaf = stack.enter_context(Vmaf(*shape[1:])) if can else None
        for one, other in chain([first], pairs):
            if one is None or other is None:
                shorter = title if one is None else reference.name
                raise MediaError(
                    f"{shorter}: ends after {len(values['psnr'])} frames, but the other video is longer"
                )
            restored, clean = one[1], other[1]
            late = max(late, abs(one[0] - other[0] - shift))
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
        frames = {name: tuple(values) for name, values in values.items() if values}
        if vmaf:
            frames["vmaf"] = vmaf.values(torch.get_num_threads())
    return ClipMetrics(title, "", "", title, frames, comparison=comparison), late


def gray_levels(picture: Tensor) -> Tensor:
    """Return the gray levels, (H, W) float64 in [0, 255] and not rounded, of a (3, H, W) uint8 picture."""
    levels: Tensor = torch.tensordot(torch.tensor(GREY, dtype=torch.float64), picture.double(), dims=1)
    return levels


Levels = NDArray[np.float64]


class Vmaf:
    """Measures VMAF of one clip in a separate FFmpeg: a context manager with a temporary folder."""

    def __init__(self, height: int, width: int) -> None:
        self._size = (height, width)
        self._frames = 0

    def __enter__(self) -> Self:
        self._temporary = TemporaryDirectory(prefix="vidrestore-")
        self._folder = Path(self._temporary.name)
        with self._writing():
            self._file = av.open(str(self._folder / "videos.mkv"), "w")
            self._streams = [self._file.add_stream("ffv1", rate=25) for _ in ("restored", "clean")]
            for stream in self._streams:
                stream.height, stream.width = self._size
                stream.pix_fmt = "yuv444p"  # libvmaf takes no gray
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(av.error.FFmpegError):  # a full disk, which `add` has reported
            self._file.close()
        self._temporary.cleanup()

    def add(self, restored: Levels, clean: Levels) -> None:
        """Add the next frame: gray levels (height, width), 0 to 255, stored as 8-bit limited-range luma."""
        with self._writing():
            for stream, levels in zip(self._streams, (restored, clean), strict=True):
                luma = np.rint(16 + levels * (219 / 255)).astype(np.uint8)
                middle = np.full_like(luma, 128)
                frame = av.VideoFrame.from_ndarray(np.stack((luma, middle, middle)), "yuv444p")
                self._file.mux(stream.encode(frame))
        self._frames += 1

    def values(self, threads: int) -> tuple[float, ...]:
        """Return VMAF of each frame, after all were added. Raises MediaError if FFmpeg fails."""
        with self._writing():
            for stream in self._streams:
                self._file.mux(stream.encode(None))
            self._file.close()
        work = f"[0:v:0][0:v:1]libvmaf=log_fmt=json:log_path=vmaf.json:n_threads={threads}"
        ffmpeg = ffmpeg_with_vmaf()
        assert ffmpeg is not None, "checked by the caller"
        inputs = ("-v", "error", "-nostdin", "-i", "videos.mkv")
        command = [ffmpeg, *inputs, "-lavfi", work, "-f", "null", "-"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, errors="replace")
        try:
            log = json.loads((self._folder / "vmaf.json").read_text(encoding="utf-8"))
            scores = tuple(frame["metrics"]["vmaf"] for frame in log["frames"])
        except (OSError, ValueError, KeyError):  # missing or incomplete
            scores = ()
        if done.returncode or len(scores) != self._frames:
            said = done.stderr.strip().splitlines() or ["it said nothing"]
            raise MediaError(
                f"{ffmpeg}: ended with {done.returncode} while it measured VMAF: {said[-1]}; put another "
                "FFmpeg on the PATH"
            )
        return scores

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except av.error.FFmpegError as error:
            reason = f"can't hold the videos that VMAF is measured of ({error.strerror})"
            raise MediaError(
                f"{self._folder}: {reason}; make room there, or name another folder with TMPDIR"
            ) from error


@cache
def ffmpeg_with_vmaf() -> str | None:
    """Return the path of an ffmpeg with libvmaf, on the PATH or in the package imageio-ffmpeg, or None."""
    for path in (shutil.which("ffmpeg"), _packaged_ffmpeg()):
        if path and _has_vmaf(path):
            return str(Path(path).absolute())  # it runs in another folder
    return None


def _packaged_ffmpeg() -> str | None:
    try:
        return str(import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed; installed without a binary for this system
        return None


def _has_vmaf(ffmpeg: str) -> bool:
    try:
        listed = subprocess.run(
            [ffmpeg, "-hide_banner", "-filters"], capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(line.split()[1:2] == ["libvmaf"] for line in listed.stdout.splitlines())
