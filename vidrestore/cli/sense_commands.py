"""`vidrestore sense` and `vidrestore recover`: measure a video by compressed sensing, and recover it."""

from __future__ import annotations

from typing import Annotated

import typer

from vidrestore.cli.command_options import Json, Quiet, one_use_of_stdout, with_options
from vidrestore.cli.inputs import run_each, stops_cleanly
from vidrestore.cli.progress import listening
from vidrestore.options import RecoverOptions, SenseOptions


@with_options()
def sense(
    source: Annotated[str, typer.Argument(metavar="IN", help="Video, or - for a y4m pipe.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT.safetensors", help="File for the measurements.")
    ],
    options: SenseOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a video by compressed sensing; `recover` reconstructs it. Pictures only, no sound.

    Examples:
      vidrestore sense in.mp4 --rate 0.2 -o m.safetensors
      vidrestore sense in.mp4 --rate 0.5 --sigma 2 -o m.safetensors
      vidrestore recover m.safetensors -o out.mp4
    """
    from vidrestore.sensing.sense import sense

    with stops_cleanly(), listening(json, quiet) as on_event:

        def work(source: str) -> int:
            return sense(source, output, options=options, on_event=on_event).exit_code

        code = run_each([source], work, on_event)
    raise typer.Exit(code)


@with_options()
def recover(
    source: Annotated[
        str, typer.Argument(metavar="IN.safetensors", help="File that `vidrestore sense` wrote.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="Video to write, or - for a y4m pipe.")
    ],
    options: RecoverOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reconstruct a video from its measurements, with the weights that measured it. Pictures only, no sound.

    Examples:
      vidrestore recover m.safetensors -o out.mp4
      vidrestore recover m.safetensors -o out.mkv --lossless
      vidrestore recover m.safetensors -o - | ffplay -
    """
    from vidrestore.sensing.recover import recover

    one_use_of_stdout(json, output)
    with stops_cleanly(), listening(json, quiet) as on_event:

        def work(source: str) -> int:
            return recover(source, output, options=options, on_event=on_event).exit_code

        code = run_each([source], work, on_event)
    raise typer.Exit(code)
