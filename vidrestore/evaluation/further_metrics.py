"""Metrics besides PSNR and SSIM, from libraries that need no weights downloaded: MS-SSIM and VIF by torchmetrics, VMAF by FFmpeg.

All three see the gray picture (BT.601 of 8-bit R, G, B, as `frames.grey` weighs it): MS-SSIM (Z. Wang et al., "Multiscale structural
similarity for image quality assessment", 2003) and VIF in the pixel domain (H. R. Sheikh and A. C. Bovik, "Image information and visual
quality", IEEE TIP 2006) on the 0-255 scale, VMAF with libvmaf's default model (vmaf_v0.6.1) in the range of video, 16 to 235, in 8 bits.
VMAF is the only one that looks at motion; a clip's frames must come in order. VIF is a share of the information in the clean frame; for one
of a single level, which holds none, it is defined here as 1 where the restored frame is equal, else 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Protocol, Self

import torch
from torch import Tensor

from vidrestore.errors import DatasetError, OptionError
from vidrestore.evaluation.sequence_frames import GREY
from vidrestore.media.vmaf import INSTALL, Vmaf, ffmpeg_with_vmaf

MS_SSIM, VIF, VMAF = "ms-ssim", "vif", "vmaf"
NAMES = (MS_SSIM, VIF, VMAF)
SMALLEST = {MS_SSIM: 176, VIF: 41, VMAF: 33}  # pixels of the shorter side; in less libvmaf's figures are wrong
LINES = {
    MS_SSIM: "of BT.601 gray of frames in 8 bits, by torchmetrics",
    VIF: "in the pixel domain, of BT.601 gray of frames in 8 bits, by torchmetrics",
    VMAF: "libvmaf's default model, of BT.601 luma in the range of video in 8 bits, by FFmpeg",
}


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
            name: OfFilms(self._open.enter_context(Vmaf(*self._size))) if name == VMAF else OfFrames(_of_torchmetrics(name))
            for name in self._names
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


class OfFilms:
    """A metric of frames in order."""

    def __init__(self, film: Vmaf) -> None:
        self._film = film

    def add(self, restored: Tensor, clean: Tensor) -> None:
        self._film.add(restored.numpy(), clean.numpy())

    def values(self) -> tuple[float, ...]:
        return self._film.values(torch.get_num_threads())


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
