"""Frames in memory restored as the commands restore videos."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.errors import OptionError
from vidrestore.frames import Frame, PixelFormat, enlarged_size
from vidrestore.jobs.steps import Step, Steps, load_step
from vidrestore.media.probe import VideoInfo
from vidrestore.options import RestoreOptions, changed_values

BYTES, FLOATS = PixelFormat("gbrp", "rgb", 8), PixelFormat("gbrpf32le", "rgb", 32)

OVERSHOOT = 0.5  # of float frames below 0 and above 1

Frames = TypeVar("Frames", NDArray[Any], Tensor)


def restore_frames(
    frames: Frames,
    *,
    task: str = "denoise",
    sigma: float | Literal["auto"] | None = None,
    options: RestoreOptions | None = None,
    **overrides: Any,
) -> Frames:
    """Restore consecutive frames of R'G'B', a NumPy array or a tensor (T, H, W, 3), and return them as the
    same type.

    uint8 holds 0 to 255, floats hold 0 to 1 (and are not clipped; far beyond is an error). The frames are
    those that `vidrestore.restore` writes for a video with these pixels; `task`, `sigma`, `options` and
    `overrides` are as there, but for what concerns files. The task `sr` returns frames four times larger.
    Raises VidRestoreError.
    """
    chosen = replace(options or RestoreOptions(), **overrides)
    if sigma is not None:
        chosen = replace(chosen, sigma=sigma)
    _check_options(chosen)
    pixels, samples = _pixel_format(frames), _as_array(frames)
    _check_range(samples)
    restored = _restored(samples, pixels, task, chosen)
    if isinstance(frames, Tensor):
        return torch.from_numpy(restored).to(frames.device, frames.dtype)
    return restored.astype(frames.dtype, copy=False)


def _check_options(options: RestoreOptions) -> None:
    """Refuse options that only files have."""
    if given := changed_values(options, "file", "streams", "call", "job"):
        raise OptionError(f"{', '.join(given)}: only for files, not for frames in memory")


def _pixel_format(frames: NDArray[Any] | Tensor) -> PixelFormat:
    """Return the format of the samples. Raises OptionError for frames of another shape or type."""
    if frames.ndim != 4 or frames.shape[3] != 3 or 0 in frames.shape:
        raise OptionError(f"frames must have the shape (T, H, W, 3), got {tuple(frames.shape)}")
    name = str(frames.dtype).removeprefix("torch.")
    if name != "uint8" and "float" not in name:
        raise OptionError(f"frames must be uint8 (0 to 255) or floats (0 to 1), got {name}")
    return BYTES if name == "uint8" else FLOATS


def _check_range(frames: NDArray[Any]) -> None:
    """Raise OptionError for floats that are far from 0 to 1, such as grey levels or [-1, 1]; a little beyond
    is left by filters that overshoot.
    """
    least, most = float(frames.min()), float(frames.max())
    if frames.dtype != np.uint8 and not (least >= -OVERSHOOT and most <= 1 + OVERSHOOT):
        raise OptionError(
            f"float frames hold 0 to 1, these {least:g} to {most:g}; divide 0 to 255 by 255 (or pass uint8), "
            "scale other ranges"
        )


def _as_array(frames: NDArray[Any] | Tensor) -> NDArray[Any]:
    """Return the same samples, uint8 or float32, as an array."""
    if isinstance(frames, Tensor):
        frames = (frames.float() if frames.is_floating_point() else frames).detach().cpu().numpy()
    return np.asarray(frames, np.uint8 if frames.dtype == np.uint8 else np.float32)


def _restored(source: NDArray[Any], pixels: PixelFormat, task: str, options: RestoreOptions) -> NDArray[Any]:
    """Plan, restore and join, in pieces of a clip."""
    step, (count, height, width, _) = Step(task, options), source.shape
    video = VideoInfo(0, "rawvideo", width, height, pixels, Fraction(1, 25), pix_fmt=pixels.name)
    steps = Steps([step], [load_step(step)], video)
    size = enlarged_size(height, width, steps.scale)
    restored = np.empty((count, *size, 3), source.dtype)
    with closing(steps.frames(_frames(source), steps.first.timeline([]))) as done:
        for target, frame in zip(restored, done, strict=True):
            for channel, plane in enumerate(frame.planes):
                target[..., channel] = plane
    return restored


def _frames(source: NDArray[Any]) -> Iterator[Frame]:
    for pts, picture in enumerate(source):
        yield Frame(tuple(np.ascontiguousarray(picture[..., channel]) for channel in range(3)), pts, 1)
