"""Count what a step of training on resident data launches and moves, and predict its rate on an H100; or time
steps on this CPU, with plain and with resident data in turn.

    python examples/experiments/training_rate.py count examples/train/half-hour/*.toml
    python examples/experiments/training_rate.py time examples/train/vsr-transformer-n-x4.toml --steps 6

Counted on the stand-in of the tests, without values, with data of made-up sizes. In the model a kernel of a
CUDA graph takes the longest of FLOOR, its bytes at the memory's speed, and its products at the processors';
nothing is fused by a compiler, and nothing stays in a cache. None of it was measured on a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))

from stand_in import EMPTY, Rehearsal, _bytes_of, flop_registry

from vidrestore.files.user_folders import user_folder
from vidrestore.frames import ColourTags, PixelFormat
from vidrestore.training.config import RunConfig, read_config
from vidrestore.training.data import sources
from vidrestore.training.data.footage import PHOTO_CODING, shot_of
from vidrestore.training.data.planes import PlaneSource, Shot
from vidrestore.training.loop import Run
from vidrestore.training.step import ResidentStep

FLOOR = 2.5e-6  # seconds; the shortest kernel of a graph
# Shares of an H100's data sheet that programs reach: bytes per second, products per second in bfloat16.
BANDWIDTH, BF16 = 0.75 * 3350e9, 0.4 * 989e12
FP32 = 30e12  # products per second in float32, about half of the data sheet's


class Model:
    """Adds up the `seconds` that launches would take on the card."""

    seconds = 0.0
    count = Rehearsal.count_launch

    @classmethod
    def count_launch(cls, func: Any, given: tuple[Any, Any], result: Any) -> None:
        cls.count(func, given, result)
        formula = flop_registry.get(func._overloadpacket)
        products = formula(*given[0], **given[1], out_val=result) if formula else 0
        made = result[0] if isinstance(result, list | tuple) and result else result
        half = isinstance(made, torch.Tensor) and made.dtype == torch.bfloat16
        moved = _bytes_of(func, given, result) / BANDWIDTH
        cls.seconds += max(FLOOR, moved, products / (BF16 if half else FP32))


def made_up() -> Iterator[Shot]:
    """Yield a clip of 480p and a photo, with nothing in them."""
    format, tags = PixelFormat("yuv420p", "yuv", 8, 1, 1), ColourTags(matrix=1, range=1, chroma_location=1)
    clip = [torch.zeros(80, 480 // part, 854 // part, dtype=torch.uint8) for part in (1, 2, 2)]
    yield shot_of(Path("clip"), False, tuple(clip), (format, tags))
    photo = [torch.zeros(1, 768, 1024, dtype=torch.uint8) for _ in range(3)]
    yield shot_of(Path("photo"), True, tuple(photo), PHOTO_CODING)


def counted(config: RunConfig) -> str:
    """Return a row: launches of a step and of its data alone, gigabytes, predicted milliseconds and rate."""
    with (
        patch.object(Rehearsal, "count_launch", Model.count_launch),
        Rehearsal(free=70 << 30, processors=132) as device,
        tempfile.TemporaryDirectory() as folder,
    ):
        run = Run(config, Path(folder), EMPTY)
        source, _ = sources.load(config.kind.source)(config, _Footage(), None, run.network)
        assert isinstance(source, PlaneSource)
        step = ResidentStep(run.take_step, source, config.training.batch, 0)
        rows = []
        for act in (step, lambda: source.draw(step.number, step.size), step):
            device.counts.clear()
            device.launches = device.touched = 0
            Model.seconds = 0.0
            act()
            rows.append((device.launches, device.touched / 1e9, 1e3 * Model.seconds))
        waits = sum(device.counts[name] for name in ("values read", "sized by values", "blocking copies"))
    (drawn, _, drawing), (launches, gigabytes, ms) = rows[1:]
    rate = 1e3 * config.training.batch / ms
    return (
        f"| {config.name} | {config.training.batch} | {launches} | {drawn} | {waits} | {gigabytes:.1f} "
        f"| {ms:.1f} | {drawing:.1f} | {rate:.0f} |"
    )


class _Footage:
    still_share = 0.5
    shots = staticmethod(made_up)


def timed(config: RunConfig, steps: int) -> str:
    """Return a row: median CPU seconds of a step with plain and with resident data, taken in turn."""
    reading = sources.Reading(user_folder("cache"))
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for resident in (False, True):
            own = replace(config, data=replace(config.data, resident=resident, reuse=1))
            run = Run(own, Path(folder), torch.device("cpu"))
            source, _ = sources.make_data(own, run.network, reading)
            if isinstance(source, PlaneSource) and source.resident:
                source.batch(0, 1)
                run.resident_step = ResidentStep(run.take_step, source, own.training.batch, 0)
            runs[resident] = run, source, []
        for step in range(steps + 1):
            for resident, (run, source, seconds) in runs.items():
                began = time.process_time()
                run.update(*(() if resident else source.batch(step, config.training.batch)))
                run.read()
                seconds.append(time.process_time() - began)
        plain, own = (statistics.median(runs[resident][2][1:]) for resident in (False, True))
    return f"| {config.name} | {config.training.batch} | {plain:.2f} | {own:.2f} | {plain / own:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["count", "time"])
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "count":
        print("| run | batch | launches | of them data | waits | GB | ms | of them data | samples/s |")
        print("|---|---|---|---|---|---|---|---|---|")
    else:
        print("| run | batch | plain, CPU s | resident, CPU s | times |\n|---|---|---|---|---|")
    for path in arguments.configs:
        config = read_config(path, arguments.set)
        row = counted(config) if arguments.what == "count" else timed(config, arguments.steps)
        print(row, flush=True)


if __name__ == "__main__":
    main()
