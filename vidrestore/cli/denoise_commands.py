"""`vidrestore denoise`: the same film with less noise."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from vidrestore.cli import parsing
from vidrestore.cli.restoring import Shared, Steady, Tile, TileOverlap, run_task, with_shared
from vidrestore.options import RestoreOptions, quality


@with_shared
def denoise(
    shared: Shared,
    sigma: Annotated[
        Any, typer.Option(parser=parsing.noise, metavar="SIGMA|auto", help="Noise (standard deviation, 0-255 scale), or measure it.")
    ] = RestoreOptions.sigma,
    fast: Annotated[bool, typer.Option("--fast", help="Faster, a little less clean.")] = False,
    best: Annotated[bool, typer.Option("--best", help="Cleaner, slower.")] = False,
    match: Annotated[
        bool, typer.Option("--match/--no-match", help="Follow motion, or compare the same place in every frame.")
    ] = RestoreOptions.match,
    chroma_strength: Annotated[
        float | None,
        typer.Option("--chroma-strength", metavar="0..1", show_default="as --strength", help="Mix of the colour differences."),
    ] = RestoreOptions.chroma_strength,
    grain: Annotated[
        float, typer.Option("--grain", metavar="N", help="Add even grain of this standard deviation afterwards (0-255 scale).")
    ] = RestoreOptions.grain,
    tile: Tile = RestoreOptions.tile,
    tile_overlap: TileOverlap = RestoreOptions.tile_overlap,
    steady: Steady = RestoreOptions.steady,
) -> None:
    """Remove noise from films; everything else stays as it is.

    Tiles and --steady are for networks that see whole frames (mb-taylorformer); sigma, --fast, --best and matching for DUST.
    """
    own = {"tile": tile, "tile_overlap": tile_overlap, "steady": steady}
    run_task("denoise", shared, sigma=sigma, quality=quality(fast, best), match=match, chroma_strength=chroma_strength, grain=grain, **own)
