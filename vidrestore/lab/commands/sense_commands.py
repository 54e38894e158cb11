"""`vidrestore sense` and `vidrestore recover`: measure a video by compressed sensing, and recover it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from vidrestore.cli.command_options import Json, Quiet, one_use_of_stdout, with_options
from vidrestore.cli.inputs import run_each
from vidrestore.cli.progress import listening
from vidrestore.lab.sensing.sensing_options import RecoverOptions, SenseOptions

if TYPE_CHECKING:
    from vidrestore.events import Summary


@with_options()
def sense(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Video, or - for a y4m pipe.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.safetensors",
            help="File for the measurements.",
        ),
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
    from vidrestore.lab.sensing.sense import sense

    _run(partial(sense, output=output, options=options), source, json, quiet)


@with_options()
def recover(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN.safetensors", help="File that `vidrestore sense` wrote."
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="OUT", help="Video to write, or - for a y4m pipe."
        ),
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
    from vidrestore.lab.sensing.recover import recover

    one_use_of_stdout(json, output)
    _run(partial(recover, output=output, options=options), source, json, quiet)


def _run(
    work: Callable[..., Summary], source: str, json: bool, quiet: bool
) -> NoReturn:
    """Measure or recover one video, and exit with the code."""
    with listening(json, quiet) as on_event:
        code = run_each(
            [source], lambda path: work(path, on_event=on_event).exit_code, on_event
        )
    raise typer.Exit(code)
