"""VMAF of a video, by an FFmpeg that has libvmaf: its default model, vmaf_v0.6.1."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import MediaError

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
        process = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, errors="replace")
        try:
            log = json.loads((self._folder / "vmaf.json").read_text(encoding="utf-8"))
            scores = tuple(frame["metrics"]["vmaf"] for frame in log["frames"])
        except (OSError, ValueError, KeyError):  # missing or incomplete
            scores = ()
        if process.returncode or len(scores) != self._frames:
            lines = process.stderr.strip().splitlines() or ["no message"]
            raise MediaError(
                f"{ffmpeg}: ended with {process.returncode} while it measured VMAF: {lines[-1]}; put another "
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
