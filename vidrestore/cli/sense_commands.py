"""`vidrestore sense` and `vidrestore recover`: a film as a few measurements of each patch, and the film again."""

from __future__ import annotations

from typing import Annotated

import typer

from vidrestore.cli.interrupts import stops_cleanly
from vidrestore.cli.progress import listening
from vidrestore.cli.several_inputs import run_each
from vidrestore.cli.shared_options import (
    Cfr,
    Crf,
    EncoderName,
    Json,
    Lossless,
    Model,
    Overwrite,
    Preset,
    Quiet,
    Settings,
    Threads,
    encoder_options,
    one_use_of_stdout,
)
from vidrestore.options import Precision, RecoverOptions, SenseOptions


def sense(
    source: Annotated[str, typer.Argument(metavar="IN", help="Film, or - for a y4m pipe.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="OUT.safetensors", help="File for the measurements.")],
    rate: Annotated[
        float | None, typer.Option(help="Measurements per pixel: 0.1, 0.2, 0.3, 0.4 or 0.5 with the bundled weights.")
    ] = SenseOptions.rate,
    sigma: Annotated[float, typer.Option(help="Noise to add to the measurements (standard deviation, 0-255 scale).")] = SenseOptions.sigma,
    seed: Annotated[int, typer.Option(help="Draws the noise.")] = SenseOptions.seed,
    model: Model = SenseOptions.model,
    overwrite: Overwrite = SenseOptions.overwrite,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a film by compressed sensing; `vidrestore recover` makes it again. The picture only, no sound."""
    from vidrestore.sensing.sense import sense

    with stops_cleanly(), listening(json, quiet) as on_event:

        def work(source: str) -> int:
            options = SenseOptions(rate, model, sigma, seed, overwrite)  # here, so that what it refuses is an event too
            return sense(source, output, options=options, on_event=on_event).exit_code

        code = run_each([source], work, on_event)
    raise typer.Exit(code)


def recover(
    source: Annotated[str, typer.Argument(metavar="IN.safetensors", help="File that `vidrestore sense` wrote.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="OUT", help="Film to write, or - for a y4m pipe.")],
    model: Model = RecoverOptions.model,
    precision: Annotated[Precision, typer.Option(help="Number format of the model.")] = RecoverOptions.precision,
    threads: Threads = RecoverOptions.threads,
    encoder: EncoderName = None,
    crf: Crf = None,
    preset: Preset = None,
    encoder_option: Settings = None,
    lossless: Lossless = False,
    cfr: Cfr = RecoverOptions.cfr,
    overwrite: Overwrite = RecoverOptions.overwrite,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a film from its measurements, by the weights that measured it. The picture only, no sound."""
    from vidrestore.sensing.recover import recover

    one_use_of_stdout(json, output)
    chosen = encoder_options(encoder, crf, preset, encoder_option, lossless)
    with stops_cleanly(), listening(json, quiet) as on_event:

        def work(source: str) -> int:
            options = RecoverOptions(model, precision, threads, cfr, chosen, overwrite)
            return recover(source, output, options=options, on_event=on_event).exit_code

        code = run_each([source], work, on_event)
    raise typer.Exit(code)
