"""Measure the speed of a restoration: each stage alone, and the command."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import OptionError
from vidrestore.jobs.frame_progress import peak_memory
from vidrestore.jobs.job import Job
from vidrestore.jobs.request import Request, Step, load_step
from vidrestore.jobs.run import open_job, restore_request
from vidrestore.jobs.steps import write_frames
from vidrestore.media.formats.source import Source, Target
from vidrestore.media.reading.probe import SourceInfo, StreamInfo
from vidrestore.media.writing.streams import EVERY_KIND
from vidrestore.media.writing.writer import VideoWriter
from vidrestore.pixels.frames import Frame, PixelFormat, VideoInfo
from vidrestore.settings.options import EncoderOptions, RestoreOptions
from vidrestore.working import threads_for

T = TypeVar("T")
SYNTHETIC_SIGMA = 20.0  # of the synthetic video's noise, 0-255 scale


@dataclass(frozen=True)
class Timing:
    """The time of one stage that runs alone."""

    name: str
    cpu: float  # seconds of all its threads
    seconds: float  # on the clock

    def per_frame(self, frames: int) -> Timing:
        return Timing(self.name, self.cpu / frames, self.seconds / frames)


@dataclass(frozen=True)
class Benchmark:
    """The speed of a restoration and of its stages."""

    source: str
    model: str
    cores: int
    stages: tuple[Timing, ...]  # per frame
    whole: Timing  # of the command, per frame
    memory: int | None  # bytes at the peak
    loading: float  # seconds until the model is loaded

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics as JSON values."""
        return asdict(self) | {
            name: getattr(self, name) for name in ("fps", "bound", "share")
        }

    @property
    def fps(self) -> float:
        return 1 / self.whole.seconds

    @property
    def bound(self) -> float:
        """Frames per second of a machine that does nothing but the stages' CPU work on all its cores."""
        return self.cores / sum(stage.cpu for stage in self.stages)

    @property
    def share(self) -> float:
        """The share of `bound` that the complete command reaches."""
        return self.fps / self.bound


def bench(
    source: str | None,
    *,
    task: str,
    options: RestoreOptions,
    size: tuple[int, int],
    frames: int,
) -> Benchmark:
    """Measure a restoration of `source`, by default of a synthetic video of `size` (width, height) with
    `frames` frames and noise.

    The stages work on the first `frames` frames in memory. The output is a temporary MKV. Raises
    VidRestoreError as `vidrestore.restore` does.
    """
    if source is not None and Source(source).is_pipe:
        raise OptionError(
            "bench reads its video more than once: name a file instead of a pipe"
        )
    # the video alone: copying other streams is no restoring
    options = replace(options, drop=EVERY_KIND)
    threads = threads_for(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        video = source or str(Path(folder) / "video.mkv")
        output = str(Path(folder) / "output.mkv")
        if source is None:
            write_video(video, *size, frames)
        # the whole command, as users run it
        began = time.perf_counter()
        restorer = load_step(step := Step(task, options))
        loading = time.perf_counter() - began
        request = Request(Source(video), Target(output), (step,))
        summary, whole = _timed(
            "whole", lambda: restore_request(request, lambda _: restorer)
        )
        whole = replace(whole, seconds=summary.seconds).per_frame(summary.frames)
        memory = peak_memory()
        # then each stage by itself, for the CPU time that it takes
        with open_job(request, lambda _: restorer) as job:
            stages = stages_of(job, frames)
    name = source or "a synthetic video"
    return Benchmark(name, restorer.facts.name, threads, stages, whole, memory, loading)


def stages_of(job: Job, limit: int) -> tuple[Timing, ...]:
    """Run each stage of a job alone, on its first `limit` frames. Planning decodes them, too."""
    frames, decode = _timed("decode", lambda: list(islice(job.decoded(), limit)))
    count = len(frames)  # a video may be shorter than asked for
    decoded = islice(job.decoded(), count)
    planned, plan = _timed(
        "plan", lambda: list(job.steps.planned(decoded, job.plan.timeline))
    )
    restored, model = _timed(
        "model", lambda: list(job.steps.first.frames(iter(planned)))
    )
    frames_again = (frame for frame in restored)
    _, encode = _timed(
        "encode",
        lambda: write_frames(frames_again, job.writer(copy=(), overwrite=True)),
    )
    return tuple(timing.per_frame(count) for timing in (decode, plan, model, encode))


def _timed(name: str, work: Callable[[], T]) -> tuple[T, Timing]:
    """Return what `work` returns, and the time it takes."""
    cpu, clock = time.process_time(), time.perf_counter()
    result = work()
    return result, Timing(name, time.process_time() - cpu, time.perf_counter() - clock)


def write_video(path: str, width: int, height: int, frames: int) -> None:
    """Write a texture that moves, under white noise of `SYNTHETIC_SIGMA` in every plane: yuv420p, FFV1."""
    # what a source would be described as
    pixels = PixelFormat("yuv420p", "yuv", 8, 1, 1)
    video = VideoInfo(
        0,
        "ffv1",
        width,
        height,
        pixels,
        Fraction(1, 24),
        Fraction(24),
        Fraction(24),
        pix_fmt=pixels.name,
    )
    info = SourceInfo("-", "made up", video, (StreamInfo(0, "video", "ffv1"),))
    # its frames, always the same
    draw = np.random.default_rng(0)
    sizes = [
        pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)
    ]

    def pictures() -> Generator[Frame]:
        for number in range(frames):
            yield Frame(
                tuple(_picture(draw, number, *size) for size in sizes), number, 1
            )

    write_frames(
        pictures(),
        VideoWriter(path, source=info, encoder=EncoderOptions(lossless=True)),
    )


def _picture(
    draw: np.random.Generator, number: int, height: int, width: int
) -> NDArray[np.uint8]:
    rows, columns = np.ogrid[:height, :width]
    # waves that move by 2 rows and 3 columns a frame
    down, across = (rows + 2 * number) / 9, (columns + 3 * number) / 13
    texture = 128 + 50 * np.sin(down) * np.cos(across)
    noisy = texture + draw.normal(0, SYNTHETIC_SIGMA, texture.shape)
    return np.rint(noisy).clip(0, 255).astype(np.uint8)
