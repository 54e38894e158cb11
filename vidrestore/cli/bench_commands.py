"""`vidrestore bench`: measure the speed on this machine, stage by stage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vidrestore.cli.command_options import with_options
from vidrestore.cli.progress import listening
from vidrestore.cli.terminal import print_line, show, show_json
from vidrestore.event_log import counted_words
from vidrestore.events import Progressed
from vidrestore.settings import option_values
from vidrestore.settings.options import RestoreOptions
from vidrestore.settings.tasks import TASKS

if TYPE_CHECKING:
    from vidrestore.jobs.bench import Benchmark

OFFERED = ("sigma", "quality", "model", "lossless", "device", "precision", "threads")


@with_options(lambda name, option: name in OFFERED)
def bench(
    options: RestoreOptions,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="IN", help="Short video; default: a synthetic one with noise."
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK",
            help=f"{', '.join(TASKS)}.",
            autocompletion=lambda: list(TASKS),
        ),
    ] = "denoise",
    size: Annotated[
        Any,
        typer.Option(
            parser=option_values.size,
            metavar="WxH",
            help="Size of the synthetic video.",
        ),
    ] = "854x480",
    frames: Annotated[
        int,
        typer.Option(
            min=2,
            max=100_000,
            metavar="N",
            help="Frames of the synthetic video, or of IN to measure stages on.",
        ),
    ] = 60,
    json: Annotated[
        bool, typer.Option("--json", help="Print the metrics as one JSON object.")
    ] = False,
) -> None:
    """Measure each stage alone, and the whole against what all cores could do.

    Examples:
      vidrestore bench
      vidrestore bench --task sr --size 320x180 --frames 12
    """
    from vidrestore.jobs.bench import bench

    if not json:
        print_line(
            "measuring each stage alone and the whole: about a minute", sys.stderr
        )
    with listening(quiet=json) as on_event:
        on_event(Progressed(source or task, 0, stage="bench"))
        benchmark = bench(source, task=task, options=options, size=size, frames=frames)
    if json:
        show_json(benchmark.to_dict())
    else:
        show(*lines(benchmark))


def lines(benchmark: Benchmark) -> Iterator[str]:
    """Yield the lines of the table for a reader."""
    yield f"{benchmark.model} on {benchmark.source}, {counted_words(benchmark.cores, 'core')}"
    yield "stage      CPU ms/frame   fps alone"
    for stage in (*benchmark.stages, benchmark.whole):
        yield f"{stage.name:<9} {1e3 * stage.cpu:>13.2f} {1 / stage.seconds:>11.1f}"
    # the bound of a machine that does nothing but the stages' work
    total = sum(stage.cpu for stage in benchmark.stages)
    bound = f"{benchmark.cores} / {1e3 * total:.2f} ms = {benchmark.bound:.1f} fps"
    yield f"whole: {benchmark.fps:.1f} fps, {benchmark.share:.0%} of cores / sum of the stages ({bound})"
    memory = f"{benchmark.memory / 1e6:.0f} MB" if benchmark.memory else "unknown"
    yield f"peak memory {memory}; loading the model {benchmark.loading:.2f} s"
