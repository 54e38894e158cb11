"""VMAF of a video, by an FFmpeg that has libvmaf: its default model, vmaf_v0.6.1."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import MediaError

Levels = NDArray[np.float64]
# Each frame is the restored one above the clean one.
_GRAPH = "split[a][b];[a]crop=iw:ih/2:0:0[restored];[b]crop=iw:ih/2:0:ih/2[clean];[restored][clean]libvmaf="


class Vmaf:
    """Measures VMAF of one clip in a separate FFmpeg: a context manager with a temporary folder."""

    def __init__(self, height: int, width: int, threads: int) -> None:
        self._size = f"{width}x{2 * height}"
        self._threads = threads
        self._frames = 0

    def __enter__(self) -> Self:
        ffmpeg = ffmpeg_with_vmaf()
        assert ffmpeg is not None, "checked by the caller"
        self._ffmpeg = ffmpeg
        self._temporary = TemporaryDirectory(prefix="vidrestore-")
        self._folder = Path(self._temporary.name)
        # libvmaf takes no gray
        pixels = ("-f", "rawvideo", "-pix_fmt", "yuv444p", "-s", self._size, "-i", "-")
        work = f"{_GRAPH}log_fmt=json:log_path=vmaf.json:n_threads={self._threads}"
        command = [ffmpeg, "-v", "error", *pixels, "-lavfi", work, "-f", "null", "-"]
        with (self._folder / "errors.txt").open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._temporary.cleanup()

    def add(self, restored: Levels, clean: Levels) -> None:
        """Add the next frame: gray levels (height, width), 0 to 255, measured as 8-bit limited-range luma."""
        # luma in limited range above gray chroma, as libvmaf takes no gray
        luma = np.rint(16 + np.concatenate((restored, clean)) * (219 / 255)).astype(
            np.uint8
        )
        assert self._process.stdin is not None
        with suppress(OSError):  # it ended early, which `values` reports
            self._process.stdin.write(luma.tobytes() + bytes([128]) * (2 * luma.size))
        self._frames += 1

    def values(self) -> tuple[float, ...]:
        """Return VMAF of each frame, after all were added. Raises MediaError if FFmpeg fails."""
        # the log is complete once the program has ended
        self._process.communicate()
        try:
            log = json.loads((self._folder / "vmaf.json").read_text(encoding="utf-8"))
            scores = tuple(frame["metrics"]["vmaf"] for frame in log["frames"])
        except (OSError, ValueError, KeyError):  # missing or incomplete
            scores = ()
        if self._process.returncode or len(scores) != self._frames:
            lines = (
                (self._folder / "errors.txt")
                .read_text(errors="replace")
                .strip()
                .splitlines()
            )
            raise MediaError(
                f"{self._ffmpeg}: ended with {self._process.returncode} while it measured VMAF: "
                f"{(lines or ['no message'])[-1]}; put another FFmpeg on the PATH"
            )
        return scores


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
    # not installed; installed without a binary for this system
    except (ImportError, RuntimeError):
        return None


def _has_vmaf(ffmpeg: str) -> bool:
    try:
        listed = subprocess.run(
            [ffmpeg, "-hide_banner", "-filters"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(line.split()[1:2] == ["libvmaf"] for line in listed.stdout.splitlines())
