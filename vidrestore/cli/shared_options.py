"""Options that several commands share: each is declared once, so that it reads the same everywhere."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vidrestore.cli import parsing

if TYPE_CHECKING:
    from vidrestore.options import EncoderOptions

ENCODING = "Encoding"  # the panel of these options in the help

Json = Annotated[bool, typer.Option("--json", help="Print events as JSON, one per line, on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress; errors are still shown.")]
Model = Annotated[str | None, typer.Option(help="Name from `vidrestore weights list`, or a .safetensors file.")]
Threads = Annotated[int, typer.Option(help="CPU threads, 0 for all.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")]
EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="libx264, libx264rgb, libx265, libsvtav1, libvpx-vp9, prores_ks or ffv1.",
        show_default="as the source, where it can be",
        rich_help_panel=ENCODING,
    ),
]
Crf = Annotated[float | None, typer.Option(help="Quality in the encoder's own scale.", show_default="16", rich_help_panel=ENCODING)]
Preset = Annotated[str | None, typer.Option(help="The encoder's speed.", rich_help_panel=ENCODING)]
Settings = Annotated[
    list[Any] | None,
    typer.Option("--encoder-option", parser=parsing.setting, metavar="KEY=VALUE", help="Handed to the encoder.", rich_help_panel=ENCODING),
]
Lossless = Annotated[bool, typer.Option("--lossless", help="Store the restored pixels exactly.", rich_help_panel=ENCODING)]
Cfr = Annotated[
    Fraction | None,
    typer.Option(parser=parsing.rate, metavar="RATE", help="Constant rate for a pipe, e.g. 30000/1001.", rich_help_panel=ENCODING),
]


def encoder_options(
    encoder: str | None, crf: float | None, preset: str | None, settings: list[Any] | None, lossless: bool
) -> EncoderOptions:
    """What the options of the panel "Encoding" ask for."""
    from vidrestore.options import EncoderOptions

    return EncoderOptions(encoder, crf, preset, dict(settings or ()), lossless)


def one_use_of_stdout(json: bool, output: str | None) -> None:
    """Refuse events and frames on one pipe."""
    if json and output == "-":
        raise typer.BadParameter("--json and -o - both need stdout; leave one out")
