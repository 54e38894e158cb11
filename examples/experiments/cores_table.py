#!/usr/bin/env python3
"""Measure how the commands use the cores: wall and CPU seconds with one worker and with all, idle and beside
busy loops.

    cores_table.py [TASK ...] [--busy 2] [--repeat 2] [--small]
    cores_table.py --parts 8

Sources are drawn: a texture that moves, in noise, for `deblur` along a path of 9 pixels. The time of the same
command for a picture of 64x64 pixels, its start, is left out. Of several runs the fastest counts. Let nothing
else run. `--parts N` counts for 1080p what N cores could work on at the same time, without running it.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.working import available_cores


class Work(NamedTuple):
    """A command and the frames that it restores."""

    task: str
    width: int
    height: int
    frames: int
    suffix: str = ".mkv"  # of the source; .png with %d: one file a frame
    files: int = 1  # sources that are alike, restored by one command

    @property
    def arguments(self) -> list[str]:
        return (
            ["--sigma", "12"]
            if self.task == "denoise" and self.suffix == ".mkv"
            else []
        )


WORKS = {
    "photograph 2 MP": Work("denoise", 1920, 1080, 1, ".jpg"),
    "photograph 12 MP": Work("denoise", 4000, 3000, 1, ".jpg"),
    "four frames": Work("denoise", 960, 540, 4, "%d.png"),
    "clips": Work("denoise", 640, 360, 100),
    "derain": Work("derain", 854, 480, 8),
    "dehaze": Work("dehaze", 854, 480, 8),
    "deblur": Work("deblur", 640, 360, 8),
    "sr": Work("sr", 320, 180, 8),
    "photographs": Work("denoise", 640, 480, 1, ".jpg", 8),
    "short clips": Work("denoise", 320, 180, 8, files=4),
}
SMALL = 10  # divides the sides of small ones
NOISE = {"denoise": 12.0, "deblur": 1.0}  # grey levels
PATH = 9  # pixels of motion blur
START_SIDE = 64


class Cost(NamedTuple):
    """Seconds of a command."""

    wall: float
    cpu: float

    def __sub__(self, other: object) -> Cost:
        assert isinstance(other, Cost)
        return Cost(self.wall - other.wall, self.cpu - other.cpu)


def drawn(work: Work, number: int) -> NDArray[np.uint8]:
    """Return frame `number` (H, W, 3) of a work's source."""
    rng = np.random.default_rng(number)
    pattern = np.random.default_rng(1).normal(0, 1, (work.height + 8, work.width + 64))
    smooth = sum(
        np.roll(pattern, (down, right), (0, 1))
        for down in range(6)
        for right in range(6)
    )
    picture = 120 + 9 * np.roll(smooth, -2 * number, 1)
    if work.task == "deblur":
        picture = np.mean(
            [picture[:, step : step + work.width] for step in range(PATH)], 0
        )
    noise = rng.normal(0, NOISE.get(work.task, 2.0), (work.height, work.width, 3))
    levels = picture[: work.height, : work.width, None] + noise
    return np.rint(levels).clip(0, 255).astype(np.uint8)


def write_source(work: Work, folder: Path) -> Path:
    """Write the sources of a work, and return the name of the first."""
    path = folder / f"source{work.suffix}"
    codec, pixels = {".jpg": ("mjpeg", "yuvj420p"), ".mkv": ("ffv1", "yuv420p")}.get(
        work.suffix, ("png", "rgb24")
    )
    with av.open(str(path), "w", format="image2" if codec != "ffv1" else None) as file:
        stream = file.add_stream(
            codec,
            rate=24,
            options={"qmin": "2", "qmax": "2"} if codec == "mjpeg" else {},
        )
        stream.width, stream.height, stream.pix_fmt = work.width, work.height, pixels  # type: ignore[attr-defined]
        for number in range(work.frames):
            frame = av.VideoFrame.from_ndarray(
                drawn(work, number), format="rgb24"
            ).reformat(format=pixels)
            frame.pts, frame.time_base = number, Fraction(1, 24)
            file.mux(stream.encode(frame))  # type: ignore[attr-defined]
        file.mux(stream.encode())  # type: ignore[attr-defined]
    for number in range(1, work.files):
        shutil.copy(path, folder / f"source{number}{work.suffix}")
    return path


def cost_of(work: Work, source: Path, threads: int) -> Cost:
    """Return the cost of a command that restores a source, and those beside it if the work has several."""
    output = source.with_name("out.jpg" if work.suffix == ".jpg" else "out.mkv")
    more = ["--encoder", "ffv1"] if output.suffix == ".mkv" else []
    more += ["--fps", "24"] if "%" in work.suffix else []
    sources = [source]
    if work.files > 1:
        sources, output = (
            sorted(source.parent.glob(f"source*{work.suffix}")),
            source.with_name("results"),
        )
    command = [
        sys.executable,
        "-m",
        "vidrestore",
        work.task,
        *map(str, sources),
        "-o",
        str(output),
    ]
    command += [
        "--overwrite",
        "--quiet",
        "--device",
        "cpu",
        "--threads",
        str(threads),
        *work.arguments,
        *more,
    ]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True)
    wall, after = (
        time.perf_counter() - began,
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return Cost(
        wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    )


def fastest(work: Work, source: Path, threads: int, repeat: int) -> Cost:
    return min(cost_of(work, source, threads) for _ in range(repeat))


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Let endless loops run in other processes."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()  # its time isn't that of a command


def measure(
    names: Sequence[str], loops: int, repeat: int, shrink: int
) -> Iterator[str]:
    """Yield a table in Markdown, a row for each work."""
    cores = available_cores()
    heads = (
        "work",
        "wall 1",
        f"wall {cores}",
        "times",
        "CPU 1",
        f"CPU {cores}",
        "ratio",
        "busy: wall",
        "CPU",
        "ratio",
    )
    yield f"| {' | '.join(heads)} |\n|---|{'---|' * (len(heads) - 1)}"
    for name in names:
        work = WORKS[name]
        work = work._replace(
            width=work.width // shrink // 2 * 2, height=work.height // shrink // 2 * 2
        )
        tiny = work._replace(
            width=START_SIDE,
            height=START_SIDE,
            frames=1,
            suffix=work.suffix.replace("%d", "1"),
            files=1,
        )
        with TemporaryDirectory() as folder, TemporaryDirectory() as other:
            source, start_source = (
                write_source(work, Path(folder)),
                write_source(tiny, Path(other)),
            )
            start = fastest(tiny, start_source, 1, repeat)
            one, several = (
                fastest(work, source, count, repeat) - start for count in (1, cores)
            )
            with busy(loops):
                beside = cost_of(work, source, cores) - start
        numbers = (
            one.wall,
            several.wall,
            one.wall / several.wall,
            one.cpu,
            several.cpu,
            several.cpu / one.cpu,
        )
        numbers = *numbers, beside.wall, beside.cpu, beside.cpu / several.cpu
        yield f"| {name} | {' | '.join(f'{number:.2f}' for number in numbers)} |"


def parts(cores: int) -> Iterator[str]:
    """Yield a table in Markdown: workers and clips that memory allows for 1080p, what these have for workers
    to do at the same time, and why that is less than the cores could do. A clip of R'G'B' frames gives those
    that it doesn't share.
    """
    from vidrestore.models.nonlocal_bayes import CHUNK
    from vidrestore.pipeline.clip_restorer import ClipRestorer
    from vidrestore.pixels.frames import PixelFormat, VideoInfo
    from vidrestore.restorers.base import load_restorer
    from vidrestore.restorers.devices import CPU_MEMORY
    from vidrestore.settings.options import RestoreOptions

    pixels = PixelFormat("yuv420p", "yuv", 8, 1, 1)
    video = VideoInfo(
        0, "h264", 1920, 1080, pixels, Fraction(1, 24), pix_fmt=pixels.name
    )
    heads = (
        "task",
        "workers",
        "clips at once",
        "parts at once",
        "at work",
        "why not more",
    )
    yield f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"
    for task in ("denoise", "dehaze", "derain", "desnow", "deblur", "sr"):
        options = RestoreOptions(device="cpu", threads=0, sigma=12.0)
        restorer = load_restorer(task, options)
        stage = ClipRestorer(task, restorer, video, options)
        stage.threads = cores
        clips, workers = stage.at_once()
        count, kind, reason = clips * (stage.length - stage.overlap), "frames", ""
        if restorer.input_kind == "planes":
            tracks = -(-video.height // 16) * (video.width // 16)
            count, kind = clips * -(-tracks // CHUNK), "parts of luma"
        elif workers < cores:
            part = restorer.part_memory(video.height, video.width)
            reason = f"a frame takes {part / 1e9:.1f} GB of {CPU_MEMORY / 1e9:.1f} GB"
        yield f"| {task} | {workers} | {clips} | {count} {kind} | {min(workers, count)} | {reason} |"


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument(
        "works", nargs="*", metavar="TASK", help=f"of {', '.join(WORKS)}"
    )
    parser.add_argument("--busy", type=int, default=2, help="loops")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument(
        "--small", action="store_true", help=f"frames of 1/{SMALL} of the size"
    )
    parser.add_argument("--parts", type=int, metavar="N")
    given = parser.parse_args()
    if unknown := [name for name in given.works if name not in WORKS]:
        parser.error(f"no work named {unknown[0]!r}; there are: {', '.join(WORKS)}")
    names = given.works or list(WORKS)
    os.environ["OMP_NUM_THREADS"] = "1"
    lines = (
        parts(given.parts)
        if given.parts
        else measure(names, given.busy, given.repeat, SMALL if given.small else 1)
    )
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
