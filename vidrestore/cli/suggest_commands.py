"""`vidrestore suggest`: look at a video and print commands for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from vidrestore.cli.command_options import Json, Quiet
from vidrestore.cli.progress import listening
from vidrestore.cli.terminal import say, show, show_json

if TYPE_CHECKING:
    from vidrestore.jobs.suggestion import Suggestion


def suggest(
    source: Annotated[str, typer.Argument(metavar="IN", help="Video, photo or folder of pictures.")],
    sheet: Annotated[
        str | None,
        typer.Option(
            "--sheet", metavar="F.html|F.png", help="Restore a few frames in variants, side by side."
        ),
    ] = None,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or mps.")] = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for noise, interlacing, haze, rain, snow and blur at a few places, and print commands to try.

    "maybe" and "unknown" are for your eyes: look at a --sheet, or a --preview.

    Examples:
      vidrestore suggest in.mp4
      vidrestore suggest in.mp4 --sheet variants.html
    """
    from vidrestore.evaluation.variants import check_sheet, write_sheet
    from vidrestore.jobs.suggestion import suggest
    from vidrestore.options import RestoreOptions

    if sheet is not None:
        check_sheet(sheet)
    options = RestoreOptions(device=device)
    with listening(json, quiet) as on_event:
        found, places = suggest(source, options, on_event if not json else lambda event: None)
        if sheet is not None:
            names = write_sheet(sheet, found, places, options)
    if json:
        show_json(found.to_dict())
    else:
        show(*lines(found))
    if sheet is not None and not (json or quiet):
        say(f"in {sheet}, from left to right: {', '.join(names)}")


def lines(found: Suggestion) -> Iterator[str]:
    """Yield the lines of the report for a reader."""
    yield f"{found.info.path}:"
    for each in found.findings:
        yield f"  {each.name:<13} {each.verdict:<8} {each.reason}"
    yield "try:" if found.commands else "nothing to try"
    for command in found.commands:
        yield f"  {command.line}"
        yield f"      {command.reason}"
