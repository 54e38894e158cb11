"""Options that several kinds of command share, each declared once so that it reads the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from vidrestore.options import OUTPUT, OVERWRITE, Declared

JSON = Declared("Print events as JSON, one per line, on stdout.", OUTPUT)
QUIET = Declared("Print nothing but errors.", OUTPUT, ("--quiet", "-q"))

Json = Annotated[bool, typer.Option("--json", help=JSON.help)]
Quiet = Annotated[bool, typer.Option(*QUIET.flags, help=QUIET.help)]
Overwrite = Annotated[bool, typer.Option(*OVERWRITE.flags, help=OVERWRITE.help)]


def one_use_of_stdout(json: bool, output: str | None) -> None:
    """Raise BadParameter if both events and frames would go to stdout."""
    if json and output == "-":
        raise typer.BadParameter("--json and -o - both need stdout; leave one out")
