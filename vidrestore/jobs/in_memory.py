"""Frames in memory, and a `Restorer` that keeps its weights loaded for them and for files."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from itertools import chain
from typing import Any, Self, TypeVar, Unpack, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.errors import Cancelled, OptionError, VidRestoreError
from vidrestore.event_log import Logged
from vidrestore.events import Event, Listener, Summary, ignore_event
from vidrestore.jobs.frame_progress import counted
from vidrestore.jobs.request import LoadedSteps, Step
from vidrestore.jobs.run import request_for, restore_request
from vidrestore.jobs.steps import Steps
from vidrestore.pixels.frames import Frame, PixelFormat, VideoInfo
from vidrestore.settings.options import (
    RestoreKeywords,
    RestoreOptions,
    Scope,
    changed_values,
    chosen_options,
)

BYTES, FLOATS = PixelFormat("gbrp", "rgb", 8), PixelFormat("gbrpf32le", "rgb", 32)
MOST_BEYOND = 0.5  # of float frames below 0 and above 1
MEMORY_SOURCE = "frames in memory"  # the source in events

Frames = TypeVar("Frames", NDArray[Any], Tensor)


def restore_frames(
    frames: Frames,
    *,
    task: str = "denoise",
    options: RestoreOptions | None = None,
    on_event: Listener | None = None,
    **overrides: Unpack[RestoreKeywords],
) -> Frames:
    """Restore consecutive frames of R'G'B', a NumPy array or a tensor (T, H, W, 3), and return them as the
    same type.

    uint8 holds 0 to 255, floats hold 0 to 1 (and are not clipped; far beyond is an error). OpenCV has B'G'R',
    which nothing shows: pass `frames[..., ::-1]`, and reverse the result likewise. The frames are
    those that `vidrestore.restore` writes for a video with these pixels. A `Restorer` keeps the weights for
    further calls. Raises VidRestoreError, also for options that concern files.

    Args:
        frames (array or tensor): The frames (T, H, W, 3), uint8 or any float type.
        task (str): As that of `vidrestore.restore`; default "denoise"; "sr" returns frames four times larger.
        options (RestoreOptions): Settings of the restoration; default None: those of `RestoreOptions()`.
        on_event (callable): Called with every event of the call; what it raises ends the call and is raised
            here; default None: events are only logged.
        overrides: Fields of RestoreOptions by name (`sigma=20`), which win over `options`.
    """
    restorer = Restorer(task, options=options, **overrides)
    if not isinstance(frames, np.ndarray | Tensor):
        raise OptionError(
            f"frames must be an array or a tensor (T, H, W, 3), got {type(frames).__name__}"
        )
    restored: Frames = restorer(frames, on_event=on_event)
    return restored


class Restorer:
    """Restores frames and files by one task; its weights are loaded once, when it is made.

        restorer = vidrestore.Restorer("denoise", sigma=20)
        restored = restorer(frames)                 # an array or tensor (T, H, W, 3), as `restore_frames`
        for frame in restorer(camera()):            # any iterable of arrays or tensors (H, W, 3)
            show(frame)
        summary = restorer("in.mp4", "out.mp4")     # a file, as `vidrestore.restore`

    Frames of an iterable come out in order, as many as go in, some clips later; it is read in another thread,
    no further ahead than memory for two clips allows. `on_event` is called with the events of a call; what it
    raises ends the call and is raised there; `cancel` ends it from anywhere.

    It does one thing at a time and is not safe to share between threads: a call while another runs, or an
    iterator is not exhausted or closed, raises VidRestoreError. Make one for each thread. Raises
    VidRestoreError for a wrong task, option or model. As a context manager it is closed at the end.

    Args:
        task (str): As that of `vidrestore.restore`; default "denoise".
        options (RestoreOptions): Settings of the restoration; default None: those of `RestoreOptions()`.
        overrides: Fields of RestoreOptions by name (`sigma=20`), which win over `options`.
    """

    def __init__(
        self,
        task: str = "denoise",
        *,
        options: RestoreOptions | None = None,
        **overrides: Unpack[RestoreKeywords],
    ) -> None:
        self.options = chosen_options(RestoreOptions, options, overrides)
        self._step = Step(task, self.options)
        self._loaded = LoadedSteps()
        self._loaded(self._step)
        self._is_closed = False
        self._at_work, self._cancelled = threading.Lock(), threading.Event()

    @overload
    def __call__(  # type: ignore[overload-overlap]   # arrays are iterable, too
        self, source: Frames, *, on_event: Listener | None = None
    ) -> Frames: ...

    @overload
    def __call__(
        self,
        source: str | os.PathLike[str],
        output: str | os.PathLike[str] | None = None,
        *,
        on_event: Listener | None = None,
    ) -> Summary: ...

    @overload
    def __call__(
        self, source: Iterable[Frames], *, on_event: Listener | None = None
    ) -> Generator[Frames]: ...

    def __call__(
        self, source: Any, output: Any = None, *, on_event: Listener | None = None
    ) -> Any:
        """Restore frames or a file, and return what was restored: the same type for an array or a tensor, an
        iterator for an iterable, a Summary for a file.

        Args:
            source: An array or tensor (T, H, W, 3), an iterable of arrays or tensors (H, W, 3), or the path
                of a file.
            output (str or path): File to write if `source` is a file; default None: one beside it.
            on_event (callable): Called with every event of the call; default None: events are only logged.
        """
        # a file: by the same path as `restore`
        if isinstance(source, str | os.PathLike):
            with self._working(on_event) as listen:
                request = request_for(source, output, self._step)
                return restore_request(request, self._loaded, listen)
        if not isinstance(source, Iterable) or isinstance(source, bytes):
            raise OptionError(
                f"expected an array, a file or an iterable of frames, got {type(source).__name__}"
            )
        # frames in memory have no streams, and no place to resume from
        if output is not None:
            raise OptionError("`output` is for files; frames in memory are returned")
        if settings := changed_values(self.options, "file", "streams", "call", "job"):
            raise OptionError(
                f"{', '.join(settings)}: only for files, not for frames in memory"
            )
        if isinstance(source, np.ndarray | Tensor):
            _check_shape(source, 4)
            return _joined(self._frames(source, len(source), on_event), len(source))
        return self._frames(source, None, on_event)

    def cancel(self) -> None:
        """End the call that runs, from any thread or its `on_event`: at its next frame it raises `Cancelled`.
        The restored frames of a file are kept, and the same call resumes.
        """
        self._cancelled.set()

    def close(self) -> None:
        """End the call that runs, as `cancel` does, and free the weights; later calls are an error."""
        self.cancel()
        self._loaded, self._is_closed = LoadedSteps(), True

    def __repr__(self) -> str:
        settings = {
            "task": self._step.task,
            **changed_values(self.options, *get_args(Scope)),
        }
        return f"Restorer({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _frames(
        self, frames: Iterable[Frames], count: int | None, on_event: Listener | None
    ) -> Generator[Frames]:
        """Yield the restored frames of an iterable, each of the type and kind of its own."""
        with self._working(on_event) as listen:
            iterator = iter(frames)
            # the first frame decides type and size, so that none is taken before one is asked for
            if (first := next(iterator, None)) is None:
                return
            height, width = _check_shape(first, 3)[:2]
            pixels = _pixel_format(first)
            video = VideoInfo(
                0,
                "rawvideo",
                width,
                height,
                pixels,
                Fraction(1, 25),
                pix_fmt=pixels.name,
            )
            steps = Steps([self._step], [self._loaded(self._step)], video)
            decoded = _decoded(chain([first], iterator), first)
            with closing(steps.frames(decoded, steps.first.timeline([]))) as restored:
                for frame in counted(restored, MEMORY_SOURCE, count, "restore", listen):
                    self._check_cancelled()
                    yield _like(first, frame)

    @contextmanager
    def _working(self, on_event: Listener | None) -> Iterator[Listener]:
        """Yield the listener of a call. Raises VidRestoreError if there is another, or after `close`."""
        if self._is_closed:
            raise VidRestoreError("this Restorer is closed; make another one")
        if not self._at_work.acquire(blocking=False):
            raise VidRestoreError(
                "this Restorer is at work; let that call end, exhaust or close its iterator, or make another "
                "Restorer"
            )
        self._cancelled.clear()
        logged = Logged(on_event or ignore_event)

        def listen(event: Event) -> None:
            logged(event)
            self._check_cancelled()

        try:
            yield listen
        finally:
            self._at_work.release()

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("cancelled")


def _joined(frames: Iterator[Any], count: int) -> Any:
    """Return `count` frames as one array or tensor."""
    first = next(frames)
    # the first result has the size and type of all
    empty = torch.empty if isinstance(first, Tensor) else np.empty
    joined = empty((count, *first.shape), dtype=first.dtype)
    for number, frame in enumerate(chain([first], frames)):
        joined[number] = frame
    return joined


def _check_shape(frames: NDArray[Any] | Tensor, dimensions: int) -> tuple[int, ...]:
    """Return the shape. Raises OptionError for another than (T, H, W, 3), or (H, W, 3) of a single frame."""
    shape = tuple(getattr(frames, "shape", ()))
    if len(shape) != dimensions or shape[-1] != 3 or 0 in shape:
        expected = (
            "frames must have the shape (T, H, W, 3)"
            if dimensions == 4
            else "a frame must be (H, W, 3)"
        )
        raise OptionError(
            f"{expected}, got {shape or type(frames).__name__}{_way_to(frames, shape, dimensions)}"
        )
    return shape


def _way_to(frames: Any, shape: tuple[int, ...], dimensions: int) -> str:
    """Return the expression that makes what is expected of something else, after a semicolon; empty for what
    can't be recognised.
    """
    # the ways to `T, H, W, C` and `H, W, C`
    order = (0, 2, 3, 1) if dimensions == 4 else (1, 2, 0)
    transpose = "permute" if isinstance(frames, Tensor) else "transpose"
    ways = {
        "no pixels are in it": 0 in shape,
        'of PyAV it is frame.to_ndarray(format="rgb24")': hasattr(frames, "to_ndarray"),
        'of Pillow it is numpy.asarray(picture.convert("RGB"))': hasattr(
            frames, "convert"
        ),
        "one frame is frames[None]": dimensions == 4
        and len(shape) == 3
        and shape[-1] == 3,
        f"channels come last: {transpose}{order}": len(shape) == dimensions
        and shape[dimensions - 3] == 3,
        "without transparency it is frames[..., :3]": len(shape) == dimensions
        and shape[-1] == 4,
    }
    return next((f"; {way}" for way, is_fit in ways.items() if is_fit), "")


def _pixel_format(frame: NDArray[Any] | Tensor) -> PixelFormat:
    """Return the format of the samples. Raises OptionError for another type."""
    name = str(frame.dtype).removeprefix("torch.")
    if name != "uint8" and "float" not in name:
        way = (
            "; of 16 bits, divide by 65535, as in (frames / 65535)"
            if name == "uint16"
            else ""
        )
        raise OptionError(
            f"frames must be uint8 (0 to 255) or floats (0 to 1), got {name}{way}"
        )
    return BYTES if name == "uint8" else FLOATS


def _decoded(frames: Iterable[Frames], first: Frames) -> Iterator[Frame]:
    """Yield frames as the decoder does. Raises OptionError for one unlike the first."""
    for number, frame in enumerate(frames):
        if (_check_shape(frame, 3), frame.dtype) != (first.shape, first.dtype):
            kind, first_kind = (
                f"{tuple(picture.shape)} {picture.dtype}" for picture in (frame, first)
            )
            raise OptionError(
                f"frame {number} is {kind}, the first one {first_kind}; all must be alike"
            )
        samples = _as_array(frame)
        _check_range(samples)
        yield Frame(
            tuple(np.ascontiguousarray(samples[..., channel]) for channel in range(3)),
            number,
            1,
        )


def _check_range(frames: NDArray[Any]) -> None:
    """Raise OptionError for floats that are far from 0 to 1, such as grey levels or [-1, 1]; a little beyond
    is left by filters that overshoot.
    """
    least, most = float(frames.min()), float(frames.max())
    if frames.dtype != np.uint8 and not (
        least >= -MOST_BEYOND and most <= 1 + MOST_BEYOND
    ):
        raise OptionError(
            f"float frames hold 0 to 1, these {least:g} to {most:g}; divide 0 to 255 by 255 (or pass uint8), "
            "scale other ranges"
        )


def _as_array(frames: NDArray[Any] | Tensor) -> NDArray[Any]:
    """Return the same samples, uint8 or float32, as an array."""
    # without a copy where that can be
    if isinstance(frames, Tensor):
        if frames.layout is not torch.strided or frames.is_meta:
            raise OptionError(
                f"frames must be dense tensors with values, got {frames.layout} on {frames.device}"
            )
        frames = (
            (frames.float() if frames.is_floating_point() else frames)
            .detach()
            .cpu()
            .numpy()
        )
    return np.asarray(frames, np.uint8 if frames.dtype == np.uint8 else np.float32)


def _like(first: Frames, frame: Frame) -> Frames:
    """Return a restored frame as the type of the first one."""
    samples = np.stack(frame.planes, axis=-1)
    if isinstance(first, Tensor):
        return torch.from_numpy(samples).to(first.device, first.dtype)
    return samples.astype(first.dtype, copy=False)
