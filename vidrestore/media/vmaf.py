"""VMAF of a video, by an FFmpeg that has libvmaf: its default model, vmaf_v0.6.1, of 8-bit limited-range
luma.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from vidrestore.errors import MediaError

Levels = NDArray[np.float64]


class Vmaf:
    """Measures VMAF of one clip in a separate FFmpeg; a context manager that stores both videos losslessly in
    a temporary folder.
    """

    def __init__(self, height: int, width: int) -> None:
        self._size = (height, width)

    def __enter__(self) -> Self:
        self._open = ExitStack()
        self._folder = Path(self._open.enter_context(TemporaryDirectory(prefix="vidrestore-")))
        with self._writing():
            paths = (self._folder / f"{name}.mkv" for name in ("restored", "clean"))
            self._videos = [self._open.enter_context(LosslessVideo(path, *self._size)) for path in paths]
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, restored: Levels, clean: Levels) -> None:
        """Add the next frame: gray levels (height, width), 0 to 255."""
        with self._writing():
            for video, levels in zip(self._videos, (restored, clean), strict=True):
                video.add(levels)

    def values(self, threads: int) -> tuple[float, ...]:
        """Return VMAF of each frame, after all were added. Raises MediaError if FFmpeg fails."""
        with self._writing():
            for video in self._videos:
                video.finish()
        work = f"[0:v][1:v]libvmaf=log_fmt=json:log_path=vmaf.json:n_threads={threads}"
        inputs = ("-v", "error", "-nostdin", "-i", "restored.mkv", "-i", "clean.mkv")
        ffmpeg = ffmpeg_with_vmaf()
        assert ffmpeg is not None, "checked by the caller"
        command = [ffmpeg, *inputs, "-lavfi", work, "-f", "null", "-"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, errors="replace")
        try:
            scores = tuple(_scores(json.loads((self._folder / "vmaf.json").read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError):  # missing or incomplete
            scores = ()
        if done.returncode or len(scores) != self._videos[0].frames:
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


def _scores(log: Mapping[str, Any]) -> Iterator[float]:
    for frame in log["frames"]:
        yield frame["metrics"]["vmaf"]


class LosslessVideo:
    """A video of gray levels as 8-bit limited-range luma (FFV1)."""

    def __init__(self, path: Path, height: int, width: int) -> None:
        self._container = av.open(str(path), "w")
        self._stream: VideoStream = self._container.add_stream("ffv1", rate=25)
        self._stream.height, self._stream.width = height, width
        self._stream.pix_fmt = "yuv444p"  # libvmaf takes no gray
        self.frames = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(av.error.FFmpegError):  # a full disk, which the writer has reported
            self._container.close()

    def add(self, levels: Levels) -> None:
        luma = np.rint(16 + levels * (219 / 255)).astype(np.uint8)
        middle = np.full_like(luma, 128)
        frame = av.VideoFrame.from_ndarray(np.stack((luma, middle, middle)), "yuv444p")
        self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def finish(self) -> None:
        """Complete the file, after all frames were added."""
        self._container.mux(self._stream.encode(None))
        self._container.close()


@cache
def ffmpeg_with_vmaf() -> str | None:
    """Return the path of an ffmpeg with libvmaf, if there is one: on the PATH, else in the package
    imageio-ffmpeg.
    """
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
