"""Metrics besides PSNR and SSIM, from libraries that need no weights downloaded: MS-SSIM and VIF by torchmetrics, VMAF by FFmpeg.

All three see the gray picture (BT.601 of 8-bit R, G, B, as `frames.grey` weighs it): MS-SSIM (Z. Wang et al., "Multiscale structural
similarity for image quality assessment", 2003) and VIF in the pixel domain (H. R. Sheikh and A. C. Bovik, "Image information and visual
quality", IEEE TIP 2006) on the 0-255 scale, VMAF with libvmaf's default model (vmaf_v0.6.1) in the range of video, 16 to 235, in 8 bits.
VMAF is the only one that looks at motion; a clip's frames must come in order. VIF is a share of the information in the clean frame; for one
of a single level, which holds none, it is defined here as 1 where the restored frame is equal, else 0.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, Self

import av
import torch
from av.video.stream import VideoStream
from torch import Tensor

from vidrestore.errors import DatasetError, MediaError, OptionError
from vidrestore.evaluation.frames import GREY

MS_SSIM, VIF, VMAF = "ms-ssim", "vif", "vmaf"
NAMES = (MS_SSIM, VIF, VMAF)
SMALLEST = {MS_SSIM: 176, VIF: 41, VMAF: 33}  # pixels of the shorter side; in less libvmaf's figures are wrong
LINES = {
    MS_SSIM: "of BT.601 gray of frames in 8 bits, by torchmetrics",
    VIF: "in the pixel domain, of BT.601 gray of frames in 8 bits, by torchmetrics",
    VMAF: "libvmaf's default model, of BT.601 luma in the range of video in 8 bits, by FFmpeg",
}
INSTALL = 'pip install "vidrestore[metrics]"'


class Metric(Protocol):
    """One metric of one clip."""

    def add(self, restored: Tensor, clean: Tensor) -> None:
        """The next frame: gray levels (H, W), float64, 0 to 255."""
        ...

    def values(self) -> tuple[float, ...]:
        """Of each frame, once all were added."""
        ...


class FurtherMetrics:
    """The metrics `names` of one clip of frames (..., H, W) = `shape`; a context that holds files while it is open.

    Raises DatasetError for frames that are too small for one of them.
    """

    def __init__(self, names: Sequence[str], shape: Sequence[int]) -> None:
        self._names, self._size = names, (shape[-2], shape[-1])
        for name in names:
            if min(self._size) < SMALLEST[name]:
                raise DatasetError(f"frames of {shape[-1]}x{shape[-2]} are too small for {name}, {needs(name)}")

    def __enter__(self) -> Self:
        self._open = ExitStack()
        self._metrics: dict[str, Metric] = {
            name: self._open.enter_context(Vmaf(*self._size)) if name == VMAF else OfFrames(_of_torchmetrics(name)) for name in self._names
        }
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, restored: Tensor, clean: Tensor) -> None:
        """The next frame, (C, H, W) uint8 each: gray or R, G, B."""
        if self._metrics:
            pair = gray_levels(restored), gray_levels(clean)
            for metric in self._metrics.values():
                metric.add(*pair)

    def frames(self) -> dict[str, tuple[float, ...]]:
        """Every metric frame by frame, once all frames were added. Raises MediaError where FFmpeg fails."""
        return {name: metric.values() for name, metric in self._metrics.items()}


def needs(name: str) -> str:
    return f"which needs {SMALLEST[name]} lines and columns; leave it out of --metrics"


def gray_levels(picture: Tensor) -> Tensor:
    """(1, H, W) or (3, H, W) uint8 -> (H, W) float64, 0 to 255, not rounded."""
    weights = GREY if len(picture) == 3 else (1.0,)
    levels: Tensor = torch.tensordot(torch.tensor(weights, dtype=torch.float64), picture.double(), dims=1)
    return levels


def check_metrics(names: Sequence[str]) -> None:
    """OptionError for a metric that there is not, or whose library isn't installed."""
    if unknown := [name for name in names if name not in NAMES]:
        raise OptionError(f"no metric {', '.join(unknown)} besides PSNR and SSIM; there are: {', '.join(NAMES)}")
    for name in names:
        if name == VMAF:
            ffmpeg_with_vmaf()
        else:
            _of_torchmetrics(name)


def lines_of(names: Sequence[str]) -> tuple[str, ...]:
    """How they are measured, for a reader."""
    return tuple(f"{name}: {LINES[name]}" for name in names)


class OfFrames:
    """A metric of single pictures."""

    def __init__(self, measure: Callable[[Tensor, Tensor], float]) -> None:
        self._measure = measure
        self._values: list[float] = []

    def add(self, restored: Tensor, clean: Tensor) -> None:
        self._values.append(self._measure(restored, clean))

    def values(self) -> tuple[float, ...]:
        return tuple(self._values)


def _of_torchmetrics(name: str) -> Callable[[Tensor, Tensor], float]:
    """Gray levels (H, W) of a picture and its reference -> the metric. Raises OptionError where torchmetrics isn't installed."""
    try:
        library = import_module("torchmetrics.functional.image")
    except ImportError as error:
        raise OptionError(f"{name} needs torchmetrics, which is not installed: {INSTALL}") from error
    if name == VIF:

        def vif(restored: Tensor, clean: Tensor) -> float:
            if clean.max() == clean.min():
                return float(torch.equal(restored, clean))
            return float(library.visual_information_fidelity(_batch(restored), _batch(clean)))

        return vif
    several = library.multiscale_structural_similarity_index_measure
    return lambda restored, clean: float(several(_batch(restored), _batch(clean), data_range=255.0))


def _batch(levels: Tensor) -> Tensor:
    return levels.float()[None, None]  # in float64 it takes ten times as long, for the same six digits


class Vmaf:
    """VMAF of one clip, in an FFmpeg of its own; a context that holds both films, stored without loss in a temporary folder."""

    def __init__(self, height: int, width: int) -> None:
        self._size = (height, width)

    def __enter__(self) -> Self:
        self._open = ExitStack()
        self._folder = Path(self._open.enter_context(TemporaryDirectory(prefix="vidrestore-")))
        with self._writing():
            paths = (self._folder / f"{name}.mkv" for name in ("restored", "clean"))
            self._films = [self._open.enter_context(LosslessFilm(path, *self._size)) for path in paths]
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, restored: Tensor, clean: Tensor) -> None:
        with self._writing():
            for film, levels in zip(self._films, (restored, clean), strict=True):
                film.add(levels)

    def values(self) -> tuple[float, ...]:
        with self._writing():
            for film in self._films:
                film.finish()
        threads = torch.get_num_threads()
        work = f"[0:v][1:v]libvmaf=log_fmt=json:log_path=vmaf.json:n_threads={threads}"
        command = [
            ffmpeg_with_vmaf(),
            "-v",
            "error",
            "-nostdin",
            "-i",
            "restored.mkv",
            "-i",
            "clean.mkv",
            "-lavfi",
            work,
            "-f",
            "null",
            "-",
        ]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, errors="replace")
        try:
            scores = tuple(_scores(json.loads((self._folder / "vmaf.json").read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError):  # nothing there, or half of it
            scores = ()
        if done.returncode or len(scores) != self._films[0].frames:
            said = done.stderr.strip().splitlines() or ["it said nothing"]
            raise MediaError(f"{command[0]}: ended with {done.returncode} while it measured VMAF: {said[-1]}; leave vmaf out of --metrics")
        return scores

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except av.error.FFmpegError as error:
            reason = f"can't hold the films that VMAF is measured of ({error.strerror})"
            raise MediaError(f"{self._folder}: {reason}; make room there, or name another folder with TMPDIR") from error


def _scores(log: Mapping[str, Any]) -> Iterator[float]:
    for frame in log["frames"]:
        yield frame["metrics"]["vmaf"]


class LosslessFilm:
    """A film of gray levels as luma in the range of video, in 8 bits (FFV1)."""

    def __init__(self, path: Path, height: int, width: int) -> None:
        self._container = av.open(str(path), "w")
        self._stream: VideoStream = self._container.add_stream("ffv1", rate=25)
        self._stream.height, self._stream.width = height, width
        self._stream.pix_fmt = "yuv444p"  # libvmaf takes no gray
        self.frames = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(av.error.FFmpegError):  # of a disk that is full: who wrote has said so
            self._container.close()

    def add(self, levels: Tensor) -> None:
        luma = levels.mul(219 / 255).add_(16).round_().to(torch.uint8)
        middle = torch.full_like(luma, 128)
        frame = av.VideoFrame.from_ndarray(torch.stack((luma, middle, middle)).numpy(), "yuv444p")
        self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def finish(self) -> None:
        """All frames are there; after this the file is whole."""
        self._container.mux(self._stream.encode(None))
        self._container.close()


@cache
def ffmpeg_with_vmaf() -> str:
    """The path of an ffmpeg with libvmaf: that on the PATH, else the one of the package imageio-ffmpeg. Raises OptionError without one."""
    candidates = [shutil.which("ffmpeg"), _packaged_ffmpeg()]
    for path in candidates:
        if path and _has_vmaf(path):
            return str(Path(path).absolute())  # it runs in another folder
    found = ", ".join(path for path in candidates if path)
    without = f"{found} has none" if found else "there is none on the PATH"
    raise OptionError(f"vmaf needs an ffmpeg with libvmaf, and {without}; put one on the PATH, or: {INSTALL}")


def _packaged_ffmpeg() -> str | None:
    try:
        return str(import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed; installed without a binary for this system
        return None


def _has_vmaf(ffmpeg: str) -> bool:
    try:
        listed = subprocess.run([ffmpeg, "-hide_banner", "-filters"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(line.split()[1:2] == ["libvmaf"] for line in listed.stdout.splitlines())
