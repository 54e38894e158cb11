"""`vidrestore bench`: measure the speed on this machine, stage by stage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vidrestore import option_values
from vidrestore.cli.command_options import with_options
from vidrestore.cli.progress import listening
from vidrestore.cli.terminal import print_line, show, show_json
from vidrestore.event_log import counted_words
from vidrestore.events import Progressed
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.tasks import TASKS

if TYPE_CHECKING:
    from vidrestore.jobs.bench import Benchmark

OFFERED = ("quality", "model", "device", "precision", "threads")


@with_options(lambda name, option: name in OFFERED)
def bench(
    options: RestoreOptions,
    source: Annotated[
        str | None, typer.Argument(metavar="[IN]", help="Short video; default: a synthetic one with noise.")
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK",
            help=f"{', '.join(TASKS)}.",
            autocompletion=lambda: list(TASKS),
        ),
    ] = "denoise",
    sigma: Annotated[
        Any,
        typer.Option(
            parser=option_values.noise,
            metavar="SIGMA|auto",
            show_default="20; auto if the weights take none",
            help="Noise level, as for denoise.",
        ),
    ] = None,
    lossless: Annotated[
        bool, typer.Option("--lossless/--lossy", help="Encode as usual instead of without loss.")
    ] = True,
    size: Annotated[
        Any, typer.Option(parser=option_values.size, metavar="WxH", help="Size of the synthetic video.")
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
    json: Annotated[bool, typer.Option("--json", help="Print the metrics as one JSON object.")] = False,
) -> None:
    """Measure each stage alone, and the whole against what all cores could do.

    Examples:
      vidrestore bench
      vidrestore bench --task sr --size 320x180 --frames 12
    """
    from vidrestore.jobs.bench import bench

    bench_options = replace(
        options,
        sigma=default_sigma(options.model) if sigma is None else sigma,
        encoder=EncoderOptions(lossless=lossless),
    )
    if not json:
        print_line("measuring each stage alone and the whole: about a minute", sys.stderr)
    with listening(quiet=json) as on_event:
        on_event(Progressed(source or task, 0, stage="bench"))
        benchmark = bench(source, task=task, options=bench_options, size=size, frames=frames)
    if json:
        show_json(benchmark.to_dict())
    else:
        show(*lines(benchmark))


def default_sigma(model: str | None) -> float | Literal["auto"]:
    """Return the noise of the generated video; "auto" for weights that take none."""
    from vidrestore.jobs.bench import NOISE
    from vidrestore.restorers.task_weights import takes_sigma
    from vidrestore.weights import card_of

    return NOISE if model is None or takes_sigma(card_of(model)) else "auto"


def lines(benchmark: Benchmark) -> Iterator[str]:
    """Yield the lines of the table for a reader."""
    yield f"{benchmark.model} on {benchmark.source}, {counted_words(benchmark.cores, 'core')}"
    yield "stage      CPU ms/frame   fps alone"
    for stage in (*benchmark.stages, benchmark.whole):
        yield f"{stage.name:<9} {1e3 * stage.cpu:>13.2f} {1 / stage.seconds:>11.1f}"
    total = sum(stage.cpu for stage in benchmark.stages)
    bound = f"{benchmark.cores} / {1e3 * total:.2f} ms = {benchmark.bound:.1f} fps"
    yield f"whole: {benchmark.fps:.1f} fps, {benchmark.share:.0%} of cores / sum of the stages ({bound})"
    memory = f"{benchmark.memory / 1e6:.0f} MB" if benchmark.memory else "unknown"
    yield f"peak memory {memory}; loading the model {benchmark.loading:.2f} s"
