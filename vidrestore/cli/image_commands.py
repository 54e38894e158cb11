"""`vidrestore dehaze|derain|desnow|deblur`: the same film with better pixels, frame by frame. `vidrestore sr`: four times larger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from vidrestore.cli.restoring import Shared, Steady, Tile, TileOverlap, run_task, with_shared
from vidrestore.options import Input, RestoreOptions


def _image_command(task: str, what: str) -> Callable[..., None]:
    """The command of a task that takes something out of single frames."""

    def command(
        shared: Shared,
        tile: Tile = RestoreOptions.tile,
        tile_overlap: TileOverlap = RestoreOptions.tile_overlap,
        steady: Steady = RestoreOptions.steady,
    ) -> None:
        run_task(task, shared, tile=tile, tile_overlap=tile_overlap, steady=steady)

    command.__name__, command.__doc__ = task, f"Remove {what} from films; everything else stays as it is."
    return with_shared(command)


dehaze = _image_command("dehaze", "haze")
derain = _image_command("derain", "rain")
desnow = _image_command("desnow", "snow")
deblur = _image_command("deblur", "blur of motion or focus")


@with_shared
def sr(
    shared: Shared,
    scale: Annotated[int, typer.Option("--scale", "-x", help="How many times larger, in both directions: 4.")] = RestoreOptions.scale,
    input: Annotated[
        Input, typer.Option("--input", help="compressed: as cameras and the web have it; clean: made small without loss.")
    ] = RestoreOptions.input,
    tile: Tile = RestoreOptions.tile,
    tile_overlap: TileOverlap = RestoreOptions.tile_overlap,
) -> None:
    """Make films four times larger (-x4), with detail from neighbouring frames; sound, timing and colour stay as they are.

    --input picks one of two bundled networks, --model any other.
    """
    run_task("sr", shared, scale=scale, input=input, tile=tile, tile_overlap=tile_overlap)
