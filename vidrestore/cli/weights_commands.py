"""`vidrestore weights ...`: what there is, whether it is intact, and how more comes in."""

from __future__ import annotations

import typer

app = typer.Typer(help="List, verify, fetch and import model weights.", no_args_is_help=True)


@app.command("list")
def list_weights() -> None:
    """List the weights of the manifest."""
    raise NotImplementedError
