"""`vidrestore bench`: how fast it is here, stage by stage."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vidrestore.cli import parsing
from vidrestore.options import Precision, RestoreOptions, quality

if TYPE_CHECKING:
    from vidrestore.jobs.bench import Benchmark


def bench(
    source: Annotated[str | None, typer.Argument(metavar="[IN]", help="Short film; without one, a noisy film is made up.")] = None,
    task: Annotated[str, typer.Option(help="denoise, dehaze, derain, desnow, deblur or sr.")] = "denoise",
    sigma: Annotated[
        Any,
        typer.Option(
            parser=parsing.noise, metavar="SIGMA|auto", show_default="20; auto where the weights take none", help="As for denoise."
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="As for denoise.")] = False,
    best: Annotated[bool, typer.Option("--best", help="As for denoise.")] = False,
    match: Annotated[bool, typer.Option("--match/--no-match", help="As for denoise.")] = RestoreOptions.match,
    model: Annotated[str | None, typer.Option(help="As for denoise.")] = RestoreOptions.model,
    device: Annotated[str, typer.Option(help="As for denoise.")] = RestoreOptions.device,
    precision: Annotated[Precision, typer.Option(help="As for denoise.")] = RestoreOptions.precision,
    threads: Annotated[int, typer.Option(help="CPU threads, 0 for all.")] = RestoreOptions.threads,
    lossless: Annotated[bool, typer.Option("--lossless/--lossy", help="How the output is encoded.")] = True,
    size: Annotated[Any, typer.Option(parser=parsing.size, metavar="WxH", help="Of the film that is made up.")] = "854x480",
    frames: Annotated[int, typer.Option(min=2, help="Of that film; and how many frames of IN the stages are measured on.")] = 60,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure decode, model, encode and the whole against what this machine can do."""
    from vidrestore.jobs.bench import bench
    from vidrestore.options import EncoderOptions

    options = RestoreOptions(
        sigma=default_sigma(model) if sigma is None else sigma,
        model=model,
        quality=quality(fast, best),
        match=match,
        device=device,
        precision=precision,
        threads=threads,
        encoder=EncoderOptions(lossless=lossless),
    )
    found = bench(source, task=task, options=options, size=size, frames=frames)
    print(jsonlib.dumps(found.to_dict()) if json else "\n".join(lines(found)))


def default_sigma(model: str | None) -> float | Literal["auto"]:
    """Of the film that is made up; "auto" for weights that see by themselves how noisy a frame is."""
    from vidrestore.jobs.bench import NOISE
    from vidrestore.restorers.mb_taylorformer_restorer import FAMILY
    from vidrestore.weights import family_of

    return "auto" if model is not None and family_of(model) == FAMILY else NOISE


def lines(found: Benchmark) -> Iterator[str]:
    """The table that a person reads."""
    peaks = ", ".join(f"{name} {value / 1e9:.0f}" for name, value in found.peaks.items())
    yield f"{found.model} on {found.source}, {found.cores} cores; matrix products, 10^9 operations per second: {peaks}"
    yield "stage      CPU ms/frame   fps alone"
    for stage in (*found.stages, found.whole):
        yield f"{stage.name:<9} {1e3 * stage.cpu:>13.2f} {1 / stage.seconds:>11.1f}"
    total = sum(stage.cpu for stage in found.stages)
    bound = f"{found.cores} / {1e3 * total:.2f} ms = {found.bound:.1f} fps"
    yield f"whole: {found.fps:.1f} fps, {found.share:.0%} of cores / sum of the stages ({bound})"
    if found.network is not None:
        rate = f"{found.network.operations / 1e9:.0f} * 10^9 operations per second"
        yield f"network alone: {rate}, {found.network_share:.0%} of the peak of {found.network.numbers} products"
    memory = f"{found.memory / 1e6:.0f} MB" if found.memory else "unknown"
    yield f"peak memory {memory}; loading the model {found.loading:.2f} s"
